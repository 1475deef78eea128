#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Modelled times of key entries against recorded ones, and what --model-time refuses.
Usage: model_time_test.py FOLDER_OF_BENCHMARKS RECORDED.json [--update]

A time 2 % from its record fails: a kernel, the choice among entries, or the clock has changed. --update rewrites the file."""
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

TOLERANCE = 0.02
MODEL = ["--model-time", "--benchmark_format=csv"]


def run(program, *arguments):
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=300)


def row_of(program, options):
    """The one row of a config."""
    done = run(program, *options.split(), *MODEL)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    if done.returncode != 0 or len(rows) != 1:
        sys.exit(f"{program} {options} ends with {done.returncode} and {len(rows)} rows: {done.stderr[-2000:]}")
    return rows[0]


def faults_of(row):
    """What must hold of every modelled row."""
    chip = {"gfx942": "MI300X", "gfx950": "MI355X"}[row["arch"]]
    us = float(row["model_us"])
    if not all(math.isnan(float(row[column])) for column in row if column.startswith("us") or column == "gbps"):
        yield "a modelled time stands where a measured one would"
    if (row["ok"], row["err"], row["model_chip"]) != ("0", "0", chip):
        yield "is neither run nor wrong, on " + chip
    if not us >= 0.95 * float(row["roof_us"]):
        yield f"{us} us is below the roof of {row['roof_us']} us"


def trace_faults(program, options):
    """The trace of a row's launches says their cycles, and the clock taken for them."""
    with tempfile.TemporaryDirectory() as folder:
        row = row_of(program, options + " --model-trace=" + folder)
        with open(os.path.join(folder, "model_kernel_trace.csv"), encoding="utf-8") as file:
            launches = list(csv.DictReader(file))
    clk = sum(float(launch.get("model_clk") or "nan") for launch in launches)
    busy = sum(float(launch["model_clk"]) / float(launch["model_mhz"]) for launch in launches if clk > 0)
    if not clk > 0 or not abs(clk - float(row["model_clk"])) <= len(launches) or not abs(clk / busy / float(row["model_mhz"]) - 1) < 1e-3:
        yield f"{row['name']}: a trace of {clk} clk, the row has {row['model_clk']} at {row['model_mhz']} MHz"


def main(folder, path, update=""):
    with open(path, encoding="utf-8") as file:
        recorded = json.load(file)
    faults = []
    for record in recorded:
        row = row_of(os.path.join(folder, record["benchmark"]), record["options"])
        us, was = float(row["model_us"]), record.get("us", math.nan)
        faults += [f"{row['name']}: {fault}" for fault in faults_of(row)]
        if not abs(us / was - 1) <= TOLERANCE and not update:
            faults.append(f"{row['name']}: modelled {us} us ({row['model_bound']}), recorded {was} us ({record.get('bound')})")
        record["us"], record["bound"] = us, row["model_bound"]
    faults += trace_faults(os.path.join(folder, recorded[0]["benchmark"]), recorded[0]["options"])
    bench = os.path.join(folder, "bench_softmax")
    for arguments, complaint in ((["--arch=sm90", *MODEL], "gfx942 and gfx950"),
                                 (["--arch=gfx950", *MODEL, "--model-chip=MI300X"], "not for MI300X"),
                                 (["--arch=gfx950", "--model-chip=MI355X"], "--model-time")):
        done = run(bench, *arguments)
        if done.returncode != 2 or complaint not in done.stderr or done.stderr.count("\n") != 1 or done.stdout:
            faults.append(f"{arguments} gives {done.returncode}: {done.stderr}")
    if update:
        with open(path, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(map(json.dumps, recorded)) + "\n]\n")
    print("\n".join(faults) or f"{len(recorded)} modelled times are within {100 * TOLERANCE:.0f} %")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
