# SPDX-License-Identifier: MIT
tilewave_entries(gemm SOURCES 5 HOST_SOURCES 1)
tilewave_entries(gemm_feature HEADER specs/features.hpp SOURCES 3 HOST_SOURCES 1)
tilewave_entries(gemm_grouped HEADER specs/grouped.hpp SOURCES 2 HOST_SOURCES 1)
tilewave_entries(gemm_gated HEADER specs/gated.hpp SOURCES 2 HOST_SOURCES 1)
tilewave_entries(gemm_int4 HEADER specs/int4.hpp HOST_SOURCES 1)
tilewave_entries(gemm_int4_wide HEADER specs/int4.hpp HOST_SOURCES 1 TESTS)  # for the label full
tilewave_entries(gemm_mx HEADER specs/mx.hpp HOST_SOURCES 1)
# bench_moe runs these, and bench_gemm does not.
tilewave_entries(gemm_moe HEADER specs/moe.hpp HOST_SOURCES 1 SOURCES 2 TESTS)
