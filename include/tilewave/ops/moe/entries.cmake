# SPDX-License-Identifier: MIT
tilewave_entries(moe)
tilewave_entries(moe_wide TOGETHER TESTS)  # for bench_moe_wide and the label full
