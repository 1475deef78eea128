# SPDX-License-Identifier: MIT
tilewave_entries(attention_combine SOURCES 2 TOGETHER ROWS)
