#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch on the configs of bench_norm, bench_softmax, bench_quant and bench_topk_gating, in the same way, and checks
what it makes of them; CSV on stdout.

  torch_peers.py build/sm90/bench/bench_norm build/sm90/bench/bench_softmax >peers.csv
  torch_peers.py --graph --filter '/r(128|32)/' ours.csv"""
import sys

import common
import configs

TOOL = "torch_peers"
PEERS = {"compile": "torch.compile", "eager": "torch.eager"}
# Of the l2 norm of a row: what rounding to a type may make of it, once. i8 is truncated.
ROUNDING = {"f32": 2 ** -18, "f16": 2 ** -11, "bf16": 2 ** -8, "fp8": 0.04, "i8": 2 ** -5}
ROWS_CHECKED = 8


class Ops:
    """The calls, as a user of PyTorch would write them; arithmetic in f32. Each is a function, its arguments, and a check of
    what it returns: (ok, max_rel_err) of some rows against f64."""

    def __init__(self, torch, arch):
        self.torch = torch
        fp8 = torch.float8_e4m3fnuz if arch == "gfx942" else torch.float8_e4m3fn
        self.dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8, "fp8": fp8}
        self.largest = {"i8": 127.0, "fp8": torch.finfo(fp8).max}

    def uniform(self, dtype, *shape):
        return (4 * self.torch.rand(shape, device="cuda") - 2).to(self.dtypes[dtype])

    def some(self, rows):
        return self.torch.linspace(0, rows - 1, min(rows, ROWS_CHECKED), device="cuda").long()

    def doubles(self, x, rows):  # fp8 tensors are not indexed
        return (x.view(self.torch.uint8)[rows].view(x.dtype) if x.element_size() == 1 else x[rows]).double()

    def close(self, got, expected, dtype, roundings=1):
        difference = (got - expected).norm(dim=-1).nan_to_num(nan=self.torch.inf)
        error = (difference / expected.norm(dim=-1).clamp(min=1e-30)).max().item()
        return error <= roundings * ROUNDING[dtype], error

    def close_values(self, result, expected, c, rows):
        """Of a result's rows; of a quantised one (codes, scale) times their scales, where the largest code may not reach."""
        if c.scale == "none":
            return self.close(result[rows].double(), expected, c.out, 2)
        codes, scale = result
        groups = c.columns // configs.GROUP if c.scale == "per_group" else 1
        unit = (scale.expand(c.rows, groups, 1) if scale.dim() == 0 else scale.view(c.rows, groups, 1))[rows].double()
        expected = expected.view(len(rows), groups, -1).clamp(-self.largest[c.out] * unit, self.largest[c.out] * unit)
        return self.close(self.doubles(codes, rows).view_as(expected) * unit, expected, c.out)

    def quantise(self, values, c, scale):
        """Codes and scales of f32 rows. A scale that is not given is the largest magnitude over the largest code."""
        torch, largest = self.torch, self.largest[c.out]
        if c.scale == "per_group":
            values = values.view(c.rows, -1, configs.GROUP)
        if scale is None:
            amax = values.abs().amax() if c.scale == "per_tensor" else values.abs().amax(-1, keepdim=True)
            scale = torch.where(amax == 0, 1.0, amax / largest)
        codes = (values / scale).clamp(-largest, largest)
        codes = codes.trunc() if c.out == "i8" else codes
        return codes.to(self.dtypes[c.out]).view(c.rows, c.columns), scale

    def call_of(self, c):
        """A function, its arguments and a check, or why PyTorch is not asked to do this."""
        torch, functional = self.torch, self.torch.nn.functional
        if c.causal:
            return "a causal mask over lengths"
        if c.scale == "per_group" and c.columns % configs.GROUP:
            return "columns that are not whole groups"
        if c.op == "dequant":
            return self.dequantise_call(c)
        if c.gating:
            return self.gating_call(c)
        x = self.uniform(c.x, c.rows, c.columns)
        if c.op in ("softmax", "log_softmax"):
            function, rows = getattr(torch, c.op), self.some(c.rows)
            return (lambda x: function(x, -1)), (x,), lambda result: self.close(
                result[rows].double(), function(x[rows].double(), -1), c.out)
        scale = torch.full((), 3.5 / self.largest[c.out], device="cuda") if c.scale == "per_tensor" else None
        if c.op == "quant":
            if c.given and scale is None:
                return "given scales of rows or groups"
            rows = self.some(c.rows)
            return (lambda x, scale: self.quantise(x.float(), c, scale)), (x, scale if c.given else None), \
                lambda result: self.close_values(result, x[rows].double(), c, rows)
        weight, bias = self.uniform(c.x, c.columns), self.uniform(c.x, c.columns) if c.op == "layernorm" else None
        residual = self.uniform(c.x, c.rows, c.columns) if c.residual else None

        def norm(x, weight, bias, residual, scale):
            total = x if residual is None else x + residual
            values = total
            if c.scale != "none":
                values, weight, bias = total.float(), weight.float(), None if bias is None else bias.float()
            if c.op == "rmsnorm":
                values = functional.rms_norm(values, (c.columns,), weight, 1e-5)
            else:
                values = functional.layer_norm(values, (c.columns,), weight, bias, 1e-5)
            out = values if c.scale == "none" else self.quantise(values, c, scale)
            return out if residual is None else (out, total)

        def check(result):
            rows = self.some(c.rows)
            total = x[rows] if residual is None else x[rows] + residual[rows]
            values = total.double() - (total.double().mean(-1, keepdim=True) if bias is not None else 0)
            values = values * (values.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight.double()
            out, summed = (result, total) if residual is None else (result[0], result[1][rows])
            ok, error = self.close_values(out, values if bias is None else values + bias.double(), c, rows)
            return ok and torch.equal(summed, total), error

        return norm, (x, weight, bias, residual, scale), check

    def gating_call(self, c):
        torch = self.torch
        topk, groups, kept = (c.of_gating(column) for column in ("topk", "groups", "kept_groups"))
        logits = self.uniform(c.x, c.rows, c.columns)
        bias = torch.rand(c.columns, device="cuda") if c.of_gating("bias") else None
        best = 2 if c.of_gating("group_score") == "two_best" else 1  # experts that a group counts

        def gate(logits, bias):
            logits = logits.float()
            score = logits.sigmoid() if c.of_gating("score") == "sigmoid" else logits.softmax(-1)
            choice = score if bias is None else score + bias
            if groups > 1:
                of_groups = choice.view(c.rows, groups, -1)
                chosen = of_groups.topk(best, -1).values.sum(-1).topk(kept, -1).indices
                outside = torch.ones(c.rows, groups, dtype=torch.bool, device="cuda").scatter(1, chosen, False)
                choice = of_groups.masked_fill(outside.unsqueeze(-1), -torch.inf).view(c.rows, -1)
            indices = choice.topk(topk, -1).indices
            weights = score.gather(1, indices)
            if c.of_gating("renormalise"):
                weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-20)
            slots, tokens = (torch.arange(n, dtype=torch.int32, device="cuda") for n in (topk, c.rows))
            return weights, indices.int(), slots * c.rows + tokens.unsqueeze(1)

        def check(result):
            """Weights are those of the experts chosen, which are as good as those that an f64 choice takes."""
            rows = self.some(c.rows)
            weights, indices = result[0][rows].double(), result[1][rows].long()
            x = logits[rows].double()
            score = x.sigmoid() if c.of_gating("score") == "sigmoid" else x.softmax(-1)
            choice = score if bias is None else score + bias.double()
            expected = score.gather(1, indices)
            if c.of_gating("renormalise"):
                expected = expected / expected.sum(-1, keepdim=True)
            if groups > 1:
                of_groups = choice.view(len(rows), groups, -1)
                counted = of_groups.topk(best, -1).values.sum(-1)
                taken = torch.zeros_like(counted, dtype=torch.bool).scatter(1, counted.topk(kept, -1).indices, True)
                choice = of_groups.masked_fill(~taken.unsqueeze(-1), -torch.inf).view(len(rows), -1)
            lost = (choice.topk(topk, -1).values.sum(-1) - choice.gather(1, indices).sum(-1)).abs().max().item()
            apart = all(len(set(row)) == topk for row in indices.tolist())
            placed = torch.equal(result[2].T.flatten().long(), torch.arange(c.rows * topk, device="cuda"))
            ok, error = self.close(weights, expected, "f32")
            return ok and apart and placed and lost < 1e-5, error

        return gate, (logits, bias), check

    def dequantise_call(self, c):
        torch = self.torch
        codes = self.uniform("f32", c.rows, c.columns).mul(50).to(self.dtypes[c.x])
        groups = c.columns // configs.GROUP
        shape = {"per_tensor": (), "per_token": (c.rows, 1), "per_group": (c.rows, groups, 1)}[c.scale]
        scale = torch.rand(shape, device="cuda") + 0.5

        def dequantise(codes, scale):
            values = codes.float()
            if c.scale == "per_group":
                values = values.view(c.rows, groups, configs.GROUP)
            return (values * scale).to(self.dtypes[c.out]).view(c.rows, c.columns)

        def check(result):
            rows = self.some(c.rows)
            units = scale.expand(c.rows, groups, 1) if scale.dim() == 0 else scale.view(c.rows, -1, 1)
            values = self.doubles(codes, rows).view(len(rows), units.shape[1], -1) * units[rows].double()
            return self.close(result[rows].double(), values.view(len(rows), -1), c.out)

        return dequantise, (codes, scale), check


def main(arguments):
    options = common.parse(TOOL, __doc__, arguments, PEERS, "compile")
    found = common.chosen(TOOL, options, configs.config_of)
    torch = common.import_torch(TOOL)
    ops = Ops(torch, common.arch_of(torch))
    return common.time_functions(torch, TOOL, options, PEERS, found, ops.call_of, configs.COLUMNS, configs.row_of)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
