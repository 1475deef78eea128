# SPDX-License-Identifier: MIT
"""What bench_rope and bench_kv_cache_write time, read from the names of their rows, so that peers time the same."""
import re
from dataclasses import dataclass

import common

BYTES = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 1}
TABLE_ROWS = 8192
EXTENT = r"(?P<x>f32|f16|bf16)/c\d+/r(?P<tokens>\d+)/hq(?P<q_heads>\d+)/hkv?(?P<kv_heads>\d+)/d(?P<head_size>\d+)/"
KEYS = [re.compile(r"(?P<pairs>halves|neighbours)/" + EXTENT + r"rot(?P<rotary>\d+)/(?P<table>\w+)/full(?P<full>[01])"),
        re.compile(r"(?P<cache>cache|rope_cache)/" + EXTENT + r"bs(?P<block_size>\d+)/(?P<kv>f16|bf16|fp8)\.(?P<quant>\w+)/"
                   r"(?P<layout>token_major|dim_major)(?:/norm(?P<norm>[01])/(?P<pairs>halves|neighbours)/(?P<q>\w+)/(?P<table>\w+)"
                   r"(?P<latent>/latent\d+(?:/g\d+/powers[01])?)?)?")]


@dataclass(frozen=True)
class Config:
    x: str
    tokens: int
    q_heads: int
    kv_heads: int
    head_size: int
    pairs: str = ""  # none: nothing turns
    rotary: int = 0
    table: str = "f32"
    cached: bool = False
    norm: bool = False
    left_out: str = ""  # why PyTorch is not asked to do this

    def bytes_ideal(self):
        """Of a token: its heads in and out, its rows of the tables, its position and slot."""
        heads = self.q_heads + self.kv_heads * (2 if self.cached else 1)
        tables = self.rotary * BYTES[self.table] + 4 if self.pairs else 0
        return self.tokens * (2 * heads * self.head_size * BYTES[self.x] + tables + 8 * self.cached)


def config_of(key):
    for pattern in KEYS:
        if match := pattern.fullmatch(key):
            named = match.groupdict()
            numbers = {field: int(named[field]) for field in ("tokens", "q_heads", "kv_heads", "head_size")}
            left_out = ("latent heads" if named.get("latent") else
                        "full tables" if named.get("full") == "1" else
                        "caches or q of fp8" if "fp8" in (named.get("kv"), named.get("q")) else
                        "dim-major caches" if named.get("layout") == "dim_major" else "")
            return Config(x=named["x"], pairs=named.get("pairs") or "", table=named.get("table") or "f32",
                          rotary=int(named.get("rotary") or numbers["head_size"]), cached="cache" in named,
                          norm=named.get("norm") == "1", left_out=left_out, **numbers)
    raise ValueError(f"'{key}' is no config of bench_rope or bench_kv_cache_write")


COLUMNS = """name peer kind arch x_dtype q_heads kv_heads head_size rows config_rows seed ok err max_rel_err us us_min us_q1
us_q3 us_cold us_hot cv_pct samples gbps bytes_ideal schema_version""".split()


def row_of(key, config, arch, peer, cold, hot, verdict):
    """A row of the CSV, from the microseconds of cold and hot samples and a verdict (ok, max_rel_err)."""
    kind, rest = key.split("/", 1)
    values = common.times_of(cold, hot, config.bytes_ideal())
    values |= {"name": f"{kind}/{arch}/{rest}/{peer}", "peer": peer, "kind": kind, "arch": arch, "x_dtype": config.x,
               "q_heads": config.q_heads, "kv_heads": config.kv_heads, "head_size": config.head_size,
               "rows": config.tokens, "config_rows": config.tokens, "seed": common.SEED, "ok": int(verdict[0]), "err": int(not verdict[0]),
               "max_rel_err": verdict[1], "schema_version": common.SCHEMA}
    return common.line_of(values, COLUMNS)
