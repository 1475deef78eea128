#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_moe, and of bench_moe_wide, on the emulated device. Usage: moe_csv_test.py BENCH_MOE"""
import os
import re
import sys

import contract
import op_contract
from contract import every, run

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/peers"))
import common  # noqa: E402
import moe_configs  # noqa: E402

IDENTITY = ("kind arch x_dtype weight_dtype scale group zero_points preshuffled intermediate experts topk weight load stage columns rows "
            "config_rows experts_hit seed results").split()
NAME = re.compile(r"(?P<kind>moe)/(?P<arch>gfx942|gfx950|sm90)/(?P<x>bf16)/(?P<w>bf16|fp8|fp4_e2m1|i4)(\.(?P<scale>block|group)(?P<group>\d+)?)?"
                  r"(?P<zeros>\.zeros)?(?P<strips>\.preshuffled)?/c(?P<columns>\d+)/r(?P<rows>\d+)(of(?P<config_rows>\d+))?/i(?P<intermediate>\d+)/e(?P<experts>\d+)/k(?P<topk>\d+)(/(?P<weight>input))?"
                  r"/(?P<load>balanced|random|zipf|one)/(?P<stage>layer|gating|sort|quant_x|first|second|sum)"
                  r"/(?P<results>rows(\.copied|\.together|\.beside_x)?(\.f32_h)?|slots)")


def work(row):
    """Bytes and operations of a row: weights of the experts that are hit, and what a stage moves of tokens and choices."""
    hidden, intermediate, tokens, topk, experts, hit = (
        int(row[column]) for column in ("columns", "intermediate", "rows", "topk", "experts", "experts_hit"))
    choices, values = tokens * topk, hit * hidden * intermediate
    weight = 1 if row["weight_dtype"].startswith("fp8") else 2  # of rows of h, too, beside MXFP4
    of_group = 1 if row["weight_dtype"] == "fp4_e2m1" else 2 + int(row["zero_points"])
    second = values // 2 + values // int(row["group"]) * of_group if row["scale"] == "per_group" else values * weight
    product = 2 * hidden * intermediate * choices
    return {"layer": (2 * tokens * experts + 4 * tokens * hidden + 3 * second, 3 * product),
            "gating": (2 * tokens * experts + 8 * choices, tokens * experts),
            "sort": (16 * choices, 2 * choices),
            "quant_x": (3 * tokens * hidden, 2 * tokens * hidden),
            "first": (2 * second + tokens * hidden * weight + choices * intermediate * weight, 2 * product),
            "second": (second + choices * (intermediate * weight + 2 * hidden), product),
            "sum": (2 * (choices + tokens) * hidden, 2 * choices * hidden)}[row["stage"]]


def wide():
    return contract.tool() == "bench_moe_wide"


class Csv(op_contract.OpContract):
    identity, name = IDENTITY, NAME
    rows = property(lambda self: 81 if wide() else 36)
    few, few_rows = ["--benchmark_filter=/(bf16|fp8.block)/c256/r1/.*/layer"], 2
    fewest = ["--benchmark_filter=/r1/"]

    def named(self, match):
        group = match["group"] or ("32" if match["w"] == "fp4_e2m1" else "0")
        return {"scale": "per_" + match["scale"] if match["scale"] else "none", "weight": match["weight"] or "output", "group": group,
                "zero_points": str(int(bool(match["zeros"]))), "preshuffled": str(int(bool(match["strips"])))}

    def policy_of(self, match):
        return match["results"]

    def work(self, row, match):
        return work(row)

    def check_row(self, row, match):
        choices, experts, topk = int(row["rows"]) * int(row["topk"]), int(row["experts"]), int(row["topk"])
        hit = int(row["experts_hit"])
        self.assertLessEqual(topk, hit)
        self.assertLessEqual(hit, min(experts, choices))
        if row["load"] == "one":
            self.assertEqual(hit, topk)
        if row["load"] == "balanced":
            self.assertEqual(hit, min(experts, choices))

    def test_default_sweep(self):
        rows = self.good_rows(every(3))
        self.assertEqual(len(rows), self.rows if contract.all_rows else self.rows // 3)
        self.assertEqual({row["arch"] for row in rows}, {"gfx950"})

    def test_mxfp4_on_sm90(self):
        rows = self.good_rows("--arch=sm90", "--benchmark_filter=/fp4")
        self.assertEqual([(row["weight_dtype"], row["scale"]) for row in rows], [("fp4_e2m1", "per_group")] * 4)

    def test_wide_layers(self):
        if not wide():
            self.skipTest("bench_moe has the layers of the slice alone")
        of_cdna = {("i4", "32", "0", "0"), ("i4", "128", "1", "0"), ("fp4_e2m1", "32", "0", "0"), ("bf16", "0", "0", "1")}
        for arch, kinds in (("gfx942", of_cdna | {("fp8_e4m3fnuz", "0", "0", "1")}), ("gfx950", of_cdna | {("fp8_e4m3fn", "0", "0", "1")}),
                            ("sm90", {("i4", "32", "0", "0"), ("i4", "128", "1", "0")})):
            rows = self.good_rows(f"--arch={arch}", "--benchmark_filter=/(i4|fp4|.*preshuffled)" if arch != "sm90" else "--benchmark_filter=/i4")
            self.assertEqual({(row["weight_dtype"], row["group"], row["zero_points"], row["preshuffled"]) for row in rows}, kinds)
        row, = self.good_rows("--config=bf16/i4.group128.zeros/c384/r5/i256/e4/k2/zipf")
        self.assertEqual((row["group"], row["zero_points"], row["load"]), ("128", "1", "zipf"))
        self.assertIn("no multiple of group", self.refuses("--config=bf16/i4.group128/c192/r4/i128/e4/k2"))
        self.assertIn("says scale twice", self.refuses("--config=bf16/i4.group128.block/c256/r4/i128/e4/k2"))

    def test_both_policies(self):
        names = run("--benchmark_list_tests", "--policies=all", *self.few).stdout.splitlines()
        self.assertEqual([NAME.match(name)["results"] for name in names], ["rows.together", "rows", "slots"] * 2)

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("more choices than experts", self.refuses("--config=bf16/bf16/c256/r4/i128/e4/k5"))
        self.assertIn("quantises no x", self.refuses("--config=bf16/bf16/c256/r4/i128/e4/k2/quant_x"))

    def test_a_models_decode_step(self):
        self.check_step([("fp8", "7168", "1", "256"), ("fp8", "7168", "64", "256")], ["w", "columns", "rows", "experts"], "--batch=1,64")
        self.assertIn("no call of this op", self.refuses("--model=llama3-70b"))

    def test_peers_time_the_same(self):
        rows = self.good_rows("--benchmark_filter=bf16/bf16/", every(4))
        for row in rows:
            key = common.key_of(row["name"])
            c = moe_configs.config_of(key)
            self.assertEqual(c.left_out, "")
            self.assertEqual(str(c.bytes_ideal(int(row["experts_hit"]))), row["bytes_ideal"], key)
            own = dict(zip(moe_configs.COLUMNS, moe_configs.row_of(key, c, row["arch"], "x", [2.0], [1.0], (True, 0.25, 3))))
            for column in set(own) & set(IDENTITY):
                self.assertEqual(str(own[column]), row[column], (key, column))
        self.assertGreater(len(rows), 0)
        self.assertEqual(moe_configs.config_of("moe/bf16/bf16/c256/r1/i128/e8/k2/random/sum").left_out, "a stage")
        with self.assertRaises(ValueError):
            moe_configs.config_of("moe/bf16/bf16/c256/r1/i128/e8/k2/random")


if __name__ == "__main__":
    contract.main("BENCH_MOE")
