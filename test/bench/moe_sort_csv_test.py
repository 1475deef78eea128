#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_moe_sort on the emulated device. Usage: moe_sort_csv_test.py BENCH_MOE_SORT"""
import re

import contract
from contract import ARCHS, run

IDENTITY = "kind arch experts unit local columns rows config_rows seed threads batch cluster most_blocks tiles_alone many_threads turns waves_per_simd".split()
NAME = re.compile(r"(?P<kind>moe_sort)/(?P<arch>gfx942|gfx950|sm90)/k(?P<columns>\d+)/r(?P<rows>\d+)/e(?P<experts>\d+)"
                  r"/u(?P<unit>\d+)/local(?P<local>\d+)/(?P<policy>t(?P<threads>\d+)\.m(?P<many_threads>\d+)\.r(?P<turns>\d+)\.a(?P<tiles_alone>\d+)"
                  r"(\.c(?P<cluster>\d+))?)")
ROWS = 27
SMALL = "/r(1|7|31)/"  # 5 rows


def work(row):
    """Bytes and operations of a row."""
    topk, tokens, experts, unit = (int(row[column]) for column in ("columns", "rows", "experts", "unit"))
    choices = topk * tokens
    capacity = (choices + min(choices, experts) * (unit - 1)) // unit * unit
    mask = 4 * experts if int(row["local"]) < 100 else 0
    return 12 * choices + mask + 8 * capacity + 4 * (capacity // unit) + 8 * experts + 12, 2 * choices


class Csv(contract.Contract):
    def check_rows(self, done):
        matched = self.check_layout(done, NAME, IDENTITY)
        for row, match in matched:
            for column in set(IDENTITY) & set(match.groupdict()):
                self.assertEqual(row[column], match[column] or "1", column)
            self.assertEqual((int(row["bytes_ideal"]), int(row["flops"])), work(row))
            self.assertTrue(row["entry"].endswith("/" + match["policy"]), row["entry"])
        return [row for row, _ in matched]

    def test_default_sweep(self):
        done = run("--benchmark_format=csv")
        rows = self.check_rows(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([int(row["config_id"]) for row in rows], list(range(ROWS)))
        self.assertEqual({(row["err"], row["max_abs_err"], row["arch"]) for row in rows}, {("0", "0", "gfx950")})

    def test_every_arch(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", f"--benchmark_filter={SMALL}", f"--arch={arch}")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([(row["err"], row["arch"]) for row in rows], [("0", arch)] * 5)

    def test_wrong_output_is_an_err_row_like_any_other(self):
        self.check_injected_error(f"--benchmark_filter={SMALL}")

    def test_columns_alone_tell_rows_apart(self):
        self.check_identities(IDENTITY)

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("more choices than experts", self.refuses("--config=k8/r4/e4"))
        self.assertIn("topk must be 1 to 16", self.refuses("--config=k17/r4/e64"))

    def test_a_models_decode_step(self):
        names = run("--benchmark_list_tests", "--model=gpt-oss-120b", "--batch=1,64").stdout.splitlines()
        self.assertEqual([NAME.match(name).group("columns", "rows", "experts") for name in names],
                         [("4", "1", "128"), ("4", "64", "128")])
        self.assertIn("no call of this op", self.refuses("--model=llama3-70b"))

    def test_runs_that_end_early(self):
        self.check_ends(f"--benchmark_filter={SMALL}")

    def test_help(self):
        self.check_help("--arch", "--policies", "--seed", "--max-seconds")


if __name__ == "__main__":
    contract.main("BENCH_MOE_SORT")
