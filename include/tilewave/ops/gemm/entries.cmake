# SPDX-License-Identifier: MIT
tilewave_entries(gemm SOURCES 5 HOST_SOURCES 1)
tilewave_entries(gemm_feature HEADER feature_specs.hpp SOURCES 3 HOST_SOURCES 1)
tilewave_entries(gemm_grouped HEADER grouped_specs.hpp SOURCES 2 HOST_SOURCES 1)
tilewave_entries(gemm_gated HEADER gated_specs.hpp SOURCES 2 HOST_SOURCES 1)
tilewave_entries(gemm_int4 HEADER int4_specs.hpp HOST_SOURCES 1)
tilewave_entries(gemm_mx HEADER mx_specs.hpp HOST_SOURCES 1)
