#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""record_choices.py ROWS.csv[.gz] > recorded_choices.txt: which plans of some shapes were measured to be good.

ROWS: `bench_gemm --policies=all --benchmark_format=csv`, of one device. recorded_choice_test.cpp holds the library's choice to it.
"""
import collections
import csv
import gzip
import sys

SHAPES = 40  # as far apart in the list as they can be
GOOD = 1.10  # times the best


def main():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {__doc__}")
    path = sys.argv[1]
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["ok"] == "1"]
    shapes, recorded = collections.defaultdict(dict), collections.defaultdict(set)
    for row in rows:
        spec = row["a_dtype"] if row["scale"] in ("0", "none") else f"{row['a_dtype']}.{row['scale']}"
        plan = row["name"].rsplit("/", 1)[1]
        shapes[spec, int(row["m"]), int(row["n"]), int(row["k"])][plan] = float(row["us"])
        recorded[spec].add(plan)
    print(f"# Written by record_choices.py from {path.rsplit('/', 1)[-1]}: bench_gemm --policies=all.")
    print("# measured SPEC PLAN...: all plans that were timed.")
    print(f"# shape SPEC M N K US PLAN...: the best time in microseconds, and the plans that take up to {GOOD:.2f} times as long.")
    for spec, plans in sorted(recorded.items()):
        print("measured", spec, *sorted(plans))
    keys = sorted(shapes)
    for key in [keys[i * len(keys) // SHAPES] for i in range(min(SHAPES, len(keys)))]:
        best = min(shapes[key].values())
        print("shape", *key, f"{best:g}", *sorted(plan for plan, us in shapes[key].items() if us <= GOOD * best))


if __name__ == "__main__":
    main()
