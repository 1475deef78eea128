# SPDX-License-Identifier: MIT
tilewave_entries(quant SOURCES 6 TOGETHER ROWS)
