# SPDX-License-Identifier: MIT
tilewave_entries(flash_attention SOURCES 8 TOGETHER)
tilewave_entries(flash_attention_feature HEADER specs/features.hpp TESTS)
tilewave_entries(flash_attention_wide HEADER specs/features.hpp SOURCES 4 TESTS)  # for the label full
