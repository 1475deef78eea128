#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ours against peers as a markdown table. Usage: compare.py OURS.csv PEERS.csv [--metric us|us_hot|us_min]

OURS is the CSV of a benchmark on a GPU, or several of them behind one another; of a config's policies the fastest counts.
PEERS is that of the torch_*.py that times its configs, or of several. A ratio is a peer's time over ours: above 1, ours is
faster."""
import argparse
import csv
import functools
import math
import sys

import common

TOOL = "compare"
fail = functools.partial(common.fail, TOOL)


def rows_of(path, metric):
    """Rows with a time; a header may come again, with other columns too."""
    rows, columns = [], None
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for cells in filter(None, csv.reader(file)):
                if cells[0] == "name":
                    columns = cells
                    continue
                if len(cells) != len(columns):
                    raise ValueError(f"{len(cells)} cells below {len(columns)} columns")
                row = dict(zip(columns, cells))
                row["key"], row["policy"] = common.key_of(row["name"]), common.policy_of(row["name"])
                row["time"], row["wrong"] = float(row[metric]), float(row.get("err", 0)) != 0
                rows.append(row)
    except (OSError, KeyError, TypeError, ValueError) as error:
        fail(f"{path}: not such a CSV: {error!r}")
    timed = [row for row in rows if math.isfinite(row["time"]) and row["time"] > 0]
    if not timed:
        fail(f"{path}: no times in it (the emulated device has none)")
    return timed


def table_of(ours, peers):
    """Lines of markdown: the configs that both have, in the order of ours. Wrong rows do not count."""
    best, theirs, names = {}, {}, []
    for row in ours:
        if not row["wrong"] and (row["key"] not in best or row["time"] < best[row["key"]]["time"]):
            best[row["key"]] = row
    for row in peers:
        if row["wrong"]:
            continue
        theirs[row["key"], row["policy"]] = row["time"]
        if row["policy"] not in names:
            names.append(row["policy"])
    both = [key for key in best if any((key, name) in theirs for name in names)]
    if not both:
        return []
    lines = ["| config | policy | ours us | GB/s |" + "".join(f" {name} us | ratio |" for name in names),
             "|---|---|---|---|" + "---|---|" * len(names)]
    logs = {name: [] for name in names}
    for key in both:
        row = best[key]
        line = f"| {key} | {row['policy']} | {row['time']:.1f} | {float(row['gbps']):.0f} |"
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
    parser = common.Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
