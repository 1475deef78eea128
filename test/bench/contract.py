# SPDX-License-Identifier: MIT
"""What the CSV contracts of all benchmarks on the emulated device have in common."""
import csv
import io
import math
import os
import subprocess
import sys
import unittest

TIMING = """ok err max_abs_err max_rel_err us us_min us_q1 us_q3 us_cold us_hot cv_pct samples gbps tflops bytes_ideal
flops roof_us roof_pct config_id emulated arch seed schema_version""".split()
GOOGLE = ["name", "iterations", "real_time", "cpu_time", "time_unit", "bytes_per_second", "items_per_second", "label",
          "error_occurred", "error_message"]
NOT_A_NUMBER = {"us", "us_min", "us_q1", "us_q3", "us_cold", "us_hot", "cv_pct", "gbps", "tflops", "roof_pct"}
FRACTIONS = NOT_A_NUMBER | {"max_abs_err", "max_rel_err", "bytes_ideal", "flops", "roof_us"}
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


def rows_of(done):
    lines = list(csv.reader(io.StringIO(done.stdout)))
    return lines[0], [dict(zip(lines[0], line)) for line in lines[1:]], lines


class Contract(unittest.TestCase):
    def check_layout(self, done, name, own):
        """Rows with a name of the pattern, and the common counters and `own`; pairs of a row and its name's match."""
        header, rows, lines = rows_of(done)
        counters = TIMING + own
        self.assertEqual(header, GOOGLE + sorted(counters))
        for line in lines:
            self.assertEqual(len(line), len(header))
        matched = []
        for row in rows:
            match = name.fullmatch(row["name"])
            self.assertTrue(match, row["name"])
            self.assertEqual(row["error_occurred"], "")
            self.assertEqual(row["time_unit"], "us")
            self.assertTrue(math.isnan(float(row["real_time"])))
            for counter in counters:
                value = float(row[counter])
                self.assertEqual(math.isnan(value), counter in NOT_A_NUMBER, counter)
                if counter not in FRACTIONS:
                    self.assertEqual(value, int(value), counter)
            self.assertEqual((row["emulated"], row["seed"], row["schema_version"]), ("1", "123", "1"))
            self.assertEqual(int(row["ok"]) + int(row["err"]), 1)
            self.assertEqual(float(row["roof_us"]) > 0, float(row["bytes_ideal"]) > 0)
            matched.append((row, match))
        return matched

    def refuses(self, *arguments, **environment):
        done = run(*arguments, **environment)
        self.assertEqual(done.returncode, 2, (arguments, environment))
        self.assertEqual(done.stdout, "", arguments)
        self.assertRegex(done.stderr, rf"\A{tool()}: [^\n]+\n\Z", arguments)
        return done.stderr

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
