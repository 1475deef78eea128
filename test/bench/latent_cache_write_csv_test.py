#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_latent_cache_write on the emulated device. Usage: latent_cache_write_csv_test.py BENCH_LATENT_CACHE_WRITE"""
import re

import contract
from contract import ARCHS, run

IDENTITY = """kind arch kv_dtype layout table_dtype pairs head_size q_heads block_size columns rows config_rows seed
lanes rows_per_block chunks vec span cluster held waves_per_simd""".split()
NAME = re.compile(r"(?P<kind>latent_cache)/(?P<arch>gfx942|gfx950|sm90)/(?P<kv_dtype>bf16|fp8)\.(?P<layout>plain|groups_128|groups_64)/"
                  r"c(?P<head_size>\d+)/r(?P<rows>\d+)(?:of(?P<of>\d+))?/hq(?P<q_heads>\d+)/bs(?P<block_size>\d+)/"
                  r"(?P<pairs>halves|neighbours)/(?P<table_dtype>bf16|f32)/"
                  r"(?P<policy>l(?P<lanes>\d+)\.r(?P<rows_per_block>\d+)\.c(?P<chunks>\d+)\.v(?P<vec>\d+))")
ROWS = 15
SMALL = "/r64/hq16/"  # 5 rows, each layout among them
PEAKS = {"gfx942": 5300, "gfx950": 8000, "sm90": 4800}  # GB/s
ROUNDING = {"bf16": 3e-3, "fp8": 5e-2}


def work(row):
    """Bytes and operations of a call, by the tokens that are launched."""
    tokens, heads, size = int(row["rows"]), int(row["q_heads"]), int(row["head_size"])
    fp8, layout = row["kv_dtype"] != "bf16", row["layout"]
    stored = {"plain": size * (1 if fp8 else 2), "groups_128": 656, "groups_64": 583}[layout]
    codes = {"plain": size if fp8 else 0, "groups_128": 512, "groups_64": 448}[layout]
    moved = (size + 2 * heads * 64) * 2 + stored + 8 + 64 * (4 if row["table_dtype"] == "f32" else 2)
    return tokens * moved, tokens * ((1 + heads) * 192 + 2 * codes)


class Csv(contract.Contract):
    def check_rows(self, done):
        matched = self.check_layout(done, NAME, IDENTITY)
        for row, match in matched:
            fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
            named = {column: fp8 if word == "fp8" else word for column, word in match.groupdict().items()}
            named |= {"config_rows": match["of"] or match["rows"],
                      "columns": str(int(match["head_size"]) + 64 * int(match["q_heads"]))}
            for column in set(IDENTITY) & set(named):
                self.assertEqual(row[column], named[column], column)
            self.assertTrue(row["entry"].endswith("/" + match["policy"]), row["entry"])
            self.assertEqual((int(row["bytes_ideal"]), int(row["flops"])), work(row), row["name"])
            self.assertAlmostEqual(float(row["roof_us"]) * PEAKS[row["arch"]] * 1e3 / int(row["bytes_ideal"]), 1, delta=1e-4)
        return [row for row, _ in matched]

    def test_default_sweep(self):
        done = run("--benchmark_format=csv")
        rows = self.check_rows(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([int(row["config_id"]) for row in rows], list(range(ROWS)))
        self.assertEqual(len({row["name"] for row in rows}), ROWS)
        for row in rows:
            self.assertEqual((row["err"], row["arch"]), ("0", "gfx950"), row["name"])
            self.assertLess(float(row["max_rel_err"]), ROUNDING[row["kv_dtype"][:4].rstrip("_")], row["name"])

    def test_every_arch_and_policy(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", f"--benchmark_filter={SMALL}", f"--arch={arch}", "--policies=all")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([(row["err"], row["arch"]) for row in rows], [("0", arch)] * 10)

    def test_wrong_output_is_an_err_row_like_any_other(self):
        self.assertEqual(len(self.check_injected_error(f"--benchmark_filter={SMALL}")), 5)

    def test_columns_alone_tell_rows_apart(self):
        self.check_identities(IDENTITY)

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("q_heads is not 0 to 1024", self.refuses("--config=latent_cache/bf16/c576/r4/hq2000"))

    def test_steps_of_a_model(self):
        names = run("--benchmark_list_tests", "--model=deepseek-v3", "--tp=8", "--batch=1,64").stdout.split()
        self.assertEqual([NAME.fullmatch(name).group("rows", "q_heads") for name in names], [("1", "16"), ("64", "16")])

    def test_runs_that_end_early(self):
        self.check_ends(f"--benchmark_filter={SMALL}")

    def test_progress(self):
        self.check_progress(f"--benchmark_filter={SMALL}")

    def test_help(self):
        self.check_help("--arch", "--policies", "--seed", "--max-seconds")


if __name__ == "__main__":
    contract.main("BENCH_LATENT_CACHE_WRITE")
