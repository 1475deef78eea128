#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every operator of tilewave_torch beside what PyTorch makes of the same inputs, its meta function by torch.library.opcheck, what
it refuses, and a chain of them under torch.compile. On a GPU: python3 test_ops.py"""
import math
import os
import unittest

import torch

import tilewave_torch

tilewave_torch.load(build_directory=os.environ.get("TILEWAVE_TORCH_BUILD"))
tw = torch.ops.tilewave
BF16, F32, FP8, I32 = torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int32
LARGEST = 448.0  # code of e4m3fn


def rand(*sizes, dtype=BF16):
    return torch.randn(*sizes, device="cuda").to(dtype)


def per_row(x):
    scale = x.float().abs().amax(-1, keepdim=True) / LARGEST
    return (x.float() / scale).to(FP8), scale


def per_block(w):
    """[.., N, K] in blocks of 128 x 128, N and K multiples of it."""
    blocks = w.float().unflatten(-1, (-1, 128)).unflatten(-3, (-1, 128))
    scale = blocks.abs().amax((-3, -1)) / LARGEST
    return (blocks / scale[..., None, :, None]).to(FP8).flatten(-4, -3).flatten(-2), scale


def per_group(x):
    groups = x.float().unflatten(-1, (-1, 128))
    scale = groups.abs().amax(-1) / LARGEST
    return (groups / scale[..., None]).to(FP8).flatten(-2), scale


class Ops(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)

    def near(self, got, wanted, most):
        """Relative error in the l2 norm; NaN is none."""
        error = ((got.float() - wanted.float()).norm() / wanted.float().norm()).item()
        self.assertLess(error, most)

    def check(self, op, *arguments, **options):
        """The operator's results, once its schema and meta function are found to say what it does."""
        tests = ["test_faketensor"]
        if not any(isinstance(argument, torch.Tensor) and argument.dtype == FP8 for argument in arguments):
            tests.append("test_schema")  # compares inputs before and after, which PyTorch has no way to do for fp8
        torch.library.opcheck(op.default, arguments, options, test_utils=tests)
        return op(*arguments, **options)

    def test_vec_add(self):
        for dtype in BF16, F32:
            a, b = rand(1000, 33, dtype=dtype), rand(1000, 33, dtype=dtype)
            self.assertTrue(torch.equal(self.check(tw.vec_add, a, b), a + b))

    def test_gemm(self):
        for m, n, k in (1, 384, 7168), (64, 1280, 8192), (200, 512, 1000), (1024, 2048, 4096):
            a, b, bias = rand(m, k), rand(n, k), rand(n)
            self.near(self.check(tw.gemm, a, b), a.float() @ b.float().T, 4e-3)
            self.near(tw.gemm(a, b, bias=bias), a.float() @ b.float().T + bias.float(), 4e-3)

    def test_gemm_fp8(self):
        for m, n, k in (16, 512, 2048), (512, 1024, 4096):
            x, w = rand(m, k), rand(n, k)
            (a, a_scale), (b, b_scale) = per_row(x), per_row(w)
            wanted = (a.float() * a_scale) @ (b.float() * b_scale).T
            self.near(self.check(tw.gemm, a, b, a_scale, b_scale), wanted, 5e-3)
            self.near(tw.gemm(a, b, a_scale, b_scale, fast_sums=True), wanted, 2e-2)
            one = torch.tensor([0.5], device="cuda")
            self.near(self.check(tw.gemm, a, b, one, one), a.float() @ b.float().T / 4, 5e-3)
            (a, a_scale), (b, b_scale) = per_group(x), per_block(w)
            wanted = ((a.float().unflatten(-1, (-1, 128)) * a_scale[..., None]).flatten(-2) @
                      (b.float() * b_scale.repeat_interleave(128, 0).repeat_interleave(128, 1)).T)
            self.near(self.check(tw.gemm, a, b, a_scale, b_scale), wanted, 5e-3)
            self.near(tw.gemm(a, b, a_scale.T.contiguous().T, b_scale), wanted, 5e-3)

    def test_gemm_int4(self):
        m, n, k = 16, 256, 512
        a, scale = rand(m, k), torch.rand(k // 128, n, device="cuda").add(0.5).to(BF16)
        codes = torch.randint(-8, 8, (n, k), device="cuda")
        # Strips of 16 rows; of each 16 values of k two words of eight, the first four of a word in the low halves of its bytes.
        words = codes.view(n // 16, 16, k // 16, 2, 2, 4).permute(0, 2, 1, 3, 4, 5) & 15
        packed = (words[..., 0, :] | words[..., 1, :] << 4).to(torch.uint8).contiguous().view(-1)
        weights = codes.float() * scale.float().T.repeat_interleave(128, 1)
        self.near(self.check(tw.gemm_int4, a, packed, scale), a.float() @ weights.T, 5e-3)

    def test_grouped_products(self):
        groups, n, k = 4, 512, 1024
        rows = torch.tensor([100, 0, 37, 300], device="cuda")
        offsets = torch.cat([rows.new_zeros(1), rows.cumsum(0)]).to(I32)
        x, w = rand(int(offsets[-1]), k), rand(groups, n, k)
        wanted = torch.cat([x[offsets[g]:offsets[g + 1]].float() @ w[g].float().T for g in range(groups)])
        self.near(self.check(tw.gemm_grouped, x, w, offsets), wanted, 4e-3)
        (a, a_scale), (b, b_scale) = per_group(x), per_block(w)
        self.near(self.check(tw.gemm_grouped, a, b, offsets, a_scale, b_scale), wanted, 5e-2)
        masked, counts = rand(groups, 320, k), rows.to(I32)
        (a, a_scale) = per_group(masked)
        for got, most in (tw.gemm_masked(masked, w, counts, 128), 4e-3), (tw.gemm_masked(a, b, counts, 128, a_scale, b_scale), 5e-2):
            for g, count in enumerate(rows.tolist()):
                if count:
                    self.near(got[g, :count], masked[g, :count].float() @ w[g].float().T, most)

    def test_norms(self):
        for rows, columns in (33, 4096), (4, 8192), (1000, 128):
            x, residual, weight, bias = rand(rows, columns), rand(rows, columns), rand(columns), rand(columns)
            rms = torch.nn.functional.rms_norm(x.float(), (columns,), weight.float(), 1e-5)
            self.near(self.check(tw.rms_norm, x, weight), rms, 4e-3)
            layer = torch.nn.functional.layer_norm(x.float(), (columns,), weight.float(), bias.float(), 1e-5)
            self.near(self.check(tw.layer_norm, x, weight, bias), layer, 4e-3)
            out, total = self.check(tw.add_rms_norm, x, residual, weight)
            self.assertTrue(torch.equal(total, x + residual))
            self.near(out, torch.nn.functional.rms_norm(total.float(), (columns,), weight.float(), 1e-5), 4e-3)
            codes, scale = self.check(tw.rms_norm_fp8, x, weight)
            self.near(codes.float() * scale, rms, 4e-2)
        self.near(tw.rms_norm(rand(4, 5, 256), rand(256)), torch.ones(4, 5, 256, device="cuda"), 1e9)  # any leading dimensions

    def test_softmax(self):
        for dtype in BF16, F32:
            x = rand(65, 1000, dtype=dtype)
            self.near(self.check(tw.softmax, x), x.float().softmax(-1), 4e-3)
            self.near(self.check(tw.log_softmax, x, None, 0.5), (x.float() / 2).log_softmax(-1), 4e-3)
            lengths = torch.randint(1, 1001, (65,), device="cuda").to(I32)
            hidden = torch.arange(1000, device="cuda") >= lengths[:, None]
            self.near(tw.softmax(x, lengths), x.float().masked_fill(hidden, -torch.inf).softmax(-1), 4e-3)

    def test_quantisation(self):
        x = rand(100, 1024)
        for mode in "per_token", "per_group", "per_tensor":
            codes, scale = self.check(tw.quant, x, mode)
            expanded = scale.repeat_interleave(128, 1) if mode == "per_group" else scale
            self.near(codes.float() * expanded, x, 4e-2)
        codes, scale = tw.quant(x)
        self.near(self.check(tw.dequant, codes, scale), codes.float() * scale, 4e-3)

    def test_silu_mul(self):
        x = rand(300, 2 * 1536)
        gate, up = x.float().chunk(2, -1)
        self.near(self.check(tw.silu_mul, x), torch.nn.functional.silu(gate) * up, 4e-3)

    def test_rope(self):
        tokens, heads, kv_heads, head, positions = 37, 8, 2, 128, 500
        q, k = rand(tokens, heads, head), rand(tokens, kv_heads, head)
        angles = torch.rand(positions, head // 2, device="cuda") * 6
        at = torch.randint(0, positions, (tokens,), device="cuda")
        c, s = angles.cos(), angles.sin()
        for got, x in zip(self.check(tw.rope, q, k, c, s, at), (q, k)):
            a, b = x.float().chunk(2, -1)
            cos, sin = c[at][:, None], s[at][:, None]
            self.near(got, torch.cat([a * cos - b * sin, b * cos + a * sin], -1), 4e-3)
        got = tw.rope(q, k, c, s, at, neighbours=True)[0].float()
        a, b = q.float()[..., 0::2], q.float()[..., 1::2]
        self.near(got[..., 0::2], a * c[at][:, None] - b * s[at][:, None], 4e-3)

    def test_a_decode_step_through_the_cache(self):
        batch, heads, kv_heads, head, page, columns = 5, 16, 4, 128, 16, 20
        pages = batch * columns
        table = torch.randperm(pages, device="cuda").view(batch, columns).to(I32)
        lengths = torch.tensor([1, 17, 100, 319, 320], device="cuda", dtype=I32)
        k_cache, v_cache = torch.zeros(2, pages, page, kv_heads, head, device="cuda", dtype=BF16).unbind()
        keys, values = rand(batch, columns * page, kv_heads, head), rand(batch, columns * page, kv_heads, head)
        slots = (table.long()[..., None] * page + torch.arange(page, device="cuda")).view(-1)
        self.check(tw.kv_cache_write, keys.flatten(0, 1), values.flatten(0, 1), k_cache, v_cache, slots)
        self.assertTrue(torch.equal(k_cache[table.long()].flatten(1, 2), keys))
        self.assertTrue(torch.equal(v_cache[table.long()].flatten(1, 2), values))
        q = rand(batch, heads, head)
        out, lse = self.check(tw.paged_attention, q, k_cache, v_cache, table, lengths)
        for i, length in enumerate(lengths.tolist()):
            k, v = (t[i, :length].float().repeat_interleave(heads // kv_heads, 1) for t in (keys, values))
            scores = torch.einsum("hd,thd->ht", q[i].float(), k) / math.sqrt(head)
            self.near(out[i], torch.einsum("ht,thd->hd", scores.softmax(-1), v), 1e-2)
            self.near(lse[i], scores.logsumexp(-1), 1e-3)

    def test_flash_attention(self):
        batch, queries, keys, heads, kv_heads, head = 2, 100, 300, 8, 2, 128
        q, k, v = rand(batch, queries, heads, head), rand(batch, keys, kv_heads, head), rand(batch, keys, kv_heads, head)
        seen = torch.ones(queries, keys, dtype=torch.bool, device="cuda").tril(keys - queries)
        for causal in True, False:
            out, lse = self.check(tw.flash_attention, q, k, v, causal)
            keyed, valued = (t.float().repeat_interleave(heads // kv_heads, 2) for t in (k, v))
            scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), keyed) / math.sqrt(head)
            scores = scores.masked_fill(~seen, -torch.inf) if causal else scores
            self.near(out, torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), valued), 1e-2)
            self.near(lse, scores.logsumexp(-1).transpose(0, 1), 1e-3)

    def test_attention_combine(self):
        for dtype in BF16, F32:
            x, lse = rand(3, 40, 8, 128, dtype=dtype), torch.randn(3, 40, 8, device="cuda")
            out, total = self.check(tw.attention_combine, x, lse)
            self.near(total, lse.logsumexp(0), 1e-5)
            self.near(out, (x.float() * (lse - lse.logsumexp(0)).exp()[..., None]).sum(0), 4e-3)

    def test_mqa_logits(self):
        sequences, heads, head, page, columns = 3, 64, 128, 64, 256
        pages = sequences * columns // page
        table = torch.randperm(pages, device="cuda").view(sequences, -1).to(I32)
        lengths = torch.tensor([5, 200, 256], device="cuda", dtype=I32)
        q, k = rand(sequences, heads, head).to(FP8), rand(pages, page, head).to(FP8)
        weights, k_scale = rand(sequences, heads, dtype=F32), torch.rand(pages, page, device="cuda") + 0.5
        logits = self.check(tw.mqa_logits, q, weights, k, k_scale, table, lengths, columns)
        keys, scales = k.float()[table.long()].flatten(1, 2), k_scale[table.long()].flatten(1)
        wanted = (torch.einsum("shd,std->sht", q.float(), keys).relu() * weights[..., None]).sum(1) * scales
        for i, length in enumerate(lengths.tolist()):
            self.near(logits[i, :length], wanted[i, :length], 1e-2)
            self.assertTrue((logits[i, length:] == -torch.inf).all())

    def test_embedding(self):
        table, ids = rand(1000, 512), torch.randint(0, 1000, (7, 9), device="cuda")
        self.assertTrue(torch.equal(self.check(tw.embedding, table, ids), table[ids]))
        self.assertEqual(tw.embedding(table, torch.tensor([-1], device="cuda")).abs().sum().item(), 0)

    def test_sampling(self):
        logits = rand(9, 32000, dtype=F32)
        zero, seed = torch.zeros(9, device="cuda"), torch.arange(9, device="cuda")
        tokens, logprobs = self.check(tw.sampling, logits, zero, seed)
        self.assertTrue(torch.equal(tokens.long(), logits.argmax(-1)))
        self.near(logprobs, logits.log_softmax(-1).amax(-1), 1e-4)
        drawn = tw.sampling(logits, zero + 1, seed, top_k=5)[0].long()
        self.assertTrue((logits.topk(5).indices == drawn[:, None]).any(-1).all())
        self.assertTrue(torch.equal(drawn, tw.sampling(logits, zero + 1, seed, top_k=5)[0].long()))

    def test_a_layer_of_experts(self):
        tokens, experts, topk, columns, inner = 50, 8, 2, 256, 384
        x, logits = rand(tokens, columns), rand(tokens, experts, dtype=F32)
        up, down = rand(experts, 2 * inner, columns) / 16, rand(experts, columns, inner) / 16
        weights, ids = self.check(tw.topk_gating, logits, topk)
        best = logits.softmax(-1).topk(topk)
        self.assertTrue(torch.equal(ids.long(), best.indices))
        self.near(weights, best.values / best.values.sum(-1, keepdim=True), 1e-5)
        row_tokens, offsets, rows = self.check(tw.moe_sort, ids, experts, 16)
        counts = torch.bincount(ids.flatten(), minlength=experts)
        self.assertTrue(torch.equal(offsets[1:] - offsets[:-1], ((counts + 15) // 16 * 16).to(I32)))
        self.assertTrue(torch.equal(row_tokens[rows.long()], torch.arange(tokens, device="cuda").to(I32)[:, None].expand(-1, topk)))
        hidden = tw.silu_mul(tw.gemm_grouped(tw.embedding(x, row_tokens), up, offsets))
        out = self.check(tw.moe_reduce, tw.gemm_grouped(hidden, down, offsets), rows, weights)
        wanted = torch.zeros(tokens, columns, device="cuda")
        for t in range(tokens):
            for expert, weight in zip(ids[t].tolist(), weights[t]):
                gate, value = (up[expert].float() @ x[t].float()).chunk(2)
                wanted[t] += weight * (down[expert].float() @ (torch.nn.functional.silu(gate) * value))
        self.near(out, wanted, 2e-2)

    def test_under_torch_compile(self):
        weight, w = rand(1024), rand(512, 1024)

        def block(x, residual):
            normed, residual = tw.add_rms_norm(x * 2, residual, weight)
            return torch.relu(tw.gemm(normed, w)) + 1, residual

        compiled = torch.compile(block, fullgraph=True)
        x, residual = rand(64, 1024), rand(64, 1024)
        for got, wanted in zip(compiled(x, residual), block(x, residual)):
            self.near(got, wanted, 4e-3)

    def test_a_graph_is_captured(self):
        x, weight = rand(64, 4096), rand(4096)
        tw.rms_norm(x, weight)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = tw.rms_norm(x, weight)
        x.copy_(rand(64, 4096))
        graph.replay()
        self.assertTrue(torch.equal(out, tw.rms_norm(x, weight)))

    def test_what_is_wrong_is_a_python_error_that_names_it(self):
        x, w = rand(64, 1024), rand(512, 1024)
        for call, error, what in (
                (lambda: tw.gemm(x, w[:, :512].contiguous()), ValueError, r"b.size\(-1\) is 512, not 1024"),
                (lambda: tw.gemm(x, w.cpu()), (ValueError, NotImplementedError, RuntimeError), "cpu"),
                (lambda: tw.gemm(x.T, w.T), ValueError, "a has gaps"),
                (lambda: tw.gemm(x.half(), w.half()), ValueError, "tilewave::gemm: .*spec"),
                (lambda: tw.gemm(x.long(), w), TypeError, "a is .*"),
                (lambda: tw.gemm(rand(64, 1001), rand(512, 1001)), ValueError, "tilewave::gemm: "),
                (lambda: tw.rms_norm(x, w), ValueError, "weight has 2 dimensions"),
                (lambda: tw.quant(x, "per_row"), ValueError, "mode is none of"),
                (lambda: tw.topk_gating(x, 99), ValueError, "tilewave::topk_gating: .*topk"),
                (lambda: tw.kv_cache_write(rand(4, 2, 128), rand(4, 2, 128), rand(8, 16, 4, 128), rand(8, 16, 4, 128),
                                           torch.zeros(4, device="cuda").long()), ValueError, r"k_cache.size\(2\) is 4")):
            with self.assertRaisesRegex(error, what):
                call()


if __name__ == "__main__":
    unittest.main()
