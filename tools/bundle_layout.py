# SPDX-License-Identifier: MIT
"""Checks the JSON of a repro bundle before anything is looked up in it: each value has its type and its range.

A rule is a function of a value and of where it stands; it raises Broken with one sentence. docs/reference/bundle.md is the format.
"""

import json
import math
import re


class Broken(Exception):
    """One sentence: what is wrong with the bundle."""


def require(condition, message):
    if not condition:
        raise Broken(message)


def shown(value):
    """A value in a message: one line, and not a long one."""
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def text(value, where):
    require(isinstance(value, str) and value and value.isprintable(), f"{where} is {shown(value)}, not a line of text")


def anything(value, where):
    del value, where


def file_name(value, where):
    text(value, where)
    require("/" not in value and value not in (".", ".."), f"{where} is {shown(value)}, not the name of a file beside it")


def hex_digits(value, where):
    digits = isinstance(value, str) and re.fullmatch(r"([0-9a-fA-F]{2})*", value)
    require(digits, f"{where} is not two hex digits a byte")


def one_of(*words):
    def rule(value, where):
        require(value in words if isinstance(value, str) else False, f"{where} is {shown(value)}, none of {', '.join(words)}")

    return rule


def whole(low, high):
    def rule(value, where):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        require(is_whole and low <= value <= high, f"{where} is {shown(value)}, not a whole number from {low} to {high}")

    return rule


def real(low, high):
    def rule(value, where):
        is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
        require(is_real and low <= value <= high, f"{where} is {shown(value)}, not a number from {low} to {high}")

    return rule


def some(rule_of_one, *counts):
    """A list, of one of these lengths if any are given."""

    def rule(value, where):
        require(isinstance(value, list), f"{where} is {shown(value)}, not a list")
        require(not counts or len(value) in counts, f"{where} has {len(value)} values, not {' or '.join(map(str, counts))}")
        for i, one in enumerate(value):
            rule_of_one(one, f"{where}[{i}]")

    return rule


def table(rules, optional=()):
    """An object with at least these keys; those of `optional` may be missing."""

    def rule(value, where):
        require(isinstance(value, dict), f"{where} is {shown(value)}, not an object")
        missing = sorted(rules.keys() - value.keys() - set(optional))
        require(not missing, f"{where}: no {', '.join(missing)}")
        for key, of_key in rules.items():
            if key in value:
                of_key(value[key], f"{where}: {key}")

    return rule


extent, stride, offset = whole(1, 2**31 - 1), whole(0, 2**56), whole(0, 2**56)
tolerance = real(0, 2.0**127)

POINTER = table({"offset": offset, "file": file_name, "file_offset": offset, "bytes": whole(1, 2**56), "direction": text})
LAUNCH = table({
    "name": text,
    "code_object": file_name,
    "kernel": text,
    "symbol": text,
    "grid_blocks": some(extent, 3),
    "block": some(whole(1, 1024), 3),
    "dynamic_lds_bytes": whole(0, 2**31 - 1),
    "static_lds_bytes": whole(0, 2**31 - 1),
    "kernarg_bytes": whole(0, 2**16),
    "kernarg_hex": hex_digits,
    "pointers": some(POINTER),
})
BUFFER = table({"file": file_name, "bytes": whole(1, 2**56), "direction": text})
OUTPUT = table({
    "file": file_name,
    "expected": file_name,
    "expected_f64": file_name,
    "expected_bf16": file_name,
    "dtype": text,
    "shape": some(extent),
    "strides": some(stride),
    "atol": tolerance,
    "rtol": tolerance,
    "row_rtol": tolerance,
}, optional=("expected_bf16", "row_rtol"))
WHOLE_OUTPUT = table({
    "file": file_name,
    "expected": file_name,
    "dtype": text,
    "elements": whole(1, 2**56),
    "atol": tolerance,
    "rtol": tolerance,
})
BUNDLE = {
    "schema": text,
    "arch": text,
    "config": text,
    "policy": text,
    "description": text,
    "problem": table({}),
    "launches": some(LAUNCH),
    "buffers": some(BUFFER),
    "outputs": some(anything),
}
PROBLEM = table({
    "q_dtype": one_of("bf16", "f16"),
    "kv_dtype": one_of("bf16", "f16", "fp8_e4m3fn", "fp8_e4m3fnuz"),
    "out_dtype": one_of("bf16", "f16"),
    "quant_mode": one_of("none", "per_tensor", "per_token", "per_head"),
    "head_size": whole(1, 1024),
    "softmax_scale": real(-1e6, 1e6),
    "sliding_window": whole(0, 2**31 - 1),
    "soft_cap": real(0, 1e6),
    "split_tokens": whole(0, 2**31 - 1),
    "batch": extent,
    "mtp": extent,
    "num_q_heads": extent,
    "num_kv_heads": extent,
    "block_size": extent,
    "table_columns": extent,
    "num_pages": extent,
    "num_splits": extent,
    "q_strides": some(stride, 3),
    "out_strides": some(stride, 3),
    "k_strides": some(stride, 5),
    "v_strides": some(stride, 4, 5),
    "scale_strides": some(stride, 3),
    "table_row_stride": stride,
})


def attention_bytes(p):
    """Bytes of each tensor of an attention, from its first element to its last (docs/reference/bundle.md)."""
    size = {"bf16": 2, "f16": 2}
    kv = size.get(p["kv_dtype"], 1)
    rows, heads, d, unit = p["batch"] * p["mtp"], p["num_q_heads"], p["head_size"], 16 // kv
    ks, vs, scales = p["k_strides"], p["v_strides"], p["scale_strides"]
    pages = lambda s: (p["num_pages"] - 1) * s[0] + (p["num_kv_heads"] - 1) * s[1]  # noqa: E731
    per_row = lambda s: (rows - 1) * s[0] + (heads - 1) * s[1] + d  # noqa: E731
    slot = p["block_size"] - 1
    in_head = slot * vs[2] + d if len(vs) == 4 else (p["block_size"] // unit - 1) * vs[2] + (d - 1) * vs[3] + unit
    scale = {"none": 0, "per_tensor": 1, "per_head": (p["num_kv_heads"] - 1) * scales[1] + 1,
             "per_token": pages(scales) + p["block_size"]}[p["quant_mode"]]
    return {
        "q.bin": 2 * per_row(p["q_strides"]),
        "out.bin": 2 * per_row(p["out_strides"]),
        "lse.bin": 4 * rows * heads,
        "k.bin": kv * (pages(ks) + (d // unit - 1) * ks[2] + slot * ks[3] + unit),
        "v.bin": kv * (pages(vs) + in_head),
        "k_scale.bin": 4 * scale,
        "v_scale.bin": 4 * scale,
        "sinks.bin": 4 * heads,
        "alibi_slopes.bin": 4 * heads,
        "block_table.bin": 4 * ((p["batch"] - 1) * p["table_row_stride"] + p["table_columns"]),
        "context_lengths.bin": 4 * p["batch"],
        "stage_starts.bin": 4 * (p["batch"] + 1),
    }


def distinct(pairs):
    names = [name for name, _ in pairs]
    require(len(set(names)) == len(names), f"a key comes twice: {shown(max(names, key=names.count))}")
    return dict(pairs)


def no_constant(word):
    raise Broken(f"{word} is no number of JSON")


def read(path):
    """The JSON of a file, in UTF-8, without what Python takes and JSON does not have."""
    data = path.read_bytes()
    require(data[:2] not in (b"\xff\xfe", b"\xfe\xff"), f"{path.name} is UTF-16, not UTF-8")
    require(data[:3] != b"\xef\xbb\xbf", f"{path.name} starts with a byte order mark")
    try:
        return json.loads(data.decode(), parse_constant=no_constant, object_pairs_hook=distinct)
    except UnicodeDecodeError as error:
        raise Broken(f"{path.name} is not UTF-8, at byte {error.start}") from None
    except RecursionError:
        raise Broken(f"{path.name} nests too deep") from None
    except ValueError as error:
        raise Broken(f"{path.name} is not JSON: {error}") from None


def check(bundle):
    table(BUNDLE)(bundle, "bundle.json")
    for name in ("launches", "outputs"):
        require(bundle[name], f"no {name}")


def largest_of(values):
    return max((abs(v) for v in values if math.isfinite(v)), default=0)
