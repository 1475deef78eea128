# SPDX-License-Identifier: MIT
tilewave_entries(kv_cache_write ROWS)
tilewave_entries(kv_cache_write_latent HEADER latent_specs.hpp ROWS TESTS)  # for the label full
