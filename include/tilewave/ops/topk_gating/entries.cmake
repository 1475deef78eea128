# SPDX-License-Identifier: MIT
tilewave_entries(topk_gating ROWS)
