# SPDX-License-Identifier: MIT
# Each kernel takes nvcc half a minute: the specs have a file each.
tilewave_entries(mla_decode SOURCES 5 TOGETHER ROWS)
