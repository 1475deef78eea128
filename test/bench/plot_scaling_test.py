#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What bench/plot_scaling.py makes of rows. Usage: plot_scaling_test.py PLOT_SCALING BENCH_PA"""
import csv
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

script, bench_pa = sys.argv[1:3]
BATCHES, CONTEXTS = [1, 2, 3, 16, 17, 32], [128, 1000, 1024, 1025, 8192]
RATE = 4e6  # bytes a microsecond


KINDS = {2: ("bf16", "none"), 3: ("fp8_e4m3fn", "per_tensor")}


def row_of(batch, context, kind, us=None):
    """A row of the CSV; without a time, one of a device with a launch of 8 us that then reads at RATE."""
    bytes_ideal = batch * context * 4096 // (kind - 1)
    kv_dtype, quant_mode = KINDS[kind]
    return {"name": f"pa_decode/{kv_dtype}/b{batch}/c{context}", "err": 0, "us": us or 8 + bytes_ideal / RATE,
            "roof_us": bytes_ideal / (1.1 * RATE), "bytes_ideal": bytes_ideal, "batch_size": batch,
            "context_length": context, "kv_dtype": kv_dtype, "quant_mode": quant_mode, "arch": "sm90", "q_dtype": "bf16",
            "block_size": 64, "mtp": 1, "head_size": 128, "num_q_heads": 32, "num_kv_heads": 8, "k_layout": "units",
            "v_layout": "shuffled", "native": 0, "kv_varlen": 0, "sliding_window": 0, "distinct": 1, "inputs": "uniform"}


def grid(kinds=(2, 3)):
    return [row_of(batch, context, kind) for kind, batch, context in itertools.product(kinds, BATCHES, CONTEXTS)]


def changed(rows, kv, batch, context, **values):
    return [row | values if (row["kv_dtype"], row["batch_size"], row["context_length"]) == (KINDS[kv][0], batch, context)
            else row for row in rows]


class PlotScaling(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name

    def file(self, rows, name="rows.csv"):
        path = os.path.join(self.scratch, name)
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        return path

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False,
                              timeout=120)

    def table(self, rows, *arguments, status=0):
        """Cells of the table's lines, and the lines that count."""
        done = self.run_script(self.file(rows), *arguments)
        self.assertEqual((done.returncode, done.stderr), (status, ""), done.stdout)
        lines = done.stdout.splitlines()
        table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
        return table[1:], [line for line in lines if line.endswith("%")]

    def refuses(self, word, *arguments):
        done = self.run_script(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), (arguments, done.stderr))
        self.assertRegex(done.stderr, rf"\Aplot_scaling: [^\n]*{word}[^\n]*\n\Z")

    def test_a_launch_and_a_rate_have_no_cliff(self):
        table, counts = self.table(grid(), "--check")
        steps = len(BATCHES) * (len(CONTEXTS) - 1) + len(CONTEXTS) * (len(BATCHES) - 1)
        self.assertEqual(counts, [f"{kind}: {steps} steps, 0 of them over 20 %" for kind in ("bf16", "fp8 per tensor")])
        self.assertEqual(len(table), 2 * 5)
        self.assertLess(max(int(line[6].rstrip(" %")) for line in table), 1)

    def test_a_planted_cliff_is_the_worst_step(self):
        # 1.5 times the time of a cell: dear to come to from either side, and cheaper again behind it.
        at = row_of(17, 1024, 2)
        rows = changed(grid(), 2, 17, 1024, us=1.5 * at["us"])
        table, counts = self.table(rows, "--check", status=1)
        self.assertIn("bf16: 49 steps, 3 of them over 20 %", counts)
        self.assertIn("fp8 per tensor: 49 steps, 0 of them over 20 %", counts)
        slow = f"{1.5 * at['us']:.1f}"
        self.assertEqual({(*line[:5], line[6]) for line in table[:3]},
                         {("bf16", "16, 1024", "17, 1024", f"{row_of(16, 1024, 2)['us']:.1f}", slow, "50 %"),
                          ("bf16", "17, 1000", "17, 1024", f"{row_of(17, 1000, 2)['us']:.1f}", slow, "50 %"),
                          ("bf16", "17, 1024", "17, 1025", slow, f"{row_of(17, 1025, 2)['us']:.1f}", "50 %")})
        _, counts = self.table(rows, "--check", "--limit=51")
        self.assertIn("bf16: 49 steps, 0 of them over 51 %", counts)
        self.table(rows)  # says so, but does not check

    def test_a_jump_that_stays_is_one_cliff_per_line_that_crosses_it(self):
        rows = [row | {"us": row["us"] + (6 if row["batch_size"] > 16 else 0)} for row in grid([3])]
        table, counts = self.table(rows, "--check", status=1)
        self.assertTrue(all((line[1].split(",")[0], line[2].split(",")[0]) == ("16", "17") for line in table[:4]), table)
        # 6 us more than 8 to 17 us before: in every context but the longest, where 76 us go to bytes.
        self.assertEqual(counts, ["fp8 per tensor: 49 steps, 4 of them over 20 %"])

    def test_a_cell_that_was_left_out_is_stepped_over(self):
        rows = [row for row in grid([2]) if (row["batch_size"], row["context_length"]) != (17, 1024)]
        _, counts = self.table(rows)
        self.assertEqual(counts, [f"bf16: {49 - 2} steps, 0 of them over 20 %"])

    def test_several_files_are_one(self):
        paths = [self.file(grid([2]), "bf16.csv"), self.file(grid([3]), "fp8.csv")]
        both = self.run_script(*paths)
        self.assertEqual(both.returncode, 0, both.stderr)
        self.assertEqual(both.stdout, self.run_script(self.file(grid())).stdout)
        self.refuses("such a row already", paths[0], paths[0])

    def test_what_is_no_such_csv_is_refused(self):
        rows = grid()
        for word, wrong in (("b3/c1024 is wrong", changed(rows, 2, 3, 1024, err=1)),
                            ("no times", changed(rows, 2, 1, 128, us="nan")),
                            ("not above 0", changed(rows, 3, 1, 128, us=0)),
                            ("not above 0", changed(rows, 3, 1, 128, roof_us="inf")),
                            ("could not convert", changed(rows, 3, 1, 128, us="fast")),
                            ("not the CSV", changed(rows, 3, 1, 128, kv_dtype="i8")),
                            ("differs from the first", changed(rows, 3, 1, 128, mtp=2)),
                            ("such a row already", rows + rows[-1:]),
                            ("'us'", [{key: row[key] for key in row if key != "us"} for row in rows])):
            self.refuses(word, self.file(wrong))
        for word, text in (("no rows", ""), ("no rows", "name,us\n"), ("not the CSV", "name,err\nx,0\n"),
                           ("not the CSV", "name,err\nx\n"), ("codec", b"\xff\xfe\x00".decode("latin-1"))):
            path = os.path.join(self.scratch, "text.csv")
            with open(path, "w", encoding="latin-1") as file:
                file.write(text)
            self.refuses(word, path)
        self.refuses("No such file", os.path.join(self.scratch, "nowhere.csv"))

    def test_bad_options(self):
        path = self.file(grid())
        for arguments in ([], [path, "--limit=x"], [path, "--limit=-1"], [path, "--limit=nan"], [path, "--frobnicate"]):
            self.refuses("", *arguments)

    def test_columns_are_those_of_bench_pa(self):
        path = os.path.join(self.scratch, "emulated.csv")
        with open(path, "w", encoding="utf-8") as file:
            subprocess.run([bench_pa, "--sweep=scaling", "--benchmark_filter=/b1/c128/", "--benchmark_format=csv"],
                           stdout=file, stderr=subprocess.DEVNULL, check=True, timeout=120)
        self.refuses("the emulated device has none", path)
        with open(path, encoding="utf-8", newline="") as file:
            rows = [row | {"us": 8} for row in csv.DictReader(file)]
        table, counts = self.table(rows)
        self.assertEqual((table, counts), ([], [f"{kind}: 0 steps, 0 of them over 20 %" for kind in ("bf16", "fp8 per tensor")]))

    @unittest.skipIf(importlib.util.find_spec("matplotlib") is None, "no matplotlib")
    def test_the_picture_is_small_and_the_same_every_time(self):
        cliff = changed(grid(), 3, 17, 1024, us=100)
        pictures = []
        for name, rows in (("a", grid()), ("b", grid()), ("c", cliff)):
            path = os.path.join(self.scratch, f"{name}.svg")
            self.table(rows, f"--svg={path}")
            with open(path, encoding="utf-8") as file:
                pictures.append(file.read())
            root = xml.etree.ElementTree.parse(path).getroot()
            self.assertTrue(root.tag.endswith("}svg"))
            texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
            self.assertLessEqual({"context", "1025", "17", "KV fp8 per tensor: % of the roof; red: a cliff"}, texts)
        self.assertEqual(pictures[0], pictures[1])
        self.assertNotIn("dc:date", pictures[0])
        self.assertLess(len(pictures[0]), 150_000)
        self.assertNotIn("#ff0000", pictures[0])
        self.assertEqual(pictures[2].count("stroke: #ff0000"), 4)  # to it and from it, both ways
        self.refuses("No such file", self.file(grid()), "--svg=/nonexistent/x.svg")

    @unittest.skipIf(importlib.util.find_spec("matplotlib") is not None, "matplotlib is there")
    def test_a_picture_needs_matplotlib(self):
        self.refuses("needs matplotlib", self.file(grid()), f"--svg={self.scratch}/x.svg")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
