# SPDX-License-Identifier: MIT
tilewave_entries(rope ROWS)
