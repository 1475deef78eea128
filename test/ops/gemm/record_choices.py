#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""record_choices.py ROWS.csv[.gz]... > recorded_choices.txt: which plans of some shapes were measured to be good.

ROWS: columns spec, m, n, k, plan, us, best_us and samples of one device, as docs/notebook/tuned/gemm_unseen_sm90_2026-11-28.csv.gz has them. Of a spec the last file counts that has it. How many blocks may share K
(.k8) is left out of plans, for it is no part of what was timed. recorded_choice_test.cpp holds the library's choice to it.
"""
import collections
import csv
import gzip
import re
import sys

SHAPES = 40  # as far apart in the list as they can be
GOOD = 1.10  # times the best


def time_of(row):
    """Mostly the median. Of a dozen samples it has a noise of 1 to 2 %, which the least one has not."""
    us = float(row["us"])
    return 0.7 * us + 0.3 * float(row["best_us"]) if int(row["samples"]) >= 4 else us


def main():
    if len(sys.argv) < 2:
        sys.exit(f"usage: {__doc__}")
    of_spec = {}
    for path in sys.argv[1:]:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            found = collections.defaultdict(list)
            for row in csv.DictReader(file):
                if row["plan"].startswith("t"):
                    found[row["spec"]].append(row)
        of_spec.update(found)
    rows = [row for found in of_spec.values() for row in found]
    shapes, recorded = collections.defaultdict(dict), collections.defaultdict(set)
    for row in rows:
        plan = re.sub(r"\.k\d+|\.by1$", "", row["plan"])
        times = shapes[row["spec"], int(row["m"]), int(row["n"]), int(row["k"])]
        times[plan] = min(time_of(row), times.get(plan, float("inf")))
        recorded[row["spec"]].add(plan)
    print("# Written by record_choices.py from", " and ".join(path.rsplit("/", 1)[-1] for path in sys.argv[1:]) + ".")
    print("# measured SPEC PLAN...: all plans that were timed.")
    print(f"# shape SPEC M N K US PLAN...: the best time in microseconds, and the plans that take up to {GOOD:.2f} times as long.")
    for spec, plans in sorted(recorded.items()):
        print("measured", spec, *sorted(plans))
    keys = sorted(shapes)
    for key in [keys[(2 * i + 1) * len(keys) // (2 * SHAPES)] for i in range(min(SHAPES, len(keys)))]:
        best = min(shapes[key].values())
        print("shape", *key, f"{best:g}", *sorted(plan for plan, us in shapes[key].items() if us <= GOOD * best))


if __name__ == "__main__":
    main()
