#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch on the configs of bench_activation, bench_moe_reduce, bench_moe_sort, bench_embedding, bench_sampling and
bench_attention_combine, in the same way, and checks what it makes of them; CSV on stdout.

  torch_tokens.py build/sm90/bench/bench_activation build/sm90/bench/bench_sampling >peers.csv
  torch_tokens.py --graph --filter '/r64/' ours.csv"""
import sys

import common
import token_configs
import torch_peers

TOOL = "torch_tokens"
PEERS = {"compile": "torch.compile", "eager": "torch.eager"}


class Ops(torch_peers.Ops):
    """The calls, as a user of PyTorch would write them; arithmetic in f32. Sorts are checked whole and exactly."""

    def call_of(self, c):
        return getattr(self, c.op)(c)

    def activation(self, c):
        torch, functional = self.torch, self.torch.nn.functional
        x = self.uniform(c.x, c.rows, c.columns * (1 if c.gating == "plain" else 2)) * 2.5
        given = torch.full((), 0.03, device="cuda") if c.scale == "per_tensor" else None
        kinds = {"none": lambda v: v, "relu": torch.relu, "silu": functional.silu, "gelu": functional.gelu,
                 "gelu_tanh": lambda v: functional.gelu(v, approximate="tanh"), "relu2": lambda v: torch.relu(v).square()}

        def activated(values):
            if c.gating == "plain":
                return kinds[c.kind](values)
            gate, up = values.chunk(2, -1) if c.gating == "halves" else (values[:, 0::2], values[:, 1::2])
            if c.kind == "swigluoai":
                gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
                return gate * torch.sigmoid(1.702 * gate) * (up + 1)
            return kinds[c.kind](gate) * up

        def run(x, given):
            values = activated(x.float())
            return values.to(x.dtype) if c.scale == "none" else self.quantise(values, c, given)

        def check(result):
            rows = self.some(c.rows)
            expected = activated(x[rows].double())
            return self.close_values(result, expected, c, rows)

        return run, (x, given), check

    def moe_reduce(self, c):
        torch, slots = self.torch, c.rows * c.topk
        x = self.uniform(c.x, slots, c.columns)
        table = torch.randperm(slots, device="cuda").view(c.rows, c.topk) if c.table else None
        weights = torch.rand(c.rows, c.topk, device="cuda") if c.weighted else None
        ids = torch.randint(token_configs.EXPERTS, (c.rows, c.topk), device="cuda") if c.masked else None
        mask = torch.arange(token_configs.EXPERTS, device="cuda") % 2 == 0 if c.masked else None
        residual = self.uniform(c.x, c.rows, c.columns) if c.residual else None

        def run(x, table, weights, ids, mask, residual):
            values = (x.view(c.rows, c.topk, -1) if table is None else x[table]).float()
            if mask is not None:
                values = values.masked_fill(~mask[ids].unsqueeze(-1), 0.0)
            if weights is not None:
                values = values * weights.unsqueeze(-1)
            total = values.sum(1)
            return (total if residual is None else total + residual.float()).to(x.dtype)

        def check(result):
            rows = self.some(c.rows)
            places = torch.arange(slots, device="cuda").view(c.rows, c.topk) if table is None else table
            factors = torch.ones(c.rows, c.topk, dtype=torch.double, device="cuda") if weights is None else weights.double()
            if mask is not None:
                factors = factors * mask[ids]
            expected = torch.einsum("rk,rkc->rc", factors[rows], x[places[rows]].double())
            expected = expected if residual is None else expected + residual[rows].double()
            return self.close(result[rows].double(), expected, c.x)

        return run, (x, table, weights, ids, mask, residual), check

    def moe_sort(self, c):
        torch, experts, capacity = self.torch, c.experts, token_configs.sort_capacity(c)
        choices, pad = c.rows * c.columns, c.columns << 24 | c.rows
        ids = torch.rand(c.rows, experts, device="cuda").topk(c.columns).indices.int()
        weights = torch.rand(c.rows, c.columns, device="cuda")
        mask = 100 * torch.rand(experts, device="cuda") < c.local if c.local < 100 else None

        def run(ids, weights, mask):
            flat = ids.flatten().long()
            if mask is not None:  # the local ones counted from 0, all others `experts`
                flat = torch.where(mask, mask.cumsum(0) - 1, experts)[flat]
            counts = torch.zeros(experts + 1, dtype=torch.long, device="cuda").scatter_add(0, flat, torch.ones_like(flat))
            ends = ((counts[:-1] + c.unit - 1) // c.unit * c.unit).cumsum(0)
            starts = torch.cat((torch.zeros_like(ends[:1]), ends))  # the last: where pads alone are left
            by_expert, order = flat.sort(stable=True)
            inside = torch.arange(choices, device="cuda") - (counts.cumsum(0) - counts)[by_expert]
            local = by_expert < experts
            row = torch.where(local, starts[by_expert] + inside, capacity)
            choice = (order % c.columns << 24 | order // c.columns).int()
            sorted_ids = torch.full((capacity + 1,), pad, dtype=torch.int32, device="cuda").scatter(0, row, choice)
            sorted_weights = torch.zeros(capacity + 1, device="cuda").scatter(0, row, weights.flatten()[order])
            rows = torch.empty_like(row).scatter(0, order, torch.where(local, row, -1))
            first = torch.arange(0, capacity, c.unit, device="cuda")
            unit_experts = torch.where(first < ends[-1], torch.searchsorted(ends, first, right=True), -1)
            return (sorted_ids[:-1], sorted_weights[:-1], unit_experts.int(), starts.int(), counts[:-1].int(), rows.int(),
                    torch.stack((ends[-1], torch.full_like(ends[-1], c.rows))).int())

        def check(result):
            return [tensor.tolist() for tensor in result] == sorted_choices(c, ids, weights, mask), 0.0

        return run, (ids, weights, mask), check

    def embedding(self, c):
        torch = self.torch
        table = self.uniform(c.x, c.vocab, c.columns)
        ids = torch.randint(c.vocab + c.vocab // 16 + 1, (c.rows,), dtype=torch.int32 if c.ids == "i32" else torch.int64,
                            device="cuda")
        factor = c.columns ** 0.5

        def run(table, ids):
            known = ids < c.vocab
            out = torch.nn.functional.embedding(ids.masked_fill(~known, 0), table).masked_fill(~known.unsqueeze(-1), 0.0)
            return (out.float() * factor).to(table.dtype) if c.scaled else out

        def check(result):
            rows = self.some(c.rows)
            expected = torch.zeros(len(rows), c.columns, dtype=torch.double, device="cuda")
            for i, token in enumerate(ids[rows].tolist()):
                if token < c.vocab:
                    expected[i] = table[token].double() * (factor if c.scaled else 1)
            ok, error = self.close(result[rows].double(), expected, c.x)
            return ok and (c.scaled or error == 0), error

        return run, (table, ids), check

    def sampling(self, c):
        torch, temperature, top_p, min_p = self.torch, c.temperature / 100, c.top_p / 100, c.min_p / 100
        x = sum(self.uniform("f32", c.rows, c.columns) for _ in range(4)).to(self.dtypes[c.x])

        def drawn(p):  # as exponential races are won
            return (p / torch.empty_like(p).exponential_(1)).argmax(-1, keepdim=True)

        def run(x):
            logits = x.float() / (temperature or 1)
            order = None
            if not temperature:
                token = logits.argmax(-1, keepdim=True)
            else:
                values = logits
                if c.top_k:
                    values, order = logits.topk(c.top_k)
                elif top_p < 1:
                    values, order = logits.sort(-1, descending=True)
                p = values.softmax(-1)
                if top_p < 1:
                    p = p.masked_fill(p.cumsum(-1) - p >= top_p, 0.0)
                if min_p:
                    p = p.masked_fill(p < min_p * p.amax(-1, keepdim=True), 0.0)
                token = drawn(p)
                token = token if order is None else order.gather(-1, token)
            return token, logits.gather(-1, token) - logits.logsumexp(-1, keepdim=True)

        def check(result):
            rows = self.some(c.rows)
            token, logprob = (tensor[rows] for tensor in result)
            logits = x[rows].double() / (temperature or 1)
            own, error = logits.gather(-1, token), 0.0
            ok = torch.ones_like(own, dtype=torch.bool) if temperature else own == logits.amax(-1, keepdim=True)
            if temperature:  # equals stay together
                kept = logits if not c.top_k else \
                    logits.masked_fill(logits < logits.topk(c.top_k).values[:, -1:], -torch.inf)
                p = kept.softmax(-1)
                above = (p * (kept > own)).sum(-1, keepdim=True)
                mine = p.gather(-1, token)
                ok = (mine > 0) & (above < top_p + 1e-5) & (mine >= (min_p - 1e-5) * p.amax(-1, keepdim=True))
            error = (logprob.double() - (own - logits.logsumexp(-1, keepdim=True))).abs().max().item()
            return bool(ok.all()) and error <= 2e-5, error

        return run, (x,), check

    def combine(self, c):
        torch = self.torch
        x, lse = self.uniform(c.x, c.rows, c.partials, c.columns), self.uniform("f32", c.rows, c.partials)
        none = torch.rand(c.rows, c.partials, device="cuda") < 1 / 8
        x, lse = x.masked_fill(none.unsqueeze(-1), torch.nan), lse.masked_fill(none, -torch.inf)

        def run(x, lse):
            weights = lse.softmax(-1).nan_to_num(0.0).unsqueeze(-1)
            values = torch.where(weights > 0, x.float() * weights, 0.0).sum(1)
            return values.to(self.dtypes[c.out]), lse.logsumexp(-1)

        def check(result):
            rows = self.some(c.rows)
            weights = lse[rows].double().exp()
            total = weights.sum(-1)
            expected = torch.einsum("rp,rpc->rc", weights, x[rows].double().nan_to_num(0.0)) / total.clamp(min=1e-300)[:, None]
            ok, error = self.close(result[0][rows].double(), expected, c.out)
            return ok and torch.allclose(result[1][rows].double(), total.log(), rtol=0, atol=1e-5), error

        return run, (x, lse), check


def sorted_choices(c, ids, weights, mask):
    """What a sort is to return, as lists, by plain loops: include/tilewave/reference/moe_sort.hpp."""
    ids, weights = ids.tolist(), weights.tolist()
    capacity = token_configs.sort_capacity(c)
    of_expert = [[] for _ in range(c.experts)]
    for token, chosen in enumerate(ids):
        for slot, expert in enumerate(chosen):
            of_expert[expert].append((token, slot))
    local = of_expert if mask is None else [chosen for chosen, here in zip(of_expert, mask.tolist()) if here]
    sorted_ids, sorted_weights = [c.columns << 24 | c.rows] * capacity, [0.0] * capacity
    units, starts, rows, row = [-1] * -(-capacity // c.unit), [], [-1] * (c.rows * c.columns), 0
    for number, chosen in enumerate(local):
        starts.append(row)
        for i, (token, slot) in enumerate(chosen, row):
            sorted_ids[i], sorted_weights[i], rows[token * c.columns + slot] = slot << 24 | token, weights[token][slot], i
        end = row + -(-len(chosen) // c.unit) * c.unit
        units[row // c.unit:end // c.unit] = [number] * ((end - row) // c.unit)
        row = end
    counts = [len(chosen) for chosen in local] + [0] * (c.experts - len(local))
    return [sorted_ids, sorted_weights, units, starts + [row] * (c.experts + 1 - len(starts)), counts, rows, [row, c.rows]]


def main(arguments):
    options = common.parse(TOOL, __doc__, arguments, PEERS, "compile")
    found = common.chosen(TOOL, options, token_configs.config_of)
    torch = common.import_torch(TOOL)
    ops = Ops(torch, common.arch_of(torch))
    return common.time_functions(torch, TOOL, options, PEERS, found, ops.call_of, token_configs.COLUMNS, token_configs.row_of)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
