# SPDX-License-Identifier: MIT
tilewave_entries(latent_cache_write ROWS)
