#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The sweeps for the emulated device, on it. Usage: sweep_test.py BENCH_PA ARCH [EVERY]

Every row must be right. With EVERY only each such row runs, and the part must meet every value (of head_size, mtp, ...)
that at least so many rows have."""
import collections
import csv
import re
import subprocess
import sys

SWEEPS = "--sweep=default,emulated"


def values_of(name):
    """The classes of a row, as its name tells them: fp8.per_token, bs1024, mtp1, ..., varied; without entry and splits."""
    return re.sub(r"/t\d.*", "", name.partition("/")[2]).split("/")


def main(bench, arch, every="1"):
    listed = subprocess.run([bench, SWEEPS, f"--arch={arch}", "--benchmark_list_tests"], capture_output=True, text=True,
                            check=True).stdout.splitlines()
    done = subprocess.run([bench, SWEEPS, f"--arch={arch}", f"--every={every}", "--benchmark_format=csv"],
                          capture_output=True, text=True, check=False)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    wrong = [row["name"] for row in rows if row["err"] != "0" or row["ok"] != "1"]
    counts = collections.Counter(value for name in listed for value in values_of(name))
    missed = {value for value, count in counts.items() if count >= int(every)}
    missed -= {value for row in rows for value in values_of(row["name"])}
    failures = [f"wrong: {name}" for name in wrong] + [f"no row with {value}" for value in sorted(missed)]
    if done.returncode != 0:
        failures.append(f"exit {done.returncode}: {done.stderr[-2000:]}")
    if [row["name"] for row in rows] != listed[::int(every)]:
        failures.append(f"{len(rows)} rows are not every {every}th of {len(listed)}")
    print("\n".join(failures) or f"{arch}: {len(rows)} of {len(listed)} rows, all right")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: sweep_test.py BENCH_PA ARCH [EVERY]")
    sys.exit(main(*sys.argv[1:]))
