#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of bench_gemm on the emulated device. Usage: gemm_csv_test.py BENCH_GEMM"""
import re

import contract
import op_contract
from contract import ARCHS, identities, rows_of, run

IDENTITY = """kind arch a_dtype b_dtype out_dtype scale group layout weights activation gated out_scale sums zero_points bias group_kind group_rows batch m n k groups
config_m config_n config_k config_batch config_groups config_group_rows seed""".split()
POLICY = """tile_rows tile_columns depth stages waves_rows waves_columns path swapped cluster cluster_columns splits most_splits
waves_per_simd waves_k stream pingpong late""".split()
SWEEPS = "default square decode grouped batched preshuffled int8 gated int4 mx prefill layouts".split()
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "fp8_e4m3fn": 1, "fp8_e4m3fnuz": 1, "i8": 1, "i4": 0.5, "fp4_e2m1": 0.5, "fp6_e2m3": 0.75, "fp6_e3m2": 0.75}
ROUNDING = {"bf16": 3e-3, "f16": 4e-4, "fp8_e4m3fn": 6e-2, "fp8_e4m3fnuz": 6e-2}  # largest error that rounding out alone makes of a row, in the l2 norm
NAME = re.compile(
    r"gemm/(?P<arch>gfx942|gfx950|sm90)/(?P<a>bf16|f16|fp8|i8|fp4_e2m1|fp6_e2m3|fp6_e3m2)(?:\.(?P<b>i4|fp4_e2m1))?(?:\.(?P<scale>tensor|row|block|group|mx)(?P<group>\d+)?)?(?:\.(?P<layout>nn|tn|tt))?(?P<shuffled>\.preshuffled|\.fragments)?(?:\.(?P<activation>silu|gelu_tanh|swigluoai))?(?P<gated>\.gated)?(?:\.(?P<quant>per_tensor|per_group))?(?P<fast>\.fast)?(?P<zeros>\.zeros)?"
    r"/(?P<out>bf16|f16|fp8)/m(?P<m>\d+)(?:of(?P<om>\d+))?/n(?P<n>\d+)(?:of(?P<on>\d+))?/k(?P<k>\d+)(?:of(?P<ok>\d+))?"
    r"(?:/batch(?P<batch>\d+)(?:of(?P<ob>\d+))?)?(?:/(?P<kind>contiguous|masked)(?P<groups>\d+)(?:of(?P<og>\d+))?x(?P<rows>\d+)(?:of(?P<or>\d+))?)?"
    r"(?P<bias>/bias)?/(?P<policy>none|t(?P<tr>\d+)x(?P<tc>\d+)x(?P<depth>\d+)\.w(?P<wr>\d+)x(?P<wc>\d+)\.s(?P<stages>\d+)"
    r"\.(?P<path>tensor|direct|staged|wreg)(?P<swap>\.swap)?(?:\.c(?P<cluster>\d+))?(?:\.a(?P<sharers>\d+))?(?:\.k(?P<most>\d+))?(?:\.o(?P<waves>\d+))?(?:\.d(?P<wk>\d+))?(?P<stream>\.stream)?(?P<pingpong>\.pingpong)?(?P<late>\.late)?"
    r"(?:\.by(?P<by>\d+))?)")
SCALING = {"none": "none", "mx": "mx"} | {word: "per_" + word for word in ("tensor", "row", "block", "group")}  # names leave per_ out


class Csv(op_contract.OpContract):
    identity, name = IDENTITY + POLICY, NAME
    few, few_rows = ["--every=5", "--arch=sm90"], 14
    fewest = ["--sweep=decode", "--benchmark_filter=/m1/n384/"]
    options = ["--sweep", "--every", "--peer", "--rotate", "--state", "--splits"]
    bad_options = ["--sweep=train", "--sweep=decode,decode", "--every=0", "--splits=0", "--splits=65", "--state=hot", "--rotate=-1",
                   "--rotate=many", "--peer=theirs"]

    def named(self, match):
        fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
        a = fp8 if match["a"] == "fp8" else match["a"]
        named = {"kind": "gemm", "arch": match["arch"], "a_dtype": a, "b_dtype": match["b"] or a, "group": match["group"] or "0", "out_dtype": fp8 if match["out"] == "fp8" else match["out"],
                 "scale": SCALING[match["scale"] or "none"], "layout": match["layout"] or "nt",
                 "activation": match["activation"] or "none", "gated": str(int(match["gated"] is not None)),
                 "out_scale": match["quant"] or "none", "sums": "fast" if match["fast"] else "promoted", "zero_points": "1" if match["zeros"] else "0",
                 "weights": match["shuffled"][1:] if match["shuffled"] else "row_major", "bias": str(int(match["bias"] is not None)),
                 "group_kind": match["kind"] or "one", "group_rows": match["rows"] or "0", "batch": match["batch"] or "1",
                 "m": match["m"], "n": match["n"], "k": match["k"], "groups": match["groups"] or "0",
                 "config_m": match["om"] or match["m"], "config_n": match["on"] or match["n"],
                 "config_k": match["ok"] or match["k"], "config_batch": match["ob"] or match["batch"] or "1",
                 "config_group_rows": match["or"] or match["rows"] or "0", "config_groups": match["og"] or match["groups"] or "0"}
        named |= {"tile_rows": match["tr"], "tile_columns": match["tc"], "depth": match["depth"],
                  "stages": match["stages"], "waves_rows": match["wr"], "waves_columns": match["wc"],
                  "path": match["path"], "swapped": str(int(match["swap"] is not None)),
                  "cluster": match["cluster"] or "1", "cluster_columns": match["sharers"] or "1", "splits": match["by"] or "1",
                  "most_splits": match["most"] or "1", "waves_per_simd": match["waves"] or "1", "waves_k": match["wk"] or "1",
                  "stream": str(int(match["stream"] is not None)), "pingpong": str(int(match["pingpong"] is not None)),
                  "late": str(int(match["late"] is not None))}
        return named

    def policy_of(self, match):
        return match["policy"].split(".by")[0]

    def damaged(self, row):
        return r"\d+ values outside the tolerance; the first: out is .* at row 0, column 0"

    def check_row(self, row, match):
        if row["group_kind"] != "masked":
            self.check_work(row)

    def check_work(self, row):
        """What was launched counts, not what the config would have been; to the byte."""
        m, n, k, batch, groups = (int(row[column]) for column in "m n k batch groups".split())
        rows, layers, written = batch * m, max(batch, groups), n // (1 + int(row["gated"]))
        columns = layers * n
        scales = {"none": 0, "per_tensor": 2, "per_row": rows + columns, "per_block": (rows + layers * -(-n // 128)) * -(-k // 128)}
        scales["per_group"] = rows if "fp8" in row["a_dtype"] else 0
        operands = int(rows * k * BYTES[row["a_dtype"]] + columns * k * BYTES[row["b_dtype"]])
        moved = operands + rows * written * BYTES[row["out_dtype"]] + ((rows + columns) * (k // 32) if row["scale"] == "mx" else 4 * scales[row["scale"]])
        moved += {"none": 0, "per_tensor": 4, "per_group": 4 * rows * -(-written // 128)}[row["out_scale"]]
        if row["scale"] == "per_group":  # a scale of two bytes, or e8m0, and a zero point
            moved += columns * (k // int(row["group"])) * ((1 if row["b_dtype"] == "fp4_e2m1" else 2) + int(row["zero_points"]))
        moved += columns * BYTES[row["out_dtype"]] * int(row["bias"]) + (4 * (groups + 1) if groups else 0)
        self.assertEqual((int(row["bytes_ideal"]), int(row["flops"])), (moved, 2 * rows * n * k), row["name"])
        self.check_roof(row, BYTES[row["a_dtype"]])

    def test_default_sweep(self):
        for arch in ("sm90", "gfx950"):
            rows = self.good_rows(f"--arch={arch}", contract.every(2))
            self.assertGreaterEqual(len(rows), 30 if contract.all_rows else 15)
            self.assertEqual(len({row["name"] for row in rows}), len(rows))
            for row in rows:
                self.assertEqual(row["arch"], arch, row["name"])
                self.assertTrue(0 < float(row["max_rel_err"]) < ROUNDING[row["out_dtype"]], row["name"])
            for column in "scale a_dtype out_dtype config_m batch group_kind".split():
                self.assertGreater(len({row[column] for row in rows}), 1, column)
            self.assertGreater(len({row["entry"] for row in rows}), 5)

    def test_columns_alone_tell_rows_apart(self):
        self.check_identities(self.identity, "--sweep=" + ",".join(SWEEPS))

    def test_every_arch(self):
        for arch in ARCHS:
            rows = self.good_rows("--sweep=decode,batched", "--benchmark_filter=/m(8|128)/n(384|512of8192|128)/", f"--arch={arch}")
            self.assertEqual({row["arch"] for row in rows}, {arch})
            self.assertEqual({row["batch"] for row in rows}, {"1", "3"})
            self.assertEqual({row["scale"] for row in rows}, {"none", "per_row", "per_block"})

    def test_bias(self):
        row, = self.good_rows("--sweep=square", "--benchmark_filter=/bias/", "--arch=sm90")
        self.assertEqual(row["bias"], "1")

    def test_mx(self):
        rows = self.good_rows("--sweep=mx", "--every=7", "--arch=gfx950")
        self.assertEqual({(row["a_dtype"], row["b_dtype"]) for row in rows},
                         {("fp4_e2m1", "fp4_e2m1"), ("fp8_e4m3fn", "fp4_e2m1"), ("fp8_e4m3fn", "fp8_e4m3fn"), ("fp6_e2m3", "fp6_e2m3"),
                          ("fp6_e2m3", "fp4_e2m1")})
        done = run("--benchmark_format=csv", "--sweep=mx", "--every=20", "--arch=gfx942")
        self.assertEqual((done.returncode, {row["entry"] for row in rows_of(done)[1]}), (1, {"none"}))
        self.assertIn("unsupported_scaling: ", done.stderr)

    def test_layouts_and_preshuffled_weights(self):
        for arch, sweep, every in ("sm90", "preshuffled", 7), ("gfx950", "layouts", 2), ("sm90", "layouts", 4):
            self.good_rows(f"--sweep={sweep}", f"--every={every}", f"--arch={arch}")

    def test_what_no_entry_serves_is_a_row_with_a_reason(self):
        for arch in ARCHS:
            done = run("--benchmark_format=csv", "--config=gemm/fp8.tensor.preshuffled/f16/m16/n64/k128", f"--arch={arch}")
            header, rows, _ = rows_of(done)
            self.assertEqual(header, ["name"] + IDENTITY + POLICY + contract.MEASURED + contract.ORIGIN + contract.GOOGLE)
            unserved = [row for row in rows if row["entry"] == "none"]
            self.assertEqual(done.returncode, int(len(unserved) > 0))
            for row in rows:
                self.assertTrue(NAME.fullmatch(row["name"]), row["name"])
                self.assertEqual(row["err"], str(int(row in unserved)), done.stderr)
                self.assertGreater(int(row["bytes_ideal"]), 0)
            for row in unserved:
                self.assertIn(f"{row['name']}: no_matching_entry: ", done.stderr)
                self.assertEqual({row[column] for column in POLICY}, {"0", "none"})

    def test_every_policy_and_splits(self):
        common = ["--sweep=decode", "--benchmark_filter=gemm/sm90/bf16/bf16/m16/n512of7168/k768of2048", "--arch=sm90"]
        selected, = self.good_rows(*common)
        every = self.good_rows("--policies=all", *common)
        self.assertEqual(selected["name"], every[0]["name"])  # most wanted first
        self.assertEqual({row["config_id"] for row in every}, {selected["config_id"]})
        self.assertGreater(len({row["entry"] for row in every}), 5)
        self.assertGreater(len({row["splits"] for row in every}), 3)
        given, = self.check_rows(run("--benchmark_format=csv", "--splits=3", *common))
        self.assertEqual((given["splits"], given["err"]), (str(min(3, int(given["most_splits"]))), "0"))

    def test_seeds(self):
        self.check_seeds("--sweep=decode", "--benchmark_filter=/m1/n384/", "--arch=sm90")

    def test_output_file_json_and_ceiling(self):
        self.check_output_file_and_ceiling("--sweep=decode", "--benchmark_filter=/bf16/bf16/m1/n384/")

    def test_sweeps_and_every(self):
        counts = {sweep: len(identities(f"--sweep={sweep}", "--arch=sm90")[1]) for sweep in SWEEPS}
        self.assertEqual({sweep: counts[sweep] for sweep in SWEEPS[1:]},
                         {"square": 26, "decode": 180, "grouped": 16, "batched": 6, "preshuffled": 20, "int8": 18, "gated": 20, "int4": 88, "mx": 82,
                          "prefill": 108, "layouts": 10})
        self.assertEqual(len(identities("--sweep=decode", "--every=7")[1]), 26)
        both = identities("--sweep=default,decode", "--arch=sm90")[1]
        self.assertLess(len(both), counts["default"] + counts["decode"])  # what both have is one row
        self.assertGreaterEqual(len(both), counts["decode"])

    def test_bad_options(self):
        super().test_bad_options()
        self.assertIn("--peer=vendor: this build has no library of the vendor", self.refuses("--peer=vendor"))
        self.refuses("--state=both", "--model-time")

    def test_states_are_told_where_nothing_is_timed(self):
        common = ["--benchmark_format=csv", "--sweep=decode", "--benchmark_filter=/bf16/bf16/m1/n384/", "--arch=sm90"]
        for asked, told in ("as_is", "as_is"), ("rested", "rested"), ("sustained", "sustained"), ("both", "rested"):
            row, = self.check_rows(run(*common, f"--state={asked}"))
            self.assertEqual((row["state"], row["peer"], row["err"]), (told, "none", "0"))

    def test_own_shapes(self):
        for sweep in SWEEPS:
            self.check_shapes(f"--sweep={sweep}", every=9)
        own = ["--benchmark_format=csv", "--config=fp8.row/m12/n136/k300", "--arch=sm90"]
        row, = self.check_rows(run(*own))
        self.assertEqual((row["scale"], row["m"], row["n"], row["k"], row["config_id"], row["err"]), ("per_row", "12", "136", "300", "0", "0"))
        for config in ("m0/n8/k8", "m8/n8", "i8/i8/m8/n8/k8", "bf16.rows/m8/n8/k8", "bf16.row.block/m8/n8/k8", "m8/n8/k8/b_dtype=f16",
                       "m8/n8/k8/batch0", "m64/n8/k8/contiguous9x8", "m64/n8/k8/masked8x65", "m64/n8/k8/masked8", "m64/n8/k8/masked8x",
                       "m64/n8/k8/group_kind=masked", "m64/n8/k8/config_groups=2", "m64/n8/k8/masked8x4/batch2",
                       "m99999999/n99999999/k8"):
            self.refuses(f"--config={config}")
        self.refuses("--config=m8/n8/k8", "--sweep=decode")

    def test_a_models_decode_step(self):
        names = run("--benchmark_list_tests", "--model=llama3-70b", "--tp=8", "--batch=1,64", "--arch=sm90").stdout.splitlines()
        extents = ("n1280/k8192", "n8192/k1024", "n7168/k8192", "n8192/k3584", "n16032/k8192")
        self.assertEqual(len(names), 2 * 2 * len(extents))
        configs = [re.sub(r"\d+of(\d+)", r"\1", name) for name in names]
        for extent in extents:
            for start in ("bf16/bf16/m1", "fp8.row/bf16/m64"):
                self.assertEqual(sum(f"/{start}/{extent}/" in config for config in configs), 1, (start, extent))
        experts = run("--benchmark_list_tests", "--model=gpt-oss-20b", "--batch=1,64", "--arch=sm90").stdout
        self.assertIn("/contiguous3of4x1/", experts)
        self.assertIn("/contiguous3of32x8/", experts)
        self.refuses("--model=llama3-70b", "--tp=7")


if __name__ == "__main__":
    contract.main("BENCH_GEMM")
