# SPDX-License-Identifier: MIT
tilewave_entries(kv_cache_write)
tilewave_entries(kv_cache_write_latent HEADER latent_specs.hpp TESTS)  # for the label full
