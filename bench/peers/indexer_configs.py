# SPDX-License-Identifier: MIT
"""What bench_mqa_logits times, read from the names of its rows, so that peers time the same."""
import re
from dataclasses import dataclass

import common

HEAD_SIZE, PAGE = 128, 64
KEY = re.compile(r"(?P<kind>paged|ranges)/(?P<x>fp8|fp4)/c(?P<columns>\d+)/r(?P<rows>\d+)/q(?P<queries>\d+)/h(?P<heads>\d+)")


@dataclass(frozen=True)
class Config:
    kind: str  # paged: a row is a sequence; ranges: a query, all of one list of keys, of which they are the last
    columns: int  # the most keys of a sequence, or all
    rows: int
    queries: int  # of a sequence; ranges: rows
    heads: int
    left_out: str = ""  # why no peer is asked to do this

    def ends(self):
        """Paged: the keys of each sequence, half of the columns to all. Ranges: those that each query sees. As the benchmark's."""
        if self.kind == "ranges":
            return [self.columns - self.rows + row + 1 for row in range(self.rows)]
        half = self.columns // 2
        return [max(self.queries, half + common.drawn_below(half + 1, common.SEED, ord("l"), i)) for i in range(self.rows)]

    def all_queries(self):
        return self.rows * self.queries if self.kind == "paged" else self.rows

    def bytes_ideal(self):
        """Keys that are seen with their scales and what finds them once, queries and their weights once, all logits."""
        paged, ends = self.kind == "paged", self.ends()
        keys = sum(ends) if paged else self.columns
        found = 4 * self.rows + sum(4 * -(-end // PAGE) for end in ends) if paged else 8 * self.rows
        return keys * (HEAD_SIZE + 4) + self.all_queries() * (self.heads * (HEAD_SIZE + 4) + 4 * self.columns) + found


def config_of(key):
    if not (match := KEY.fullmatch(key)):
        raise ValueError(f"'{key}' is no config of bench_mqa_logits")
    named = match.groupdict()
    numbers = {field: int(named[field]) for field in ("columns", "rows", "queries", "heads")}
    return Config(named["kind"], left_out="fp4 keys" if named["x"] == "fp4" else "", **numbers)


COLUMNS = """name peer kind arch x_dtype heads queries columns rows config_rows seed ok err max_rel_err us us_min us_q1 us_q3 us_cold
us_hot cv_pct samples gbps bytes_ideal schema_version""".split()


def row_of(key, config, arch, peer, cold, hot, verdict):
    """A row of the CSV, from the microseconds of cold and hot samples and a verdict (ok, max_rel_err)."""
    kind, rest = key.split("/", 1)
    values = common.times_of(cold, hot, config.bytes_ideal())
    values |= {"name": f"{kind}/{arch}/{rest}/{peer}", "peer": peer, "kind": kind, "arch": arch, "x_dtype": "fp8_e4m3fn",
               "heads": config.heads, "queries": config.queries, "columns": config.columns, "rows": config.rows,
               "config_rows": config.rows, "seed": common.SEED, "ok": int(verdict[0]), "err": int(not verdict[0]),
               "max_rel_err": verdict[1], "schema_version": common.SCHEMA}
    return common.line_of(values, COLUMNS)
