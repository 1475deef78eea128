#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_flash_attention on the emulated device. Usage: flash_attention_csv_test.py BENCH_FLASH_ATTENTION"""
import re

import contract
import op_contract
from contract import run

IDENTITY = """kind arch q_dtype kv_dtype quant_mode out_dtype head_size value_size batch q_heads kv_heads q_length kv_length block_size
causal window ragged decode_rows lse columns rows config_rows seed path tile_rows tile_keys waves stages waves_per_simd turns cluster""".split()
NAME = re.compile(r"(?P<kind>prefill)/(?P<arch>gfx942|gfx950|sm90)/(?P<q_dtype>bf16|f16|fp8)/c(?P<columns>\d+)(?:of(?P<kv>\d+))?/"
                  r"r(?P<rows>\d+)(?:of(?P<of>\d+))?/b(?P<batch>\d+)/hq(?P<q_heads>\d+)/hkv(?P<kv_heads>\d+)/q(?P<q_length>\d+)/"
                  r"d(?P<head_size>\d+)/dv(?P<value_size>\d+)/(?P<kv_dtype>bf16|f16|fp8)\.(?P<quant_mode>\w+)/(?P<out_dtype>bf16|f16|fp8)/"
                  r"bs(?P<block_size>\d+)/causal(?P<causal>[01])/w(?P<window>\d+)/ragged(?P<ragged>[01])(?:/decode(?P<decode_rows>\d+))?/lse(?P<lse>[01])/"
                  r"(?P<policy>t(?P<tile_rows>\d+)x(?P<tile_keys>\d+)\.w(?P<waves>\d+)\.s(?P<stages>\d+)\.(?P<path>\w+)"
                  r"(?:\.o(?P<waves_per_simd>\d+))?(?P<turns>\.turns)?(?:\.c(?P<cluster>\d+))?)")


def launched(row):
    """Lengths of queries and of keys of the sequences that are launched, and the query heads and kv heads."""
    batch, q_heads, kv_heads, q, keys, window = (int(row[column]) for column in
                                                 ("batch", "q_heads", "kv_heads", "q_length", "kv_length", "window"))
    ragged, decoding = row["ragged"] == "1", int(row["decode_rows"])
    if row["rows"] != row["config_rows"]:
        q_heads, kv_heads = q_heads // kv_heads * min(kv_heads, 2), min(kv_heads, 2)
        batch = min(batch, 3 if ragged or decoding else 2)
        keys = min(keys, window + 64 if window else 320)
        q = min(q, keys, 2 ** 19 // (keys * q_heads * batch))
    if decoding:
        queries = [q if s < max(batch - decoding, 1) else 1 for s in range(batch)]
        return queries, [m + keys - q for m in queries], q_heads, kv_heads
    if not ragged:
        return [q] * batch, [keys] * batch, q_heads, kv_heads
    queries = [-(-q * (s * 1000003 % batch + 1) // batch) for s in range(batch)]
    return queries, [m + keys - q for m in queries], q_heads, kv_heads


def work(row):
    """Bytes and operations of a call, each query and each key counted by itself."""
    queries, keys, q_heads, kv_heads = launched(row)
    causal, window, page = row["causal"] == "1", int(row["window"]), int(row["block_size"])
    head, value = int(row["head_size"]), int(row["value_size"])
    size = {column: 2 if row[column].endswith("f16") else 1 for column in ("q_dtype", "kv_dtype", "out_dtype")}
    pairs = seen = words = 0
    for m, n in zip(queries, keys):
        firsts = [max(0, n - m + i + 1 - window) if window else 0 for i in range(m)]
        pairs += sum((n - m + i + 1 if causal else n) - first for i, first in enumerate(firsts))
        seen += n - min(firsts)
        words += len({key // page for key in range(min(firsts), n)}) + 1 if page else 0
    if row["ragged"] == "1" or row["decode_rows"] != "0":
        words += (len(queries) + 1) * (1 if page else 2)
    words += 2 * (size["kv_dtype"] == 1) + (size["q_dtype"] == 1)  # scales of tensors
    rows = sum(queries) * q_heads
    moved = rows * (head * size["q_dtype"] + value * size["out_dtype"] + 4 * int(row["lse"])) + 4 * words
    return moved + seen * kv_heads * (head + value) * size["kv_dtype"], 2 * (head + value) * pairs * q_heads


class Csv(op_contract.OpContract):
    identity, name, rows = IDENTITY, NAME, 51
    few, few_rows = ["--benchmark_filter=c320of1024/.*causal1|c320of2048/.*/d128/.*causal0|/w1024/|/ragged1/|/b4/.*/bs16/"], 10
    fewest = ["--benchmark_filter=c320of1024/.*/d64/"]

    def named(self, match):
        return {"kv_length": match["kv"] or match["columns"], "waves_per_simd": match["waves_per_simd"] or "1",
                "turns": str(int(bool(match["turns"]))), "cluster": match["cluster"] or "1",
                "decode_rows": match["decode_rows"] or "0"}

    def work(self, row, match):
        return work(row)

    def check_row(self, row, match):
        queries, _, q_heads, _ = launched(row)
        self.assertEqual(int(row["rows"]), sum(queries) * q_heads)
        self.check_roof(row, 1 if match["q_dtype"] == "fp8" else 2)

    def check_accuracy(self, row):  # what rounding probabilities and outputs leaves; native fp8 products sum in 14 bits besides
        self.assertLess(float(row["max_rel_err"]), 2 ** -4 if row["q_dtype"].startswith("fp8") else 6e-3, row["name"])

    def test_every_policy(self):
        self.check_every_policy("--benchmark_filter=/bf16/c320of1024/.*/d128/.*causal1")

    def test_configs_that_are_launched_whole(self):
        """lse, windows without a causal mask, odd lengths, ragged pages: as they are, since they are small."""
        self.check_launched_whole("prefill/bf16/c77/b2/hq4/hkv2/q33/d128/causal1/lse1", "prefill/bf16/c40/b1/hq2/hkv1/q40/d64/w7",
                                  "prefill/bf16/c90/b3/hq2/hkv1/q30/d128/bs16/causal1/w9/ragged1/lse1",
                                  "prefill/f16/b3/hq2/hkv2/q31/d128/ragged1",
                                  "prefill/bf16/c90/b3/hq2/hkv1/q30/d128/bs16/causal1/decode2")

    def test_own_shapes(self):
        self.check_shapes()
        for config in ("c4/q5/causal1", "c4/q5/w2", "c4/q5/ragged1"):
            self.assertIn("more queries than keys", self.refuses(f"--config=prefill/bf16/d128/hq1/{config}"))
        self.assertIn("decode_rows is not below batch", self.refuses("--config=prefill/bf16/d128/hq1/b2/q1/decode2"))
        self.assertIn("exclude each other", self.refuses("--config=prefill/bf16/d128/hq1/b2/q1/ragged1/decode1"))
        self.assertIn("q_heads is not a multiple", self.refuses("--config=prefill/bf16/d128/q4/hq3/hkv2"))
        self.assertIn("config_rows is 4", self.refuses("--config=prefill/bf16/d128/q4/hq1/r5"))

    def test_prompts_of_a_model(self):
        self.check_step([("1", "8", "1", "2048", "16384"), ("4", "8", "1", "2048", "65536")],
                        ["batch", "q_heads", "kv_heads", "q_length", "of"], "--tp=8", "--batch=1,4", "--context=2048", model="llama3-70b")
        self.check_step([("128", "128", "192", "128")], ["q_heads", "kv_heads", "head_size", "value_size"])


if __name__ == "__main__":
    contract.main("BENCH_FLASH_ATTENTION")
