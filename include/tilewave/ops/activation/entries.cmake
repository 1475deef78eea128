# SPDX-License-Identifier: MIT
tilewave_entries(activation ROWS)
