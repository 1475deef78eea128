#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_moe on the emulated device. Usage: moe_csv_test.py BENCH_MOE"""
import os
import re
import sys

import contract
from contract import ARCHS, every, run

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/peers"))
import common  # noqa: E402
import moe_configs  # noqa: E402

IDENTITY = ("kind arch x_dtype weight_dtype scale intermediate experts topk load stage columns rows config_rows experts_hit seed "
            "results").split()
NAME = re.compile(r"(?P<kind>moe)/(?P<arch>gfx942|gfx950|sm90)/(?P<x>bf16)/(?P<w>bf16|fp8)(\.(?P<scale>block))?/c(?P<columns>\d+)"
                  r"/r(?P<rows>\d+)(of(?P<config_rows>\d+))?/i(?P<intermediate>\d+)/e(?P<experts>\d+)/k(?P<topk>\d+)"
                  r"/(?P<load>balanced|random|zipf|one)/(?P<stage>layer|gating|sort|quant_x|first|second|sum)"
                  r"/(?P<results>rows|slots)")
ROWS = 36
SMALL = "/r1/.*/layer"  # 2 rows


def work(row):
    """Bytes and operations of a row: weights of the experts that are hit, and what a stage moves of tokens and choices."""
    hidden, intermediate, tokens, topk, experts, hit = (
        int(row[column]) for column in ("columns", "intermediate", "rows", "topk", "experts", "experts_hit"))
    choices, weight = tokens * topk, 2 if row["weight_dtype"] == "bf16" else 1
    second = hit * hidden * intermediate * weight
    product = 2 * hidden * intermediate * choices
    return {"layer": (2 * tokens * experts + 4 * tokens * hidden + 3 * second, 3 * product),
            "gating": (2 * tokens * experts + 8 * choices, tokens * experts),
            "sort": (16 * choices, 2 * choices),
            "quant_x": (3 * tokens * hidden, 2 * tokens * hidden),
            "first": (2 * second + tokens * hidden * weight + choices * intermediate * weight, 2 * product),
            "second": (second + choices * (intermediate * weight + 2 * hidden), product),
            "sum": (2 * (choices + tokens) * hidden, 2 * choices * hidden)}[row["stage"]]


class Csv(contract.Contract):
    def check_rows(self, done):
        matched = self.check_layout(done, NAME, IDENTITY)
        for row, match in matched:
            for column in ("kind", "arch", "columns", "rows", "intermediate", "experts", "topk", "load", "stage", "results"):
                self.assertEqual(row[column], match[column], column)
            self.assertEqual(row["scale"], "per_block" if match["scale"] else "none")
            self.assertEqual((int(row["bytes_ideal"]), int(row["flops"])), work(row), row["name"])
            choices, experts, topk = int(row["rows"]) * int(row["topk"]), int(row["experts"]), int(row["topk"])
            hit = int(row["experts_hit"])
            self.assertLessEqual(topk, hit)
            self.assertLessEqual(hit, min(experts, choices))
            if row["load"] == "one":
                self.assertEqual(hit, topk)
            if row["load"] == "balanced":
                self.assertEqual(hit, min(experts, choices))
        return [row for row, _ in matched]

    def test_default_sweep(self):
        done = run("--benchmark_format=csv", every(3))
        rows = self.check_rows(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(rows), ROWS if contract.all_rows else ROWS // 3)
        self.assertEqual({(row["err"], row["arch"]) for row in rows}, {("0", "gfx950")})

    def test_every_arch(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", f"--benchmark_filter={SMALL}", f"--arch={arch}")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([(row["err"], row["arch"]) for row in rows], [("0", arch)] * 2)

    def test_wrong_output_is_an_err_row_like_any_other(self):
        self.check_injected_error(f"--benchmark_filter={SMALL}")

    def test_both_policies(self):
        names = run("--benchmark_list_tests", "--policies=all", f"--benchmark_filter={SMALL}").stdout.splitlines()
        self.assertEqual([NAME.match(name)["results"] for name in names], ["rows", "slots"] * 2)

    def test_columns_alone_tell_rows_apart(self):
        self.check_identities(IDENTITY)

    def test_own_shapes(self):
        self.assertIn("more choices than experts", self.refuses("--config=bf16/bf16/c256/r4/i128/e4/k5"))
        self.assertIn("quantises no x", self.refuses("--config=bf16/bf16/c256/r4/i128/e4/k2/quant_x"))

    def test_a_models_decode_step(self):
        names = run("--benchmark_list_tests", "--model=deepseek-v3", "--batch=1,64").stdout.splitlines()
        self.assertEqual([NAME.match(name).group("w", "columns", "rows", "experts") for name in names],
                         [("fp8", "7168", "1", "256"), ("fp8", "7168", "64", "256")])
        self.assertIn("no call of this op", self.refuses("--model=llama3-70b"))

    def test_peers_time_the_same(self):
        done = run("--benchmark_format=csv", "--benchmark_filter=bf16/bf16/", every(4))
        rows = self.check_rows(done)
        for row in rows:
            key = common.key_of(row["name"])
            c = moe_configs.config_of(key)
            self.assertEqual(c.left_out, "")
            self.assertEqual(str(c.bytes_ideal(int(row["experts_hit"]))), row["bytes_ideal"], key)
            own = dict(zip(moe_configs.COLUMNS, moe_configs.row_of(key, c, row["arch"], "x", [2.0], [1.0], (True, 0.25, 3))))
            for column in set(own) & set(IDENTITY):
                self.assertEqual(str(own[column]), row[column], (key, column))
        self.assertGreater(len(rows), 0)
        for key, reason in (("moe/bf16/fp8.block/c256/r1/i128/e8/k2/random/layer", "fp8 blocks"),
                            ("moe/bf16/bf16/c256/r1/i128/e8/k2/random/sum", "a stage")):
            self.assertEqual(moe_configs.config_of(key).left_out, reason)
        with self.assertRaises(ValueError):
            moe_configs.config_of("moe/bf16/bf16/c256/r1/i128/e8/k2/random")

    def test_help(self):
        self.check_help("--arch", "--policies", "--seed", "--max-seconds")


if __name__ == "__main__":
    contract.main("BENCH_MOE")
