#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ours against peers as a markdown table. Usage: compare.py OURS.csv PEERS.csv [--metric us|us_hot|us_min]

OURS is the CSV of bench_norm, bench_softmax or bench_quant on a GPU, or several of them behind one another; of a config's
policies the fastest counts. A ratio is a peer's time over ours: above 1, ours is faster."""
import argparse
import csv
import functools
import math
import sys

import configs

TOOL = "compare"
fail = functools.partial(configs.fail, TOOL)


def rows_of(path, metric):
    """Rows with a time; a header may come again."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["name"] != "name"]
        for row in rows:
            row["key"], row["time"] = configs.key_of(row["name"]), float(row[metric])
    except (OSError, KeyError, TypeError, ValueError) as error:
        fail(f"{path}: not such a CSV: {error!r}")
    timed = [row for row in rows if math.isfinite(row["time"]) and row["time"] > 0]
    if not timed:
        fail(f"{path}: no times in it (the emulated device has none)")
    return timed


def table_of(ours, peers):
    """Lines of markdown: the configs that both have, in the order of ours. Wrong rows of ours do not count."""
    best, theirs, names = {}, {}, []
    for row in ours:
        if float(row["err"]) == 0 and (row["key"] not in best or row["time"] < best[row["key"]]["time"]):
            best[row["key"]] = row
    for row in peers:
        theirs[row["key"], row["peer"]] = row["time"]
        if row["peer"] not in names:
            names.append(row["peer"])
    common = [key for key in best if any((key, name) in theirs for name in names)]
    if not common:
        return []
    lines = ["| config | policy | ours us | GB/s |" + "".join(f" {name} us | ratio |" for name in names),
             "|---|---|---|---|" + "---|---|" * len(names)]
    logs = {name: [] for name in names}
    for key in common:
        row = best[key]
        policy = row["name"].removesuffix(configs.GOOGLE).split("/")[-1]
        line = f"| {key} | {policy} | {row['time']:.1f} | {float(row['gbps']):.0f} |"
        for name in names:
            time = theirs.get((key, name))
            if time is None:
                line += " | |"
                continue
            logs[name].append(math.log(time / row["time"]))
            line += f" {time:.1f} | {time / row['time']:.2f} |"
        lines.append(line)
    means = "".join(f" | {math.exp(sum(logs[name]) / len(logs[name])):.2f} |" if logs[name] else " | |" for name in names)
    return lines + ["| geometric mean | | | |" + means]


def main(arguments):
    parser = configs.Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours")
    parser.add_argument("peers")
    parser.add_argument("--metric", choices=["us", "us_hot", "us_min"], default="us")
    options = parser.parse_args(arguments)
    lines = table_of(rows_of(options.ours, options.metric), rows_of(options.peers, options.metric))
    if not lines:
        fail(f"{options.ours} and {options.peers} have no config in common")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
