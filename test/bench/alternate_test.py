#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Rounds of two commands in turns. Usage: alternate_test.py BENCH/PEERS/ALTERNATE.PY"""
import csv
import os
import subprocess
import sys
import tempfile
import unittest

ALTERNATE = sys.argv.pop(1)
HEADER = "name,columns,kind,us,us_hot,us_min,gbps,err"


def run(*arguments):
    return subprocess.run([sys.executable, ALTERNATE, *arguments], capture_output=True, text=True, check=False, timeout=120)


class Alternate(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def file(self, name, lines):
        path = os.path.join(self.scratch.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return path

    def refuses(self, word, *arguments):
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
        self.assertRegex(done.stderr, rf"\Aalternate: [^\n]*{word}[^\n]*\n\Z")

    def test_rounds_alternate_and_the_median_counts(self):
        log = os.path.join(self.scratch.name, "log")
        program = self.file("turn.py", ["import sys, pathlib", "who, *times = sys.argv[1:]", f"log = pathlib.Path({log!r})",
                                        "text = log.read_text() if log.exists() else ''", "log.write_text(text + who)",
                                        f"print({HEADER!r})",
                                        "for key, row in (('c1', times), ('c2', times[::-1])):",
                                        "    us = row[text.count(who)].split(':')",
                                        "    print(f'softmax/sm90/bf16/{key}/r1/causal0/{who},1,x,{us[0]},1,1,5,{us[1] if us[1:] else 0}')"])
        ours, theirs = (f"{sys.executable} {program} {who} {times}" for who, times in (("o", "7 3 1:1"), ("p", "10 40 20")))
        done = run("--rounds=3", f"--out={self.scratch.name}", ours, theirs)
        self.assertEqual((done.returncode, done.stdout), (2, ""))  # of ours no row is right in all rounds
        with open(log, encoding="utf-8") as file:
            self.assertEqual(file.read(), "oppoop")
        with open(os.path.join(self.scratch.name, "peers.csv"), encoding="utf-8") as file:
            self.assertEqual([row["us"] for row in csv.DictReader(file)], ["20", "20"])
        with open(os.path.join(self.scratch.name, "ours.csv"), encoding="utf-8") as file:
            self.assertEqual([row["err"] for row in csv.DictReader(file)], ["1", "1"])
        ours = f"{sys.executable} {program} q 7 3 5"
        table = run("--rounds=3", f"--out={self.scratch.name}", ours, theirs.replace(" p ", " r ")).stdout
        self.assertIn("| 5.0 | 5 | 20.0 | 4.00 |", table)
        for word, arguments in (("--rounds", (ours, theirs, "--rounds=0")), ("no folder", (ours, theirs, "--out=/nowhere")),
                                ("exits with 1", ("/bin/false", theirs)), ("nothing", ("/bin/true", theirs)), ("peers", (ours,))):
            self.refuses(word, *arguments)


if __name__ == "__main__":
    unittest.main()
