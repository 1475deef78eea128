# SPDX-License-Identifier: MIT
"""What bench_pa times, read from the names of its rows, so that peers time the same; and rows with its columns."""
import re
from dataclasses import dataclass

import common

ARCHS = ["gfx942", "gfx950", "sm90"]  # by number, as in the CSV
KEY = re.compile(r"pa_decode/(?P<kv>f16|bf16|fp8)(?:\.(?P<quant>\w+))?/bs(?P<block_size>\d+)/mtp(?P<mtp>\d+)"
                 r"/h(?P<head_size>\d+)/b(?P<batch>\d+)/c(?P<context>\d+)/hq(?P<q_heads>\d+)/hkv(?P<kv_heads>\d+)"
                 r"/vt[01]/vl(?P<varlen>[01])/sw(?P<window>\d+)(?P<rest>(?:/[^/]+)*)")
PAGES = {"nhd", "hnd", "any", "distinct", "varied"}  # ends of names: where the cache lies and what it holds


@dataclass(frozen=True)
class Call:
    """What is left of a config where each sequence has its own contiguous cache."""
    dtype: str  # of Q, K, V and out
    mtp: int  # query tokens of a sequence, the last of its context
    head_size: int
    batch: int
    context: int
    q_heads: int
    kv_heads: int

    def group(self):
        return self.q_heads // self.kv_heads

    def flops(self):
        """4 x head_size for every (query row, token) pair under the causal mask."""
        visible = sum(self.context - self.mtp + i + 1 for i in range(self.mtp))
        return 4 * self.head_size * self.batch * self.q_heads * visible


@dataclass(frozen=True)
class Config:
    call: Call
    block_size: int
    left_out: str = ""  # why PyTorch is not asked to do this

    def bytes_ideal(self):
        """As bench_pa counts them where no page is used twice: K, V, Q, out in two bytes, lse, block table, lengths."""
        c = self.call
        slots, rows = c.batch * c.context * c.kv_heads, c.batch * c.mtp * c.q_heads
        entries = c.batch * -(-c.context // self.block_size)
        return 2 * 2 * slots * c.head_size + rows * (2 * 2 * c.head_size + 4) + 4 * (entries + c.batch)


def config_of(key):
    match = KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"'{key}' is no config of bench_pa")
    named, ends = match.groupdict(), set(match["rest"].split("/")[1:])
    dtype = "f16" if "f16" in ends else "bf16"
    unknown = sorted(ends - PAGES - {"f16"})
    left_out = ("a cache of another type than Q" if named["kv"] != dtype else
                "lengths that vary" if named["varlen"] == "1" else
                "a sliding window" if named["window"] != "0" else
                f"'{unknown[0]}'" if unknown else "")
    call = Call(dtype, *(int(named[field]) for field in "mtp head_size batch context q_heads kv_heads".split()))
    return Config(call, int(named["block_size"]), left_out)


# Those of bench_pa, in its order: Google Benchmark's, then the counters by name.
COLUMNS = """name iterations real_time cpu_time time_unit bytes_per_second items_per_second label error_occurred error_message
arch batch_size block_size bytes_ideal config_id context_length cv_pct emulated err flops gbps head_size kv_dtype kv_varlen
max_abs_err max_rel_err mtp num_kv_heads num_q_heads num_splits ok quant_mode roof_pct roof_us samples schema_version seed
sliding_window stages tflops tile trans_v us us_cold us_hot us_min us_q1 us_q3 waves""".split()


def row_of(key, config, arch, peer, label, cold, hot, verdict):
    """A row of the CSV, from the microseconds of cold and hot samples and a verdict (ok, max_abs_err, max_rel_err). Empty is
    what a peer does not have: a plan, a shuffled V, a roof, a number in our sweep."""
    c, (ok, max_abs_err, max_rel_err) = config.call, verdict
    values = common.times_of(cold, hot, float(config.bytes_ideal()))
    values |= {"name": f"peer_decode/{arch}/{key.split('/', 1)[1]}/{peer}", "iterations": 1, "real_time": values["us"],
               "time_unit": "us", "label": label, "batch_size": c.batch, "block_size": config.block_size,
               "context_length": c.context, "emulated": 0, "err": int(not ok), "flops": float(c.flops()),
               "head_size": c.head_size, "kv_dtype": common.DTYPES.index(c.dtype), "kv_varlen": 0,
               "max_abs_err": max_abs_err, "max_rel_err": max_rel_err, "mtp": c.mtp, "num_kv_heads": c.kv_heads,
               "num_q_heads": c.q_heads, "ok": int(ok), "quant_mode": 0, "schema_version": 1, "seed": common.SEED,
               "sliding_window": 0, "tflops": c.flops() / values["us"] * 1e-6}
    if arch in ARCHS:
        values["arch"] = ARCHS.index(arch)
    return common.line_of(values, COLUMNS)
