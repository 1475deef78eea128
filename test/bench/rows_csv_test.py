#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The CSV contract of the benchmarks of row operations on the emulated device. Usage: rows_csv_test.py BENCH"""
import re

import contract
import op_contract
from contract import ARCHS, rows_of, run

POLICY_COLUMNS = "lanes rows_per_block chunks vec span cluster held waves_per_simd".split()
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "fp8_e4m3fn": 1, "fp8_e4m3fnuz": 1, "i8": 1, "fp4_e2m1": 0.5, "fp6_e2m3": 0.75}
POLICY = (r"(?P<policy>l(?P<lanes>\d+)\.r(?P<rows_per_block>\d+)\.c(?P<chunks>\d+)\.v(?P<vec>\d+)(?:\.s(?P<span>\d+))?"
          r"(?:\.b(?P<cluster>\d+))?(?P<again>\.again)?(?:\.k(?P<keep>\d+))?)")
EXTENT = r"(?P<arch>gfx942|gfx950|sm90)/(?P<x>f32|f16|bf16|fp8|i8)/c(?P<columns>\d+)/r(?P<rows>\d+)(?:of(?P<of>\d+))?/"
END = POLICY
# Largest error that rounding to a type alone makes of a row, in the l2 norm.
ROUNDING = {"f32": 1e-5, "f16": 4e-4, "bf16": 3e-3, "fp8_e4m3fn": 5e-2, "fp8_e4m3fnuz": 5e-2, "i8": 5e-2,
            "fp4_e2m1": 0.2, "fp6_e2m3": 5e-2}


def scale_bytes(mode, rows, columns):
    return {"none": 0, "per_tensor": 4, "per_token": 4 * rows, "per_group": 4 * rows * -(-columns // 128),
            "mx": rows * columns // 32}[mode]


class Norm:
    step = [f"rmsnorm/gfx950/bf16/c8192/r{batch}/{out}/res1" for batch in (1, 64) for out in ("bf16", "fp8.per_token")]
    identity = "kind arch x_dtype weight_dtype out_dtype scale_mode mx_rounding residual columns rows config_rows seed".split()
    name = re.compile(r"(?P<kind>rmsnorm|layernorm)/" + EXTENT + r"(?P<out>f32|f16|bf16|fp8|i8|fp4_e2m1)(?:\.(?P<scale>\w+))?"
                      r"/res(?P<residual>[01])/" + END)
    rows = 60
    few, few_rows = "bf16/c128/|/c5120/r32/", 7
    one = "^rmsnorm/.*/c5120/r32/bf16/res1/"

    @staticmethod
    def work(row, match):
        rows, columns, x, out = int(row["rows"]), int(row["columns"]), row["x_dtype"], row["out_dtype"]
        layer, residual = match["kind"] == "layernorm", int(match["residual"])
        scale = match["scale"] or "none"
        moved = rows * columns * (BYTES[x] * (3 if residual else 1) + BYTES[out]) + columns * BYTES[x] * (1 + layer)
        per_element = (8 if layer else 4) + residual + {"none": 0, "per_tensor": 1}.get(scale, 2)
        return moved + scale_bytes(scale, rows, columns), rows * columns * per_element


class Softmax:
    step = [f"softmax/gfx950/bf16/c128256/r{rows}/causal0" for rows in (1, 64)]
    identity = "kind arch x_dtype causal columns rows config_rows seed".split()
    name = re.compile(r"(?P<kind>softmax|log_softmax)/" + EXTENT + r"causal(?P<causal>\d+)/" + END)
    rows = 13
    few, few_rows = "/c128/|/c256/|/c512/|/c2000/|/causal16/", 5
    one = "/c2000/"

    @staticmethod
    def work(row, match):
        if int(match["causal"]) > 0:
            return None
        elements = int(row["rows"]) * int(row["columns"])
        return 2 * elements * BYTES[row["x_dtype"]], 6 * elements


class AttentionCombine:
    step = [f"combine/gfx950/f32/c128/r{rows}/p8/bf16" for rows in (8, 512)]
    identity = "kind arch x_dtype out_dtype partials columns rows config_rows seed".split()
    name = re.compile(r"(?P<kind>combine)/" + EXTENT + r"p(?P<partials>\d+)/(?P<out>f32|f16|bf16)/" + END)
    rows = 11
    few, few_rows = "/r64/|/c80/", 5
    one = "/c80/"

    @staticmethod
    def work(row, match):
        rows, elements = int(row["rows"]), int(row["rows"]) * int(row["columns"])
        partials = int(match["partials"])
        bytes_of_out = BYTES[row["out_dtype"]]
        moved = partials * (elements * BYTES[row["x_dtype"]] + 4 * rows) + elements * bytes_of_out + 4 * rows
        return moved, 2 * elements * partials


class Rope:
    step = [f"halves/gfx950/bf16/c1152/r{batch}/hq8/hk1/d128/rot128/f32/full0" for batch in (1, 64)]
    identity = """kind arch x_dtype table_dtype full_table q_heads k_heads head_size rotary columns rows config_rows
seed""".split()
    name = re.compile(r"(?P<kind>halves|neighbours)/" + EXTENT + r"hq(?P<q_heads>\d+)/hk(?P<k_heads>\d+)/d(?P<head_size>\d+)/"
                      r"rot(?P<rotary>\d+)/(?P<table_dtype>f32|f16|bf16)/full(?P<full_table>[01])/" + END)
    rows = 22
    few, few_rows = "/r1/", 5
    one = "/r1/hq32/"

    @staticmethod
    def work(row, match):
        rows, heads = int(row["rows"]), int(row["q_heads"]) + int(row["k_heads"])
        rotary = int(row["rotary"])
        angles = rotary if int(match["full_table"]) else rotary // 2
        moved = 2 * heads * int(row["head_size"]) * BYTES[row["x_dtype"]] + 2 * angles * BYTES[row["table_dtype"]] + 4
        return rows * moved, rows * heads * rotary * 3


class Activation:
    step = [f"silu/gfx950/bf16/c3584/r{batch}/halves/{out}" for batch in (1, 64) for out in ("bf16", "fp8.per_token")]
    identity = "kind arch x_dtype gating out_dtype scale_mode mx_rounding columns rows config_rows seed".split()
    name = re.compile(r"(?P<kind>relu2?|silu|gelu|gelu_tanh|swigluoai)/" + EXTENT + r"(?P<gating>plain|halves|interleaved)/"
                      r"(?P<out>f32|f16|bf16|fp8|i8|fp4_e2m1)(?:\.(?P<scale>\w+))?/" + END)
    rows = 37
    few, few_rows = "/c1021/|/r1/", 4
    one = "/r1/halves/fp8.per_token/"

    @staticmethod
    def work(row, match):
        rows, columns, gated = int(row["rows"]), int(row["columns"]), int(match["gating"] != "plain")
        scale = match["scale"] or "none"
        moved = rows * columns * (BYTES[row["x_dtype"]] * (1 + gated) + BYTES[row["out_dtype"]])
        function = {"relu": 1, "relu2": 2, "gelu": 16}.get(match["kind"], 8)
        scaling = {"none": 0, "per_tensor": 1}.get(scale, 2)
        return moved + scale_bytes(scale, rows, columns), rows * columns * (function + gated + scaling)


class KvCacheWrite:
    step = [f"rope_cache/gfx950/bf16/c1280/r{batch}/hq8/hkv1/d128/bs16/bf16.none/token_major/norm0/halves/bf16/f32"
            for batch in (1, 64)]
    identity = """kind arch x_dtype kv_dtype quant_mode q_dtype table_dtype pairs norm v_layout q_heads kv_heads head_size
block_size latent group e8m0 columns rows config_rows seed""".split()
    name = re.compile(r"(?P<kind>cache|rope_cache)/" + EXTENT + r"hq(?P<q_heads>\d+)/hkv(?P<kv_heads>\d+)/d(?P<head_size>\d+)/"
                      r"bs(?P<block_size>\d+)/(?P<kv_dtype>f16|bf16|fp8)\.(?P<quant_mode>none|per_tensor|per_head|per_token)/"
                      r"(?P<v_layout>token_major|dim_major)/"
                      r"(?:norm(?P<norm>[01])/(?P<pairs>\w+)/(?P<q_dtype>f16|bf16|fp8)/(?P<table_dtype>f32|f16|bf16)/"
                      r"(?:latent(?P<latent>\d+)/)?(?:g(?P<group>\d+)/powers(?P<e8m0>[01])/)?)?" + END)
    rows = 58
    few, few_rows = "^rope_cache/.*/r1/hq(32|64|128)/.*/d(64|128)/", 8
    one = "^rope_cache/.*/r1/hq32/.*/norm1/"

    @staticmethod
    def exact(row):
        return row["kind"] == "cache" and row["quant_mode"] == "none"

    @staticmethod
    def work(row, match):
        fused, found = match["kind"] == "rope_cache", match["quant_mode"] == "per_token"
        size, q_heads, kv_heads = (int(row[column]) for column in ("head_size", "q_heads", "kv_heads"))
        latent, group = int(row["latent"]), int(row["group"])
        cached, rotary = kv_heads * (1 if latent else 2), latent or size
        moved = (q_heads + cached) * size * BYTES[row["x_dtype"]] + 8
        moved += size * (q_heads * BYTES[row["q_dtype"]] + cached * BYTES[row["kv_dtype"]])
        groups, heads = (size // group, q_heads + cached) if group else (1, cached)
        moved += found * heads * groups * (1 if row["e8m0"] == "1" else 4)
        moved += fused * (4 + rotary * BYTES[row["table_dtype"]])
        flops = fused * (q_heads + kv_heads) * (3 * rotary + 4 * size * (match["norm"] == "1"))
        flops += size * (heads if group else cached) * (BYTES[row["kv_dtype"]] == 1) * (1 + found)
        return int(row["rows"]) * moved, int(row["rows"]) * flops


class MoeReduce:
    step = []
    identity = "kind arch x_dtype topk weighted table masked residual columns rows config_rows seed".split()
    name = re.compile(r"(?P<kind>moe_reduce)/" + EXTENT + r"k(?P<topk>\d+)/weighted(?P<weighted>[01])/table(?P<table>[01])/"
                      r"masked(?P<masked>[01])/res(?P<residual>[01])/" + END)
    rows = 20
    few, few_rows = "/r1/|/r5/", 5
    one = "/r5/k8/"

    @staticmethod
    def work(row, match):
        if int(match["masked"]):
            return None
        rows, elements = int(row["rows"]), int(row["rows"]) * int(row["columns"])
        topk, residual = int(match["topk"]), int(match["residual"])
        tables = 4 * rows * topk * (int(match["weighted"]) + int(match["table"]))
        return elements * (topk + 1 + residual) * BYTES[row["x_dtype"]] + tables, elements * (2 * topk + residual)


class Embedding:
    step = [f"embedding/gfx950/bf16/c8192/r{batch}/v512of16032/i64/scaled0" for batch in (1, 64)]
    identity = "kind arch x_dtype id_type scaled vocab config_vocab columns rows config_rows seed".split()
    name = re.compile(r"(?P<kind>embedding)/" + EXTENT + r"v(?P<vocab>\d+)(?:of(?P<config_vocab>\d+))?/(?P<id_type>i32|i64)/"
                      r"scaled(?P<scaled>[01])/" + END)
    rows = 11
    few, few_rows = "/scaled1/", 2
    one = "/c8192/r32of64/"

    @staticmethod
    def exact(row):
        return row["scaled"] == "0"

    @staticmethod
    def work(row, match):
        return None  # of how many ids the table has a row


class Quant:
    step = [f"quant/gfx950/bf16/c{columns}/r{batch}/fp8.per_token/given0" for batch in (1, 64)
            for columns in (8192, 1024, 3584)]
    identity = "kind arch x_dtype out_dtype scale_mode mx_rounding given columns rows config_rows seed".split()
    name = re.compile(r"(?P<kind>quant|dequant)/" + EXTENT + r"(?P<out>f32|f16|bf16|fp8|i8|fp4_e2m1|fp6_e2m3)\.(?P<scale>\w+)"
                      r"/given(?P<given>[01])/(?:floor/|nearest/)?" + END)
    rows = 69
    few, few_rows = "/c5120/r32/", 5
    one = "/c5120/r32/fp8.per_token/"

    @staticmethod
    def work(row, match):
        rows, columns, x, out = int(row["rows"]), int(row["columns"]), row["x_dtype"], row["out_dtype"]
        scales = scale_bytes(match["scale"], rows, columns)
        given = int(match["given"])
        reads = 2 if match["scale"] == "per_tensor" and not given else 1
        return rows * columns * (reads * BYTES[x] + BYTES[out]) + scales, rows * columns * (2 - given)


class TopkGating:
    step = []
    identity = """kind arch x_dtype topk score renormalise bias groups kept_groups group_score columns rows config_rows
seed""".split()
    policy = ["keep"]
    name = re.compile(r"(?P<kind>topk_gating)/" + EXTENT + r"k(?P<topk>\d+)/(?P<score>softmax|sigmoid)/"
                      r"renorm(?P<renormalise>[01])/bias(?P<bias>[01])/g(?P<groups>\d+)/kept(?P<kept_groups>\d+)/"
                      r"(?P<group_score>best|two_best)/" + END)
    rows = 12
    few, few_rows = "/c8/|/c128/", 4
    one = "/c64/"
    out = "f32"  # weights

    @staticmethod
    def work(row, match):
        rows, columns = int(row["rows"]), int(row["columns"])
        bias = 4 * columns * int(match["bias"])
        return rows * columns * BYTES[row["x_dtype"]] + bias + 12 * rows * int(match["topk"]), rows * columns


class Sampling:
    step = [f"sampling/gfx950/bf16/c128256/r{rows}/t100/k0/p100/m0" for rows in (1, 64)]
    identity = ("kind arch x_dtype temperature_pct top_k top_p_pct min_p_pct columns rows config_rows seed").split()
    name = re.compile(r"(?P<kind>sampling)/" + EXTENT + r"t(?P<temperature_pct>\d+)/k(?P<top_k>\d+)/"
                      r"p(?P<top_p_pct>\d+)/m(?P<min_p_pct>\d+)/" + END)
    rows = 24
    few, few_rows = "/c1024/|c32000/r1/", 2
    one = "/c1024/"
    out = "f32"  # log probabilities

    @staticmethod
    def work(row, match):
        elements = int(row["rows"]) * int(row["columns"])
        return elements * BYTES[row["x_dtype"]] + 8 * int(row["rows"]), 4 * elements


def op():
    return {"bench_activation": Activation, "bench_attention_combine": AttentionCombine, "bench_embedding": Embedding,
            "bench_kv_cache_write": KvCacheWrite, "bench_moe_reduce": MoeReduce, "bench_norm": Norm, "bench_quant": Quant,
            "bench_rope": Rope, "bench_sampling": Sampling,
            "bench_softmax": Softmax, "bench_topk_gating": TopkGating}[contract.tool()]


class Csv(op_contract.OpContract):
    bad_options = ["--sweep=default", "--splits=2"]

    @classmethod
    def setUpClass(cls):
        cls.identity = op().identity + POLICY_COLUMNS + getattr(op(), "policy", [])
        cls.name, cls.rows, cls.few_rows = op().name, op().rows, op().few_rows
        cls.few = [f"--benchmark_filter={op().few}"]
        cls.one = f"--benchmark_filter={op().one}"

    def named(self, match):
        fp8 = "fp8_e4m3fnuz" if match["arch"] == "gfx942" else "fp8_e4m3fn"
        words = match.groupdict()
        x, out = (fp8 if dtype == "fp8" else dtype for dtype in (match["x"], words.get("out") or match["x"]))
        return {"x_dtype": x, "weight_dtype": x, "out_dtype": out, "scale_mode": words.get("scale") or "none", "span": match["span"] or "1",
                "cluster": match["cluster"] or "1", "held": str(int(match["again"] is None))}

    def work(self, row, match):
        return op().work(row, match)

    def check_row(self, row, match):
        gbps = op_contract.PEAKS[row["arch"]][0]
        self.assertAlmostEqual(float(row["roof_us"]) * gbps * 1e3 / int(row["bytes_ideal"]), 1, delta=1e-4)
        self.assertLessEqual(int(row["rows"]) * int(row["columns"]), max(2 ** 18, 3 * int(row["columns"])))
        if match["of"]:
            self.assertLess(int(row["rows"]), int(match["of"]))
        else:
            self.assertLessEqual(int(row["rows"]) * int(row["columns"]), 2 ** 18)

    def check_accuracy(self, row):
        self.assertLess(float(row["max_rel_err"]), ROUNDING[self.out_of(row)], row["name"])
        exact = getattr(op(), "exact", lambda _: False)(row)
        self.assertEqual(float(row["max_rel_err"]) == 0, exact, row["name"])

    def damaged(self, row):
        # The byte that was changed is the last of an element, which may have two values or four.
        column = 1 if "/fp4_e2m1." in row["name"] else 3 if "/fp6_e2m3." in row["name"] else 0
        return rf"1 values outside the tolerance; the first: out is .* at row 0, column {column}"

    @staticmethod
    def out_of(row):
        return getattr(op(), "out", None) or row.get("out_dtype") or row.get("kv_dtype") or row["x_dtype"]

    def test_default_sweep(self):
        rows = self.good_rows()
        self.assertEqual([int(row["config_id"]) for row in rows], list(range(self.rows)))
        self.assertEqual(len({row["name"] for row in rows}), self.rows)
        for row in rows:
            self.assertEqual(row["arch"], "gfx950")
            self.check_accuracy(row)

    def test_every_policy(self):
        self.check_every_policy(self.one)

    def test_every_nth_row(self):
        names = run("--benchmark_list_tests").stdout.split()
        self.assertEqual(run("--benchmark_list_tests", "--every=3").stdout.split(), names[::3])

    def test_seeds(self):
        self.check_seeds(*self.few)

    def test_wrong_output_is_an_err_row_like_any_other(self):
        if contract.all_rows:
            self.few, self.few_rows = [], self.rows
        super().test_wrong_output_is_an_err_row_like_any_other()

    def test_output_file_json_and_ceiling(self):
        self.check_output_file_and_ceiling(self.one)

    def test_own_shapes(self):
        self.check_shapes()

    def test_a_models_decode_step(self):
        if not op().step:
            self.assertIn("no call of this op", self.refuses("--model=llama3-70b"))
            names = run("--benchmark_list_tests", "--model=gpt-oss-120b", "--batch=1,64").stdout.splitlines()
            self.assertEqual([self.name.match(name)["rows"] for name in names], ["1", "64"])
            return
        names = run("--benchmark_list_tests", "--model=llama3-70b", "--tp=8", "--batch=1,64").stdout.splitlines()
        self.assertEqual([re.sub(r"/[^/]*$", "", re.sub(r"/r\d+of", "/r", name)) for name in names], op().step)
        self.assertIn("do not share out", self.refuses("--model=llama3-70b", "--tp=7"))


if __name__ == "__main__":
    contract.main("BENCH_ACTIVATION|BENCH_ATTENTION_COMBINE|BENCH_EMBEDDING|BENCH_KV_CACHE_WRITE|BENCH_MOE_REDUCE|BENCH_NORM|"
                  "BENCH_QUANT|BENCH_ROPE|BENCH_SOFTMAX|BENCH_TOPK_GATING")
