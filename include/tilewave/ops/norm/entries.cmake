# SPDX-License-Identifier: MIT
tilewave_entries(norm SOURCES 5 HOST_SOURCES 1 ROWS)
tilewave_entries(norm_wide HEADER wide_specs.hpp SOURCES 2 ROWS TESTS)  # for the label full
