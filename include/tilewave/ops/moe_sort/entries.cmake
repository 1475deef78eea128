# SPDX-License-Identifier: MIT
tilewave_entries(moe_sort ROWS)
