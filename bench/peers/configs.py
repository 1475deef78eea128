# SPDX-License-Identifier: MIT
"""What bench_norm, bench_softmax, bench_quant and bench_topk_gating time, read from the names of their rows,
so that peers time the same."""
import re
from dataclasses import dataclass

import common

BYTES = {"f32": 4, "f16": 2, "bf16": 2, "fp8": 1, "i8": 1}
GROUP = 128  # columns of one per_group scale
EXTENT = r"(?P<x>f32|f16|bf16|fp8|i8)/c(?P<columns>\d+)/r(?P<rows>\d+)/"
OUT = r"(?P<out>f32|f16|bf16|fp8|i8)(?:\.(?P<scale>per_tensor|per_token|per_group))?/"
KEYS = [re.compile(r"(?P<op>rmsnorm|layernorm)/" + EXTENT + OUT + r"res(?P<residual>[01])"),
        re.compile(r"(?P<op>softmax|log_softmax)/" + EXTENT + r"causal(?P<causal>\d+)"),
        re.compile(r"(?P<op>quant|dequant)/" + EXTENT + OUT + r"given(?P<given>[01])"),
        re.compile(r"(?P<op>topk_gating)/" + EXTENT + r"k(?P<topk>\d+)/(?P<score>softmax|sigmoid)/renorm(?P<renormalise>[01])/"
                   r"bias(?P<bias>[01])/g(?P<groups>\d+)/kept(?P<kept_groups>\d+)/(?P<group_score>best|two_best)")]
GATING = "topk score renormalise bias groups kept_groups group_score".split()


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
    gating: tuple = ()  # of topk_gating: pairs of a column of GATING and its value

    def of_gating(self, column):
        value = dict(self.gating)[column]
        return int(value) if value.isdigit() else value

    def scales(self):
        return {"none": 0, "per_tensor": 1, "per_token": self.rows,
                "per_group": self.rows * -(-self.columns // GROUP)}[self.scale]

    def bytes_ideal(self):
        """Every input and output byte once, without a mask."""
        if self.gating:  # logits, bias; weights and two indices of every choice
            bias = 4 * self.columns * self.of_gating("bias")
            return self.rows * (self.columns * BYTES[self.x] + 12 * self.of_gating("topk")) + bias
        weights = {"rmsnorm": 1, "layernorm": 2}.get(self.op, 0) * self.columns * BYTES[self.x]
        moved = BYTES[self.x] * (3 if self.residual else 1) + BYTES[self.out]
        return self.rows * self.columns * moved + weights + 4 * self.scales()


def config_of(key):
    for pattern in KEYS:
        if match := pattern.fullmatch(key):
            named = match.groupdict()
            return Config(op=named["op"], x=named["x"], columns=int(named["columns"]), rows=int(named["rows"]),
                          out=named.get("out") or named["x"], scale=named.get("scale") or "none",
                          residual=named.get("residual") == "1", causal=int(named.get("causal") or 0),
                          given=named.get("given") == "1",
                          gating=tuple((column, named[column]) for column in GATING if column in named))
    raise ValueError(f"'{key}' is no config of bench_norm, bench_softmax, bench_quant or bench_topk_gating")


COLUMNS = """name peer kind arch x_dtype weight_dtype out_dtype scale_mode residual given causal topk score
renormalise bias groups kept_groups group_score columns rows config_rows seed ok err max_rel_err us us_min us_q1 us_q3
us_cold us_hot cv_pct samples gbps bytes_ideal schema_version""".split()
NORMS, QUANTS, SOFTMAXES = ("rmsnorm", "layernorm"), ("quant", "dequant"), ("softmax", "log_softmax")


def row_of(key, config, arch, peer, cold, hot, verdict):
    """A row of the CSV, from the microseconds of cold and hot samples and a verdict (ok, max_rel_err). Empty is what our row of
    such a config lacks as well."""
    op, rest = key.split("/", 1)
    fp8 = "fp8_e4m3fnuz" if arch == "gfx942" else "fp8_e4m3fn"
    x, out = (fp8 if dtype == "fp8" else dtype for dtype in (config.x, config.out))
    values = common.times_of(cold, hot, config.bytes_ideal())
    values |= {"name": f"{op}/{arch}/{rest}/{peer}", "peer": peer, "kind": op, "arch": arch, "rows": config.rows,
               "config_rows": config.rows, "columns": config.columns, "x_dtype": x, "seed": common.SEED,
               "ok": int(verdict[0]), "err": int(not verdict[0]), "max_rel_err": verdict[1],
               "schema_version": common.SCHEMA}
    if op in SOFTMAXES:
        values |= {"causal": config.causal}
    elif config.gating:
        values |= dict(config.gating)
    else:
        values |= {"out_dtype": out, "scale_mode": config.scale}
    if op in NORMS:
        values |= {"weight_dtype": x, "residual": int(config.residual)}
    if op in QUANTS:
        values |= {"given": int(config.given)}
    return common.line_of(values, COLUMNS)
