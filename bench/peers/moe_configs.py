# SPDX-License-Identifier: MIT
"""What bench_moe times, read from the names of its rows, so that peers time the same."""
import re
from dataclasses import dataclass

import common

KEY = re.compile(r"moe/(?P<x>bf16)/(?P<weights>bf16|fp8|fp4_e2m1|i4)(?:\.(?P<scale>block|group))?(?P<scale_k>\d+)?(?P<zeros>\.zeros)?"
                 r"/c(?P<columns>\d+)/r(?P<rows>\d+)"
                 r"/i(?P<intermediate>\d+)/e(?P<experts>\d+)/k(?P<topk>\d+)(?P<input>/input)?/(?P<load>balanced|random|zipf|one)/(?P<stage>\w+)")


@dataclass(frozen=True)
class Config:
    columns: int
    rows: int
    intermediate: int
    experts: int
    topk: int
    load: str
    weights: str = "bf16"  # or blocks: fp8 with scales of blocks, or mxfp4, or int4
    scale_k: int = 0  # int4: values of a row that share a scale, and with `zeros` a zero point
    zeros: bool = False
    left_out: str = ""  # why no peer is asked to do this

    def bytes_ideal(self, hit):
        """Weights of the experts that are hit, x, out and logits once."""
        tokens = self.rows * (2 * self.experts + 4 * self.columns)
        int4 = 0.5 + (2 + self.zeros) / self.scale_k if self.scale_k else 0
        return tokens + 3 * hit * self.columns * self.intermediate * {"bf16": 2, "blocks": 1, "mxfp4": 0.53125, "int4": int4}[self.weights]


def config_of(key):
    if not (match := KEY.fullmatch(key)):
        raise ValueError(f"'{key}' is no config of bench_moe")
    named = match.groupdict()
    weights = "int4" if named["weights"] == "i4" else {None: "bf16", "block": "blocks", "group": "mxfp4"}[named["scale"]]
    if (weights == "int4") != bool(named["scale_k"]):
        raise ValueError(f"'{key}': int4, and it alone, has groups of so many values")
    left_out = "a stage" if named["stage"] != "layer" else "weights of inputs" if named["input"] else ""
    numbers = {field: int(named[field]) for field in ("columns", "rows", "intermediate", "experts", "topk")}
    return Config(load=named["load"], weights=weights, scale_k=int(named["scale_k"] or 0), zeros=bool(named["zeros"]), left_out=left_out,
                  **numbers)


COLUMNS = """name peer kind arch x_dtype weight_dtype intermediate experts topk weight load columns rows config_rows seed ok err max_rel_err us
us_min us_q1 us_q3 us_cold us_hot cv_pct samples gbps bytes_ideal schema_version""".split()


def row_of(key, config, arch, peer, cold, hot, verdict):
    """A row of the CSV, from the microseconds of cold and hot samples and a verdict (ok, max_rel_err, experts hit)."""
    kind, rest = key.split("/", 1)
    values = common.times_of(cold, hot, config.bytes_ideal(verdict[2]))
    values |= {"name": f"{kind}/{arch}/{rest}/{peer}", "peer": peer, "kind": kind, "arch": arch, "x_dtype": "bf16", "weight_dtype": "bf16",
               "intermediate": config.intermediate, "experts": config.experts, "topk": config.topk, "weight": "output", "load": config.load,
               "columns": config.columns, "rows": config.rows, "config_rows": config.rows, "seed": common.SEED, "ok": int(verdict[0]),
               "err": int(not verdict[0]), "max_rel_err": verdict[1], "schema_version": common.SCHEMA}
    return common.line_of(values, COLUMNS)
