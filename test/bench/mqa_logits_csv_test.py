#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_mqa_logits on the emulated device. Usage: mqa_logits_csv_test.py BENCH_MQA_LOGITS"""
import re

import contract
import op_contract
from contract import ARCHS

IDENTITY = """kind arch x_dtype heads queries columns rows config_rows seed block_queries teams stages
waves_per_simd arranged bulk""".split()
NAME = re.compile(r"(?P<kind>paged|ranges)/(?P<arch>gfx942|gfx950|sm90)/(?P<type>fp8|fp4_e2m1)/c(?P<columns>\d+)/r(?P<rows>\d+)(?:of(?P<of>\d+))?/"
                  r"q(?P<queries>\d+)/h(?P<heads>\d+)/(?P<policy>t(?P<teams>\d+)\.q(?P<block_queries>\d+)\.s(?P<stages>\d+)(?P<lds>\.lds)?(?P<ring>\.bulk)?)")


class Csv(op_contract.OpContract):
    identity, name, rows = IDENTITY, NAME, 16
    few, few_rows = ["--benchmark_filter=/c1024/|/c4096/"], 2  # of each kind of keys

    def named(self, match):
        fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
        return {"x_dtype": fp8 if match["type"] == "fp8" else match["type"], "arranged": str(int(bool(match["lds"]))),
                "bulk": str(int(bool(match["ring"])))}

    def work(self, row, match):
        if match["kind"] != "ranges":  # lengths of paged keys are drawn
            return None
        queries, keys, heads = (int(row[column]) for column in ("rows", "columns", "heads"))
        pairs = sum(keys - queries + i + 1 for i in range(queries))  # each query sees the keys up to its own
        return 132 * (keys + queries * heads) + 8 * queries + 4 * queries * keys, pairs * heads * (2 * 128 + 3)

    def check_accuracy(self, row):  # sm90 keeps 13 bits of its fp8 products, the emulated one too
        self.assertLess(float(row["max_rel_err"]), 2**-12 if row["arch"] == "sm90" else 1e-5, row["name"])

    def test_every_policy(self):
        for arch, count in zip(ARCHS, (4, 4, 10), strict=True):
            rows = self.good_rows(*self.few, f"--arch={arch}", "--policies=all")
            self.assertEqual(len(rows), count)
            for row in rows:
                self.check_accuracy(row)

    def test_fp4(self):
        self.assertEqual(len(self.good_rows("--benchmark_filter=/fp4_e2m1/c8192/", "--policies=all")), 2)
        self.assertIn("fp4 keys are paged, and for gfx950", self.refuses("--config=ranges/gfx950/fp4_e2m1/c4/r4"))
        self.assertIn("fp4 keys are paged, and for gfx950", self.refuses("--config=paged/sm90/fp4_e2m1/c4/r4", "--arch=sm90"))

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("more queries than keys", self.refuses("--config=ranges/c4/r5"))
        self.assertIn("queries is not 1 to columns", self.refuses("--config=paged/c4/r5/q5"))


if __name__ == "__main__":
    contract.main("BENCH_MQA_LOGITS")
