# SPDX-License-Identifier: MIT
"""What bench_pa times, read from the names of its rows, so that peers time the same; and rows with its columns."""
import re
from dataclasses import dataclass

import common

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
    ends: frozenset = frozenset()  # of the name: where the cache lies and what it holds
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
    return Config(call, int(named["block_size"]), frozenset(ends & PAGES), left_out)


# Those of bench_pa, in its order, and the peer.
COLUMNS = f"""name peer kind arch q_dtype kv_dtype quant_mode block_size mtp head_size batch_size context_length num_q_heads
num_kv_heads k_layout v_layout any_block_size native kv_varlen sliding_window sinks soft_cap alibi split_tokens stage_starts distinct inputs seed num_splits tile row_tiles
wave_rows wave_tokens slices stages stage_tokens fetch_waves groups q_shared balanced waves_per_simd ok err max_abs_err
max_rel_err us us_min us_q1 us_q3 us_cold us_hot cv_pct samples gbps tflops bytes_ideal flops roof_us roof_pct model_us
model_clk model_mhz model_error_pct model_bound model_chip {common.BESIDE}
entry config_id emulated schema_version policy_columns""".split()


def row_of(key, config, arch, peer, entry, cold, hot, verdict):
    """A row of the CSV, from the microseconds of cold and hot samples and a verdict (ok, max_abs_err, max_rel_err). Empty is
    what a peer does not have: a plan, a layout, a roof, a number in our sweep."""
    c, (ok, max_abs_err, max_rel_err) = config.call, verdict
    values = common.times_of(cold, hot, config.bytes_ideal())
    values |= {"name": f"peer_decode/{arch}/{key.split('/', 1)[1]}/{peer}", "peer": peer, "kind": "pa_decode", "arch": arch,
               "entry": entry, "batch_size": c.batch, "block_size": config.block_size,
               "context_length": c.context, "emulated": 0, "err": int(not ok), "flops": c.flops(),
               "head_size": c.head_size, "q_dtype": c.dtype, "kv_dtype": c.dtype, "kv_varlen": 0,
               "any_block_size": int("any" in config.ends), "native": 0, "distinct": int("distinct" in config.ends),
               "inputs": "varied" if "varied" in config.ends else "uniform",
               "max_abs_err": max_abs_err, "max_rel_err": max_rel_err, "mtp": c.mtp, "num_kv_heads": c.kv_heads,
               "num_q_heads": c.q_heads, "ok": int(ok), "quant_mode": "none", "schema_version": common.SCHEMA,
               "seed": common.SEED, "sliding_window": 0, "sinks": 0, "soft_cap": 0, "alibi": 0, "split_tokens": 0, "stage_starts": 0, "tflops": c.flops() / values["us"] * 1e-6}
    return common.line_of(values, COLUMNS)
