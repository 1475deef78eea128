# SPDX-License-Identifier: MIT
"""Grouped products of bench_gemm beside DeepGEMM's: the same rows of the same groups, each side's in the layout it asks for."""
import torch_gemm

ALIGNMENT = 128  # DeepGEMM's contiguous groups begin at multiples of it
SPREAD = {"contiguous": 0.15, "masked": 0.3}  # of a group's rows: bench/ops/gemm/case.hpp


class Groups:
    """Inputs of a call, nearly normal. A has all groups' rows, without gaps or with those that DeepGEMM asks for; or [groups, room, K]."""

    def __init__(self, torch, config):
        self.torch, self.config = torch, config
        c, self.masked = config, config.groups.kind == "masked"
        groups, rows = c.groups.count, c.groups.rows
        self.fp8 = c.a == "fp8"
        generator = torch.Generator().manual_seed(1)
        spread = (2 * torch.rand(groups, generator=generator) - 1) * SPREAD[c.groups.kind]
        if self.masked:
            self.rows = (rows * (1 + spread)).long().clamp(max=c.m).tolist()
        else:
            ends = [0] + [int(g * rows + rows * spread[g]) for g in range(1, groups)] + [c.m]
            self.rows = [end - begin for begin, end in zip(ends, ends[1:])]
        self.first, self.padded, at, padded_at = [], [], 0, 0
        for count in self.rows:
            self.first.append(at)
            self.padded.append(padded_at)
            at += count
            padded_at += -(-count // ALIGNMENT) * ALIGNMENT
        shape = (groups, c.m) if self.masked else (padded_at,)
        self.a, self.a_scale = self.operand(shape)
        self.b, self.b_scale = self.operand((groups, c.n), block=128)
        self.table = torch.tensor(self.rows if self.masked else self.first + [at], dtype=torch.int32, device="cuda")
        if not self.masked:
            layout = torch.full((padded_at,), -1, dtype=torch.int32)
            for g, count in enumerate(self.rows):
                layout[self.padded[g]:self.padded[g] + count] = g
            self.layout = layout.to("cuda")
            keep = (self.layout >= 0).nonzero().squeeze(1)  # PyTorch does not index fp8 tensors
            bits = self.a.view(torch.uint8) if self.fp8 else self.a
            self.packed = bits[keep].view(self.a.dtype)
            self.packed_scale = self.a_scale.T[:, keep].contiguous().T if self.fp8 else None
        self.out = torch.empty(*shape, c.n, dtype=torch.bfloat16, device="cuda")

    def operand(self, shape, block=1):
        """Values [*shape, K], and of fp8 their scales: of rows with the rows side by side, of blocks [.., N / 128, K / 128]."""
        torch, k, deviation = self.torch, self.config.k, torch_gemm.FP8_DEVIATION
        values = torch.empty(*shape, k, dtype=torch.float8_e4m3fn if self.fp8 else torch.bfloat16, device="cuda")
        for part in values.view(-1, k).split(1 << 16):  # all at once would need several times the memory
            some = torch.empty(part.shape, dtype=torch.bfloat16, device="cuda").normal_()
            part.copy_((some * deviation).clamp(-240, 240) if self.fp8 else some)
        if not self.fp8:
            return values, None
        *layers, rows = shape
        if block > 1:
            return values, (torch.rand(*layers, -(-rows // block), k // 128, device="cuda") + 0.5) / deviation
        return values, ((torch.rand(*layers, k // 128, rows, device="cuda") + 0.5) / deviation).mT

    def ours(self, tw):
        scales = (self.a_scale if self.masked else self.packed_scale, self.b_scale) if self.fp8 else ()
        if self.masked:
            return lambda: tw.gemm_masked(self.a, self.b, self.table, self.config.groups.rows, *scales)
        return lambda: tw.gemm_grouped(self.packed, self.b, self.table, *scales)

    def deep_gemm(self, deep_gemm):
        a = (self.a, self.a_scale) if self.fp8 else self.a
        b = (self.b, self.b_scale) if self.fp8 else self.b
        kind = "fp8" if self.fp8 else "bf16"
        if self.masked:
            run = getattr(deep_gemm, f"m_grouped_{kind}_gemm_nt_masked")
            arguments = a, b, self.out, self.table, self.config.groups.rows
        else:
            run = getattr(deep_gemm, f"m_grouped_{kind}_gemm_nt_contiguous")
            arguments = a, b, self.out, self.layout

        def call():
            run(*arguments)
            return self.out

        return call

    def verify(self, out):
        """(ok, max_rel_err) of some rows and columns of some groups against f64."""
        torch, c, worst = self.torch, self.config, 0.0
        ours = not self.masked and out.shape[0] == self.packed.shape[0] and out is not self.out
        columns = torch.linspace(0, c.n - 1, min(c.n, 128), device="cuda").long()

        def rows_of(operand, rows):
            bits = operand.view(torch.uint8) if self.fp8 else operand
            return bits[rows].view(operand.dtype).double()

        for g in sorted({0, 1, len(self.rows) // 2, len(self.rows) - 1}):
            if self.rows[g] == 0:
                continue
            rows = torch.linspace(0, self.rows[g] - 1, min(self.rows[g], 8), device="cuda").long()
            a, a_scale, at = (self.a[g], self.a_scale[g] if self.fp8 else None, rows) if self.masked else (self.a, self.a_scale, rows + self.padded[g])
            got = (out[g][rows] if self.masked else out[rows + self.first[g]] if ours else out[at])[:, columns].double()
            left, right = rows_of(a, at), rows_of(self.b[g], columns)
            if self.fp8:
                left = (left.unflatten(-1, (-1, 128)) * a_scale[at].double()[..., None]).flatten(-2)
                right = (right.unflatten(-1, (-1, 128)) * self.b_scale[g][columns // 128].double()[..., None]).flatten(-2)
            wanted = left @ right.T
            error = (got - wanted).nan_to_num(nan=torch.inf, posinf=torch.inf)
            worst = max(worst, (error.norm(dim=-1) / wanted.norm(dim=-1)).max().item())
        return worst <= torch_gemm.ROW.get(c.a, 2 ** -8), worst
