# SPDX-License-Identifier: MIT
"""A layer of gpt-oss by vLLM's Marlin of experts, from a library that the command at the head of moe_marlin.cu builds. Weights are
padded, permuted and packed as vLLM does for it; the activation and the sum are Triton kernels. Needs PyTorch and Triton."""
import ctypes
import os

import torch
import triton
import triton.language as tl
import triton_moe

SCALE_K = 32
BLOCKS = (8, 16, 32, 48, 64)  # rows of a block


@triton.jit
def swiglu_of_pairs(gates, h, columns, alpha, limit, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    gate = tl.minimum(tl.load(gates + row * 2 * columns + 2 * at, mask=inside, other=0.0).to(tl.float32), limit)
    up = tl.load(gates + row * 2 * columns + 2 * at + 1, mask=inside, other=0.0).to(tl.float32)
    up = tl.minimum(tl.maximum(up, -limit), limit)
    tl.store(h + row * columns + at, (gate / (1 + tl.exp(-alpha * gate)) * (up + 1)).to(tl.bfloat16), mask=inside)


def order_of_codes():
    """The order of 16 k by 64 n codes in 1024: a lane's words are its operands of m16n8k16, the codes of a word interleaved."""
    order = []
    for lane in range(32):
        rows = [2 * (lane % 4) + i for i in (0, 1, 8, 9)]
        part = [16 * row + lane // 4 + 8 * block for block in (0, 1) for row in rows]
        for j in range(4):
            eight = [at + 256 * j for at in part]
            order += [eight[i] for i in (0, 2, 4, 6, 1, 3, 5, 7)]
    return torch.tensor(order, device="cuda")


def packed_codes(codes, k, n, order):
    """Codes [n, k] of one expert, a byte each, as words [k / 16, 2 n]."""
    tiles = codes.T.reshape(k // 16, 16, n // 16, 16).permute(0, 2, 1, 3).reshape(-1, 1024)[:, order].view(-1, 8).int()
    words = tiles[:, 0].clone()
    for i in range(1, 8):
        words |= tiles[:, i] << 4 * i
    return words.view(k // 16, 2 * n)


def permuted_scales(scales):
    """Scales [n, k / 32] of one expert, e8m0, as [k / 32, n]."""
    order = torch.tensor([i + 8 * j for i in range(8) for j in range(8)], device="cuda")
    by_k = scales.T.contiguous()
    return by_k.view(-1, 64)[:, order].reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(by_k.shape).contiguous()


def permuted_bias(bias):
    order = torch.tensor([2 * i + j for i in range(4) for j in (0, 1, 8, 9, 16, 17, 24, 25)], device="cuda")
    return bias.reshape(-1, 32)[:, order].reshape(bias.shape).contiguous()


def up_to(value, unit):
    return -(-value // unit) * unit


class Marlin:
    def __init__(self, path):
        self.of = ctypes.CDLL(os.path.abspath(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.made = (None, None)  # weights, and both products' operands of them

    def operands(self, weights):
        """((n, k, codes, scales, bias) of both products)."""
        if self.made[0] is not weights:
            order, made = order_of_codes(), []
            experts, hidden = weights.values[1].shape[:2]
            intermediate = weights.values[0].shape[1] // 2
            wide, deep = up_to(hidden, 256), up_to(intermediate, 128)
            for which, (n, k) in enumerate(((2 * deep, wide), (wide, deep))):
                rows, columns = weights.values[which].shape[1], 2 * weights.values[which].shape[2]
                codes = torch.empty(experts, k // 16, 2 * n, dtype=torch.int32, device="cuda")
                scales = torch.empty(experts, k // SCALE_K, n, dtype=torch.uint8, device="cuda")
                bias = torch.zeros(experts, n, dtype=torch.bfloat16, device="cuda")
                bias[:, :rows] = weights.biases[which]
                one = torch.zeros(n, k, dtype=torch.uint8, device="cuda")
                scale = torch.zeros(n, k // SCALE_K, dtype=torch.uint8, device="cuda")
                for e in range(experts):
                    values = weights.values[which][e]
                    one[:rows, :columns] = torch.stack((values & 15, values >> 4), -1).flatten(-2)
                    scale[:rows, :columns // SCALE_K] = weights.scales[which][e]
                    codes[e], scales[e] = packed_codes(one, k, n, order), permuted_scales(scale)
                made.append((n, k, codes, scales, permuted_bias(bias)))
            self.made = (weights, made)
        return self.made[1]

    def layer(self, layer, alpha, limit):
        """Both products with activation and sum. Choices are sorted and x is padded before: neither is timed."""
        if layer.weights.kind != "mxfp4":
            return "Marlin is asked for MXFP4 alone"
        c, made = layer.config, self.operands(layer.weights)
        (n1, k1, *_), (n2, k2, *_) = made
        rows = c.rows * c.topk
        block = next((b for b in BLOCKS if rows / c.experts / b < 0.9), BLOCKS[-1])
        order, places, padded, total = layer.padded_groups(block)
        most = min(rows + c.experts * (block - 1), rows * block)  # as vLLM allocates it
        sorted_ids = torch.full((up_to(most, block),), rows, dtype=torch.int32, device="cuda")
        sorted_ids[places] = order.int()
        expert_ids = torch.repeat_interleave(torch.arange(c.experts, device="cuda"), padded // block).int()
        post_padded = torch.tensor([total], dtype=torch.int32, device="cuda")
        routed = layer.routed.float().contiguous()
        x = torch.zeros(c.rows, k1, dtype=torch.bfloat16, device="cuda")
        x[:, :c.columns] = layer.x
        gates, h = (torch.empty(rows, n, dtype=torch.bfloat16, device="cuda") for n in (n1, k2))
        results, out = torch.empty(rows, n2, dtype=torch.bfloat16, device="cuda"), torch.empty(c.rows, c.columns, dtype=torch.bfloat16, device="cuda")
        most_partials = max(min(n * sorted_ids.numel(), self.sms * 4 * block * 256) for n in (n1, n2)) * (2 if block == 8 else 1)
        partials = torch.empty(most_partials, dtype=torch.float32, device="cuda")
        locks = torch.zeros(self.sms * 4, dtype=torch.int32, device="cuda")

        def product(a, which, result, top_k, weigh, m):
            n, k, codes, scales, bias = made[which]
            tensors = (a, codes, result, partials, bias, scales, sorted_ids, expert_ids, post_padded, routed)
            wrong = self.of.marlin_moe(*(ctypes.c_void_p(t.data_ptr()) for t in tensors), block, c.experts, top_k, int(weigh), m, n, k,
                                       k // SCALE_K, SCALE_K, ctypes.c_void_p(locks.data_ptr()), self.sms,
                                       ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            if wrong:
                raise RuntimeError(f"Marlin: error {wrong} of CUDA")

        def run():
            product(x, 0, gates, c.topk, False, c.rows)
            swiglu_of_pairs[(rows, triton.cdiv(k2, 1024))](gates, h, k2, alpha, limit, 1024)
            product(h, 1, results, 1, True, rows)
            triton_moe.sum_of_slots[(c.rows, triton.cdiv(c.columns, 1024))](results, out, c.columns, n2, c.topk, 1024)
            return out

        return run
