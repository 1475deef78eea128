#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_mqa_logits on the emulated device. Usage: mqa_logits_csv_test.py BENCH_MQA_LOGITS"""
import re

import contract
from contract import ARCHS, run

IDENTITY = """kind arch x_dtype heads queries columns rows config_rows seed block_queries teams stages
waves_per_simd arranged bulk""".split()
NAME = re.compile(r"(?P<kind>paged|ranges)/(?P<arch>gfx942|gfx950|sm90)/(?P<type>fp8|fp4_e2m1)/c(?P<columns>\d+)/r(?P<rows>\d+)(?:of(?P<of>\d+))?/"
                  r"q(?P<queries>\d+)/h(?P<heads>\d+)/(?P<policy>t(?P<teams>\d+)\.q(?P<block_queries>\d+)\.s(?P<stages>\d+)(?P<lds>\.lds)?(?P<ring>\.bulk)?)")
ROWS = 16
SMALL = "/c1024/|/c4096/"  # one of each kind of keys


class Csv(contract.Contract):
    def check_rows(self, done):
        matched = self.check_layout(done, NAME, IDENTITY)
        for row, match in matched:
            named = match.groupdict() | {"config_rows": match["of"] or match["rows"], "arranged": str(int(bool(match["lds"]))),
                                          "bulk": str(int(bool(match["ring"])))}
            for column in set(IDENTITY) & set(named):
                self.assertEqual(row[column], named[column], column)
            fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
            self.assertEqual(row["x_dtype"], fp8 if match["type"] == "fp8" else match["type"])
            self.assertTrue(row["entry"].endswith("/" + match["policy"]), row["entry"])
            if match["kind"] == "ranges":  # each query sees the keys up to its own; of paged ones lengths are drawn
                queries, keys, heads = (int(row[column]) for column in ("rows", "columns", "heads"))
                pairs = sum(keys - queries + i + 1 for i in range(queries))
                moved = 132 * (keys + queries * heads) + 8 * queries + 4 * queries * keys
                self.assertEqual((int(row["bytes_ideal"]), int(row["flops"])), (moved, pairs * heads * (2 * 128 + 3)))
        return [row for row, _ in matched]

    def test_default_sweep(self):
        names = run("--benchmark_list_tests").stdout.splitlines()
        self.assertEqual(len(names), ROWS)
        self.assertEqual([name for name in names if not NAME.fullmatch(name)], [])

    def test_every_arch(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", f"--benchmark_filter={SMALL}", f"--arch={arch}", "--policies=all")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([(row["err"], row["arch"]) for row in rows], [("0", arch)] * (10 if arch == "sm90" else 4))
            # sm90 keeps 13 bits of its fp8 products, the emulated one too
            self.assertLess(max(float(row["max_rel_err"]) for row in rows), 2**-12 if arch == "sm90" else 1e-5)

    def test_fp4(self):
        done = run("--benchmark_format=csv", "--benchmark_filter=/fp4_e2m1/c8192/", "--policies=all")
        rows = self.check_rows(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["err"] for row in rows], ["0"] * 2)
        self.assertIn("fp4 keys are paged, and for gfx950", self.refuses("--config=ranges/gfx950/fp4_e2m1/c4/r4"))
        self.assertIn("fp4 keys are paged, and for gfx950", self.refuses("--config=paged/sm90/fp4_e2m1/c4/r4", "--arch=sm90"))

    def test_wrong_output_is_an_err_row_like_any_other(self):
        self.check_injected_error(f"--benchmark_filter={SMALL}")

    def test_columns_alone_tell_rows_apart(self):
        self.check_identities(IDENTITY)

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("more queries than keys", self.refuses("--config=ranges/c4/r5"))
        self.assertIn("queries is not 1 to columns", self.refuses("--config=paged/c4/r5/q5"))

    def test_runs_that_end_early(self):
        self.check_ends(f"--benchmark_filter={SMALL}")

    def test_help(self):
        self.check_help("--arch", "--policies", "--seed", "--max-seconds")


if __name__ == "__main__":
    contract.main("BENCH_MQA_LOGITS")
