#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_pa on the emulated device. Usage: csv_test.py BENCH_PA"""
import itertools
import json
import os
import re
import tempfile

import contract
from contract import ARCHS, rows_of, run

OWN = """block_size mtp head_size batch_size context_length num_q_heads num_kv_heads kv_dtype quant_mode trans_v kv_varlen
sliding_window num_splits tile waves stages""".split()
SMALL = "mtp[14]/h128/b3/.*hq8/"
NAME = re.compile(r"pa_decode/(gfx942|gfx950|sm90)/(bf16|fp8\.per_token|fp8\.per_tensor)/bs(\d+)/mtp(\d+)/h(\d+)/b(\d+)"
                  r"/c(\d+)/hq(\d+)/hkv(\d+)/vt([01])/vl([01])/sw(\d+)(/distinct)?(/varied)?"
                  r"/(t\d+\.r\d+\.w\d+x\d+\.[pb]\d+x\d+(?:\.q)?(?:\.balanced)?\.s(\d+))(/iterations:1/manual_time)?")
NAMED = ["block_size", "mtp", "head_size", "batch_size", "context_length", "num_q_heads", "num_kv_heads", "trans_v",
         "kv_varlen", "sliding_window"]  # groups 3 to 12 of NAME


class Csv(contract.Contract):
    def check_rows(self, done):
        matched = self.check_layout(done, NAME, OWN)
        for row, match in matched:
            for group, counter in enumerate(NAMED, 3):
                self.assertEqual(int(row[counter]), int(match.group(group)), counter)
            self.assertEqual(int(row["num_splits"]), int(match.group(16)))
            self.assertEqual(ARCHS[int(row["arch"])], match.group(1))
            self.assertEqual(["bf16", "fp8.per_tensor", "fp8.per_token"][int(row["quant_mode"])], match.group(2))
            self.assertTrue(row["label"].endswith("/" + match.group(15)), row["label"])
        return [row for row, _ in matched]

    def test_rows_of_every_arch(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", f"--benchmark_filter={SMALL}", f"--arch={arch}")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([int(row["config_id"]) for row in rows], [0, 12, 16, 28, 32, 44, 48, 60])
            self.assertEqual({row["err"] for row in rows}, {"0"})
            self.assertEqual({row["arch"] for row in rows}, {str(ARCHS.index(arch))})
            self.assertTrue(all(0 < float(row["max_rel_err"]) < 0.01 for row in rows))

    def test_default_arch_is_gfx950(self):
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
            self.assertEqual({row["quant_mode"] for row in rows}, {"0", "1"})
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
                                ("^pa_decode.*manual_time$", lambda name: True)):
            done = run("--benchmark_list_tests", f"--benchmark_filter={pattern}")
            self.assertEqual(done.stdout.splitlines(), list(filter(chosen, every)), pattern)
        done = run("--benchmark_list_tests", BENCHMARK_FILTER="mtp1/.*b3/.*hq8/.*vl0/")
        self.assertEqual(len(done.stdout.splitlines()), 2)

    def test_output_file_and_minimum_time(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "rows.csv")
            for time in ("0.01", "0.5s", "10x"):
                done = run("--benchmark_filter=per_token.*mtp1/.*b3/.*hq8/.*vl0/", f"--benchmark_out={path}",
                           "--benchmark_out_format=csv", f"--benchmark_min_time={time}", "--benchmark_repetitions=1")
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(len([line for line in file if line.startswith('"pa_decode/')]), 1)

    def test_rows_that_cannot_be_written_are_an_error(self):
        done = contract.run_to_full_disk("--benchmark_format=csv", "--benchmark_filter=per_token.*mtp1/.*b3/.*hq8/.*vl0/")
        self.assertEqual(done.returncode, 2)
        self.assertIn("bench_pa: cannot write", done.stderr)

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
        common = ["--benchmark_format=csv", "--benchmark_filter=per_token.*mtp1/.*b3/.*hq8/.*vl0/"]
        selected = self.check_rows(run(*common))
        done = run(*common, "--policies=all", "--splits=5")
        every = self.check_rows(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(selected), 1)
        self.assertGreater(len(every), 1)
        self.assertEqual({row["config_id"] for row in every}, {"0"})
        balanced = [row for row in every if ".balanced" in row["label"]]  # cut by themselves
        self.assertEqual({row["num_splits"] for row in balanced}, {"1"})
        self.assertEqual({row["num_splits"] for row in every if row not in balanced}, {"5"})
        self.assertEqual(len({row["label"] for row in every}), len(every))

    def test_same_run_same_numbers(self):
        arguments = ["--benchmark_format=csv", f"--benchmark_filter={SMALL}"]
        first, second = (rows_of(run(*arguments))[1] for _ in range(2))
        for a, b in zip(first, second):
            self.assertEqual({k: v for k, v in a.items() if k != "cpu_time"}, {k: v for k, v in b.items() if k != "cpu_time"})

    def test_wrong_output_is_an_err_row_like_any_other(self):
        done = run("--benchmark_format=csv", f"--benchmark_filter={SMALL}", "--inject-error")
        rows = self.check_rows(done)
        self.assertEqual(done.returncode, 1)
        self.assertEqual({(row["ok"], row["err"]) for row in rows}, {("0", "1")})
        self.assertEqual(len(re.findall("outside the tolerance", done.stderr)), len(rows))

    def test_json(self):
        done = run("--benchmark_format=json", "--benchmark_filter=per_token.*mtp1/.*b3/.*hq8/.*vl0/")
        report = json.loads(done.stdout)
        self.assertEqual(len(report["benchmarks"]), 1)
        self.assertLessEqual(set(contract.TIMING + OWN), set(report["benchmarks"][0]))
        self.assertEqual(report["context"]["tilewave_arch"], "gfx950 (emulated)")

    def test_ceiling(self):
        common = ["--benchmark_format=csv", "--benchmark_filter=per_token.*mtp1/.*b3/.*hq8/.*vl0/"]
        row, = rows_of(run(*common, "--ceiling-gbps=4000"))[1]
        self.assertAlmostEqual(float(row["roof_us"]), float(row["bytes_ideal"]) / 4e6, places=4)

    def test_bad_options(self):
        for argument in ("--sweep=nightly", "--sweep=default,default", "--sweep", "--arch=gfx90a", "--every=0",
                         "--policies=best", "--splits=0", "--splits=129", "--splits=two", "--seed=-1", "--seed=1000000",
                         "--inputs=zero", "--max-seconds=-1", "--max-seconds=nan", "--max-seconds=inf", "--threads=0",
                         "--check-pairs=0", "--ceiling-gbps=0", "--ceiling-gbps=nan", "--ceiling-gbps=-nan",
                         "--ceiling-gbps=inf", "--frobnicate", "stray"):
            self.refuses(argument)

    def test_bad_options_of_google_benchmark(self):
        for argument in ("--benchmark_frobnicate=1", "--benchmark_format=xml", "--benchmark_format", "--benchmark_format=",
                         "--benchmark_out_format=xml", "--benchmark_out=/nonexistent/x", "--benchmark_out=/",
                         "--benchmark_min_time=abc", "--benchmark_min_time=nan", "--benchmark_min_time=1y",
                         "--benchmark_repetitions=2", "--benchmark_repetitions=two", "--benchmark_time_unit=h",
                         "--benchmark_context=key", "--benchmark_color=", "--benchmark_filter=(",
                         "--benchmark_filter=no_such_row", "--benchmark_filter=-."):
            self.assertIn(argument.split("=")[0] if argument != "--benchmark_color=" else "", self.refuses(argument))
        self.refuses(BENCHMARK_FORMAT="xml")
        self.refuses(BENCHMARK_OUT_FORMAT="xml")
        self.refuses(BENCHMARK_OUT="/nonexistent/x")
        self.refuses(BENCHMARK_REPETITIONS="2")

    def test_bundles_that_cannot_be_written(self):
        one = "--benchmark_filter=per_token.*mtp1/.*b3/.*hq8/.*vl0/"
        with tempfile.TemporaryDirectory() as scratch:
            bundle = f"--export-bundle={scratch}/bundle"
            self.assertIn("leaves 64", self.refuses(bundle))
            self.assertIn("gfx950", self.refuses(bundle, "--arch=sm90", one))
            self.assertIn("no_such_row", self.refuses(bundle, "--benchmark_filter=no_such_row"))
            self.assertEqual(os.listdir(scratch), [])
        with tempfile.NamedTemporaryFile() as file:  # the code objects may be missing as well, which is told first
            self.refuses(f"--export-bundle={file.name}", one)

    def test_help(self):
        self.check_help("--sweep", "--arch", "--policies", "--splits", "--seed", "--max-seconds", "--export-bundle",
                        "--benchmark_filter")


if __name__ == "__main__":
    contract.main("BENCH_PA")
