#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_moe_sort on the emulated device. Usage: moe_sort_csv_test.py BENCH_MOE_SORT"""
import re

import contract
import op_contract

IDENTITY = "kind arch experts unit local columns rows config_rows seed threads batch cluster most_blocks tiles_alone many_threads turns waves_per_simd".split()
NAME = re.compile(r"(?P<kind>moe_sort)/(?P<arch>gfx942|gfx950|sm90)/k(?P<columns>\d+)/r(?P<rows>\d+)/e(?P<experts>\d+)"
                  r"/u(?P<unit>\d+)/local(?P<local>\d+)/(?P<policy>t(?P<threads>\d+)\.m(?P<many_threads>\d+)\.r(?P<turns>\d+)\.a(?P<tiles_alone>\d+)"
                  r"(\.c(?P<cluster>\d+))?)")


def work(row):
    """Bytes and operations of a row."""
    topk, tokens, experts, unit = (int(row[column]) for column in ("columns", "rows", "experts", "unit"))
    choices = topk * tokens
    capacity = (choices + min(choices, experts) * (unit - 1)) // unit * unit
    mask = 4 * experts if int(row["local"]) < 100 else 0
    return 12 * choices + mask + 8 * capacity + 4 * (capacity // unit) + 8 * experts + 12, 2 * choices


class Csv(op_contract.OpContract):
    identity, name, rows = IDENTITY, NAME, 27
    few, few_rows = ["--benchmark_filter=/r(1|7|31)/"], 5

    def named(self, match):
        return {"cluster": match["cluster"] or "1"}

    def work(self, row, match):
        return work(row)

    def test_default_sweep(self):
        rows = self.good_rows()
        self.assertEqual([int(row["config_id"]) for row in rows], list(range(self.rows)))
        self.assertEqual({(row["max_abs_err"], row["arch"]) for row in rows}, {("0", "gfx950")})

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("more choices than experts", self.refuses("--config=k8/r4/e4"))
        self.assertIn("topk must be 1 to 16", self.refuses("--config=k17/r4/e64"))

    def test_a_models_decode_step(self):
        self.check_step([("4", "1", "128"), ("4", "64", "128")], ["columns", "rows", "experts"], "--batch=1,64", model="gpt-oss-120b")
        self.assertIn("no call of this op", self.refuses("--model=llama3-70b"))


if __name__ == "__main__":
    contract.main("BENCH_MOE_SORT")
