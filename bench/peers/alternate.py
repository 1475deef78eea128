#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ours and peers in turns, so that a chip that grows warm or slows down does so for both. Each command prints a CSV; round
after round both run, who begins changes, and of every row that of the median time counts. Prints the table of compare.py.

  alternate.py --rounds=5 --out=out 'build/sm90/bench/bench_gemm --benchmark_format=csv' \\
               'bench/peers/torch_gemm.py --graph names.csv'"""
import argparse
import csv
import functools
import math
import os
import shlex
import subprocess
import sys

import common
import compare

TOOL = "alternate"
fail = functools.partial(common.fail, TOOL)


def run(command):
    """The header and the rows that a command prints."""
    try:
        done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, text=True, check=False)
    except (OSError, ValueError) as error:
        fail(f"'{command}': {error}")
    lines = [cells for cells in csv.reader(done.stdout.splitlines()) if cells]
    if done.returncode != 0 or not lines or lines[0][0] != "name":
        fail(f"'{command}' exits with {done.returncode}" + ("" if lines else " and prints nothing"))
    return lines[0], [cells for cells in lines[1:] if len(cells) == len(lines[0])]


def medians(rounds, metric):
    """Of every name the row of the (lower) median time; wrong in one round, it is wrong."""
    header = rounds[0][0]
    if metric not in header:
        fail(f"no column '{metric}'")
    us, err = header.index(metric), header.index("err") if "err" in header else None
    found = {}
    for other, rows in rounds:
        if other != header:
            fail("rounds differ in their columns")
        for row in rows:
            found.setdefault(row[0], []).append(row)
    chosen = []
    for rows in found.values():
        wrong = [row for row in rows if err is not None and row[err] not in ("", "0")]
        timed = sorted((row for row in rows if math.isfinite(float(row[us] or "nan"))), key=lambda row: float(row[us]))
        chosen.append(wrong[0] if wrong else timed[(len(timed) - 1) // 2] if timed else rows[0])
    return [header] + chosen


def main(arguments):
    parser = common.Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", help="a command in one argument")
    parser.add_argument("peers", help="a command in one argument")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default=".", help="folder for ours.csv and peers.csv, which must exist (default: here)")
    parser.add_argument("--metric", choices=["us", "us_hot", "us_min"], default="us")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        fail("--rounds is below 1")
    if not os.path.isdir(options.out):
        fail(f"--out: no folder '{options.out}'")
    rounds = {"ours": [], "peers": []}
    for i in range(options.rounds):
        for side in ("ours", "peers") if i % 2 == 0 else ("peers", "ours"):
            rounds[side].append(run(getattr(options, side)))
    paths = {side: os.path.join(options.out, side + ".csv") for side in rounds}
    for side, path in paths.items():
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(medians(rounds[side], options.metric))
    return compare.main([paths["ours"], paths["peers"], "--metric", options.metric])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
