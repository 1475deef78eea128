#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What of moe_in_turns.py needs no GPU. Usage: moe_peers_test.py BENCH/PEERS BENCH_MOE LIBRARY; the library is
moe_library.cpp."""
import collections
import csv
import os
import subprocess
import sys
import tempfile
import types
import unittest

peers, bench, library = sys.argv[1:4]
sys.path.insert(0, peers)
import common  # noqa: E402
import moe_configs  # noqa: E402
import moe_in_turns  # noqa: E402

NAME = "moe/sm90/bf16/{}/c256/r9/i128/e8/k2/random/layer/rows"


def run(*arguments):
    return subprocess.run([sys.executable, os.path.join(peers, "moe_in_turns.py"), *arguments], capture_output=True, text=True, check=False,
                          timeout=120, input="")


def tensor(address):
    return types.SimpleNamespace(data_ptr=lambda: address)


def layer(kind):
    """A layer with addresses for tensors."""
    weights = types.SimpleNamespace(kind=kind, zeros=[None, None], values=[tensor(3), tensor(4)], scales=[tensor(5), tensor(6)], biases=[None, None])
    config = moe_configs.Config(columns=256, rows=9, intermediate=128, experts=8, topk=2, load="random", weights=kind)
    return types.SimpleNamespace(x=tensor(1), logits=tensor(2), weights=weights, config=config, out=lambda: tensor(7))


class MoePeers(unittest.TestCase):
    def test_every_row_of_the_sweep_is_a_config(self):
        listed = subprocess.run([bench, "--benchmark_list_tests", "--benchmark_format=csv", "--arch=sm90"], capture_output=True, text=True,
                                check=True, timeout=120).stdout
        kinds = collections.Counter()
        for ours in csv.DictReader(listed.splitlines()):
            config = moe_configs.config_of(common.key_of(ours["name"]))
            self.assertEqual(config.left_out, "" if ours["stage"] == "layer" else "a stage")
            self.assertEqual(config.weights, {"none": "bf16", "per_block": "blocks", "per_group": "mxfp4"}[ours["scale"]])
            kinds[config.weights] += 1
            for column in "columns rows intermediate experts topk load".split():
                self.assertEqual(str(getattr(config, column)), ours[column], (ours["name"], column))
        self.assertEqual(set(kinds) | {"int4"}, set(moe_in_turns.WEIGHTS))
        for key, expected in (("moe/bf16/i4.group32/c256/r9/i128/e8/k2/random/layer", (32, False)),  # of bench_moe_wide
                              ("moe/bf16/i4.group128.zeros/c256/r9/i128/e8/k2/random/layer", (128, True))):
            config = moe_configs.config_of(key)
            self.assertEqual((config.weights, config.scale_k, config.zeros), ("int4", *expected))
            codes_and_scales = 3 * 256 * 128 * (0.5 + (2 + expected[1]) / expected[0])
            self.assertEqual(config.bytes_ideal(1) - config.bytes_ideal(0), codes_and_scales)
        with self.assertRaisesRegex(ValueError, "groups of so many values"):
            moe_configs.config_of("moe/bf16/i4.group/c256/r9/i128/e8/k2/random/layer")
        with self.assertRaises(ValueError):
            moe_configs.config_of("moe/bf16/bf16/c256/r9")

    def test_a_call_arrives_in_a_library_as_it_was_made(self):
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(current_stream=lambda: types.SimpleNamespace(cuda_stream=77)))
        of = moe_in_turns.Library(library)
        for _ in range(2):  # a plan is freed before the next
            function, name, free = moe_in_turns.ours_of(torch, layer("blocks"), [of])
            self.assertEqual(name, "1 2 3 4 5 6 0 0 0 0 7 9 256 128 8 2 1 0 ")
            with self.assertRaisesRegex(RuntimeError, "stream 77"):
                function()
            free()
        self.assertEqual(moe_in_turns.ours_of(torch, layer("bf16"), [of, of]), "fp8 blocks alone")

    def test_refusals(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as names, tempfile.TemporaryDirectory() as folder:
            names.write("name\n" + NAME.format("bf16") + "\n")
            names.flush()
            ours = f"--ours={library}"
            for word, *options in (("--ours", names.name), ("--ours", "--ours=/nonexistent", names.name),
                                   ("--peers", ours, "--peers=jax", names.name), ("--fused-moe", ours, "--peers=fused_moe", names.name),
                                   ("--fused-moe", ours, "--fused-moe=/nonexistent", names.name),
                                   ("--triton-kernels", ours, "--peers=triton_kernels", names.name),
                                   ("--triton-kernels", ours, "--peers=routed", f"--fused-moe={library}", names.name),
                                   ("--triton-kernels", ours, f"--triton-kernels={folder}", names.name),
                                   ("--marlin", ours, "--peers=marlin", names.name),
                                   ("--marlin", ours, "--marlin=/nonexistent", names.name),
                                   ("--deep-gemm", ours, "--peers=deep_gemm", names.name),
                                   ("--state", ours, "--state=hot", names.name), ("--filter", ours, "--filter=(", names.name),
                                   ("--max-seconds", ours, "--max-seconds=0", names.name),
                                   ("no config is left", ours, "--filter=nothing", names.name), ("no config of", ours, __file__)):
                done = run(*options)
                self.assertEqual((done.returncode, done.stdout), (2, ""), (word, done.stderr))
                self.assertRegex(done.stderr, rf"\Amoe_in_turns: [^\n]*{word}[^\n]*\n\Z")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
