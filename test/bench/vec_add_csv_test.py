#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_vec_add on the emulated device. Usage: vec_add_csv_test.py BENCH_VEC_ADD"""
import itertools
import json
import os
import re
import tempfile

import contract
import op_contract
from contract import ARCHS, rows_of, run

IDENTITY = "kind arch x_dtype buffer_bytes config_bytes seed lanes chunks vec stream waves_per_simd".split()
UNITS = {"GiB": 2 ** 30, "MiB": 2 ** 20, "B": 1}
NAME = re.compile(r"(?P<kind>nothing|read|copy|write|vec_add)/(?P<arch>gfx942|gfx950|sm90)(?:/(?P<x>f32|f16|bf16))?"
                  r"(?:/1MiBof(?P<of>\d+)(?P<unit>GiB|MiB|B))?"
                  r"/(?P<policy>l(?P<lanes>\d+)\.c(?P<chunks>\d+)\.v(?P<vec>\d+)(?P<stream>\.nt)?)")
MOVED = {"nothing": 0, "read": 1, "copy": 2, "write": 1, "vec_add": 3}  # buffers


class Csv(op_contract.OpContract):
    identity, name, rows = IDENTITY, NAME, 23
    few = ["--benchmark_filter=^copy/"]
    bad_options = ["--sweep=default"]

    def named(self, match):
        return {"x_dtype": match["x"] or "none", "stream": str(int(match["stream"] is not None))}

    def check_row(self, row, match):
        kind = match["kind"]
        self.assertEqual(match["of"] is None, kind == "nothing")
        launched = 0 if kind == "nothing" else 2 ** 20
        config = 0 if kind == "nothing" else int(match["of"]) * UNITS[match["unit"]]
        moved = MOVED[kind] * launched
        elements = launched // (4 if match["x"] == "f32" else 2)
        self.assertEqual([int(row[column]) for column in ("buffer_bytes", "config_bytes", "bytes_ideal", "flops")],
                         [launched, config, moved, elements if kind == "vec_add" else 0])
        self.assertAlmostEqual(float(row["roof_us"]), moved / (op_contract.PEAKS[row["arch"]][0] * 1e3), delta=1e-4)

    def test_default_sweep(self):
        """Its order, which other programs rely on."""
        names = run("--benchmark_list_tests").stdout.splitlines()
        sizes = ["16MiB", "64MiB", "256MiB", "1GiB", "4GiB"]
        wanted = ["nothing/gfx950/"]
        wanted += [f"{kind}/gfx950/1MiBof{size}/" for kind, size in itertools.product(["read", "copy", "write"], sizes)]
        wanted += [f"vec_add/gfx950/f32/1MiBof{size}/" for size in ["40960000B"] + sizes[:4]]
        wanted += [f"vec_add/gfx950/{x}/1MiBof256MiB/" for x in ("f16", "bf16")]
        self.assertEqual([name.startswith(start) for name, start in zip(names, wanted)], [True] * self.rows, names)
        self.assertEqual(len(names), self.rows)

    def test_every_arch(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", f"--arch={arch}")
            rows = self.check_rows(done)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([int(row["config_id"]) for row in rows], list(range(self.rows)))
            self.assertEqual(len({row["name"] for row in rows}), self.rows)
            self.assertEqual({(row["err"], row["max_abs_err"], row["arch"]) for row in rows}, {("0", "0", arch)})
            self.assertRegex(done.stderr, r"\(data sheet of (MI300X|MI350X|H200)\)")

    def test_every_policy(self):
        rows = self.good_rows("--policies=all")
        self.assertEqual(len({row["name"] for row in rows}), len(rows))
        per_config = [len(list(group)) for _, group in itertools.groupby(rows, key=lambda row: row["config_id"])]
        self.assertEqual(per_config, [1] + 15 * [6] + 7 * [5])
        self.assertEqual({row["vec"] for row in rows}, {"16", "4", "2"})
        selected = [row["name"] for row in rows_of(run("--benchmark_format=csv"))[1]]
        self.assertLessEqual(set(selected), {row["name"] for row in rows})

    def test_wrong_output_is_an_err_row_like_any_other(self):
        done = run("--benchmark_format=csv", "--inject-error")
        rows = self.check_rows(done)
        self.assertEqual(done.returncode, 1)
        self.assertEqual([row["err"] for row in rows], ["0"] + 22 * ["1"])  # launching nothing leaves nothing to damage
        self.assertEqual(len(re.findall("chunks were read that are not what was written", done.stderr)), 5)
        self.assertEqual(len(re.findall("1 of 65536 chunks are wrong", done.stderr)), 10)
        self.assertEqual(len(re.findall("1 values outside the tolerance", done.stderr)), 7)

    def test_seeds_and_json(self):
        done = run("--benchmark_format=json", "--seed=7", "--benchmark_filter=^copy/|/f16/", "--ceiling-gbps=4000")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(len(report["benchmarks"]), 6)
        self.assertIn("(given)", done.stderr)
        for row in report["benchmarks"]:
            self.assertLessEqual(set(IDENTITY + contract.MEASURED + contract.ORIGIN), set(row))
            self.assertEqual((row["seed"], row["err"]), (7, 0))
            self.assertAlmostEqual(row["roof_us"], row["bytes_ideal"] / 4e6, places=6)

    def test_folders_that_cannot_be_written(self):
        one = "--benchmark_filter=^copy/gfx950/(1MiBof)?64MiB/"
        with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as scratch:
            for option in (["--export-bundle"], ["--model-time", "--model-trace"]):
                for path in (file.name, file.name + "/x", "/proc/x"):
                    self.assertIn(f"{path}: not a directory", self.refuses(*option[:-1], f"{option[-1]}={path}", one))
            with open(os.path.join(scratch, "thesis"), "w", encoding="utf-8"):
                self.assertIn("not empty, and no bundle", self.refuses(f"--export-bundle={scratch}", one))

    def test_own_shapes(self):
        self.check_shapes(by_name=False)  # a size is config_bytes=67108864
        row, = contract.identities("--config=copy/gfx950/config_bytes=67108864")[1].values()
        self.assertEqual(row[:5], ("copy", "gfx950", "none", "1048576", "67108864"))
        self.refuses("--model=llama3-8b")
        self.refuses("--config=copy/config_bytes=12345")


if __name__ == "__main__":
    contract.main("BENCH_VEC_ADD")
