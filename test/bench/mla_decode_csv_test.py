#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_mla_decode on the emulated device. Usage: mla_decode_csv_test.py BENCH_MLA_DECODE"""
import re

import contract
import op_contract

IDENTITY = """kind arch q_dtype kv_dtype layout head_size batch q_heads query_tokens context_length block_size ragged split_tokens lse
columns rows config_rows seed path tile_rows tile_tokens waves balanced waves_per_simd gathered""".split()
NAME = re.compile(r"(?P<kind>mla)/(?P<arch>gfx942|gfx950|sm90)/(?P<q_dtype>bf16|fp8)/c(?P<columns>\d+)(?:of(?P<length>\d+))?/"
                  r"r(?P<rows>\d+)(?:of(?P<of>\d+))?/b(?P<batch>\d+)/hq(?P<q_heads>\d+)/q(?P<query_tokens>\d+)/d(?P<head_size>\d+)/"
                  r"(?P<kv_dtype>bf16|fp8)\.(?P<layout>plain|groups_128|groups_64)/bs(?P<block_size>\d+)/ragged(?P<ragged>[01])/"
                  r"split(?P<split_tokens>\d+)/lse(?P<lse>[01])/"
                  r"(?P<policy>t(?P<tile_rows>\d+)x(?P<tile_tokens>\d+)\.w(?P<waves>\d+)\.o(?P<waves_per_simd>\d+)\.(?P<path>\w+)"
                  r"(?P<gathered>\.gathered)?(?P<balanced>\.balanced)?)")
READ = {("bf16", "plain"): 1152, ("fp8", "plain"): 576, ("fp8", "groups_128"): 656, ("fp8", "groups_64"): 583}  # bytes of a token


def lengths(row):
    """The lengths of the sequences that are launched."""
    batch, longest = int(row["batch"]), min(int(row["context_length"]), 160)
    if row["rows"] != row["config_rows"]:
        batch = min(batch, 2)
    if row["ragged"] == "0":
        return [longest] * batch
    return [-(-longest * (s * 1000003 % batch + 1) // batch) for s in range(batch)]


def work(row):
    """Bytes and operations of a call, each query token and each token of the cache counted by itself."""
    heads, queries, rows = int(row["q_heads"]), int(row["query_tokens"]), int(row["rows"])
    q_fp8, kv_fp8 = row["q_dtype"] != "bf16", row["kv_dtype"] != "bf16"
    pairs = sum(max(0, n - q) for n in lengths(row) for q in range(queries))
    words = sum(1 + -(-n // int(row["block_size"])) for n in lengths(row)) + q_fp8 + (kv_fp8 and row["layout"] == "plain")
    read = sum(lengths(row)) * READ["fp8" if kv_fp8 else "bf16", row["layout"]]
    moved = rows * (int(row["head_size"]) * (1 if q_fp8 else 2) + 1024 + 4 * int(row["lse"])) + 4 * words
    return moved + read, 2 * (int(row["head_size"]) + 512) * pairs * heads


class Csv(op_contract.OpContract):
    identity, name, rows = IDENTITY, NAME, 47
    few, few_rows = ["--benchmark_filter=/hq16/q1/"], 8  # each layout among them
    fewest = ["--benchmark_filter=/hq16/q[24]/"]

    def named(self, match):
        return {"context_length": match["length"] or match["columns"], "gathered": str(int(bool(match["gathered"]))),
                "balanced": str(int(bool(match["balanced"])))}

    def work(self, row, match):
        return work(row)

    def check_row(self, row, match):
        self.assertEqual(int(row["rows"]), len(lengths(row)) * int(row["query_tokens"]) * int(row["q_heads"]))
        self.check_roof(row, 1 if match["q_dtype"] == "fp8" else 2)

    def check_accuracy(self, row):  # what rounding probabilities and outputs leaves
        self.assertLess(float(row["max_rel_err"]), 6e-3, row["name"])

    def test_every_policy(self):
        self.check_every_policy("--benchmark_filter=/bf16/c160of1024/.*/b1/")

    def test_configs_that_are_launched_whole(self):
        """lse, odd lengths and pages, several query tokens: as they are, since they are small."""
        self.check_launched_whole("mla/bf16/c77/b2/hq4/q3/d576/bs1/lse1", "mla/bf16/c90/b2/hq5/q2/d576/bs61/ragged1",
                                  "mla/fp8/c40/b1/hq2/d576/bs16")

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("q_heads is not 1 to 1024", self.refuses("--config=mla/bf16/d576/c4/hq2000"))
        self.assertIn("config_rows is 4", self.refuses("--config=mla/bf16/d576/c4/hq4/r5"))

    def test_steps_of_a_model(self):
        self.check_step([("1", "16", "2048", "64"), ("4", "16", "2048", "64")], ["batch", "q_heads", "length", "block_size"],
                        "--tp=8", "--batch=1,4", "--context=2048")


if __name__ == "__main__":
    contract.main("BENCH_MLA_DECODE")
