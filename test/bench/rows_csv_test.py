#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of the benchmarks of row operations on the emulated device. Usage: rows_csv_test.py BENCH"""
import json
import os
import re
import tempfile

import contract
from contract import ARCHS, rows_of, run

OWN = "rows columns x_dtype out_dtype scale_mode residual lanes chunks vec".split()
PEAK_GBPS = [5300, 8000, 4800]
DTYPES = ["f32", "f16", "bf16", "fp8_e4m3fn", "fp8_e4m3fnuz", "i8"]
BYTES = [4, 2, 2, 1, 1, 1]
SCALES = ["none", "per_tensor", "per_token", "per_group"]
POLICY = r"(?P<policy>l(?P<lanes>\d+)\.r\d+\.c(?P<chunks>\d+)\.v(?P<vec>\d+)(?:\.s\d+)?(?:\.b\d+)?(?:\.again)?)"
EXTENT = r"(?P<arch>gfx942|gfx950|sm90)/(?P<x>f32|f16|bf16|fp8|i8)/c(?P<columns>\d+)/r(?P<rows>\d+)(?:of(?P<of>\d+))?/"
END = POLICY + "(?:/iterations:1/manual_time)?"
# Largest error that rounding to a type alone makes of a row, in the l2 norm.
ROUNDING = {"f32": 1e-5, "f16": 4e-4, "bf16": 3e-3, "fp8_e4m3fn": 5e-2, "fp8_e4m3fnuz": 5e-2, "i8": 5e-2}


def scales_of(mode, rows, columns):
    return {"none": 0, "per_tensor": 1, "per_token": rows, "per_group": rows * -(-columns // 128)}[mode]


class Norm:
    name = re.compile(r"(?P<kind>rmsnorm|layernorm)/" + EXTENT + r"(?P<out>f32|f16|bf16|fp8|i8)(?:\.(?P<scale>\w+))?"
                      r"/res(?P<residual>[01])/" + END)
    rows = 56
    small = "bf16/c128/|/c5120/r32/"  # 7 rows
    one = "^rmsnorm/.*/c5120/r32/bf16/res1/"

    @staticmethod
    def work(row, match):
        rows, columns, x, out = (int(row[key]) for key in ("rows", "columns", "x_dtype", "out_dtype"))
        layer, residual = match["kind"] == "layernorm", int(match["residual"])
        scale = match["scale"] or "none"
        moved = rows * columns * (BYTES[x] * (3 if residual else 1) + BYTES[out]) + columns * BYTES[x] * (1 + layer)
        per_element = (8 if layer else 4) + residual + {"none": 0, "per_tensor": 1}.get(scale, 2)
        return moved + 4 * scales_of(scale, rows, columns), rows * columns * per_element


class Softmax:
    name = re.compile(r"(?P<kind>softmax|log_softmax)/" + EXTENT + r"causal(?P<causal>\d+)/" + END)
    rows = 13
    small = "/c128/|/c256/|/c512/|/c2000/|/causal16/"  # 5 rows
    one = "/c2000/"

    @staticmethod
    def work(row, match):
        if int(match["causal"]) > 0:
            return None
        elements = int(row["rows"]) * int(row["columns"])
        return 2 * elements * BYTES[int(row["x_dtype"])], 6 * elements


class AttentionCombine:
    name = re.compile(r"(?P<kind>combine)/" + EXTENT + r"p(?P<partials>\d+)/(?P<out>f32|f16|bf16)/" + END)
    rows = 11
    small = "/r64/|/c80/"  # 5 rows
    one = "/c80/"

    @staticmethod
    def work(row, match):
        rows, elements = int(row["rows"]), int(row["rows"]) * int(row["columns"])
        partials = int(match["partials"])
        bytes_of_out = BYTES[int(row["out_dtype"])]
        moved = partials * (elements * BYTES[int(row["x_dtype"])] + 4 * rows) + elements * bytes_of_out + 4 * rows
        return moved, 2 * elements * partials


class Quant:
    name = re.compile(r"(?P<kind>quant|dequant)/" + EXTENT + r"(?P<out>f32|f16|bf16|fp8|i8)\.(?P<scale>per_\w+)"
                      r"/given(?P<given>[01])/" + END)
    rows = 58
    small = "/c5120/r32/"  # 5 rows
    one = "/c5120/r32/fp8.per_token/"

    @staticmethod
    def work(row, match):
        rows, columns, x, out = (int(row[key]) for key in ("rows", "columns", "x_dtype", "out_dtype"))
        scales = scales_of(match["scale"], rows, columns)
        given = int(match["given"])
        reads = 2 if match["scale"] == "per_tensor" and not given else 1
        return rows * columns * (reads * BYTES[x] + BYTES[out]) + 4 * scales, rows * columns * (2 - given)


def op():
    return {"bench_attention_combine": AttentionCombine, "bench_norm": Norm, "bench_quant": Quant, "bench_softmax": Softmax}[contract.tool()]


class Csv(contract.Contract):
    def check_rows(self, done):
        matched = self.check_layout(done, op().name, OWN)
        for row, match in matched:
            for counter in ("columns", "rows", "lanes", "chunks", "vec"):
                self.assertEqual(row[counter], match[counter], counter)
            named = match.groupdict()
            fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
            out = named.get("out") or match["x"]
            self.assertEqual(DTYPES[int(row["x_dtype"])], fp8 if match["x"] == "fp8" else match["x"])
            self.assertEqual(DTYPES[int(row["out_dtype"])], fp8 if out == "fp8" else out)
            self.assertEqual(SCALES[int(row["scale_mode"])], named.get("scale") or "none")
            self.assertEqual(row["residual"], named.get("residual") or "0")
            self.assertEqual(ARCHS[int(row["arch"])], match["arch"])
            self.assertTrue(row["label"].endswith("/" + match["policy"]), row["label"])
            # What was launched counts, not what the config would have been. Counters have six digits.
            if (work := op().work(row, match)) is not None:
                self.assertAlmostEqual(float(row["bytes_ideal"]) / work[0], 1, delta=1e-5)
                self.assertAlmostEqual(float(row["flops"]) / work[1], 1, delta=1e-5)
            self.assertAlmostEqual(float(row["roof_us"]) * PEAK_GBPS[int(row["arch"])] * 1e3 / float(row["bytes_ideal"]),
                                   1, delta=1e-4)
            self.assertLessEqual(int(row["rows"]) * int(row["columns"]), max(2 ** 20, 3 * int(row["columns"])))
            if match["of"]:
                self.assertLess(int(row["rows"]), int(match["of"]))
            else:
                self.assertLessEqual(int(row["rows"]) * int(row["columns"]), 2 ** 20)
        return [row for row, _ in matched]

    def test_default_sweep(self):
        done = run("--benchmark_format=csv")
        rows = self.check_rows(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([int(row["config_id"]) for row in rows], list(range(op().rows)))
        self.assertEqual(len({row["name"] for row in rows}), op().rows)
        for row in rows:
            self.assertEqual(row["err"], "0", row["name"])
            self.assertEqual(row["arch"], "1")
            self.assertTrue(0 < float(row["max_rel_err"]) < ROUNDING[DTYPES[int(row["out_dtype"])]], row["name"])

    def test_every_arch(self):
        counts = set()
        for arch in ARCHS:
            done = run("--benchmark_format=csv", f"--benchmark_filter={op().small}", f"--arch={arch}")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual({(row["err"], row["arch"]) for row in rows}, {("0", str(ARCHS.index(arch)))})
            counts.add(len(rows))
        self.assertEqual(len(counts), 1)

    def test_every_policy(self):
        selected = self.check_rows(run("--benchmark_format=csv", f"--benchmark_filter={op().one}"))
        done = run("--benchmark_format=csv", f"--benchmark_filter={op().one}", "--policies=all")
        every = self.check_rows(done)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(selected), 1)
        self.assertGreater(len(every), 1)
        self.assertIn(selected[0]["name"], [row["name"] for row in every])
        self.assertEqual({row["config_id"] for row in every}, {selected[0]["config_id"]})
        self.assertEqual(len({row["label"] for row in every}), len(every))

    def test_seeds(self):
        common = ["--benchmark_format=csv", f"--benchmark_filter={op().small}"]
        first, again, other = (rows_of(run(*common, f"--seed={seed}"))[1] for seed in (123, 123, 7))
        for a, b, c in zip(first, again, other):
            self.assertEqual(a | {"cpu_time": ""}, b | {"cpu_time": ""})
            self.assertNotEqual(a["max_rel_err"], c["max_rel_err"])
            self.assertEqual((c["seed"], c["err"]), ("7", "0"))

    def test_wrong_output_is_an_err_row_like_any_other(self):
        done = run("--benchmark_format=csv", "--inject-error")
        rows = self.check_rows(done)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(len(rows), op().rows)
        for row in rows:
            self.assertEqual((row["ok"], row["err"]), ("0", "1"), row["name"])
            self.assertRegex(done.stderr, re.escape(row["name"].split("/iterations")[0]) +
                             r": 1 values outside the tolerance; the first: out is .* at row 0, column 0\n")

    def test_output_file_json_and_ceiling(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "rows.json")
            done = run(f"--benchmark_filter={op().one}", f"--benchmark_out={path}", "--ceiling-gbps=4000")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        row, = report["benchmarks"]
        self.assertLessEqual(set(contract.TIMING + OWN), set(row))
        self.assertEqual(report["context"]["tilewave_arch"], "gfx950 (emulated)")
        self.assertAlmostEqual(row["roof_us"], row["bytes_ideal"] / 4e6, places=6)

    def test_rows_that_cannot_be_written_are_an_error(self):
        done = contract.run_to_full_disk("--benchmark_format=csv", f"--benchmark_filter={op().one}")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{contract.tool()}: cannot write", done.stderr)

    def test_bad_options(self):
        for argument in ("--arch=gfx90a", "--policies=best", "--seed=-1", "--seed=1000000", "--max-seconds=-1",
                         "--max-seconds=nan", "--max-seconds=inf", "--threads=0", "--ceiling-gbps=0", "--ceiling-gbps=nan",
                         "--ceiling-gbps=inf", "--sweep=default", "--splits=2", "--frobnicate", "stray",
                         "--benchmark_frobnicate=1", "--benchmark_format=xml", "--benchmark_out=/nonexistent/x",
                         "--benchmark_min_time=abc", "--benchmark_repetitions=2", "--benchmark_filter=(",
                         "--benchmark_filter=no_such_row"):
            self.refuses(argument)
        self.refuses(BENCHMARK_FORMAT="xml")
        self.refuses(BENCHMARK_OUT="/nonexistent/x")

    def test_help(self):
        self.check_help("--arch", "--policies", "--seed", "--max-seconds", "--ceiling-gbps", "--benchmark_filter")


if __name__ == "__main__":
    contract.main("BENCH_ATTENTION_COMBINE|BENCH_NORM|BENCH_QUANT|BENCH_SOFTMAX")
