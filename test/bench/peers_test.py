#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What of bench/peers needs no PyTorch. Usage: peers_test.py BENCH/PEERS BENCH_PA BENCH_GEMM
BENCH_NORM|BENCH_ROPE|BENCH_SAMPLING..."""
import csv
import math
import os
import subprocess
import sys
import tempfile
import unittest

peers, bench_pa, bench_gemm, benches = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
heads = [bench for bench in benches if os.path.basename(bench) in ("bench_rope", "bench_kv_cache_write")]
tokens = [bench for bench in benches if os.path.basename(bench) in (
    "bench_activation", "bench_moe_reduce", "bench_moe_sort", "bench_embedding", "bench_sampling", "bench_attention_combine")]
indexers = [bench for bench in benches if os.path.basename(bench) == "bench_mqa_logits"]
benches = [bench for bench in benches if bench not in heads + tokens + indexers]
sys.path.insert(0, peers)
import attention_configs  # noqa: E402
import common  # noqa: E402
import configs  # noqa: E402
import gemm_configs  # noqa: E402
import head_configs  # noqa: E402
import indexer_configs  # noqa: E402
import token_configs  # noqa: E402
from contract import columns_of  # noqa: E402
import torch_tokens  # noqa: E402

HEADER = "name,columns,kind,us,us_hot,us_min,gbps,err"
OURS = [HEADER,
        '"softmax/sm90/bf16/c8192/r8192/causal0/l256.r1.c4.v16",1,x,66.0,60,65,4067,0',
        '"softmax/sm90/bf16/c8192/r8192/causal0/l512.r1.c2.v16",1,x,64.0,62,63,4194,0',
        '"softmax/sm90/bf16/c8192/r8192/causal0/l64.r1.c2.v16",1,x,1.0,1,1,9999,1',
        HEADER,
        '"rmsnorm/sm90/bf16/c5120/r32/bf16/res1/l256.r1.c4.v16",1,x,4.0,3,4,200,0',
        '"rmsnorm/sm90/bf16/c128/r4096/bf16/res0/l256.r1.c4.v16",1,x,4.0,3,4,200,0']
PEERS = ["name,peer,us,us_hot,us_min",
         "softmax/sm90/bf16/c8192/r8192/causal0/torch.compile,torch.compile,128.0,124,126",
         "rmsnorm/sm90/bf16/c5120/r32/bf16/res1/torch.eager,torch.eager,36.0,30,30",
         "rmsnorm/sm90/bf16/c5120/r32/bf16/res1/torch.compile,torch.compile,32.0,30,30"]
DECODE = "bf16/bs64/mtp2/h128/b3/c1027/hq16/hkv1/vt1/vl0/sw0/distinct"
ATTENTION = ["name,label,us,us_hot,us_min,gbps,err,block_size",
             f"pa_decode/sm90/{DECODE}/t128.r2.w1x4.p2x4.s9,x,8.0,6,7,203,0,64"]
ATTENTION_PEERS = ["name,label,us,us_hot,us_min,err",
                   f"peer_decode/sm90/{DECODE}/flash,x,12.0,9,11,0", f"peer_decode/sm90/{DECODE}/cudnn,x,4.0,3,3,1"]
HEADS = ["name,us", "halves/sm90/bf16/c5120/r1/hq32/hk8/d128/rot128/f32/full0/l8.r32.c2.v16,1.0"]
TOKENS = ["name,us", "moe_sort/sm90/k2/r2/e4/u2/local100/t512.r2.a2,1.0"]
INDEXER = ["name,us", "paged/sm90/fp8/c8192/r1/q1/h64/t4.q1.s2,1.0"]
GEMM = ["name,us", "gemm/sm90/bf16/bf16/m16/n4096/k4096/t16x64x128,1.0"]


def run(script, *arguments, **environment):
    # Without site-packages: no script may need one before it is asked to run a peer.
    return subprocess.run([sys.executable, "-S", os.path.join(peers, script), *arguments], capture_output=True, text=True,
                          check=False, timeout=120, input="", env=os.environ | environment)


class Peers(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)

    def file(self, name, lines):
        path = os.path.join(self.scratch.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        return path

    def refuses(self, word, script, *arguments, **environment):
        done = run(script, *arguments, **environment)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
        self.assertRegex(done.stderr, rf"\A{script.removesuffix('.py')}: [^\n]*{word}[^\n]*\n\Z")

    def test_keys_and_configs(self):
        fused = "rmsnorm/gfx950/bf16/c8192/r32of32768/fp8.per_token/res1/l256.r1.c4.v16.s2"
        self.assertEqual(common.key_of(fused), "rmsnorm/bf16/c8192/r32768/fp8.per_token/res1")
        self.assertEqual(common.key_of("rmsnorm/sm90/bf16/c8192/r32768/fp8.per_token/res1/torch.compile"),
                         common.key_of(fused))
        c = configs.config_of(common.key_of(fused))
        self.assertEqual(c, configs.Config("rmsnorm", "bf16", 8192, 32768, "fp8", "per_token", True))
        self.assertEqual(c.bytes_ideal(), 32768 * 8192 * (2 * 3 + 1) + 2 * 8192 + 4 * 32768)
        c = configs.config_of("layernorm/f32/c100/r7/i8.per_group/res0")
        self.assertEqual(c.bytes_ideal(), 7 * 100 * 5 + 2 * 4 * 100 + 4 * 7)
        c = configs.config_of("softmax/f16/c64/r3/causal16")
        self.assertEqual((c.causal, c.out, c.bytes_ideal()), (16, "f16", 3 * 64 * 4))
        c = configs.config_of("quant/bf16/c4096/r4096/fp8.per_token/given0")
        self.assertEqual((c.scale, c.given, c.bytes_ideal()), ("per_token", False, 4096 * 4096 * 3 + 4 * 4096))
        c = configs.config_of("dequant/fp8/c256/r2/bf16.per_group/given1")
        self.assertEqual((c.given, c.bytes_ideal()), (True, 2 * 256 * 3 + 4 * 4))
        for name in ("pa_decode/" + DECODE, "softmax/bf16/c8192/r8192", "rmsnorm/bf16/c1/r1/bf16/res2", ""):
            with self.assertRaises(ValueError):
                configs.config_of(name)
        with self.assertRaises(ValueError):
            common.key_of("softmax")

    def test_keys_and_configs_of_attention(self):
        self.assertEqual(common.key_of(f"pa_decode/gfx950/{DECODE}/t128.r2.w1x4.p2x4.s9"), "pa_decode/" + DECODE)
        self.assertEqual(common.key_of(f"peer_decode/sm90/{DECODE}/cudnn.graph"), "pa_decode/" + DECODE)
        c = attention_configs.config_of("pa_decode/" + DECODE)
        self.assertEqual(c, attention_configs.Config(attention_configs.Call("bf16", 2, 128, 3, 1027, 16, 1), 64, {"distinct"}))
        for end in ("/hnd", "/nhd/any", "/varied"):
            other = attention_configs.config_of("pa_decode/" + DECODE + end)
            self.assertEqual((other.call, other.ends, other.left_out), (c.call, c.ends | set(end.split("/")[1:]), ""))
        half = attention_configs.config_of("pa_decode/" + DECODE.replace("bf16", "f16").replace("/distinct", "/f16/distinct"))
        self.assertEqual((half.call.dtype, half.left_out), ("f16", ""))
        for ours, other, reason in (("bf16/", "fp8.per_token/", "a cache of another type"), ("vl0", "vl1", "lengths that vary"),
                                    ("sw0", "sw1023", "a sliding window"), ("sw0", "sw0/f16", "a cache of another type"),
                                    ("sw0", "sw0/sinks", "'sinks'")):
            self.assertIn(reason, attention_configs.config_of("pa_decode/" + DECODE.replace(ours, other)).left_out)
        for name in ("pa_decode/bf16/bs16", "softmax/bf16/c8192/r8192/causal0", DECODE, "pa_decode/i8" + DECODE[4:]):
            with self.assertRaises(ValueError):
                attention_configs.config_of(name)

    def test_every_row_of_the_decode_sweep_is_a_config(self):
        names = common.names_from(bench_pa, None, "--sweep=decode")
        found = {common.key_of(name): attention_configs.config_of(common.key_of(name)) for name in names}
        self.assertEqual((len(names), len(found)), (162, 162))  # 9 shapes, two types, three sizes of pages, three mtp
        kept = [c for c in found.values() if not c.left_out]
        self.assertEqual((len(kept), len({c.call for c in kept})), (81, 27))
        self.assertEqual({c.left_out for c in found.values()}, {"", "a cache of another type than Q"})
        self.assertEqual({(c.block_size, c.call.mtp) for c in kept}, {(b, m) for b in (16, 64, 1024) for m in (1, 2, 4)})

    def test_a_row_of_attention_is_one_of_bench_pa(self):
        done = subprocess.run([bench_pa, "--sweep=decode", f"--benchmark_filter={DECODE}", "--benchmark_format=csv",
                               "--arch=sm90"], capture_output=True, text=True, check=True, timeout=120)
        columns, cells = columns_of(done)
        self.assertEqual(*([c for c in some if c != "peer"] for some in (columns, attention_configs.COLUMNS)))
        ours, key = dict(zip(columns, cells)), common.key_of(cells[0])
        line = attention_configs.row_of(key, attention_configs.config_of(key), "sm90", "flash", "x", [12.0, 10.0, 14.0],
                                        [9.0, 8.0, 7.0], (True, 1e-4, 2e-3))
        row = dict(zip(attention_configs.COLUMNS, map(str, line)))
        for column in """kind arch any_block_size batch_size block_size bytes_ideal context_length distinct err flops head_size
                         inputs kv_dtype kv_varlen mtp native num_kv_heads num_q_heads ok q_dtype quant_mode schema_version seed
                         sliding_window""".split():
            self.assertEqual(row[column], ours[column], column)
        self.assertEqual((row["name"], row["peer"], row["entry"]), (f"peer_decode/sm90/{DECODE}/flash", "flash", "x"))
        self.assertEqual((row["us"], row["us_hot"], row["samples"]), ("12", "8", "3"))
        self.assertEqual((row["max_abs_err"], row["max_rel_err"], row["emulated"]), ("0.0001", "0.002", "0"))
        self.assertAlmostEqual(float(row["gbps"]), float(ours["bytes_ideal"]) / 12e3, places=2)
        self.assertAlmostEqual(float(row["tflops"]), float(ours["flops"]) / 12e6, places=4)
        self.assertEqual({column for column in columns if row[column] == ""},
                         set("""k_layout v_layout num_splits tile row_tiles wave_rows wave_tokens slices stages stage_tokens
                                fetch_waves groups q_shared balanced waves_per_simd roof_pct roof_us config_id model_us
                                model_clk model_mhz model_error_pct model_bound model_chip policy_columns""".split()) | set(common.BESIDE.split()))
        wrong = attention_configs.row_of(key, attention_configs.config_of(key), "sm86", "flash", "x", [1.0], [1.0],
                                         (False, math.inf, math.inf))
        row = dict(zip(attention_configs.COLUMNS, map(str, wrong)))
        self.assertEqual((row["err"], row["ok"], row["max_abs_err"], row["arch"]), ("1", "0", "inf", "sm86"))

    def test_every_row_of_gemm_is_a_config(self):
        listed = subprocess.run([bench_gemm, "--sweep=default,square,decode,grouped,batched,preshuffled,int8,int4,gated,prefill,layouts",
                                 "--arch=sm90",
                                 "--benchmark_list_tests", "--benchmark_format=csv"], capture_output=True, text=True, check=True,
                                timeout=120).stdout
        reasons = set()
        for ours in csv.DictReader(listed.splitlines()):
            key = common.key_of(ours["name"])
            config = gemm_configs.config_of(key)
            reasons.add(config.left_out.strip("'0123456789x"))
            if config.left_out:
                continue
            self.assertEqual([config.m, config.n, config.k], [int(ours["config_" + extent]) for extent in "mnk"])
            row = dict(zip(gemm_configs.COLUMNS, gemm_configs.row_of(key, config, "sm90", "x", "x", [1.0], [1.0], (True, 0, 0))))
            self.assertEqual(common.key_of(row["name"]), key)
            for column in "kind arch a_dtype b_dtype out_dtype scale layout weights activation gated out_scale sums bias group_kind config_k".split():
                self.assertEqual(str(row[column]), ours[column], (key, column))
        self.assertEqual(reasons, {"", "i4 weights", "MXFP4 weights", "i8 operands", "bias", "preshuffled", "contiguous", "masked", "silu", "nn", "tn", "tt"})

    def test_a_row_of_gemm_is_one_of_bench_gemm(self):
        filtered = "--benchmark_filter=gemm/sm90/fp8.row/bf16/m16/n384/"  # launched as it is, but for k
        done = subprocess.run([bench_gemm, "--sweep=decode", filtered, "--benchmark_format=csv", "--arch=sm90"],
                              capture_output=True, text=True, check=True, timeout=120)
        columns, cells = columns_of(done)
        self.assertEqual(*([c for c in some if c != "peer"] for some in (columns, gemm_configs.COLUMNS)))
        ours = dict(zip(columns, cells))
        config = gemm_configs.Config("fp8", "bf16", "row", *(int(ours[extent]) for extent in "mnk"))
        row = dict(zip(gemm_configs.COLUMNS, map(str, gemm_configs.row_of("gemm/x", config, "sm90", "torch", "x", [12.0, 10.0],
                                                                          [9.0], (False, 1, 2)))))
        for column in "bytes_ideal flops seed schema_version batch groups m n k".split():
            self.assertEqual(row[column], ours[column], column)
        self.assertEqual((row["ok"], row["err"], row["us"], row["max_rel_err"]), ("0", "1", "11", "2"))
        for name in ("gemm/i4/bf16/m1/n1/k1", "gemm/bf16/m1/n1/k1", "softmax/bf16/c8192/r8192/causal0"):
            with self.assertRaises(ValueError):
                gemm_configs.config_of(name)

    def test_every_row_of_heads_is_a_config(self):
        reasons = set()
        for bench in heads:
            listed = subprocess.run([bench, "--benchmark_list_tests", "--benchmark_format=csv", "--arch=sm90"],
                                    capture_output=True, text=True, check=True, timeout=120).stdout
            for ours in csv.DictReader(listed.splitlines()):
                key = common.key_of(ours["name"])
                config = head_configs.config_of(key)
                reasons.add(config.left_out)
                row = dict(zip(head_configs.COLUMNS, head_configs.row_of(key, config, "sm90", "x", [1.0], [1.0], (True, 0))))
                self.assertEqual(common.key_of(row["name"]), key)
                for column in set(ours) & set(head_configs.COLUMNS) - {"name", "rows", "kind"}:
                    self.assertEqual(str(row[column]), ours[column], (key, column))
                self.assertEqual(config.rotary, int(ours.get("rotary", config.head_size)))
                self.assertEqual(config.norm, ours.get("norm") == "1")
                self.assertEqual(config.pairs, "" if ours["kind"] == "cache" else ours.get("pairs", ours["kind"]))
        self.assertEqual(reasons, {"", "full tables", "caches or q of fp8", "dim-major caches", "latent heads"})
        moved = head_configs.config_of("halves/bf16/c5120/r16/hq32/hk8/d128/rot128/f32/full0").bytes_ideal()
        self.assertEqual(moved, 16 * (2 * 5120 * 2 + 512 + 4))
        with self.assertRaises(ValueError):
            head_configs.config_of("halves/bf16/c5120/r16")

    def test_every_row_of_the_indexer_is_a_config(self):
        done = subprocess.run([*indexers, "--benchmark_format=csv", "--arch=sm90", "--benchmark_filter=/c(1024|8192)/r1/"],
                              capture_output=True, text=True, check=True, timeout=120).stdout
        listed = subprocess.run([*indexers, "--benchmark_list_tests", "--benchmark_format=csv", "--arch=sm90"],
                                capture_output=True, text=True, check=True, timeout=120).stdout
        run_rows = list(csv.DictReader(done.splitlines()))
        self.assertEqual(len(run_rows), 2)
        for ours in [*run_rows, *csv.DictReader(listed.splitlines())]:
            key = common.key_of(ours["name"])
            config = indexer_configs.config_of(key)
            self.assertEqual(config.left_out, "")
            row = dict(zip(indexer_configs.COLUMNS,
                           map(str, indexer_configs.row_of(key, config, "sm90", "x", [1.0], [1.0], (True, 0)))))
            self.assertEqual(common.key_of(row["name"]), key)
            for column in set(indexer_configs.COLUMNS[2:11]) - {"rows"}:
                self.assertEqual(row[column], ours[column], (key, column))
            self.assertEqual(row["bytes_ideal"], ours.get("bytes_ideal", row["bytes_ideal"]))
        self.assertEqual(indexer_configs.config_of("paged/fp4/c8192/r1/q1/h64").left_out, "fp4 keys")
        self.assertEqual(indexer_configs.config_of("ranges/fp8/c9/r3/q3/h32").ends(), [7, 8, 9])
        with self.assertRaises(ValueError):
            indexer_configs.config_of("paged/bf16/c8192/r1/q1/h64")

    def test_every_row_of_tokens_is_a_config(self):
        whole = 0
        for bench in tokens:
            done = subprocess.run([bench, "--benchmark_format=csv", "--arch=sm90", "--benchmark_filter=/r(1|4|7|16)/|/r64/p16/"],
                                  capture_output=True, text=True, check=True, timeout=120).stdout
            listed = subprocess.run([bench, "--benchmark_list_tests", "--benchmark_format=csv", "--arch=sm90"],
                                    capture_output=True, text=True, check=True, timeout=120).stdout
            for ours in [*csv.DictReader(done.splitlines()), *csv.DictReader(listed.splitlines())]:
                key = common.key_of(ours["name"])
                config = token_configs.config_of(key)
                row = dict(zip(token_configs.COLUMNS,
                               map(str, token_configs.row_of(key, config, "sm90", "x", [2.0], [1.0], (True, 0)))))
                self.assertEqual(common.key_of(row["name"]), key)
                identity = set(token_configs.COLUMNS[2:-14])
                for column in set(ours) & identity - {"rows"}:
                    self.assertEqual(row[column], ours[column], (key, column))
                self.assertEqual({column for column in identity if row[column] == ""}, identity - set(ours))
                if ours["rows"] == ours["config_rows"] and "bytes_ideal" in ours and config.op != "embedding":
                    self.assertEqual(row["bytes_ideal"], ours["bytes_ideal"], key)
                    whole += 1
        self.assertEqual(len(tokens), 6)
        self.assertGreater(whole, 20)
        for key, moved in (("embedding/bf16/c17/r17/v512/i64/scaled0", 17 * (33 * 2 + 8)),  # of 17 ids one is not in the table
                           ("moe_reduce/f16/c8/r2/k4/weighted0/table0/masked1/res1", 2 * 8 * (4 // 2 + 2) * 2 + 4 * 8 + 4 * 64)):
            self.assertEqual(token_configs.bytes_ideal(token_configs.config_of(key)), moved)
        for key in ("moe_sort/k2/r2/e4/u2", "silu/bf16/c1/r1/halves", "embedding/bf16/c1/r1/v2/i8/scaled0"):
            with self.assertRaises(ValueError):
                token_configs.config_of(key)

    def test_what_sorts_are_checked_by(self):
        class List:
            def __init__(self, *values):
                self.values = values

            def tolist(self):
                return list(self.values)

        c = token_configs.config_of("moe_sort/k2/r2/e4/u2/local100")
        ids, weights, pad = List([2, 0], [2, 3]), List([0.5, 0.25], [0.125, 1.0]), 2 << 24 | 2
        first = [1 << 24, pad, 0, 1, 1 << 24 | 1, pad, pad, pad]  # experts 0, 2, 2, 3 in units of two rows
        self.assertEqual(torch_tokens.sorted_choices(c, ids, weights, None),
                         [first, [0.25, 0, 0.5, 0.125, 1.0, 0, 0, 0], [0, 2, 3, -1], [0, 2, 2, 4, 6], [1, 0, 2, 1],
                          [2, 0, 3, 4], [6, 2]])
        of_two = [0, 1, 1 << 24 | 1, pad, pad, pad, pad, pad]  # 2 and 3, counted from 0
        self.assertEqual(torch_tokens.sorted_choices(c, ids, weights, List(False, False, True, True)),
                         [of_two, [0.5, 0.125, 1.0, 0, 0, 0, 0, 0], [0, 1, -1, -1], [0, 2, 4, 4, 4], [2, 1, 0, 0],
                          [0, -1, 1, 2], [4, 2]])

    def test_every_row_of_the_benchmarks_is_a_config(self):
        for bench in benches:
            names = common.names_from(bench, None, "--arch=sm90")  # where there are peers
            self.assertGreater(len(names), 10)
            keys = [common.key_of(name) for name in names]
            self.assertEqual(len(set(keys)), len(keys))
            for key in keys:
                self.assertGreater(configs.config_of(key).rows, 0)
        self.assertGreater(len(benches), 0)

    def test_columns_of_a_row_are_ours(self):
        for bench in benches:
            listed = subprocess.run([bench, "--benchmark_list_tests", "--benchmark_format=csv", "--arch=sm90"],
                                    capture_output=True, text=True, check=True, timeout=120).stdout
            for ours in csv.DictReader(listed.splitlines()):
                key = common.key_of(ours["name"])
                row = dict(zip(configs.COLUMNS, configs.row_of(key, configs.config_of(key), "sm90", "x", [1.0], [1.0], (True, 0))))
                for column in (set(ours) & set(configs.COLUMNS)) - {"name", "rows"}:  # emulated, ours launches fewer
                    self.assertEqual(str(row[column]), ours[column], (key, column))
                self.assertEqual({column for column in configs.COLUMNS[4:21] if row[column] == ""},
                                 set(configs.COLUMNS[4:21]) - set(ours))

    def test_names_of_a_csv_and_of_a_list(self):
        names = common.names_from(self.file("ours.csv", OURS), None)
        self.assertEqual(len(names), 5)
        self.assertEqual(common.key_of(names[0]), "softmax/bf16/c8192/r8192/causal0")
        self.assertEqual(common.names_from(self.file("list", ["a/b/c/d", "", "e/f/g/h"]), None), ["a/b/c/d", "e/f/g/h"])

    def test_statistics_are_those_of_the_benchmarks(self):
        ordered = [1, 3, 5, 7, 9, 11]  # the numbers of sampler_test.cpp
        self.assertEqual([common.quantile(ordered, q) for q in (0, 0.25, 0.5, 0.75, 1)], [1, 3.5, 6, 8.5, 11])
        self.assertAlmostEqual(common.noise_of(ordered), math.sqrt(14) / 6)
        self.assertTrue(math.isnan(common.noise_of([4])))
        quiet, loud = 10 * [100.0], 5 * [90.0, 110.0]
        self.assertFalse(common.is_enough(quiet[:9], 5, 1))
        self.assertTrue(common.is_enough(quiet, 0, 1))
        self.assertFalse(common.is_enough(loud, 0.99, 1))
        self.assertTrue(common.is_enough(loud, 1, 1))

    def test_a_row_of_the_csv(self):
        key = "rmsnorm/bf16/c4096/r16/fp8.per_token/res0"
        row = dict(zip(configs.COLUMNS, configs.row_of(key, configs.config_of(key), "gfx942", "torch.compile",
                                                       [12.0, 10.0, 14.0], [9.0, 8.0, 7.0], (False, 0.5))))
        self.assertEqual((row["ok"], row["err"], row["max_rel_err"]), (0, 1, "0.5"))
        self.assertEqual(row["name"], "rmsnorm/gfx942/bf16/c4096/r16/fp8.per_token/res0/torch.compile")
        self.assertEqual((row["us"], row["us_min"], row["us_q1"], row["us_q3"], row["us_cold"], row["us_hot"]),
                         ("12", "10", "11", "13", "12", "8"))
        self.assertEqual((row["samples"], row["rows"], row["columns"], row["x_dtype"], row["out_dtype"],
                          row["scale_mode"], row["residual"], row["causal"]),
                         (3, 16, 4096, "bf16", "fp8_e4m3fnuz", "per_token", 0, ""))
        self.assertAlmostEqual(float(row["gbps"]), (16 * 4096 * 3 + 2 * 4096 + 4 * 16) / 12e3, places=3)
        self.assertAlmostEqual(float(row["cv_pct"]), 100 * 2 / 12, places=3)
        self.assertEqual(common.key_of(row["name"]), key)

    def test_compare(self):
        ours, theirs = self.file("ours.csv", OURS), self.file("peers.csv", PEERS)
        done = run("compare.py", ours, theirs)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), [
            "| config | policy | ours us | GB/s | torch.compile us | ratio | torch.eager us | ratio |",
            "|---|---|---|---|---|---|---|---|",
            "| softmax/bf16/c8192/r8192/causal0 | l512.r1.c2.v16 | 64.0 | 4194 | 128.0 | 2.00 | | |",
            "| rmsnorm/bf16/c5120/r32/bf16/res1 | l256.r1.c4.v16 | 4.0 | 200 | 32.0 | 8.00 | 36.0 | 9.00 |",
            "| geometric mean | | | | | 4.00 | | 9.00 |"])
        self.assertIn("| l256.r1.c4.v16 | 60.0 | 4067 | 124.0 | 2.07 |",
                      run("compare.py", ours, theirs, "--metric=us_hot").stdout)

    def test_compare_attention_and_rows_behind_one_another(self):
        ours, theirs = self.file("ours.csv", OURS + ATTENTION), self.file("peers.csv", ATTENTION_PEERS + PEERS)
        lines = run("compare.py", ours, theirs).stdout.splitlines()
        self.assertEqual(lines[0], "| config | policy | ours us | GB/s | flash us | ratio | torch.compile us | ratio |"
                         " torch.eager us | ratio |")  # cudnn is wrong
        self.assertEqual(len(lines), 6)
        self.assertEqual(lines[4], f"| pa_decode/{DECODE} | t128.r2.w1x4.p2x4.s9 | 8.0 | 203 | 12.0 | 1.50 | | | | |")
        done = run("compare.py", self.file("a.csv", ATTENTION), self.file("b.csv", ATTENTION_PEERS), "--metric=us_min")
        self.assertEqual(done.stdout.splitlines()[2:],
                         [f"| pa_decode/{DECODE} | t128.r2.w1x4.p2x4.s9 | 7.0 | 203 | 11.0 | 1.57 |",
                          "| geometric mean | | | | | 1.57 |"])

    def test_compare_refuses(self):
        ours, theirs = self.file("ours.csv", OURS), self.file("peers.csv", PEERS)
        untimed = self.file("nan.csv", [HEADER, OURS[1].replace("66.0", "nan")])
        for word, arguments in (("no times", (untimed, theirs)), ("nothing.csv", (ours, "nothing.csv")),
                                ("in common", (self.file("one.csv", [HEADER, OURS[6]]), theirs)),
                                ("cells below", (self.file("short.csv", [HEADER, "a/b/c/d,1"]), theirs)),
                                ("not such a CSV", (theirs, self.file("text", ["a", "b"]))),
                                ("--metric", (ours, theirs, "--metric=cycles")), ("peers", (ours,))):
            self.refuses(word, "compare.py", *arguments)

    def test_scripts_refuse(self):
        for script, lines, other in (("torch_peers.py", OURS, "softmax"), ("torch_attention.py", ATTENTION, "pa_decode"),
                                     ("torch_gemm.py", GEMM, "gemm"), ("torch_heads.py", HEADS, "halves"),
                                     ("torch_tokens.py", TOKENS, "moe_sort"), ("torch_indexer.py", INDEXER, "paged")):
            ours = self.file("ours.csv", lines)
            for word, arguments in (("names", ()), ("nothing.csv", ("nothing.csv",)), ("--peers", (ours, "--peers=jax")),
                                    ("--max-seconds", (ours, "--max-seconds=nan")), ("--filter", (ours, "--filter=(")),
                                    ("no config is left", (ours, "--filter=gelu")), ("no config is left", ("-",)),
                                    ("no row of", (self.file("list", [other]),)), ("exits with 1", ("/bin/false",)),
                                    ("--frobnicate", (ours, "--frobnicate"))):
                self.refuses(word, script, *arguments)
        self.refuses("no config of bench_pa", "torch_attention.py", self.file("ours.csv", OURS))
        done = run("torch_attention.py", self.file("fp8", [line.replace("bf16", "fp8.per_tensor") for line in ATTENTION]))
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (2, "", "torch_attention: 1 config left out: a cache of another type than Q\n"
                                 "torch_attention: no config is left to time\n"))

    def test_scripts_without_torch_or_gpu(self):
        self.file("none/torch.py", ["raise ImportError('there is no torch')"])
        self.file("cpu/torch.py", ["class cuda:", "    is_available = staticmethod(lambda: False)"])
        for script, lines in (("torch_peers.py", OURS), ("torch_attention.py", ATTENTION), ("torch_gemm.py", GEMM),
                              ("torch_heads.py", HEADS), ("torch_tokens.py", TOKENS),
                              ("torch_indexer.py", INDEXER)):
            ours = self.file("ours.csv", lines)
            self.refuses("needs PyTorch: there is no torch", script, ours, PYTHONPATH=os.path.join(self.scratch.name, "none"))
            self.refuses("needs a GPU", script, ours, PYTHONPATH=os.path.join(self.scratch.name, "cpu"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
