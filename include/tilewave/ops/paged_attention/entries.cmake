# SPDX-License-Identifier: MIT
tilewave_entries(paged_attention SOURCES 9 HOST_SOURCES 1)
tilewave_entries(paged_attention_feature HEADER specs/features.hpp SOURCES 10 TOGETHER)
tilewave_entries(paged_attention_native HEADER specs/features.hpp SOURCES 2 TOGETHER)
tilewave_entries(paged_attention_score HEADER specs/scores.hpp SOURCES 4 TOGETHER)
tilewave_entries(paged_attention_wide HEADER specs/features.hpp SOURCES 7 TESTS)  # for the label full
tilewave_entries(paged_attention_written HEADER specs/features.hpp TESTS)  # for the label full
