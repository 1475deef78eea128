# SPDX-License-Identifier: MIT
"""A layer of experts of bench_moe as PyTorch has it: its inputs, and what is right. Needs PyTorch."""
import math

ODDS = {"zipf": lambda torch, experts: 1 / torch.arange(1, experts + 1, device="cuda")}
# Of the l2 norm of a token: h and results are bf16, and with fp8 blocks x and h are rounded to fp8.
ROUNDING = {"bf16": 2 ** -6, "blocks": 2 ** -4, "mxfp4": 2 ** -6, "int4": 2 ** -6}
INT4_DEVIATION = 4.6
FP4 = (0, .5, 1, 1.5, 2, 3, 4, 6)
SWIGLU_ALPHA, SWIGLU_LIMIT = 1.702, 7.0


def logits_of(torch, c):
    """Logits that make tokens choose as the load says."""
    rows, experts = c.rows, c.experts
    if c.load == "one":
        order = torch.arange(experts, device="cuda").expand(rows, -1)
    elif c.load == "balanced":
        order = (torch.arange(experts, device="cuda")[None] + torch.arange(rows, device="cuda")[:, None] * c.topk) % experts
    else:
        odds = ODDS["zipf"](torch, experts) if c.load == "zipf" else torch.ones(experts, device="cuda")
        order = torch.multinomial(odds.expand(rows, -1), experts)
    logits = torch.empty(rows, experts, device="cuda")
    logits.scatter_(1, order, (-torch.arange(experts, device="cuda", dtype=torch.float32) / experts * 4).expand(rows, -1))
    return logits.bfloat16()


class Weights:
    """w1 [experts, 2 intermediate, hidden] and w2 [experts, hidden, intermediate]: bf16, fp8 with scales of blocks, MXFP4 as gpt-oss
    is shipped, with biases, or int4: two codes a byte, the first in the low half, that are 8 or a zero point above what they
    stand for, and scales in bf16."""

    def __init__(self, torch, c):
        self.torch, self.kind, self.scale_k = torch, c.weights, c.scale_k
        shapes = ((c.experts, 2 * c.intermediate, c.columns), (c.experts, c.columns, c.intermediate))
        self.scales, self.biases, self.zeros = [None, None], [None, None], [None, None]
        if c.weights == "bf16":
            self.values = [torch.empty(s, device="cuda", dtype=torch.bfloat16).normal_(0, s[2] ** -0.5) for s in shapes]
        elif c.weights == "blocks":
            self.values = [self.codes(s) for s in shapes]
            self.scales = [(0.5 + torch.rand(e, rows // 128, columns // 128, device="cuda")) * columns ** -0.5
                           for e, rows, columns in shapes]
        else:
            self.values = [torch.randint(0, 256, (e, rows, columns // 2), device="cuda", dtype=torch.uint8)
                           for e, rows, columns in shapes]
        if c.weights == "int4":
            self.scales = [((0.5 + torch.rand(e, rows, columns // c.scale_k, device="cuda")) / INT4_DEVIATION * columns ** -0.5).bfloat16()
                           for e, rows, columns in shapes]
            if c.zeros:
                self.zeros = [torch.randint(6, 11, scales.shape, device="cuda", dtype=torch.uint8) for scales in self.scales]
        elif c.weights == "mxfp4":
            self.scales = [torch.randint(118, 122, (e, rows, columns // 32), device="cuda", dtype=torch.uint8)
                           for e, rows, columns in shapes]
            self.biases = [(0.1 * torch.randn(e, rows, device="cuda")).bfloat16() for e, rows, _ in shapes]

    def codes(self, shape):
        """Normal values in fp8, some experts at a time."""
        torch = self.torch
        values = torch.empty(shape, device="cuda", dtype=torch.float8_e4m3fn)
        for first in range(0, shape[0], 8):
            part = values[first:first + 8]
            part.copy_(torch.randn(part.shape, device="cuda", dtype=torch.bfloat16))
        return values

    def dense(self, which, expert):
        """w1 (0) or w2 (1) of an expert in f64."""
        torch, values = self.torch, self.values[which][expert]
        if self.kind == "bf16":
            return values.double()
        scales = self.scales[which][expert]
        if self.kind == "int4":
            codes = torch.stack((values & 15, values >> 4), -1).flatten(-2).double()
            zeros = 8 if self.zeros[which] is None else self.zeros[which][expert].double().repeat_interleave(self.scale_k, 1)
            return (codes - zeros) * scales.double().repeat_interleave(self.scale_k, 1)
        if self.kind == "blocks":
            return values.double() * scales.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
        table = torch.tensor(FP4 + tuple(-x for x in FP4), device="cuda", dtype=torch.float64)
        both = torch.stack((table[(values & 15).long()], table[(values >> 4).long()]), -1).flatten(-2)
        return both * torch.exp2(scales.double() - 127).repeat_interleave(32, 1)


    def gptq(self, which):
        """(codes, scales, zero points or None) of int4 as checkpoints of GPTQ have them: words of eight k, [experts, K / 8, N];
        [experts, K / scale_k, N]; and words of eight n, [experts, K / scale_k, N / 8]."""
        torch, zeros = self.torch, self.zeros[which]
        codes = self.values[which].view(torch.int32).mT.contiguous()
        if zeros is not None:
            pairs = zeros.mT.contiguous()
            zeros = (pairs[..., 0::2] | pairs[..., 1::2] << 4).contiguous().view(torch.int32)
        return codes, self.scales[which].mT.contiguous(), zeros


class Layer:
    def __init__(self, torch, c, weights=None):
        self.torch, self.config = torch, c
        self.weights = weights or Weights(torch, c)
        self.x = (2 * torch.rand(c.rows, c.columns, device="cuda") - 1).bfloat16()
        self.logits = logits_of(torch, c)
        routed, self.ids = torch.topk(torch.softmax(self.logits.double(), -1), c.topk)
        self.routed = routed / routed.sum(-1, keepdim=True)

    def out(self):
        return self.torch.full(self.x.shape, math.nan, device="cuda", dtype=self.torch.bfloat16)

    def hit(self):
        return self.ids.unique().numel()

    def padded_groups(self, unit):
        """Choices in the order of their experts, each group a multiple of `unit` long: (choices in order, their places, padded
        lengths, padded length of all)."""
        torch, flat = self.torch, self.ids.reshape(-1)
        counts = torch.bincount(flat, minlength=self.config.experts)
        padded = (counts + unit - 1) // unit * unit
        order = torch.argsort(flat, stable=True)
        gaps = (torch.cumsum(padded, 0) - padded) - (torch.cumsum(counts, 0) - counts)  # before a group
        return order, gaps[flat[order]] + torch.arange(flat.numel(), device="cuda"), padded, int(padded.sum())

    def expert(self, expert, x):
        """The result of an expert for a token, in f64."""
        torch, w = self.torch, self.weights
        gates = w.dense(0, expert) @ x
        if w.kind != "mxfp4":
            gate, up = gates.chunk(2)
            return w.dense(1, expert) @ (torch.nn.functional.silu(gate) * up)
        gates = gates + w.biases[0][expert].double()
        gate, up = gates[0::2].clamp(max=SWIGLU_LIMIT), gates[1::2].clamp(-SWIGLU_LIMIT, SWIGLU_LIMIT)
        return w.dense(1, expert) @ (gate * torch.sigmoid(SWIGLU_ALPHA * gate) * (up + 1)) + w.biases[1][expert].double()

    def verify(self, out):
        """(ok, largest error of a token over its norm) of up to four tokens against f64."""
        rows, worst = self.config.rows, 0.0
        for token in sorted({0, rows // 3, rows // 2, rows - 1}):
            expected = sum(weight * self.expert(expert, self.x[token].double())
                           for weight, expert in zip(self.routed[token], self.ids[token].tolist()))
            error = (out[token].double() - expected).norm() / expected.norm()
            worst = max(worst, error.nan_to_num(nan=self.torch.inf).item())
        return worst <= ROUNDING[self.weights.kind], worst
