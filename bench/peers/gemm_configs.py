# SPDX-License-Identifier: MIT
"""Configs of bench_gemm, read from the names of its rows so that peers time the same, and rows with its columns."""
import re
from dataclasses import dataclass

import common

BYTES = {"bf16": 2, "f16": 2, "f32": 4, "fp8": 1, "i8": 1}
KEY = re.compile(r"gemm/(?P<a>f16|bf16|fp8|i8)(?:\.(?P<scale>tensor|row|block))?(?P<special>(?:\.\w+)*)/(?P<out>f16|bf16|f32|fp8)"
                 r"/m(?P<m>\d+)/n(?P<n>\d+)/k(?P<k>\d+)(?:/batch(?P<batch>\d+))?(?P<rest>(?:/[^/]+)*)")

GROUPS = re.compile(r"(contiguous|masked)(\d+)x(\d+)")


@dataclass(frozen=True)
class GroupsOf:
    """The groups of a grouped product: how they lie, how many, and rows on average."""
    kind: str
    count: int
    rows: int


@dataclass(frozen=True)
class Config:
    a: str  # the type of both operands
    out: str
    scale: str
    m: int
    n: int
    k: int
    batch: int = 1
    left_out: str = ""  # why the config is not run on PyTorch
    groups: GroupsOf = None

    def bytes_ideal(self):
        """Returns the bytes of both operands, out and scales, once each."""
        elements = (self.m + self.n) * self.k * BYTES[self.a] + self.m * self.n * BYTES[self.out]
        k_blocks = -(-self.k // 128)
        scales = {"none": 0, "tensor": 2, "row": self.batch * (self.m + self.n), "block": (self.m - (-self.n // 128)) * k_blocks}
        return self.batch * elements + 4 * scales[self.scale]

    def flops(self):
        return 2 * self.batch * self.m * self.n * self.k


def config_of(key):
    match = KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"'{key}' is no config of bench_gemm")
    named = match.groupdict()
    batch, scale = int(named["batch"] or 1), (named["scale"] or "none").removeprefix("per_")
    special = (named["special"].replace(".", "/") + named["rest"]).split("/")[1:]
    grouped = GROUPS.fullmatch(special[0]) if len(special) == 1 else None
    groups = GroupsOf(grouped[1], int(grouped[2]), int(grouped[3])) if grouped else None
    left_out = ("i4 weights" if special[:1] == ["i4"] else
                "MXFP4 weights" if special[:1] == ["fp4_e2m1"] else
                f"'{special[0]}'" if special else
                "i8 operands" if named["a"] == "i8" else
                "block scales of K no multiple of 128" if scale == "block" and int(named["k"]) % 128 else
                "batches of fp8" if named["a"] == "fp8" and batch > 1 else "")
    return Config(named["a"], named["out"], scale, *(int(named[field]) for field in "mnk"), batch, left_out, groups)


# The columns of bench_gemm in its order, and the peer.
COLUMNS = f"""name peer kind arch a_dtype b_dtype out_dtype scale group layout weights activation gated out_scale sums zero_points bias group_kind group_rows batch m n k
groups config_m config_n config_k config_batch config_groups config_group_rows seed tile_rows tile_columns depth stages waves_rows waves_columns path swapped
cluster cluster_columns splits most_splits waves_per_simd waves_k stream pingpong late ok err max_abs_err max_rel_err us us_min us_q1 us_q3 us_cold us_hot cv_pct samples
gbps tflops bytes_ideal flops roof_us roof_pct model_us model_clk model_mhz model_error_pct model_bound model_chip {common.BESIDE}
entry config_id
emulated schema_version policy_columns""".split()


def row_of(key, config, arch, peer, entry, cold, hot, verdict):
    """Returns a row of the CSV, from the microseconds of cold and hot samples and a verdict (ok, max_abs_err, max_rel_err).
    Columns that a peer does not have are empty: a policy, a roof, a number in our sweep."""
    c, (ok, max_abs_err, max_rel_err) = config, verdict
    fp8 = "fp8_e4m3fnuz" if arch == "gfx942" else "fp8_e4m3fn"
    operand = fp8 if c.a == "fp8" else c.a
    values = common.times_of(cold, hot, c.bytes_ideal())
    values |= {"name": f"gemm/{arch}/{key.split('/', 1)[1]}/{peer}", "peer": peer, "kind": "gemm", "arch": arch,
               "a_dtype": operand, "b_dtype": operand, "out_dtype": c.out, "scale": c.scale if c.scale == "none" else "per_" + c.scale, "group": 0, "layout": "nt",
               "weights": "row_major", "activation": "none", "gated": 0, "out_scale": "none", "sums": "promoted", "zero_points": 0, "bias": 0, "group_kind": "one", "group_rows": 0, "groups": 0,
               "batch": c.batch, "m": c.m, "n": c.n, "k": c.k, "config_m": c.m, "config_n": c.n, "config_k": c.k,
               "config_batch": c.batch, "config_groups": 0, "config_group_rows": 0, "seed": common.SEED, "ok": int(ok), "err": int(not ok), "max_abs_err": max_abs_err,
               "max_rel_err": max_rel_err, "tflops": c.flops() / values["us"] * 1e-6, "flops": c.flops(), "entry": entry,
               "emulated": 0, "schema_version": common.SCHEMA}
    return common.line_of(values, COLUMNS)
