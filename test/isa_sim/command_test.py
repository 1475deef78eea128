#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command line of tilewave-sim: what is no number in range, or no document, is one line on stderr and exit status 2, and nothing
is run. Usage: command_test.py TILEWAVE_SIM KERNELS OBJDUMP"""
import os
import subprocess
import sys
import tempfile
import unittest

sim, kernels, objdump = sys.argv[1:4]
toys = os.path.join(kernels, "toys_gfx942.co")
add = [toys, "--kernel", "vector_add", "--arg", "buffer:256", "--arg", "buffer:256", "--arg", "buffer:256", "--arg", "64"]


def run(*arguments):
    return subprocess.run([sim, "--objdump", objdump, *arguments], capture_output=True, text=True, check=False, timeout=120)


class Command(unittest.TestCase):
    def refused(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, (arguments, done.stdout, done.stderr))
        self.assertEqual(done.stdout, "", arguments)
        self.assertEqual(done.stderr.count("\n"), 1, (arguments, done.stderr))
        self.assertTrue(done.stderr.startswith("tilewave-sim: "), done.stderr)

    def test_what_is_right_runs(self):
        for more in (["--max-wave-instructions", "1000"], ["--time", "--chip", "MI300A", "--mhz", "2100", "--top", "0"]):
            done = run(*add, *more)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_numbers_out_of_range(self):
        for more in (["--mhz", "nan"], ["--mhz", "inf"], ["--mhz", "0"], ["--mhz", "-1"], ["--timed-instructions", "-1"],
                     ["--top", "-1"], ["--chip", "MI300B"], ["--chip", "MI355X"]):
            self.refused(*add, "--time", *more)
        for more in (["--max-wave-instructions", "-1"], ["--max-wave-instructions", "0"], ["--grid", "-1"], ["--grid", "1.5"],
                     ["--block", "-64"], ["--lds", "-1"], ["--lds", "1099511627776"], ["--threads", "0"]):
            self.refused(*add, *more)

    def test_documents(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "launch.json")
            for text in ("", "[]", "1", "{", "[" * 100000, '{"file": ' + "[" * 100000, '{"file": "x.co"}', "\ufeff{}"):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                self.refused("--launch", path)
                self.refused("--launch", path, toys)
            self.refused("--launch", folder)
            self.refused(folder)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
