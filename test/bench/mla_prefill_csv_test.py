#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_mla_prefill on the emulated device. Usage: mla_prefill_csv_test.py BENCH_MLA_PREFILL"""
import re

import contract
from contract import ARCHS, every, run

IDENTITY = """kind arch kv_dtype layout batch q_heads q_length context_length chunk_tokens block_size stage columns rows config_rows seed
gather_tokens""".split()
STAGES = "prefill gather up attend merge absorb_query absorb_value layer decode_layer".split()
NAME = re.compile(r"(?P<kind>mla_prefill)/(?P<arch>gfx942|gfx950|sm90)/(?P<kv_dtype>bf16|fp8)\.(?P<layout>plain|groups_128)/"
                  r"c(?P<columns>\d+)(?:of(?P<context>\d+))?/r(?P<rows>\d+)(?:of(?P<of>\d+))?/b(?P<batch>\d+)/hq(?P<q_heads>\d+)/"
                  r"q(?P<q_length>\d+)/chunk(?P<chunk_tokens>\d+)/bs(?P<block_size>\d+)/"
                  rf"(?P<stage>{'|'.join(STAGES)})/(?P<policy>t(?P<gather_tokens>1|4)\.gather)")
ROWS = 33
SMALL = "/(r24of1024/.*/prefill|.*b1/.*/absorb_)"  # 3 rows
PEAKS = {"gfx942": (5300, 1307), "gfx950": (8000, 2307), "sm90": (4800, 989)}  # GB/s, TFLOP/s
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


class Csv(contract.Contract):
    def check_rows(self, done):
        matched = self.check_layout(done, NAME, IDENTITY)
        for row, match in matched:
            fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
            named = {column: fp8 if word == "fp8" else word for column, word in match.groupdict().items()}
            named |= {"config_rows": match["of"] or match["rows"], "context_length": match["context"] or match["columns"]}
            for column in set(IDENTITY) & set(named):
                self.assertEqual(row[column], named[column], column)
            self.assertTrue(row["entry"].endswith("/" + match["policy"]), row["entry"])
            self.assertEqual((int(row["bytes_ideal"]), int(row["flops"])), work(row), row["name"])
            gbps, tflops = PEAKS[row["arch"]]
            roof = max(int(row["bytes_ideal"]) / gbps / 1e3, int(row["flops"]) / tflops / 1e6)
            self.assertAlmostEqual(float(row["roof_us"]) / roof, 1, delta=1e-5)
        return [row for row, _ in matched]

    def test_default_sweep(self):
        names = run("--benchmark_list_tests").stdout.splitlines()
        self.assertEqual(len(names), ROWS)
        self.assertEqual([name for name in names if not NAME.fullmatch(name)], [])
        self.assertEqual(len(set(names)), ROWS)

    def test_every_arch(self):
        """Each stage on one architecture, a third of the rows on each."""
        for i, arch in enumerate(ARCHS):
            done = run("--benchmark_format=csv", every(3), f"--arch={arch}", "--benchmark_filter=" + ["/(layer|prefill)/", "/decode_layer/", "/(gather|up|attend|merge|absorb_.*)/"][i])
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(len(rows), 0)
            self.assertEqual({(row["err"], row["arch"]) for row in rows}, {("0", arch)})
            for row in rows:  # what a step or all of a layer rounds
                self.assertLess(float(row["max_rel_err"]), 0.03, row["name"])

    def test_every_policy(self):
        rows = self.check_rows(done := run("--benchmark_format=csv", "--benchmark_filter=/r24of2048/.*/prefill", "--policies=all", every(4)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(rows), 0)

    def test_configs_that_are_launched_whole(self):
        for config in ("mla_prefill/bf16.plain/c30/b2/hq2/q5/bs1/chunk7/prefill", "mla_prefill/fp8.groups_128/c0/b1/hq1/q9/bs61/prefill",
                       "mla_prefill/bf16.plain/c13/b2/hq2/q3/bs16/decode_layer"):
            rows = self.check_rows(done := run("--benchmark_format=csv", f"--config={config}"))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([(row["err"], row["rows"]) for row in rows], [("0", rows[0]["config_rows"])], config)

    def test_wrong_output_is_an_err_row_like_any_other(self):
        self.assertEqual(len(self.check_injected_error(f"--benchmark_filter={SMALL}")), 3)

    def test_columns_alone_tell_rows_apart(self):
        self.check_identities(IDENTITY)

    def test_own_shapes(self):
        self.check_shapes()
        self.assertIn("q_heads is not 1 to 1024", self.refuses("--config=mla_prefill/bf16.plain/q4/hq2000"))
        self.assertIn("nothing to merge", self.refuses("--config=mla_prefill/bf16.plain/q4/merge"))
        self.assertIn("decode has 1 to 8", self.refuses("--config=mla_prefill/bf16.plain/q9/decode_layer"))

    def test_steps_of_a_model(self):
        names = run("--benchmark_list_tests", "--model=deepseek-v3", "--tp=8", "--batch=1,4", "--context=2048").stdout.split()
        self.assertEqual([NAME.fullmatch(name).group("batch", "q_heads", "stage") for name in names],
                         [("1", "16", "decode_layer"), ("4", "16", "decode_layer")])

    def test_help(self):
        self.check_help("--arch", "--policies", "--seed", "--max-seconds")


if __name__ == "__main__":
    contract.main("BENCH_MLA_PREFILL")
