# SPDX-License-Identifier: MIT
tilewave_entries(softmax SOURCES 3 TOGETHER ROWS)
