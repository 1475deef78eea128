# SPDX-License-Identifier: MIT
"""What the CSV contracts of all benchmarks on the emulated device have in common."""
import csv
import io
import math
import os
import subprocess
import sys
import unittest

MEASURED = """ok err max_abs_err max_rel_err us us_min us_q1 us_q3 us_cold us_hot cv_pct samples gbps tflops bytes_ideal
flops roof_us roof_pct""".split()
ORIGIN = ["entry", "config_id", "emulated", "schema_version"]  # tells where a row comes from, but not what it is
NOT_A_NUMBER = {"us", "us_min", "us_q1", "us_q3", "us_cold", "us_hot", "cv_pct", "gbps", "tflops", "roof_pct"}
FRACTIONS = NOT_A_NUMBER | {"max_abs_err", "max_rel_err", "roof_us"}
WORDS = {"kind", "arch", "q_dtype", "kv_dtype", "x_dtype", "weight_dtype", "out_dtype", "quant_mode", "scale_mode",
         "k_layout", "v_layout", "inputs"}
ARCHS = ["gfx942", "gfx950", "sm90"]
bench = ""  # path of the benchmark


def tool():
    return os.path.basename(bench)


def run(*arguments, **environment):
    return subprocess.run([bench, *arguments], capture_output=True, text=True, timeout=600, check=False,
                          env=os.environ | environment)


def run_to_full_disk(*arguments):
    with open("/dev/full", "w", encoding="utf-8") as full:
        return subprocess.run([bench, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=600, check=False)


def identities(*arguments):
    """The columns that rows consist of, by name: none is run."""
    lines = list(csv.reader(io.StringIO(run("--benchmark_list_tests", "--benchmark_format=csv", *arguments).stdout)))
    return lines[0][1:], {line[0]: tuple(line[1:]) for line in lines[1:]}


def rows_of(done):
    lines = list(csv.reader(io.StringIO(done.stdout)))
    return lines[0], [dict(zip(lines[0], line)) for line in lines[1:]], lines


class Contract(unittest.TestCase):
    def check_layout(self, done, name, identity):
        """Rows with a name of the pattern, the columns `identity` and the common ones; pairs of a row and its name's match."""
        header, rows, lines = rows_of(done)
        self.assertEqual(header, ["name"] + identity + MEASURED + ORIGIN)
        for line in lines:
            self.assertEqual(len(line), len(header))
        matched = []
        for row in rows:
            match = name.fullmatch(row["name"])
            self.assertTrue(match, row["name"])
            for column in header[1:]:
                if column in WORDS or column == "entry":
                    self.assertRegex(row[column], r"\A[a-z][a-z0-9_./]*\Z", column)
                elif column in FRACTIONS:
                    self.assertEqual(math.isnan(float(row[column])), column in NOT_A_NUMBER, column)
                else:
                    self.assertRegex(row[column], r"\A\d+\Z", column)
            self.assertEqual((row["emulated"], row["seed"], row["schema_version"]), ("1", "123", "2"))
            self.assertEqual(int(row["ok"]) + int(row["err"]), 1)
            self.assertEqual(float(row["roof_us"]) > 0, int(row["bytes_ideal"]) > 0)
            matched.append((row, match))
        return matched

    def refuses(self, *arguments, **environment):
        done = run(*arguments, **environment)
        self.assertEqual(done.returncode, 2, (arguments, environment))
        self.assertEqual(done.stdout, "", arguments)
        self.assertRegex(done.stderr, rf"\A{tool()}: [^\n]+\n\Z", arguments)
        return done.stderr

    def check_identities(self, identity, *arguments):
        """No two rows have equal columns, of every architecture and with all policies."""
        for arch in ARCHS:
            counts = []
            for policies in ("selected", "all"):
                columns, rows = identities(f"--arch={arch}", f"--policies={policies}", *arguments)
                self.assertEqual(columns, identity)
                self.assertEqual(len(set(rows.values())), len(rows), (arch, policies))
                counts.append(len(rows))
            self.assertGreaterEqual(counts[1], counts[0])

    def check_help(self, *options):
        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for option in options:
            self.assertIn(option, done.stdout)
        self.assertNotIn("inject", done.stdout)


def main(usage):
    global bench
    if len(sys.argv) < 2:
        sys.exit(f"usage: {os.path.basename(sys.argv[0])} {usage}")
    bench = sys.argv.pop(1)
    unittest.main()
