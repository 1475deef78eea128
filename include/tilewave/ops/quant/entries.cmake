# SPDX-License-Identifier: MIT
tilewave_entries(quant SOURCES 6 HOST_SOURCES 1 ROWS)
