# SPDX-License-Identifier: MIT
"""What the benchmarks of activations, experts' sorts and reductions, embeddings, sampling and combined partials time, read
from the names of their rows, so that peers time the same."""
import re
from types import SimpleNamespace

import common
from configs import BYTES, GROUP

EXPERTS = 64  # that a masked reduction draws from
EXTENT = r"/(?P<x>f32|f16|bf16)/c(?P<columns>\d+)/r(?P<rows>\d+)/"
KEYS = {op: re.compile(pattern) for op, pattern in {
    "activation": r"(?P<kind>none|relu|silu|gelu|gelu_tanh|relu2|swigluoai)" + EXTENT + r"(?P<gating>plain|halves|interleaved)/"
                  r"(?P<out>f32|f16|bf16|fp8|i8)(?:\.(?P<scale>per_tensor|per_token|per_group))?",
    "moe_reduce": r"(?P<kind>moe_reduce)" + EXTENT + r"k(?P<topk>\d+)/weighted(?P<weighted>[01])/table(?P<table>[01])/"
                  r"masked(?P<masked>[01])/res(?P<residual>[01])",
    "moe_sort": r"(?P<kind>moe_sort)/k(?P<columns>\d+)/r(?P<rows>\d+)/e(?P<experts>\d+)/u(?P<unit>\d+)/local(?P<local>\d+)",
    "embedding": r"(?P<kind>embedding)" + EXTENT + r"v(?P<vocab>\d+)/(?P<ids>i32|i64)/scaled(?P<scaled>[01])",
    "sampling": r"(?P<kind>sampling)" + EXTENT + r"t(?P<temperature>\d+)/k(?P<top_k>\d+)/p(?P<top_p>\d+)/m(?P<min_p>\d+)",
    "combine": r"(?P<kind>combine)" + EXTENT + r"p(?P<partials>\d+)/(?P<out>f32|f16|bf16)"}.items()}


def config_of(key):
    """Fields as KEYS names them, and `op`."""
    for op, pattern in KEYS.items():
        if match := pattern.fullmatch(key):
            named = {field: int(word) if word and word.isdigit() else word for field, word in match.groupdict().items()}
            named["scale"] = named.get("scale") or "none"
            named.setdefault("out", named.get("x"))
            return SimpleNamespace(op=op, **named)
    raise ValueError(f"'{key}' is no config of bench_activation, bench_moe_reduce, bench_moe_sort, bench_embedding, "
                     "bench_sampling or bench_attention_combine")


def sort_capacity(c):
    """The most rows, pads included, that so many tokens can take."""
    choices = c.rows * c.columns
    return (choices + min(choices, c.experts) * (c.unit - 1)) // c.unit * c.unit


def bytes_ideal(c):
    """Every input and output byte once. Of masked slots half count, of ids 16 of 17 are known, as they are drawn on average."""
    if c.op == "moe_sort":
        capacity, choices = sort_capacity(c), c.rows * c.columns
        mask = 4 * c.experts * (c.local < 100)
        return 8 * capacity + 4 * -(-capacity // c.unit) + 12 * choices + 8 * c.experts + 12 + mask
    elements, size = c.rows * c.columns, BYTES[c.x]
    if c.op == "activation":
        scales = {"none": 0, "per_tensor": 1, "per_token": c.rows, "per_group": c.rows * -(-c.columns // GROUP)}[c.scale]
        return elements * (size * (1 if c.gating == "plain" else 2) + BYTES[c.out]) + 4 * scales
    if c.op == "moe_reduce":
        slots = c.rows * c.topk
        counted = slots // 2 if c.masked else slots
        lists = 4 * slots * (c.weighted + c.table + c.masked) + 4 * EXPERTS * c.masked
        return size * (counted * c.columns + elements * (1 + c.residual)) + lists
    if c.op == "embedding":
        return elements * size * 33 // 17 + c.rows * (8 if c.ids == "i64" else 4)
    if c.op == "sampling":
        return elements * size + 8 * c.rows
    return c.partials * (elements * size + 4 * c.rows) + elements * BYTES[c.out] + 4 * c.rows


# Ours, in the words of a config; then what a measured row has.
OURS = {"x_dtype": "x", "out_dtype": "out", "scale_mode": "scale", "gating": "gating", "topk": "topk", "weighted": "weighted",
        "table": "table", "masked": "masked", "residual": "residual", "experts": "experts", "unit": "unit", "local": "local",
        "id_type": "ids", "scaled": "scaled", "config_vocab": "vocab", "temperature_pct": "temperature", "top_k": "top_k",
        "top_p_pct": "top_p", "min_p_pct": "min_p", "partials": "partials", "columns": "columns", "rows": "rows",
        "config_rows": "rows"}
ONLY = {"out_dtype": ("activation", "combine"), "scale_mode": ("activation",)}  # who has such a column
COLUMNS = ["name", "peer", "kind", "arch", *OURS, "seed", "ok", "err", "max_rel_err", *"""us us_min us_q1 us_q3 us_cold us_hot
cv_pct samples gbps bytes_ideal schema_version""".split()]


def row_of(key, config, arch, peer, cold, hot, verdict):
    """A row of the CSV, from the microseconds of cold and hot samples and a verdict (ok, max_rel_err)."""
    kind, rest = key.split("/", 1)
    fp8 = "fp8_e4m3fnuz" if arch == "gfx942" else "fp8_e4m3fn"
    words = vars(config) | {"out": fp8 if config.out == "fp8" else config.out}
    values = {column: words[field] for column, field in OURS.items()
              if field in words and config.op in ONLY.get(column, (config.op,)) and words[field] is not None}
    values |= common.times_of(cold, hot, bytes_ideal(config))
    values |= {"name": f"{kind}/{arch}/{rest}/{peer}", "peer": peer, "kind": kind, "arch": arch, "seed": common.SEED,
               "ok": int(verdict[0]), "err": int(not verdict[0]), "max_rel_err": verdict[1],
               "schema_version": common.SCHEMA}
    return common.line_of(values, COLUMNS)
