#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What of bench/peers needs no PyTorch. Usage: peers_test.py BENCH/PEERS BENCH_NORM|BENCH_SOFTMAX..."""
import math
import os
import subprocess
import sys
import tempfile
import unittest

peers, benches = sys.argv[1], sys.argv[2:]
sys.path.insert(0, peers)
import configs  # noqa: E402

HEADER = "name,iterations,label,us,us_hot,us_min,gbps,err"
OURS = [HEADER,
        '"softmax/sm90/bf16/c8192/r8192/causal0/l256.r1.c4.v16/iterations:1/manual_time",1,"x",66.0,60,65,4067,0',
        '"softmax/sm90/bf16/c8192/r8192/causal0/l512.r1.c2.v16/iterations:1/manual_time",1,"x",64.0,62,63,4194,0',
        '"softmax/sm90/bf16/c8192/r8192/causal0/l64.r1.c2.v16/iterations:1/manual_time",1,"x",1.0,1,1,9999,1',
        HEADER,
        '"rmsnorm/sm90/bf16/c5120/r32/bf16/res1/l256.r1.c4.v16/iterations:1/manual_time",1,"x",4.0,3,4,200,0',
        '"rmsnorm/sm90/bf16/c128/r4096/bf16/res0/l256.r1.c4.v16/iterations:1/manual_time",1,"x",4.0,3,4,200,0']
PEERS = ["name,peer,us,us_hot,us_min",
         "softmax/sm90/bf16/c8192/r8192/causal0/torch.compile,torch.compile,128.0,124,126",
         "rmsnorm/sm90/bf16/c5120/r32/bf16/res1/torch.eager,torch.eager,36.0,30,30",
         "rmsnorm/sm90/bf16/c5120/r32/bf16/res1/torch.compile,torch.compile,32.0,30,30"]


def run(script, *arguments, **environment):
    return subprocess.run([sys.executable, os.path.join(peers, script), *arguments], capture_output=True, text=True,
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
        fused = "rmsnorm/gfx950/bf16/c8192/r128of32768/fp8.per_token/res1/l256.r1.c4.v16.s2/iterations:1/manual_time"
        self.assertEqual(configs.key_of(fused), "rmsnorm/bf16/c8192/r32768/fp8.per_token/res1")
        self.assertEqual(configs.key_of("rmsnorm/sm90/bf16/c8192/r32768/fp8.per_token/res1/torch.compile"),
                         configs.key_of(fused))
        c = configs.config_of(configs.key_of(fused))
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
        for name in ("pa_decode/bf16/bs16", "softmax/bf16/c8192/r8192", "rmsnorm/bf16/c1/r1/bf16/res2", ""):
            with self.assertRaises(ValueError):
                configs.config_of(name)
        with self.assertRaises(ValueError):
            configs.key_of("softmax")

    def test_every_row_of_the_benchmarks_is_a_config(self):
        for bench in benches:
            names = configs.names_from(bench, None)
            self.assertGreater(len(names), 10)
            keys = [configs.key_of(name) for name in names]
            self.assertEqual(len(set(keys)), len(keys))
            for key in keys:
                self.assertGreater(configs.config_of(key).rows, 0)
        self.assertGreater(len(benches), 0)

    def test_names_of_a_csv_and_of_a_list(self):
        names = configs.names_from(self.file("ours.csv", OURS), None)
        self.assertEqual(len(names), 5)
        self.assertEqual(configs.key_of(names[0]), "softmax/bf16/c8192/r8192/causal0")
        self.assertEqual(configs.names_from(self.file("list", ["a/b/c/d", "", "e/f/g/h"]), None), ["a/b/c/d", "e/f/g/h"])

    def test_statistics_are_those_of_the_benchmarks(self):
        ordered = [1, 3, 5, 7, 9, 11]  # the numbers of sampler_test.cpp
        self.assertEqual([configs.quantile(ordered, q) for q in (0, 0.25, 0.5, 0.75, 1)], [1, 3.5, 6, 8.5, 11])
        self.assertAlmostEqual(configs.noise_of(ordered), math.sqrt(14) / 6)
        self.assertTrue(math.isnan(configs.noise_of([4])))
        quiet, loud = 10 * [100.0], 5 * [90.0, 110.0]
        self.assertFalse(configs.is_enough(quiet[:9], 5, 1))
        self.assertTrue(configs.is_enough(quiet, 0, 1))
        self.assertFalse(configs.is_enough(loud, 0.99, 1))
        self.assertTrue(configs.is_enough(loud, 1, 1))

    def test_a_row_of_the_csv(self):
        key = "rmsnorm/bf16/c4096/r16/fp8.per_token/res0"
        row = dict(zip(configs.COLUMNS, configs.row_of(key, configs.config_of(key), "gfx942", "torch.compile",
                                                       [12.0, 10.0, 14.0], [9.0, 8.0, 7.0])))
        self.assertEqual(row["name"], "rmsnorm/gfx942/bf16/c4096/r16/fp8.per_token/res0/torch.compile")
        self.assertEqual((row["us"], row["us_min"], row["us_q1"], row["us_q3"], row["us_cold"], row["us_hot"]),
                         ("12", "10", "11", "13", "12", "8"))
        self.assertEqual((row["samples"], row["rows"], row["columns"], row["x_dtype"], row["out_dtype"],
                          row["scale_mode"], row["residual"]), (3, 16, 4096, 2, 4, 2, 0))
        self.assertAlmostEqual(float(row["gbps"]), (16 * 4096 * 3 + 2 * 4096 + 4 * 16) / 12e3, places=3)
        self.assertAlmostEqual(float(row["cv_pct"]), 100 * 2 / 12, places=3)
        self.assertEqual(configs.key_of(row["name"]), key)

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

    def test_compare_refuses(self):
        ours, theirs = self.file("ours.csv", OURS), self.file("peers.csv", PEERS)
        untimed = self.file("nan.csv", [HEADER, OURS[1].replace("66.0", "nan")])
        for word, arguments in (("no times", (untimed, theirs)), ("nothing.csv", (ours, "nothing.csv")),
                                ("in common", (self.file("one.csv", [HEADER, OURS[6]]), theirs)),
                                ("not such a CSV", (theirs, self.file("text", ["a", "b"]))),
                                ("--metric", (ours, theirs, "--metric=cycles")), ("peers", (ours,))):
            self.refuses(word, "compare.py", *arguments)

    def test_torch_peers_refuses(self):
        ours = self.file("ours.csv", OURS)
        for word, arguments in (("names", ()), ("nothing.csv", ("nothing.csv",)), ("--peers", (ours, "--peers=jax")),
                                ("--max-seconds", (ours, "--max-seconds=nan")), ("--filter", (ours, "--filter=(")),
                                ("no config is left", (ours, "--filter=gelu")), ("no config is left", ("-",)),
                                ("no row of", (self.file("list", ["softmax"]),)), ("exits with 1", ("/bin/false",)),
                                ("--frobnicate", (ours, "--frobnicate"))):
            self.refuses(word, "torch_peers.py", *arguments)

    def test_torch_peers_without_torch_or_gpu(self):
        ours = self.file("ours.csv", OURS)
        self.file("none/torch.py", ["raise ImportError('there is no torch')"])
        self.refuses("needs PyTorch: there is no torch", "torch_peers.py", ours,
                     PYTHONPATH=os.path.join(self.scratch.name, "none"))
        self.file("cpu/torch.py", ["class cuda:", "    is_available = staticmethod(lambda: False)"])
        self.refuses("needs a GPU", "torch_peers.py", ours, PYTHONPATH=os.path.join(self.scratch.name, "cpu"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
