# SPDX-License-Identifier: MIT
"""A layer of DeepSeek-V3 by DeepGEMM's products of contiguous groups, from a library that the command at the head of
moe_deep_gemm.cu builds. As vLLM puts it together: rows are copied to groups that begin at multiples of 128 rows, and what is
between the products are Triton kernels, here without work on rows that pad a group. Needs PyTorch and Triton."""
import ctypes
import os

import torch
import triton
import triton.language as tl
import triton_moe

ROWS = 128  # groups begin at multiples of it
SCALE_GROUP = 128
SHAPE = (7168, 2048, 256)  # hidden, intermediate, experts


@triton.jit
def copy_to_groups(codes, scales, places, to, to_scales, columns, rows, SLOTS: tl.constexpr, BLOCK: tl.constexpr, GROUPS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    at, group = tl.arange(0, BLOCK), tl.arange(0, GROUPS)
    values = tl.load(codes + token * columns + at, mask=at < columns)
    of_groups = tl.load(scales + token * (columns // 128) + group, mask=group < columns // 128)
    for slot in tl.static_range(SLOTS):
        place = tl.load(places + token * SLOTS + slot).to(tl.int64)
        tl.store(to + place * columns + at, values, mask=at < columns)
        tl.store(to_scales + group * rows + place, of_groups, mask=group < columns // 128)


@triton.jit
def silu_to_groups(gates, groups, codes, scales, columns, rows, GROUP: tl.constexpr):
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(groups + row) < 0:
        return
    at = group * GROUP + tl.arange(0, GROUP)
    gate = tl.load(gates + row * 2 * columns + at).to(tl.float32)
    up = tl.load(gates + row * 2 * columns + columns + at).to(tl.float32)
    values = gate / (1 + tl.exp(-gate)) * up
    scale = tl.maximum(tl.max(tl.abs(values)), 1e-10) / 448.0
    tl.store(codes + row * columns + at, (values / scale).to(tl.float8e4nv))
    tl.store(scales + group * rows + row, scale)


@triton.jit
def weighed_sum(results, places, weights, out, columns, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    token, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for slot in tl.static_range(SLOTS):
        place = tl.load(places + token * SLOTS + slot).to(tl.int64)
        total += tl.load(weights + token * SLOTS + slot) * tl.load(results + place * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(out + token * columns + at, total.to(tl.bfloat16), mask=at < columns)


class DeepGemm:
    def __init__(self, path):
        self.of = ctypes.CDLL(os.path.abspath(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)

    def layer(self, layer):
        """Quantisation, copies, both products with activation, and the sum. Places in groups are found before: not timed."""
        c, w = layer.config, layer.weights
        if w.kind != "blocks" or (c.columns, c.intermediate, c.experts) != SHAPE:
            return "DeepGEMM's library has the products of DeepSeek-V3 alone"
        rows = c.rows * c.topk
        order, placed, padded, total = layer.padded_groups(ROWS)
        places = torch.empty(rows, dtype=torch.int32, device="cuda")
        places[order] = placed.int()
        groups = torch.full((total,), -1, dtype=torch.int32, device="cuda")  # of each row, -1 where it pads
        groups[places.long()] = layer.ids.reshape(-1).int()
        routed = layer.routed.float().contiguous()

        def codes(*shape):
            return torch.zeros(shape, dtype=torch.float8_e4m3fn, device="cuda")

        def floats(*shape):
            return torch.zeros(shape, dtype=torch.float32, device="cuda")

        x, x_scale = codes(c.rows, c.columns), floats(c.rows, c.columns // SCALE_GROUP)
        a, a_scale = codes(total, c.columns), floats(c.columns // SCALE_GROUP, total)
        h, h_scale = codes(total, c.intermediate), floats(c.intermediate // SCALE_GROUP, total)
        gates, results = (torch.empty(total, n, dtype=torch.bfloat16, device="cuda") for n in (2 * c.intermediate, c.columns))
        out = torch.empty(c.rows, c.columns, dtype=torch.bfloat16, device="cuda")

        def product(function, operand, scale, which, result):
            tensors = (operand, scale, w.values[which], w.scales[which], result, groups)
            wrong = function(*(ctypes.c_void_p(t.data_ptr()) for t in tensors), total, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            if wrong:
                raise RuntimeError(f"DeepGEMM: error {wrong} of CUDA")

        def run():
            triton_moe.quantise_rows[(c.rows, c.columns // SCALE_GROUP)](layer.x, x, x_scale, c.columns, SCALE_GROUP)
            copy_to_groups[(c.rows,)](x, x_scale, places, a, a_scale, c.columns, total, c.topk, triton.next_power_of_2(c.columns),
                                      triton.next_power_of_2(c.columns // SCALE_GROUP))
            product(self.of.deep_gemm_first, a, a_scale, 0, gates)
            silu_to_groups[(total, c.intermediate // SCALE_GROUP)](gates, groups, h, h_scale, c.intermediate, total, SCALE_GROUP)
            product(self.of.deep_gemm_second, h, h_scale, 1, results)
            weighed_sum[(c.rows, triton.cdiv(c.columns, 1024))](results, places, routed, out, c.columns, c.topk, 1024)
            return out

        return run
