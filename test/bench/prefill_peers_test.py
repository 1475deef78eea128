#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What of prefill_in_turns.py needs no GPU. Usage: prefill_peers_test.py BENCH/PEERS BENCH_FLASH_ATTENTION LIBRARY; the library
is prefill_library.cpp."""
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
import prefill_configs  # noqa: E402
import prefill_in_turns  # noqa: E402

NAME = "prefill/sm90/bf16/c64/r256/b2/hq4/hkv2/q32/d128/dv128/bf16.none/bf16/bs{}/causal1/w0/ragged0/lse0/x"


def run(*arguments):
    return subprocess.run([sys.executable, os.path.join(peers, "prefill_in_turns.py"), *arguments], capture_output=True,
                          text=True, check=False, timeout=120, input="")


class PrefillPeers(unittest.TestCase):
    def test_every_row_of_the_sweep_is_a_config(self):
        listed = subprocess.run([bench, "--benchmark_list_tests", "--benchmark_format=csv", "--arch=sm90"],
                                capture_output=True, text=True, check=True, timeout=120).stdout
        rows = list(csv.DictReader(listed.splitlines()))
        self.assertEqual(len(rows), 51)
        reasons = set()
        for ours in rows:
            config = prefill_configs.config_of(common.key_of(ours["name"]))
            reasons.add(config.left_out)
            for column in "batch q_heads kv_heads q_length kv_length head_size block_size window".split():
                self.assertEqual(str(getattr(config.call, column)), ours[column], (ours["name"], column))
            self.assertEqual(str(int(config.call.causal)), ours["causal"])
            self.assertEqual(config.call.fp8, ours["q_dtype"].startswith("fp8"))
        self.assertEqual(reasons, {"", "sequences of unlike length", "values of another size than keys",
                                   "types other than bf16, and fp8 with one scale"})
        with self.assertRaises(ValueError):
            prefill_configs.config_of("prefill/bf16/c64")

    def test_pairs_of_queries_and_keys(self):
        def call(q, kv, window, causal):
            return prefill_configs.Call(1, 1, 1, q, kv, 128, 0, window, causal, False)
        self.assertEqual(call(3, 5, 0, False).pairs(), 15)
        self.assertEqual(call(3, 5, 0, True).pairs(), 3 + 4 + 5)
        self.assertEqual(call(3, 5, 4, True).pairs(), 3 + 4 + 4)
        self.assertEqual(call(3, 5, 0, True).flops(), 4 * 128 * 12)

    def test_a_call_arrives_in_a_library_as_it_was_made(self):
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(
            current_stream=lambda: types.SimpleNamespace(cuda_stream=77)))
        of = prefill_in_turns.Library(library)
        fields = [name for name, _ in prefill_in_turns.PrefillCall._fields_]
        numbers = {name: 1000 + i for i, name in enumerate(fields)} | {"head_size": 128}
        function, name = of.prepare(torch, prefill_in_turns.PrefillCall(**numbers))
        self.assertEqual(name.split(), [str(numbers[field]) for field in fields])
        with self.assertRaisesRegex(RuntimeError, "stream 77"):
            function()
        self.assertEqual(of.prepare(torch, prefill_in_turns.PrefillCall(head_size=64)), "heads of 128 alone")

    def test_refusals(self):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as names:
            names.write("name\n" + NAME.format(0) + "\n")
            names.flush()
            ours = f"--ours={library}"
            for word, *options in (("--ours", names.name), ("--ours", "--ours=/nonexistent", names.name),
                                   ("--peers", ours, "--peers=jax", names.name), ("--fa3", ours, "--peers=fa3", names.name),
                                   ("--flashinfer", ours, "--flashinfer=/nonexistent", names.name),
                                   ("--state", ours, "--state=hot", names.name), ("--filter", ours, "--filter=(", names.name),
                                   ("--max-seconds", ours, "--max-seconds=0", names.name),
                                   ("no config is left", ours, "--filter=nothing", names.name),
                                   ("no config of", ours, __file__)):
                done = run(*options)
                self.assertEqual((done.returncode, done.stdout), (2, ""), (word, done.stderr))
                self.assertRegex(done.stderr, rf"\Aprefill_in_turns: [^\n]*{word}[^\n]*\n\Z")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
