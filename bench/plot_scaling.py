#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws how the time of paged attention grows with batch and context, and lists the steps that cost too much.

CSV is what `bench_pa --sweep=scaling --benchmark_format=csv` writes on a GPU; several, say one for each type of KV, count as
one. The steps go from each cell to the next batch and to the next context that was measured. With t the time of a cell and
B the bytes it must move, a step from a to b may cost what its bytes take at the best rate of its type of KV anywhere:

    over = t_b / (t_a + (B_b - B_a) / max(B / t)) - 1       or, where more work takes less time, t_a / t_b - 1

A step whose `over` exceeds the limit is a cliff. Printed is a markdown table of the five worst of each type."""
import argparse
import collections
import csv
import itertools
import math
import sys

TOOL = "plot_scaling"
WORST = 5  # steps listed
DTYPES = {"f16": "f16", "bf16": "bf16", "fp8_e4m3fn": "fp8", "fp8_e4m3fnuz": "fp8"}
QUANTS = {"none": "", "per_tensor": " per tensor", "per_token": " per token", "per_head": " per head"}
SAME = ["arch", "q_dtype", "block_size", "mtp", "head_size", "num_q_heads", "num_kv_heads", "k_layout", "v_layout", "native",
        "kv_varlen", "sliding_window", "distinct", "inputs"]

Cell = collections.namedtuple("Cell", "batch context us roof_us bytes")
Step = collections.namedtuple("Step", "over a b")


def fail(message):
    print(f"{TOOL}: {message}", file=sys.stderr)
    sys.exit(2)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message)


def read(paths):
    """Cells by (batch, context) by type of KV, and what all rows have in common."""
    kinds, common = {}, None
    for path in paths:
        try:
            with open(path, encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file, strict=True))
            for row in rows:
                if float(row["err"]) != 0:
                    raise ValueError(f"{row['name']} is wrong")
                cell = Cell(int(row["batch_size"]), int(row["context_length"]),
                            *(float(row[column]) for column in ("us", "roof_us", "bytes_ideal")))
                if math.isnan(cell.us):
                    raise ValueError("no times in it (the emulated device has none)")
                if not all(math.isfinite(value) and value > 0 for value in cell):
                    raise ValueError(f"{row['name']} has a number that is not above 0")
                same = {column: row[column] for column in SAME}
                common = common or same
                if same != common:
                    raise ValueError(f"{row['name']} differs from the first row in more than batch, context and KV")
                cells = kinds.setdefault(DTYPES[row["kv_dtype"]] + QUANTS[row["quant_mode"]], {})
                if cells.setdefault(cell[:2], cell) is not cell:
                    raise ValueError(f"{row['name']}: there is such a row already")
        except (OSError, UnicodeDecodeError) as error:
            fail(f"{path}: {error}")
        except (csv.Error, KeyError, TypeError) as error:
            fail(f"{path}: not the CSV of bench_pa: {error!r}")
        except ValueError as error:
            fail(f"{path}: {error}")
    if not kinds:
        fail(f"{', '.join(paths)}: no rows")
    return kinds, common


def steps_of(cells):
    """Every step between neighbours, the worst first."""
    best = max(cell.bytes / cell.us for cell in cells.values())
    steps = []
    for along, across in ((0, 1), (1, 0)):  # to the next batch of a context, to the next context of a batch
        ordered = sorted(cells.values(), key=lambda cell: (cell[across], cell[along]))
        for a, b in zip(ordered, ordered[1:]):
            if a[across] == b[across]:
                over = max(b.us / (a.us + (b.bytes - a.bytes) / best), a.us / b.us) - 1
                steps.append(Step(over, a, b))
    return sorted(steps, key=lambda step: step.over, reverse=True)


def table_of(steps_of_kinds, limit):
    """Lines of markdown: the worst steps of every type of KV, and how many are cliffs."""
    lines = ["| KV | batch, context | next | us | next | bytes | over |", "|---|---|---|---|---|---|---|"]
    for kind, steps in steps_of_kinds.items():
        for over, a, b in steps[:WORST]:
            lines.append(f"| {kind} | {a.batch}, {a.context} | {b.batch}, {b.context} | {a.us:.1f} | {b.us:.1f} "
                         f"| x {b.bytes / a.bytes:.2f} | {100 * over:.0f} % |")
    for kind, steps in steps_of_kinds.items():
        cliffs = sum(step.over > limit for step in steps)
        lines.append(f"\n{kind}: {len(steps)} steps, {cliffs} of them over {100 * limit:g} %")
    return lines


def is_power_of_two(n):
    return n & (n - 1) == 0


def short(n):
    return f"{n // 1024}K" if n % 1024 == 0 else str(n)


def draw_times(axes, cells, colour_of):
    """Time against context, a line a batch; the roof dashed, and a name, for powers of two."""
    for batch, line in itertools.groupby(sorted(cells.values()), key=lambda cell: cell.batch):
        line = list(line)
        contexts, colour, named = [cell.context for cell in line], colour_of(batch), is_power_of_two(batch)
        axes.plot(contexts, [cell.us for cell in line], color=colour, linewidth=1.4 if named else 0.6)
        if named:
            axes.plot(contexts, [cell.roof_us for cell in line], color=colour, linewidth=0.8, linestyle=(0, (4, 3)))
            axes.annotate(batch, (contexts[-1], line[-1].us), xytext=(3, 0), textcoords="offset points", color=colour,
                          fontsize=7, verticalalignment="center")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(bottom=min(cell.us for cell in cells.values()) / 2)
    axes.set_xlim(right=2 * max(cell.context for cell in cells.values()))  # room for the names
    ticks = [context for context in sorted({cell.context for cell in cells.values()}) if is_power_of_two(context)]
    axes.set_xticks(ticks, [short(context) for context in ticks])
    axes.minorticks_off()
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_xlabel("context")


def draw_map(axes, cells, cliffs, colours):
    """Share of the roof over context and batch; red where a cliff is between two cells. Returns the image."""
    batches, contexts = (sorted({cell[i] for cell in cells.values()}) for i in (0, 1))
    shares = [[100 * cells[b, c].roof_us / cells[b, c].us if (b, c) in cells else math.nan for c in contexts]
              for b in batches]
    image = axes.imshow(shares, cmap=colours, vmin=0, vmax=100, origin="lower", aspect="auto", interpolation="nearest")
    for _, a, b in cliffs:
        x, y = contexts.index(b.context), batches.index(b.batch)
        if a.batch == b.batch:
            axes.plot([x - 0.5, x - 0.5], [y - 0.5, y + 0.5], color="red", linewidth=2)
        else:
            axes.plot([x - 0.5, x + 0.5], [y - 0.5, y - 0.5], color="red", linewidth=2)
    axes.set_xticks(range(len(contexts)), [short(context) for context in contexts], rotation=90, fontsize=6)
    axes.set_yticks(range(len(batches)), batches, fontsize=6)
    axes.tick_params(length=0)
    axes.set_facecolor("0.85")
    axes.set_xlabel("context")
    return image


def draw(path, kinds, common, steps_of_kinds, limit):
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        fail(f"--svg needs matplotlib (Debian: python3-matplotlib): {error}")
    shades = matplotlib.colormaps["viridis"].resampled(10)
    last = math.log2(max(batch for cells in kinds.values() for batch, _ in cells)) or 1
    # The same bytes every time: no date, ids that depend on the contents alone. Text as text, each with its list of fonts.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": TOOL, "font.size": 8,
                                "font.sans-serif": ["DejaVu Sans", "Arial"]}):
        figure = Figure(figsize=(4.6 * len(kinds) + 0.8, 7.6), layout="constrained")
        grid = figure.subplots(2, len(kinds), squeeze=False, sharey="row")
        figure.suptitle(f"Paged-attention decode, {common['num_q_heads']} heads on {common['num_kv_heads']}, head_size "
                        f"{common['head_size']}, pages of {common['block_size']} tokens", fontsize=9)
        for (kind, cells), (times, shares) in zip(kinds.items(), grid.T):
            times.set_title(f"KV {kind}: us, a line a batch; dashed: roof", fontsize=8)
            draw_times(times, cells, lambda batch: matplotlib.colormaps["viridis"](0.9 * (1 - math.log2(batch) / last)))
            shares.set_title(f"KV {kind}: % of the roof; red: a cliff", fontsize=8)
            cliffs = [step for step in steps_of_kinds[kind] if step.over > limit]
            image = draw_map(shares, cells, cliffs, shades)
        grid[0][0].set_ylabel("us")
        grid[1][0].set_ylabel("batch")
        figure.colorbar(image, ax=list(grid[1]), ticks=range(0, 101, 10))
        try:
            figure.savefig(path, format="svg", metadata={"Date": None})
        except OSError as error:
            fail(f"{path}: {error}")


def main(arguments):
    parser = Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--svg", metavar="FILE", help="draw it (needs matplotlib)")
    parser.add_argument("--limit", type=float, default=20, metavar="PERCENT", help="of `over` (default: 20)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if there is a cliff")
    options = parser.parse_args(arguments)
    if not 0 <= options.limit < math.inf:
        fail(f"--limit: {options.limit} is not a percentage")
    kinds, common = read(options.csv)
    limit = options.limit / 100
    steps_of_kinds = {kind: steps_of(cells) for kind, cells in kinds.items()}
    if options.svg:
        draw(options.svg, kinds, common, steps_of_kinds, limit)
    print("\n".join(table_of(steps_of_kinds, limit)))
    return int(options.check and any(step.over > limit for steps in steps_of_kinds.values() for step in steps))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
