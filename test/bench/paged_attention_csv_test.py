#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_paged_attention on the emulated device. Usage: paged_attention_csv_test.py BENCH_PAGED_ATTENTION"""
import itertools
import json
import os
import re
import tempfile

import contract
import op_contract
from contract import ARCHS, rows_of, run

IDENTITY = """kind arch q_dtype kv_dtype quant_mode block_size mtp head_size batch_size context_length num_q_heads num_kv_heads
k_layout v_layout any_block_size native kv_varlen sliding_window sinks soft_cap alibi split_tokens stage_starts distinct inputs seed num_splits tile row_tiles wave_rows
wave_tokens slices stages stage_tokens fetch_waves groups q_shared balanced waves_per_simd""".split()
SWEEPS = "default accuracy decode emulated features scaling native".split()
ONE = "--benchmark_filter=per_token.*mtp1/.*b3/.*hq8/.*vl0/"
NAME = re.compile(r"(?P<kind>pa_decode)/(?P<arch>gfx942|gfx950|sm90)/(?P<kv>bf16|fp8)(?:\.(?P<quant_mode>per_token|per_tensor))?"
                  r"/bs(?P<block_size>\d+)/mtp(?P<mtp>\d+)/h(?P<head_size>\d+)/b(?P<batch_size>\d+)/c(?P<context_length>\d+)"
                  r"/hq(?P<num_q_heads>\d+)/hkv(?P<num_kv_heads>\d+)/vt(?P<vt>[01])/vl(?P<kv_varlen>[01])"
                  r"/sw(?P<sliding_window>\d+)(?P<distinct>/distinct)?(?P<varied>/varied)?"
                  r"/(?P<plan>t(?P<tile>\d+)\.r(?P<row_tiles>\d+)\.w(?P<wave_rows>\d+)x(?P<wave_tokens>\d+)"
                  r"\.(?:p(?P<slices>\d+)|b(?P<stage_tokens>\d+))x(?P<stages>\d+)(?P<q>\.q)?(?P<balanced>\.balanced)?"
                  r"\.s(?P<num_splits>\d+))")


class Csv(op_contract.OpContract):
    identity, name = IDENTITY, NAME
    few, few_rows = ["--benchmark_filter=mtp[14]/h128/b3/.*hq8/"], 8
    fewest = ["--benchmark_filter=per_token.*mtp[12]/.*b3/.*hq8/.*vl0/"]
    options = ["--sweep", "--splits", "--export-bundle"]
    bad_options = ["--sweep=nightly", "--sweep=default,default", "--sweep", "--every=0", "--splits=0", "--splits=129", "--splits=two",
                   "--inputs=zero", "--check-pairs=0", "--ceiling-gbps=-nan"]

    def named(self, match):
        named = match.groupdict()
        fp8 = "fp8_e4m3fnuz" if named["arch"] == "gfx942" else "fp8_e4m3fn"
        named |= {"kv_dtype": fp8 if named["kv"] == "fp8" else named["kv"], "q_dtype": "bf16",
                  "quant_mode": named["quant_mode"] or "none", "k_layout": "units",
                  "v_layout": ["plain", "shuffled"][int(named["vt"])], "any_block_size": "0", "native": "0",
                  "inputs": "varied" if named["varied"] else "uniform", "slices": named["slices"] or "1",
                  "stage_tokens": named["stage_tokens"] or "0", "q_shared": str(int(named["q"] is not None))}
        return named | {key: str(int(named[key] is not None)) for key in ("distinct", "balanced")}

    def policy_of(self, match):
        return match["plan"]

    def check_row(self, row, match):
        waves = int(row["wave_rows"]) * int(row["wave_tokens"])
        self.assertEqual(int(row["groups"]), waves // 4 if match["stage_tokens"] else 0)
        self.assertGreater(int(row["waves_per_simd"]), 0)

    def check_accuracy(self, row):
        self.assertTrue(0 < float(row["max_rel_err"]) < 0.01, row["name"])

    def damaged(self, row):
        return r"\d+ values outside the tolerance[^\n]*"

    def test_columns_alone_tell_rows_apart(self):
        for sweep in SWEEPS:
            with self.subTest(sweep):
                self.check_identities(IDENTITY, f"--sweep={sweep}")

    def test_default_sweep(self):
        done = run("--benchmark_list_tests")
        names = done.stdout.splitlines()
        self.assertEqual(len(names), 64)
        self.assertTrue(all(name.startswith("pa_decode/gfx950/") for name in names))
        wanted = [f"/{quant}/bs1024/mtp{mtp}/h128/b{batch}/c1027/hq{heads}/hkv1/vt1/vl{varlen}/sw0/"
                  for varlen, quant, mtp, batch, heads in itertools.product(
                      [0, 1], ["fp8.per_token", "fp8.per_tensor"], [1, 2, 3, 4], [3, 81], [8, 16])]
        for name, part in zip(names, wanted):
            self.assertIn(part, name)

    def test_several_sweeps(self):
        done = run("--benchmark_list_tests", "--sweep=decode,default")
        names = done.stdout.splitlines()
        self.assertEqual(len(names), 162 + 64)
        self.assertIn("/bf16/bs16/mtp1/h128/b64/c8192/hq32/hkv8/", names[0])
        self.assertIn("/distinct/", names[0])
        self.assertEqual(len(set(names)), len(names))

    def test_the_scaling_sweep_is_cut_to_what_the_device_can_afford(self):
        for arch in ARCHS:
            names = run("--benchmark_list_tests", "--sweep=scaling", f"--arch={arch}").stdout.splitlines()
            self.assertEqual(len(names), 26 + 44)  # 4 MiB of KV: 1024 tokens in bf16, 2048 in fp8
            done = run("--benchmark_format=csv", "--sweep=scaling", f"--arch={arch}", "--every=9", "--check-pairs=3")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([row["name"] for row in rows], names[::9])
            self.assertEqual({(row["num_q_heads"], row["num_kv_heads"], row["block_size"]) for row in rows},
                             {("32", "8", "64")})
            self.assertEqual({row["quant_mode"] for row in rows}, {"none", "per_tensor"})
            self.assertTrue(all(float(row["bytes_ideal"]) < 1.1 * 2**22 for row in rows))
            self.assertTrue(all(50000 <= int(row["config_id"]) < 50070 for row in rows))

    def test_a_config_of_two_sweeps_is_one_row(self):
        standard, emulated, both = (run("--benchmark_list_tests", f"--sweep={sweep}").stdout.splitlines()
                                    for sweep in ("default", "emulated", "default,emulated"))
        self.assertTrue(set(standard) & set(emulated))
        self.assertEqual(both, standard + [name for name in emulated if name not in standard])

    def test_every_nth_of_what_the_filter_leaves(self):
        fp8 = run("--benchmark_list_tests", "--benchmark_filter=per_token").stdout.splitlines()
        self.assertEqual(len(fp8), 32)
        done = run("--benchmark_list_tests", "--benchmark_filter=per_token", "--every=5")
        self.assertEqual(done.stdout.splitlines(), fp8[::5])

    def test_filter_is_google_benchmarks(self):
        every = run("--benchmark_list_tests").stdout.splitlines()
        for pattern, chosen in (("", lambda name: True), ("all", lambda name: True),
                                ("mtp[13]/.*b(3|81)/", lambda name: "mtp1/" in name or "mtp3/" in name),
                                ("-per_token", lambda name: "per_token" not in name),
                                ("^pa_decode.*[.]s[0-9]+$", lambda name: True)):
            done = run("--benchmark_list_tests", f"--benchmark_filter={pattern}")
            self.assertEqual(done.stdout.splitlines(), list(filter(chosen, every)), pattern)
        done = run("--benchmark_list_tests", BENCHMARK_FILTER="mtp1/.*b3/.*hq8/.*vl0/")
        self.assertEqual(len(done.stdout.splitlines()), 2)

    def test_output_file_and_minimum_time(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "rows.csv")
            for time in ("0.01", "0.5s", "10x"):
                done = run(ONE, f"--benchmark_out={path}",
                           "--benchmark_out_format=csv", f"--benchmark_min_time={time}", "--benchmark_repetitions=1")
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(len([line for line in file if line.startswith('pa_decode/')]), 1)

    def test_other_inputs_and_seeds(self):
        common = ["--benchmark_format=csv", "--benchmark_filter=mtp1/.*b3/.*hq8/.*vl1/"]
        done = run(*common, "--inputs=varied")
        self.assertEqual(done.returncode, 0, done.stderr)
        varied = self.check_rows(done)
        self.assertTrue(all("/varied/" in row["name"] for row in varied))
        other = rows_of(run(*common, "--seed=7"))[1]
        self.assertEqual({row["seed"] for row in other}, {"7"})
        self.assertEqual({row["err"] for row in other}, {"0"})
        self.assertNotEqual([row["max_abs_err"] for row in other], [row["max_abs_err"] for row in varied])

    def test_policies_and_splits(self):
        common = ["--benchmark_format=csv", ONE]
        selected = self.check_rows(run(*common))
        done = run(*common, "--policies=all", "--splits=5")
        every = self.check_rows(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(selected), 1)
        self.assertGreater(len(every), 1)
        self.assertEqual({row["config_id"] for row in every}, {"0"})
        most_wanted, first = (row["entry"].rsplit(".", 1)[0] for row in (selected[0], every[0]))  # but for splits
        self.assertEqual(most_wanted, first)
        balanced = [row for row in every if row["balanced"] == "1"]  # cut by themselves
        self.assertEqual({row["num_splits"] for row in balanced}, {"1"})
        self.assertEqual({row["num_splits"] for row in every if row not in balanced}, {"5"})
        self.assertEqual(len({row["entry"] for row in every}), len(every))

    def test_same_run_same_numbers(self):
        arguments = ["--benchmark_format=csv", *self.few]
        first, second = (rows_of(run(*arguments))[1] for _ in range(2))
        self.assertEqual(first, second)

    def test_json(self):
        done = run("--benchmark_format=json", ONE)
        report = json.loads(done.stdout)
        self.assertEqual(len(report["benchmarks"]), 1)
        self.assertLessEqual(set(IDENTITY + contract.MEASURED + contract.ORIGIN), set(report["benchmarks"][0]))
        self.assertEqual(report["context"]["tilewave_arch"], "gfx950 (emulated)")

    def test_ceiling(self):
        common = ["--benchmark_format=csv", ONE]
        row, = rows_of(run(*common, "--ceiling-gbps=4000"))[1]
        self.assertAlmostEqual(float(row["roof_us"]), float(row["bytes_ideal"]) / 4e6, places=4)

    def test_bad_options_of_google_benchmark(self):
        for argument in ("--benchmark_frobnicate=1", "--benchmark_format=xml", "--benchmark_format", "--benchmark_format=",
                         "--benchmark_out_format=xml", "--benchmark_out=/nonexistent/x", "--benchmark_out=/",
                         "--benchmark_min_time=abc", "--benchmark_min_time=nan", "--benchmark_min_time=1y",
                         "--benchmark_repetitions=2", "--benchmark_repetitions=two", "--benchmark_time_unit=h",
                         "--benchmark_context=key", "--benchmark_color=", "--benchmark_filter=(",
                         "--benchmark_filter=no_such_row", "--benchmark_filter=manual_time", "--benchmark_filter=-."):
            self.assertIn(argument.split("=")[0] if argument != "--benchmark_color=" else "", self.refuses(argument))
        self.refuses(BENCHMARK_FORMAT="xml")
        self.refuses(BENCHMARK_OUT_FORMAT="xml")
        self.refuses(BENCHMARK_OUT="/nonexistent/x")
        self.refuses(BENCHMARK_REPETITIONS="2")

    def test_bundles_that_cannot_be_written(self):
        with tempfile.TemporaryDirectory() as scratch:
            bundle = f"--export-bundle={scratch}/bundle"
            self.assertIn("leaves 64", self.refuses(bundle))
            self.assertIn("gfx950", self.refuses(bundle, "--arch=sm90", ONE))
            self.assertIn("no_such_row", self.refuses(bundle, "--benchmark_filter=no_such_row"))
            self.assertEqual(os.listdir(scratch), [])
        with tempfile.NamedTemporaryFile() as file:  # the code objects may be missing as well, which is told first
            self.refuses(f"--export-bundle={file.name}", ONE)

    def test_own_shapes(self):
        for sweep, every in (("default", 7), ("decode", 37), ("features", 11), ("accuracy", 499)):
            self.check_shapes(f"--sweep={sweep}", every=every)
        for config, complaint in (("b1/hq1/hkv1", "context_length is below 1 or missing"), ("b1/c2/mtp3/hq1/hkv1", "below mtp"),
                                  ("b2000000/c16000000/hq1/hkv1", "a cache of more than 2^38"),
                                  ("nhd/v_layout=plain/b1/c1/hq1/hkv1", "v_layout is nhd, not 'plain'")):
            self.assertIn(complaint, self.refuses(f"--config={config}"))
        done = run("--config=b2/c100/hq3/hkv2", "--benchmark_format=csv")  # no such call, which the library says
        self.assertEqual((done.returncode, rows_of(done)[1][0]["entry"]), (1, "none"))
        self.assertIn("num_q_heads", done.stderr)

    def test_a_models_decode_step(self):
        names = run("--benchmark_list_tests", "--model=llama3-70b", "--tp=8", "--batch=1,64", "--context=1024").stdout
        self.assertEqual([re.sub("/[^/]*$", "", name) for name in names.splitlines()],
                         [f"pa_decode/gfx950/{kv}/bs64/mtp1/h128/b{batch}/c1024/hq8/hkv1/vt1/vl0/sw0/distinct"
                          for kv in ("bf16", "fp8.per_tensor") for batch in (1, 64)])


if __name__ == "__main__":
    contract.main("BENCH_PAGED_ATTENTION")
