#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_latent_cache_write on the emulated device. Usage: latent_cache_write_csv_test.py BENCH_LATENT_CACHE_WRITE"""
import re

import contract
import op_contract
from contract import ARCHS

IDENTITY = """kind arch kv_dtype layout table_dtype pairs head_size q_heads block_size columns rows config_rows seed
lanes rows_per_block chunks vec span cluster held waves_per_simd""".split()
NAME = re.compile(r"(?P<kind>latent_cache)/(?P<arch>gfx942|gfx950|sm90)/(?P<kv_dtype>bf16|fp8)\.(?P<layout>plain|groups_128|groups_64)/"
                  r"c(?P<head_size>\d+)/r(?P<rows>\d+)(?:of(?P<of>\d+))?/hq(?P<q_heads>\d+)/bs(?P<block_size>\d+)/"
                  r"(?P<pairs>halves|neighbours)/(?P<table_dtype>bf16|f32)/"
                  r"(?P<policy>l(?P<lanes>\d+)\.r(?P<rows_per_block>\d+)\.c(?P<chunks>\d+)\.v(?P<vec>\d+))")
ROUNDING = {"bf16": 3e-3, "fp8": 5e-2}


def work(row):
    """Bytes and operations of a call, by the tokens that are launched."""
    tokens, heads, size = int(row["rows"]), int(row["q_heads"]), int(row["head_size"])
    fp8, layout = row["kv_dtype"] != "bf16", row["layout"]
    stored = {"plain": size * (1 if fp8 else 2), "groups_128": 656, "groups_64": 583}[layout]
    codes = {"plain": size if fp8 else 0, "groups_128": 512, "groups_64": 448}[layout]
    moved = (size + 2 * heads * 64) * 2 + stored + 8 + 64 * (4 if row["table_dtype"] == "f32" else 2)
    return tokens * moved, tokens * ((1 + heads) * 192 + 2 * codes)


class Csv(op_contract.OpContract):
    identity, name, rows = IDENTITY, NAME, 15
    few, few_rows = ["--benchmark_filter=/r64/hq16/"], 5  # each layout among them

    def named(self, match):
        return {"columns": str(int(match["head_size"]) + 64 * int(match["q_heads"]))}

    def work(self, row, match):
        return work(row)

    def check_row(self, row, match):
        self.check_roof(row)

    def check_accuracy(self, row):
        self.assertLess(float(row["max_rel_err"]), ROUNDING[row["kv_dtype"][:4].rstrip("_")], row["name"])

    def test_default_sweep(self):
        rows = self.good_rows()
        self.assertEqual([int(row["config_id"]) for row in rows], list(range(self.rows)))
        self.assertEqual(len({row["name"] for row in rows}), self.rows)
        for row in rows:
            self.assertEqual(row["arch"], "gfx950", row["name"])
            self.check_accuracy(row)

    def test_every_policy(self):
        for arch in ARCHS:
            self.assertEqual(len(self.good_rows(*self.few, f"--arch={arch}", "--policies=all")), 10)

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("q_heads is not 0 to 1024", self.refuses("--config=latent_cache/bf16/c576/r4/hq2000"))

    def test_steps_of_a_model(self):
        self.check_step([("1", "16"), ("64", "16")], ["rows", "q_heads"], "--tp=8", "--batch=1,64")


if __name__ == "__main__":
    contract.main("BENCH_LATENT_CACHE_WRITE")
