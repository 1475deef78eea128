#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench_step on the emulated device, and the picture of its rows. Usage: step_csv_test.py BENCH_STEP PLOT_STEP"""
import csv
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import contract
from contract import ARCHS, MEASURED, ORIGIN, rows_of, run

IDENTITY = "arch model phase weight_dtype kv_dtype batch_size context_length overlap seed part".split()
PARTS = "step embedding norm qkv cache attention out gate_up down logits sampling gaps".split()
# Of a model of one layer. On sm90 products normalise few rows.
CALLS = dict(zip(PARTS, (12, 1, 3, 1, 1, 1, 1, 1, 1, 1, 1, 0)))
CALLS_SM90 = CALLS | {"step": 10, "norm": 1}
CALLS_PREFILL_FP8 = CALLS | {"step": 11, "embedding": 2, "norm": 1}  # rows are normalised where they are quantised
SMALL = "--batch=2", "--context=100"
plot = ""


class Step(unittest.TestCase):
    def check(self, done, arch, name, calls):
        header, rows, _ = rows_of(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(header, ["name", *IDENTITY, *MEASURED, "calls", "step_us", "share_pct", *ORIGIN, *contract.GOOGLE])
        self.assertEqual([row["name"] for row in rows], [f"{name}/{part}" for part in PARTS])
        for row in rows:
            self.assertEqual((row["arch"], row["ok"], row["err"], row["emulated"], row["us"]), (arch, "1", "0", "1", "nan"), row["name"])
            self.assertEqual((row["part"], int(row["calls"])), (row["name"].rsplit("/", 1)[1], calls[row["part"]]))
            if row["part"] not in ("gaps",):
                self.assertEqual(row["max_abs_err"], "0")
                self.assertGreater(int(row["bytes_ideal"]), 0)
        return rows

    def test_rows_of_every_arch_are_a_step_its_parts_and_the_gaps(self):
        for arch in ARCHS:
            rows = self.check(run(f"--arch={arch}", *SMALL, "--benchmark_format=csv"), arch, "llama3-8b/decode/b2/c100", CALLS_SM90 if arch == "sm90" else CALLS)
            whole = sum(int(row["bytes_ideal"]) for row in rows[1:])
            self.assertEqual(int(rows[0]["bytes_ideal"]), whole)

    def test_prefill_and_fp8_are_rows_too(self):
        done = run("--phase=prefill", "--weights=fp8", "--kv=fp8", *SMALL, "--benchmark_format=csv")
        rows = self.check(done, "gfx950", "llama3-8b/prefill/w_fp8/kv_fp8/b2/c100", CALLS_PREFILL_FP8)
        self.assertEqual({(row["weight_dtype"], row["kv_dtype"]) for row in rows}, {("fp8_e4m3fn", "fp8_e4m3fn")})

    def test_int4_weights_have_steps(self):
        rows = self.check(run("--weights=int4", *SMALL, "--benchmark_format=csv"), "gfx950", "llama3-8b/decode/w_int4/b2/c100", CALLS)
        self.assertEqual({row["weight_dtype"] for row in rows}, {"i4"})

    def test_launches_apart_follow_a_step(self):
        done = run("--apart", "--no-parts", *SMALL, "--model=qwen3-8b", "--arch=sm90", "--benchmark_format=csv")
        _, rows, _ = rows_of(done)
        self.assertEqual([(row["name"], row["overlap"], row["ok"]) for row in rows],
                         [("qwen3-8b/decode/b2/c100/step", "1", "1"), ("qwen3-8b/decode/b2/c100/apart/step", "0", "1")])

    def test_wrong_logits_are_seen(self):
        done = run(*SMALL, "--inject-error", "--no-parts", "--benchmark_format=csv")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the logits are not those of the same launches", done.stderr)

    def test_what_cannot_be_run_is_one_line(self):
        for wrong in ("--model=mixtral-8x7b", "--model=deepseek-v3", "--model=none", "--batch=0", "--phase=both", "--weights=int3", "--benchmark_filter=none"):
            done = run(wrong)
            self.assertEqual((done.returncode, done.stdout), (2, ""), wrong)
            self.assertRegex(done.stderr, r"\Abench_step: [^\n]*\n\Z")

    def test_the_picture_has_a_bar_for_each_call(self):
        _, rows, lines = rows_of(run(*SMALL, "--benchmark_format=csv"))
        for row in rows:
            row["us"] = "100" if row["part"] == "step" else "5"
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            writer = csv.DictWriter(file, lines[0])
            writer.writeheader()
            writer.writerows(rows)
            file.flush()
            done = subprocess.run([sys.executable, plot, file.name], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            titles = [element.text for element in xml.etree.ElementTree.fromstring(done.stdout).iter() if element.tag.endswith("title")]
            self.assertEqual([title.split()[0] for title in titles], "norm qkv cache attention out norm gate_up down rest".split())
            self.assertIn("attention 5.00 us", titles)
        for wrong in ("/no/such/file", __file__):
            done = subprocess.run([sys.executable, plot, wrong], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))


if __name__ == "__main__":
    plot = sys.argv.pop()
    contract.main("BENCH_STEP PLOT_STEP")
