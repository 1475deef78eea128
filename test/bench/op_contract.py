# SPDX-License-Identifier: MIT
"""The CSV contract of one op's benchmark on the emulated device: what all ops have in common."""
import json
import os
import re
import tempfile

import contract
from contract import ARCHS, rows_of, run

PEAKS = {"gfx942": (5300, 1307, 2615), "gfx950": (8000, 2307, 4614), "sm90": (4800, 989, 1979)}  # GB/s, TFLOP/s of 2 and of 1 byte


class OpContract(contract.Contract):
    """What each op's benchmark keeps to. An op says in attributes what its rows are, and adds tests of what it alone has."""
    identity = []  # the columns that tell rows apart
    name = re.compile("")  # of a row
    rows = 0  # of the default sweep
    few = ()  # arguments that leave a few rows, each kind among them
    few_rows = 0  # how many
    fewest = ()  # arguments that leave two rows or more; `few` if there are none
    options = ()  # of the help, beside those of every benchmark
    bad_options = ()  # what is refused besides

    def named(self, match):
        """The columns that a name tells in other words than the row."""
        return {}

    def work(self, row, match):
        """The bytes and operations of a row, one by one; None where they cannot be known from the row."""
        return None

    def check_row(self, row, match):
        """What an op's rows keep to besides."""

    def check_rows(self, done):
        matched = self.check_layout(done, self.name, self.identity)
        for row, match in matched:
            fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
            words = match.groupdict()
            named = {column: fp8 if word == "fp8" else word for column, word in words.items() if word is not None}
            if {"of", "rows"} <= set(words):
                named["config_rows"] = words["of"] or words["rows"]
            named |= self.named(match)
            for column in set(self.identity) & set(named):
                self.assertEqual(row[column], named[column], (row["name"], column))
            self.assertTrue(row["entry"].endswith("/" + self.policy_of(match)), row["entry"])
            if (work := self.work(row, match)) is not None:
                self.assertEqual((int(row["bytes_ideal"]), int(row["flops"])), work, row["name"])
            self.check_row(row, match)
        return [row for row, _ in matched]

    def policy_of(self, match):
        return match["policy"]

    def check_roof(self, row, size=2):
        """The least time at the chip's peaks, of products of values of so many bytes."""
        gbps, wide, narrow = PEAKS[row["arch"]]
        tflops = wide if size == 2 else narrow if size == 1 else 2 * narrow
        roof = max(int(row["bytes_ideal"]) / gbps / 1e3, int(row["flops"]) / tflops / 1e6)
        self.assertAlmostEqual(float(row["roof_us"]) / roof, 1, delta=1e-5, msg=row["name"])

    def good_rows(self, *arguments):
        """The rows that a run writes, which ends well and has no err row."""
        done = run("--benchmark_format=csv", *arguments)
        rows = self.check_rows(done)
        self.assertEqual((done.returncode, {row["err"] for row in rows}), (0, {"0"}), done.stderr)
        return rows

    def check_accuracy(self, row):
        """What rounding leaves of a row that is right."""

    def check_every_policy(self, *arguments):
        """All policies of one config are rows of their own, the selected one the first."""
        for arch in ARCHS:
            selected, = self.good_rows(*arguments, f"--arch={arch}")
            rows = self.good_rows(*arguments, f"--arch={arch}", "--policies=all")
            self.assertGreater(len(rows), 1)
            self.assertEqual(rows[0]["name"], selected["name"])
            self.assertEqual(len({row["entry"] for row in rows}), len(rows))
            self.assertEqual({row["config_id"] for row in rows}, {selected["config_id"]})

    def check_launched_whole(self, *configs):
        """Configs that are small are launched as they are."""
        for config in configs:
            for row in self.good_rows(f"--config={config}"):
                self.assertEqual(row["rows"], row["config_rows"], config)

    def check_seeds(self, *arguments):
        """One seed makes the same rows each time, another one others."""
        first, again, other = (rows_of(run("--benchmark_format=csv", *arguments, f"--seed={seed}"))[1] for seed in (123, 123, 7))
        self.assertGreater(len(first), 0)
        for a, b, c in zip(first, again, other, strict=True):
            self.assertEqual(a, b)
            self.assertNotEqual(a["max_rel_err"], c["max_rel_err"])
            self.assertEqual((c["seed"], c["err"]), ("7", "0"))

    def check_output_file_and_ceiling(self, *arguments):
        """One row that memory bounds is in the JSON file with all its fields, and its roof is of the ceiling that was given."""
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "rows.json")
            done = run(*arguments, f"--benchmark_out={path}", "--ceiling-gbps=400")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        row, = report["benchmarks"]
        self.assertLessEqual(set(self.identity + contract.MEASURED + contract.ORIGIN + contract.GOOGLE), set(row))
        self.assertEqual(report["context"]["tilewave_arch"], "gfx950 (emulated)")
        self.assertAlmostEqual(row["roof_us"], row["bytes_ideal"] / 4e5, places=6)

    def check_step(self, wanted, columns, *arguments, model="deepseek-v3"):
        """The calls of a model's step, by columns of their names."""
        names = run("--benchmark_list_tests", f"--model={model}", *arguments).stdout.split()
        self.assertEqual([self.name.fullmatch(name).group(*columns) for name in names], wanted)

    def damaged(self, row):
        """What stderr says of a row whose output was changed in one place."""
        return r"1 values outside the tolerance; the first: out is .* at row 0, column 0"

    def test_default_sweep(self):
        names = run("--benchmark_list_tests").stdout.splitlines()
        self.assertEqual(len(names), self.rows)
        self.assertEqual([name for name in names if not self.name.fullmatch(name)], [])
        self.assertEqual(len(set(names)), self.rows)

    def test_every_arch(self):
        for arch in ARCHS:
            rows = self.good_rows(*self.few, f"--arch={arch}")
            self.assertEqual([row["arch"] for row in rows], [arch] * self.few_rows)
            names = run("--benchmark_list_tests", f"--arch={arch}").stdout.splitlines()
            self.assertEqual([names[int(row["config_id"])] for row in rows], [row["name"] for row in rows])
            for row in rows:
                self.check_accuracy(row)

    def test_wrong_output_is_an_err_row_like_any_other(self):
        done = run("--benchmark_format=csv", "--inject-error", *self.few)
        rows = self.check_rows(done)
        self.assertEqual((done.returncode, len(rows)), (1, self.few_rows))
        for row in rows:
            self.assertEqual((row["ok"], row["err"]), ("0", "1"), row["name"])
            self.assertRegex(done.stderr, re.escape(row["name"]) + f": {self.damaged(row)}\n")

    def test_columns_alone_tell_rows_apart(self):
        self.check_identities(self.identity)

    def test_bad_options(self):
        for argument in ("--arch=gfx90a", "--policies=best", "--seed=-1", "--seed=1000000", "--max-seconds=-1", "--max-seconds=nan",
                         "--max-seconds=inf", "--threads=0", "--ceiling-gbps=0", "--ceiling-gbps=nan", "--ceiling-gbps=inf",
                         "--frobnicate", "stray", "--benchmark_frobnicate=1", "--benchmark_format=xml",
                         "--benchmark_out=/nonexistent/x", "--benchmark_min_time=abc", "--benchmark_repetitions=2",
                         "--benchmark_filter=(", "--benchmark_filter=no_such_row", *self.bad_options):
            self.refuses(argument)
        self.refuses(BENCHMARK_FORMAT="xml")
        self.refuses(BENCHMARK_OUT="/nonexistent/x")

    def test_runs_that_end_early(self):
        self.check_ends(*(self.fewest or self.few))

    def test_progress(self):
        self.check_progress(*(self.fewest or self.few))

    def test_help(self):
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for option in ("--arch", "--policies", "--seed", "--max-seconds", "--ceiling-gbps", "--shapes", "--config", "--model",
                       "--benchmark_filter", *self.options):
            self.assertIn(option, done.stdout)
        self.assertNotIn("inject", done.stdout)
