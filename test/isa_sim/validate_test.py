#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/sim/validate says what it leaves out, deals only to halves what constants were fitted on, and launches what it says.
Usage: validate_test.py VALIDATE"""
import collections
import importlib.machinery
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

loader = importlib.machinery.SourceFileLoader("validate", sys.argv.pop(1))
validate = importlib.util.module_from_spec(importlib.util.spec_from_loader("validate", loader))
loader.exec_module(validate)


def row(where, shape, config="code=co;", **more):
    return {"id": "T1", "where_code": f"ROCm/aiter@0:{where}", "shape": shape, "config": config, **more}


class Validate(unittest.TestCase):
    def test_every_row_is_modelled_or_counted(self):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder, "hsa/gfx942/i8gemm/a_64x128.co")
            here.parent.mkdir(parents=True)
            here.write_bytes(b"")
            rows = [row("hsa/gfx942/i8gemm/a_64x128.co", "M=64;N=128;K=128"), row("hsa/gfx942/i8gemm/b_64x128.co", ""),
                    row("csrc/a.cu", "", "code=src"), row("csrc/b.cu", "", "code=src"), row("hsa/gfx942/pa/a.co", ""),
                    row("hsa/gfx942/fmha_v3_fwd/a.co", "varlen segments 7")]
            skipped = collections.Counter()
            todo = list(validate.cases(rows, Path(folder), skipped))
        self.assertEqual([path for _, path, _ in todo], ["hsa/gfx942/i8gemm/a_64x128.co"])
        self.assertEqual(skipped.total() + len(todo), len(rows))
        self.assertEqual(skipped["no published code object (code=src)"], 2)
        self.assertIn("not in the code directory: hsa/gfx942/i8gemm/b_64x128.co", skipped)
        self.assertIn("no launch is known of hsa/gfx942/pa", skipped)

    def test_a_block_of_causal_attention_takes_two_tiles(self):
        grid = [validate.attention(row("a", f"B=2;H=8;S=2304;D=128;causal={causal}"), "a")["grid"] for causal in (0, 1)]
        self.assertEqual(grid, [[9, 8, 2], [5, 8, 2]])

    def test_moe_sorts_tokens_by_their_experts(self):
        launch = validate.moe(row("a", "tokens=100;model_dim=256;inter_dim=384;experts=8;topk=2", "code=co;block_m=32"),
                              "fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x192.co")
        number = lambda key: [int.from_bytes(b, "little") for b in zip(*[iter(launch["buffers"][key]["contents"])] * 4)]
        ids, experts, valid = number("STP"), number("SEP"), number("XC")[0]
        self.assertEqual(launch["grid"], [2, len(experts), 1])
        self.assertEqual(len(ids), 32 * len(experts))
        self.assertEqual(sorted(token & 0xffffff for token in ids if token >> 24 < 2), sorted(list(range(100)) * 2))
        self.assertTrue(all(token == 2 << 24 | 100 for token in ids[valid:]))
        self.assertLess(valid, len(ids))
        self.assertEqual(experts[:valid // 32], sorted(experts[:valid // 32]))

    def test_kernels_of_one_work_are_ranked_by_time_and_by_clk(self):
        rows = [{"chip": "MI300X", "family": "f", "shape": "S=1", "us": us, "model_us": modelled, "model_clk": clk}
                for us, modelled, clk in ((10, 12, 1000), (9, 13, 900), (9.1, 12.5, 950))]
        self.assertEqual(validate.pairs_of_one_work(rows),
                         "pairs of kernels for one work: 2, ranked rightly by time 0, by clk 2")


if __name__ == "__main__":
    unittest.main()
