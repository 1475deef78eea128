# SPDX-License-Identifier: MIT
tilewave_entries(softmax SOURCES 3 HOST_SOURCES 1 ROWS)
