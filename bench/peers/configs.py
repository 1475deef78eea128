# SPDX-License-Identifier: MIT
"""What bench_norm, bench_softmax and bench_quant time, read from the names of their rows, so that peers time the same;
and the statistics that their sampler makes of a set of times."""
import argparse
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass

DTYPES = ["f32", "f16", "bf16", "fp8_e4m3fn", "fp8_e4m3fnuz", "i8"]  # by number, as in the CSV
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 1, "i8": 1}
SCALE_MODES = ["none", "per_tensor", "per_token", "per_group"]  # likewise
GROUP = 128  # columns of one per_group scale
GOOGLE = "/iterations:1/manual_time"  # what Google Benchmark appends to a name
EXTENT = r"(?P<x>f32|f16|bf16|fp8|i8)/c(?P<columns>\d+)/r(?P<rows>\d+)/"
OUT = r"(?P<out>f32|f16|bf16|fp8|i8)(?:\.(?P<scale>per_tensor|per_token|per_group))?/"
KEYS = [re.compile(r"(?P<op>rmsnorm|layernorm)/" + EXTENT + OUT + r"res(?P<residual>[01])"),
        re.compile(r"(?P<op>softmax|log_softmax)/" + EXTENT + r"causal(?P<causal>\d+)"),
        re.compile(r"(?P<op>quant|dequant)/" + EXTENT + OUT + r"given(?P<given>[01])")]


def fail(tool, message):
    print(f"{tool}: {message}", file=sys.stderr)
    sys.exit(2)


class Parser(argparse.ArgumentParser):
    """Of a tool whose errors are one line."""

    def error(self, message):
        fail(self.prog, message)


@dataclass(frozen=True)
class Config:
    op: str
    x: str  # f32, f16, bf16; of dequant fp8 or i8
    columns: int
    rows: int
    out: str
    scale: str = "none"
    residual: bool = False
    causal: int = 0  # queries of a sequence under a causal mask; 0: no mask
    given: bool = False  # scales are an input, not found

    def scales(self):
        return {"none": 0, "per_tensor": 1, "per_token": self.rows,
                "per_group": self.rows * -(-self.columns // GROUP)}[self.scale]

    def bytes_ideal(self):
        """Every input and output byte once, without a mask."""
        weights = {"rmsnorm": 1, "layernorm": 2}.get(self.op, 0) * self.columns * BYTES[self.x]
        moved = BYTES[self.x] * (3 if self.residual else 1) + BYTES[self.out]
        return self.rows * self.columns * moved + weights + 4 * self.scales()


def key_of(name):
    """A row's config as a string: its name without the architecture, the policy and what the emulated device leaves out.
    A row of a peer has the peer in place of the policy."""
    parts = name.removesuffix(GOOGLE).split("/")
    if len(parts) < 4:
        raise ValueError(f"'{name}' is no row of bench_norm, bench_softmax or bench_quant")
    del parts[-1], parts[1]
    return re.sub(r"/r\d+of(\d+)/", r"/r\1/", "/".join(parts))


def config_of(key):
    for pattern in KEYS:
        if match := pattern.fullmatch(key):
            named = match.groupdict()
            return Config(op=named["op"], x=named["x"], columns=int(named["columns"]), rows=int(named["rows"]),
                          out=named.get("out") or named["x"], scale=named.get("scale") or "none",
                          residual=named.get("residual") == "1", causal=int(named.get("causal") or 0),
                          given=named.get("given") == "1")
    raise ValueError(f"'{key}' is no config of bench_norm, bench_softmax or bench_quant")


def names_from(source, stdin):
    """Names of rows: those a benchmark lists, or the first column of a file, or of stdin for `-`."""
    if source == "-":
        text = stdin.read()
    elif os.path.isfile(source) and os.access(source, os.X_OK):
        done = subprocess.run([source, "--benchmark_list_tests"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ValueError(f"{source} --benchmark_list_tests exits with {done.returncode}")
        text = done.stdout
    else:
        with open(source, encoding="utf-8") as file:
            text = file.read()
    names = [line.split(",")[0].strip().strip('"') for line in text.splitlines()]
    return [name for name in names if name and name != "name"]


def quantile(ordered, fraction):
    """By linear interpolation, as the benchmarks' stats.hpp."""
    at = fraction * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def noise_of(samples):
    """Standard deviation (n - 1) / mean; NaN below two samples."""
    if len(samples) < 2:
        return math.nan
    mean = sum(samples) / len(samples)
    return math.sqrt(sum((s - mean) ** 2 for s in samples) / (len(samples) - 1)) / mean


def is_enough(samples, seconds, max_seconds):
    """The benchmarks' stop rule: ten samples or more, and quiet or out of time."""
    return len(samples) >= 10 and (noise_of(samples) < 0.005 or seconds >= max_seconds)


COLUMNS = """name peer us us_min us_q1 us_q3 us_cold us_hot cv_pct samples gbps bytes_ideal rows columns x_dtype out_dtype
scale_mode residual""".split()


def row_of(key, config, arch, peer, cold, hot):
    """A row of the CSV, from the microseconds of cold and hot samples."""
    op, rest = key.split("/", 1)
    ordered = sorted(cold)
    us = quantile(ordered, 0.5)
    fp8 = "fp8_e4m3fnuz" if arch == "gfx942" else "fp8_e4m3fn"
    dtype = {name: DTYPES.index(fp8 if name == "fp8" else name) for name in BYTES}
    values = {"name": f"{op}/{arch}/{rest}/{peer}", "peer": peer, "us": us, "us_min": ordered[0],
              "us_q1": quantile(ordered, 0.25), "us_q3": quantile(ordered, 0.75), "us_cold": us,
              "us_hot": quantile(sorted(hot), 0.5), "cv_pct": 100 * noise_of(cold), "samples": len(cold),
              "gbps": config.bytes_ideal() / us * 1e-3, "bytes_ideal": config.bytes_ideal(), "rows": config.rows,
              "columns": config.columns, "x_dtype": dtype[config.x], "out_dtype": dtype[config.out],
              "scale_mode": SCALE_MODES.index(config.scale), "residual": int(config.residual)}
    return [format(values[column], ".6g") if isinstance(values[column], float) else values[column] for column in COLUMNS]
