#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the timeline of a layer of each step in the CSV of bench_step, as SVG on stdout: calls in their order, each as wide as its
part's mean time, times of AMD chips modelled.

  bench_step --benchmark_format=csv >steps.csv && plot_step.py steps.csv >steps.svg"""
import argparse
import csv
import math
import sys

TOOL = "plot_step"
ORDER = "norm qkv cache attention out norm gate_up down".split()  # calls of a layer
COLOURS = {"norm": "#8da0cb", "qkv": "#fc8d62", "cache": "#a6d854", "attention": "#66c2a5", "out": "#e78ac3", "gate_up": "#ffd92f",
           "down": "#e5c494", "rest": "#b3b3b3"}
WIDTH, BAR, LEFT, TOP, STEP = 1000, 22, 290, 40, 46


def fail(message):
    print(f"{TOOL}: {message}", file=sys.stderr)
    sys.exit(2)


def time_of(row):
    us = float(row["us"])
    return float(row["model_us"]) if math.isnan(us) else us


def read(paths):
    """{step: {part: (us, calls)}} of the rows, in their order."""
    steps = {}
    for path in paths:
        try:
            with open(path, newline="") as file:
                for row in csv.DictReader(file):
                    name, part = row["name"].rsplit("/", 1)
                    steps.setdefault(f"{row['arch']} {name}", {})[part] = (time_of(row), int(row["calls"]))
        except (OSError, KeyError, ValueError, TypeError) as error:
            fail(f"{path}: no CSV of bench_step: {error!r}")
    return {name: parts for name, parts in steps.items() if set(ORDER) | {"step"} <= set(parts) and not math.isnan(parts["step"][0])}


def layer_of(parts):
    """[(part, us)] of a layer, with the step's time that no part of a layer has shared among its calls as gaps."""
    calls = [(part, parts[part][0] / parts[part][1]) for part in ORDER]
    layers = parts["attention"][1]
    rest = (parts["gaps"][0] if "gaps" in parts else 0.0) / layers
    return calls + ([("rest", rest)] if rest > 0 else [])


def svg(steps):
    layers = {name: layer_of(parts) for name, parts in steps.items()}
    scale = (WIDTH - LEFT - 20) / max(sum(us for _, us in calls) for calls in layers.values())
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{TOP + STEP * len(layers) + 10}" font-family="sans-serif" font-size="11">',
             '<rect width="100%" height="100%" fill="white"/>']
    for i, (part, colour) in enumerate(COLOURS.items()):
        lines.append(f'<rect x="{LEFT + 84 * i}" y="10" width="11" height="11" fill="{colour}"/>'
                     f'<text x="{LEFT + 14 + 84 * i}" y="20">{"gaps" if part == "rest" else part}</text>')
    for i, (name, calls) in enumerate(layers.items()):
        y, x = TOP + STEP * i, float(LEFT)
        lines.append(f'<text x="8" y="{y + 11}">{name}</text><text x="8" y="{y + 25}" fill="#555">step {steps[name]["step"][0]:.0f} us, '
                     f'a layer {sum(us for _, us in calls):.1f} us</text>')
        for part, us in calls:
            lines.append(f'<rect x="{x:.1f}" y="{y}" width="{us * scale:.1f}" height="{BAR}" fill="{COLOURS[part]}" stroke="white" stroke-width="0.5">'
                         f'<title>{part} {us:.2f} us</title></rect>')
            if us * scale > 26:
                lines.append(f'<text x="{x + us * scale / 2:.1f}" y="{y + 15}" text-anchor="middle">{us:.1f}</text>')
            x += us * scale
    return "\n".join(lines + ["</svg>"])


def main():
    parser = argparse.ArgumentParser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = fail
    parser.add_argument("csv", nargs="+")
    steps = read(parser.parse_args().csv)
    if not steps:
        fail("no step whose parts are all there")
    print(svg(steps))


if __name__ == "__main__":
    main()
