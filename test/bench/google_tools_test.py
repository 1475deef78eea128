#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Google Benchmark's tools/compare.py, and what CI trackers take, of the files that benchmarks write.

usage: google_tools_test.py TIMED_ROWS BENCH COMPARE_PY [CLASS]

TIMED_ROWS writes made-up times as a benchmark does; BENCH is one, on the emulated device, where nothing is timed. Without
COMPARE_PY, or numpy and scipy, which it needs, that part is skipped.
"""
import csv
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

TIMED, BENCH, COMPARE = sys.argv[1:4]
# Of JSONReporter::PrintRunData in src/json_reporter.cc, of a run that is no aggregate.
FIELDS = """family_index per_family_instance_index run_name run_type repetitions repetition_index threads iterations real_time
cpu_time time_unit""".split()


def rows(form, *command):
    done = subprocess.run([*command, f"--benchmark_format={form}"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if form == "json" else list(csv.DictReader(io.StringIO(done.stdout)))


class Fields(unittest.TestCase):
    def test_rows_have_the_fields_of_google_benchmark(self):
        told = rows("json", TIMED, "2")
        self.assertIn("library_build_type", told["context"])
        for i, row in enumerate(told["benchmarks"]):
            self.assertLess(set(FIELDS), set(row))
            self.assertEqual((row["family_index"], row["per_family_instance_index"], row["repetitions"], row["repetition_index"],
                              row["threads"], row["iterations"]), (i, 0, 1, 0, 1, 1))
            self.assertEqual((row["run_name"], row["run_type"], row["time_unit"]), (row["name"], "iteration", "us"))
            self.assertEqual((row["real_time"], row["us"]), (2.0 * (i + 1), 2.0 * (i + 1)))
            self.assertIsInstance(row["cpu_time"], float)
        for row, of_json in zip(rows("csv", TIMED, "2"), told["benchmarks"]):
            self.assertEqual(float(row["real_time"]), of_json["real_time"])
            self.assertEqual((row["time_unit"], row["iterations"], row["run_type"]), ("us", "1", "iteration"))

    def test_what_is_not_timed_has_no_time(self):
        command = (BENCH, "--benchmark_filter=^nothing/")
        for row in rows("json", *command)["benchmarks"]:
            self.assertEqual((row["real_time"], row["cpu_time"], row["time_unit"]), (None, None, "us"))
        for row in rows("csv", *command):
            self.assertEqual((row["real_time"], row["cpu_time"]), ("nan", "nan"))

    def test_trackers_find_what_they_read(self):
        """github-action-benchmark's tool googlecpp: name, real_time, time_unit, iterations, cpu_time, threads; Bencher's adapter
        cpp_google: name, real_time, time_unit, of a context without more."""
        for row in rows("json", TIMED, "1")["benchmarks"]:
            value = f"{row['real_time']} {row['time_unit']}/iter, iterations: {row['iterations']}, cpu: {row['cpu_time']}"
            self.assertRegex(value, r"\A[\d.]+ us/iter, iterations: 1, cpu: [\d.e-]+\Z")

    def test_a_debug_build_of_the_library_frightens_nobody(self):
        done = subprocess.run([BENCH, "--benchmark_filter=^nothing/"], capture_output=True, text=True, check=True)
        self.assertIn("CPU Caches", done.stderr)
        self.assertNotIn("DEBUG", done.stderr)


class Compare(unittest.TestCase):
    def test_compare(self):
        if not os.path.exists(COMPARE):
            self.skipTest(f"no compare.py ({COMPARE}); Debian's libbenchmark-tools has it")
        for module in ("numpy", "scipy"):
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"compare.py needs {module}")
        with tempfile.TemporaryDirectory() as scratch:
            files = [os.path.join(scratch, name) for name in ("before.json", "after.json")]
            for file, times in zip(files, ("1", "1.5")):
                with open(file, "w", encoding="utf-8") as out:
                    subprocess.run([TIMED, times, "--benchmark_format=json"], stdout=out, stderr=subprocess.DEVNULL, check=True)
            done = subprocess.run([sys.executable, COMPARE, "--no-color", "benchmarks", *files], capture_output=True, text=True,
                                  check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stderr)
            for i in (1, 2, 3):
                self.assertRegex(done.stdout, rf"(?m)^made_up/{i} +\+0\.5000 ")


if __name__ == "__main__":
    result = unittest.main(argv=[sys.argv[0], "-v", *sys.argv[4:]], exit=False).result
    if result.wasSuccessful() and result.skipped:
        print("skipped: " + "; ".join(reason for _, reason in result.skipped))
    sys.exit(not result.wasSuccessful())
