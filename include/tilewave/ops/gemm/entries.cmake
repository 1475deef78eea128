# SPDX-License-Identifier: MIT
# In GPU rooms each spec has a file, or several: a kernel takes nvcc some five seconds.
tilewave_entries(gemm SOURCES 6 POLICY_SOURCES 4 HOST_SOURCES 1)
tilewave_entries(gemm_feature HEADER specs/features.hpp SOURCES 13 POLICY_SOURCES 2 HOST_SOURCES 1)
tilewave_entries(gemm_grouped HEADER specs/grouped.hpp SOURCES 4 TOGETHER)
tilewave_entries(gemm_gated HEADER specs/gated.hpp SOURCES 7 TOGETHER)
tilewave_entries(gemm_int4 HEADER specs/int4.hpp SOURCES 8 POLICY_SOURCES 2 TOGETHER)
tilewave_entries(gemm_int4_wide HEADER specs/int4.hpp SOURCES 6 HOST_SOURCES 1 TESTS)  # for the label full
tilewave_entries(gemm_mx HEADER specs/mx.hpp TOGETHER)
# bench_moe runs these, and bench_gemm does not.
tilewave_entries(gemm_moe HEADER specs/moe.hpp TOGETHER SOURCES 6 TESTS)
tilewave_entries(gemm_moe_wide HEADER specs/moe.hpp SOURCES 4 HOST_SOURCES 2 TESTS)  # for bench_moe_wide and the label full
