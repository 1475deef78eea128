# SPDX-License-Identifier: MIT
tilewave_entries(sampling ROWS)
