#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_mla_prefill on the emulated device. Usage: mla_prefill_csv_test.py BENCH_MLA_PREFILL"""
import re

import contract
import op_contract
from contract import ARCHS, every

IDENTITY = """kind arch kv_dtype layout batch q_heads q_length context_length chunk_tokens block_size stage columns rows config_rows seed
gather_tokens""".split()
STAGES = "prefill gather up attend merge absorb_query absorb_value layer decode_layer".split()
NAME = re.compile(r"(?P<kind>mla_prefill)/(?P<arch>gfx942|gfx950|sm90)/(?P<kv_dtype>bf16|fp8)\.(?P<layout>plain|groups_128)/"
                  r"c(?P<columns>\d+)(?:of(?P<context>\d+))?/r(?P<rows>\d+)(?:of(?P<of>\d+))?/b(?P<batch>\d+)/hq(?P<q_heads>\d+)/"
                  r"q(?P<q_length>\d+)/chunk(?P<chunk_tokens>\d+)/bs(?P<block_size>\d+)/"
                  rf"(?P<stage>{'|'.join(STAGES)})/(?P<policy>t(?P<gather_tokens>1|4)\.gather)")
ROW = {("bf16", "plain"): 1152, ("fp8", "plain"): 576, ("fp8", "groups_128"): 656}  # bytes of a token of the cache


def work(row):
    """Bytes and operations of a stage, token by token and query by query."""
    batch, heads = min(int(row["batch"]), 2), min(int(row["q_heads"]), 2)
    own, earlier = min(int(row["q_length"]), 24), int(row["columns"])
    rows = int(row["rows"])
    assert rows == batch * own and earlier == min(int(row["context_length"]), 70)
    kv = "fp8" if row["kv_dtype"] != "bf16" else "bf16"
    token = ROW[kv, row["layout"]]
    tokens = batch * (own + earlier)
    chunk = min(min(int(row["chunk_tokens"]), 64), batch * earlier)
    chunks = -(-batch * earlier // chunk) if earlier else 0
    part = chunk if earlier else rows
    seen = batch * sum(earlier + i + 1 for i in range(own))
    part_seen = part * own if earlier else seen
    words = 2 * batch + 1 + batch * -(-(own + earlier) // int(row["block_size"])) + (kv == "fp8" and row["layout"] == "plain")
    up = heads * 256 * 512
    expand, attend = 2 * up, heads * 2 * (192 + 128)  # of a token, of a pair
    q, out = rows * heads * 192 * 2, rows * heads * 128 * 2
    hidden, rank = 256, 128
    weights = 2 * (hidden * (rank + 576) + rank + 512 + rank * heads * 192 + up + hidden * heads * 128)
    projections = 2 * rows * (hidden * (rank + 576) + rank * heads * 192 + hidden * heads * 128)
    layer = weights + 4 * rows * hidden + tokens * token + rows * token + 4 * words
    return {"prefill": (q + 2 * up + tokens * token + 4 * words + out, tokens * expand + attend * seen),
            "gather": (part * token + 4 * words + part * (1024 + heads * 128), part * 576),
            "up": (part * 1024 + 2 * up + part * heads * 512, part * expand),
            "attend": (q + part * heads * 640 + out, attend * part_seen),
            "merge": ((1 + chunks) * rows * heads * 260 + out, (1 + chunks) * out),
            "absorb_query": (rows * heads * 256 + up + rows * heads * 1024, rows * up),
            "absorb_value": (rows * heads * 1024 + up + out, rows * up),
            "layer": (layer, projections + tokens * expand + attend * seen),
            "decode_layer": (layer, projections + rows * 2 * up + heads * 2 * (576 + 512) * seen)}[row["stage"]]


class Csv(op_contract.OpContract):
    identity, name, rows = IDENTITY, NAME, 33
    few, few_rows = ["--benchmark_filter=/(r24of1024/.*/prefill|.*b1/.*/absorb_)"], 3

    def named(self, match):
        return {"context_length": match["context"] or match["columns"]}

    def work(self, row, match):
        return work(row)

    def check_row(self, row, match):
        self.check_roof(row)

    def check_accuracy(self, row):  # what a step or all of a layer rounds
        self.assertLess(float(row["max_rel_err"]), 0.03, row["name"])

    def test_every_arch(self):
        """Each stage on one architecture, a third of the rows on each."""
        for arch, stages in zip(ARCHS, ("/(layer|prefill)/", "/decode_layer/", "/(gather|up|attend|merge|absorb_.*)/"), strict=True):
            for row in self.good_rows(every(3), f"--arch={arch}", f"--benchmark_filter={stages}"):
                self.assertEqual(row["arch"], arch)
                self.check_accuracy(row)

    def test_every_policy(self):
        self.assertGreater(len(self.good_rows("--benchmark_filter=/r24of2048/.*/prefill", "--policies=all", every(4))), 0)

    def test_configs_that_are_launched_whole(self):
        self.check_launched_whole("mla_prefill/bf16.plain/c30/b2/hq2/q5/bs1/chunk7/prefill",
                                  "mla_prefill/fp8.groups_128/c0/b1/hq1/q9/bs61/prefill",
                                  "mla_prefill/bf16.plain/c13/b2/hq2/q3/bs16/decode_layer")

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("q_heads is not 1 to 1024", self.refuses("--config=mla_prefill/bf16.plain/q4/hq2000"))
        self.assertIn("nothing to merge", self.refuses("--config=mla_prefill/bf16.plain/q4/merge"))
        self.assertIn("decode has 1 to 8", self.refuses("--config=mla_prefill/bf16.plain/q9/decode_layer"))

    def test_steps_of_a_model(self):
        self.check_step([("1", "16", "decode_layer"), ("4", "16", "decode_layer")], ["batch", "q_heads", "stage"],
                        "--tp=8", "--batch=1,4", "--context=2048")


if __name__ == "__main__":
    contract.main("BENCH_MLA_PREFILL")
