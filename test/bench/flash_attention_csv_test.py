#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_flash_attention on the emulated device. Usage: flash_attention_csv_test.py BENCH_FLASH_ATTENTION"""
import re

import contract
from contract import ARCHS, run

IDENTITY = """kind arch q_dtype kv_dtype quant_mode out_dtype head_size value_size batch q_heads kv_heads q_length kv_length block_size
causal window ragged lse columns rows config_rows seed path tile_rows tile_keys waves stages waves_per_simd turns cluster""".split()
NAME = re.compile(r"(?P<kind>prefill)/(?P<arch>gfx942|gfx950|sm90)/(?P<q_dtype>bf16|f16|fp8)/c(?P<columns>\d+)(?:of(?P<kv>\d+))?/"
                  r"r(?P<rows>\d+)(?:of(?P<of>\d+))?/b(?P<batch>\d+)/hq(?P<q_heads>\d+)/hkv(?P<kv_heads>\d+)/q(?P<q_length>\d+)/"
                  r"d(?P<head_size>\d+)/dv(?P<value_size>\d+)/(?P<kv_dtype>bf16|f16|fp8)\.(?P<quant_mode>\w+)/(?P<out_dtype>bf16|f16|fp8)/"
                  r"bs(?P<block_size>\d+)/causal(?P<causal>[01])/w(?P<window>\d+)/ragged(?P<ragged>[01])/lse(?P<lse>[01])/"
                  r"(?P<policy>t(?P<tile_rows>\d+)x(?P<tile_keys>\d+)\.w(?P<waves>\d+)\.s(?P<stages>\d+)\.(?P<path>\w+)"
                  r"(?:\.o(?P<waves_per_simd>\d+))?(?P<turns>\.turns)?(?:\.c(?P<cluster>\d+))?)")
ROWS = 48
SMALL = "c320of1024/.*causal1|c320of2048/.*/d128/.*causal0|/w1024/|/ragged1/|/b4/.*/bs16/"  # 10 rows, each kind among them
PEAKS = {"gfx942": (5300, 1307, 2615), "gfx950": (8000, 2307, 4614), "sm90": (4800, 989, 1979)}  # GB/s, TFLOP/s of 2 and of 1 byte


def launched(row):
    """Lengths of queries and of keys of the sequences that are launched, and the query heads and kv heads."""
    batch, q_heads, kv_heads, q, keys, window = (int(row[column]) for column in
                                                 ("batch", "q_heads", "kv_heads", "q_length", "kv_length", "window"))
    ragged = row["ragged"] == "1"
    if row["rows"] != row["config_rows"]:
        q_heads, kv_heads = q_heads // kv_heads * min(kv_heads, 2), min(kv_heads, 2)
        batch = min(batch, 3 if ragged else 2)
        keys = min(keys, window + 64 if window else 320)
        q = min(q, keys, 2 ** 19 // (keys * q_heads * batch))
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
    if row["ragged"] == "1":
        words += (len(queries) + 1) * (1 if page else 2)
    words += 2 * (size["kv_dtype"] == 1) + (size["q_dtype"] == 1)  # scales of tensors
    rows = sum(queries) * q_heads
    moved = rows * (head * size["q_dtype"] + value * size["out_dtype"] + 4 * int(row["lse"])) + 4 * words
    return moved + seen * kv_heads * (head + value) * size["kv_dtype"], 2 * (head + value) * pairs * q_heads


class Csv(contract.Contract):
    def check_rows(self, done):
        matched = self.check_layout(done, NAME, IDENTITY)
        for row, match in matched:
            fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
            named = {column: fp8 if word == "fp8" else word for column, word in match.groupdict().items()}
            named |= {"config_rows": match["of"] or match["rows"], "kv_length": match["kv"] or match["columns"],
                      "waves_per_simd": match["waves_per_simd"] or "1", "turns": str(int(bool(match["turns"]))),
                      "cluster": match["cluster"] or "1"}
            for column in set(IDENTITY) & set(named):
                self.assertEqual(row[column], named[column], column)
            self.assertTrue(row["entry"].endswith("/" + match["policy"]), row["entry"])
            queries, _, q_heads, _ = launched(row)
            self.assertEqual(int(row["rows"]), sum(queries) * q_heads)
            self.assertEqual((int(row["bytes_ideal"]), int(row["flops"])), work(row), row["name"])
            gbps, wide, narrow = PEAKS[row["arch"]]
            roof = max(int(row["bytes_ideal"]) / gbps / 1e3, int(row["flops"]) / (narrow if match["q_dtype"] == "fp8" else wide) / 1e6)
            self.assertAlmostEqual(float(row["roof_us"]) / roof, 1, delta=1e-5)
        return [row for row, _ in matched]

    def test_default_sweep(self):
        names = run("--benchmark_list_tests").stdout.splitlines()
        self.assertEqual(len(names), ROWS)
        self.assertEqual([name for name in names if not NAME.fullmatch(name)], [])
        self.assertEqual(len(set(names)), ROWS)

    def test_every_arch(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", f"--benchmark_filter={SMALL}", f"--arch={arch}")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([(row["err"], row["arch"]) for row in rows], [("0", arch)] * 10)
            for row in rows:  # what rounding probabilities and outputs leaves; native fp8 products sum in 14 bits besides
                self.assertLess(float(row["max_rel_err"]), 2 ** -4 if row["q_dtype"].startswith("fp8") else 6e-3, row["name"])

    def test_every_policy(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", "--benchmark_filter=/bf16/c320of1024/.*/d128/.*causal1", f"--arch={arch}", "--policies=all")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(len(rows), 1)
            self.assertEqual(len({row["entry"] for row in rows}), len(rows))
            self.assertEqual({row["config_id"] for row in rows}, {rows[0]["config_id"]})

    def test_configs_that_are_launched_whole(self):
        """lse, windows without a causal mask, odd lengths, ragged pages: as they are, since they are small."""
        for config in ("prefill/bf16/c77/b2/hq4/hkv2/q33/d128/causal1/lse1", "prefill/bf16/c40/b1/hq2/hkv1/q40/d64/w7",
                       "prefill/bf16/c90/b3/hq2/hkv1/q30/d128/bs16/causal1/w9/ragged1/lse1", "prefill/f16/b3/hq2/hkv2/q31/d128/ragged1"):
            rows = self.check_rows(done := run("--benchmark_format=csv", f"--config={config}"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([(row["err"], row["rows"]) for row in rows], [("0", rows[0]["config_rows"])], config)

    def test_wrong_output_is_an_err_row_like_any_other(self):
        self.assertEqual(len(self.check_injected_error(f"--benchmark_filter={SMALL}")), 10)

    def test_columns_alone_tell_rows_apart(self):
        self.check_identities(IDENTITY)

    def test_own_shapes(self):
        self.check_shapes()
        for config in ("c4/q5/causal1", "c4/q5/w2", "c4/q5/ragged1"):
            self.assertIn("more queries than keys", self.refuses(f"--config=prefill/bf16/d128/hq1/{config}"))
        self.assertIn("q_heads is not a multiple", self.refuses("--config=prefill/bf16/d128/q4/hq3/hkv2"))
        self.assertIn("config_rows is 4", self.refuses("--config=prefill/bf16/d128/q4/hq1/r5"))

    def test_prompts_of_a_model(self):
        names = run("--benchmark_list_tests", "--model=llama3-70b", "--tp=8", "--batch=1,4", "--context=2048").stdout.split()
        self.assertEqual([NAME.fullmatch(name).group("batch", "q_heads", "kv_heads", "q_length", "of") for name in names],
                         [("1", "8", "1", "2048", "16384"), ("4", "8", "1", "2048", "65536")])
        latent, = run("--benchmark_list_tests", "--model=deepseek-v3").stdout.split()
        self.assertEqual(NAME.fullmatch(latent).group("q_heads", "kv_heads", "head_size", "value_size"), ("128", "128", "192", "128"))

    def test_runs_that_end_early(self):
        self.check_ends("--benchmark_filter=c320of1024/.*/d64/")

    def test_progress(self):
        self.check_progress("--benchmark_filter=c320of1024/.*/d64/")

    def test_help(self):
        self.check_help("--arch", "--policies", "--seed", "--max-seconds")


if __name__ == "__main__":
    contract.main("BENCH_FLASH_ATTENTION")
