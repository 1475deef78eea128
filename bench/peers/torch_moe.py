#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch's grouped products on the layers of bench_moe in bf16: choice, sort, both products and sums; CSV on stdout.

  torch_moe.py build/sm90/bench/bench_moe >peers.csv
  torch_moe.py --graph --filter '/random/' ours.csv"""
import sys

import common
import moe_configs

TOOL = "torch_moe"
PEERS = {"eager": "torch.grouped_mm", "compile": "torch.compile.grouped_mm"}
ROUNDING = 2 ** -6  # of the l2 norm of a row: h and results are bf16, and so are sums
ODDS = {"zipf": lambda torch, experts: 1 / torch.arange(1, experts + 1, device="cuda")}


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


def call_of(torch, c):
    """A function, its arguments, and a check of its result."""
    if not hasattr(torch, "_grouped_mm"):
        return "this PyTorch has no grouped products"
    silu = torch.nn.functional.silu
    x = (2 * torch.rand(c.rows, c.columns, device="cuda") - 1).bfloat16()
    logits = logits_of(torch, c)
    w1 = torch.empty(c.experts, 2 * c.intermediate, c.columns, device="cuda", dtype=torch.bfloat16).normal_(0, c.columns ** -0.5)
    w2 = torch.empty(c.experts, c.columns, c.intermediate, device="cuda", dtype=torch.bfloat16).normal_(0, c.intermediate ** -0.5)

    def run(x, logits, w1, w2):
        weights, ids = torch.topk(torch.softmax(logits.float(), -1), c.topk)
        weights = weights / weights.sum(-1, keepdim=True)
        flat, order = torch.sort(ids.flatten(), stable=True)
        ends = torch.searchsorted(flat, torch.arange(c.experts, device=x.device), right=True).int()
        gates = torch._grouped_mm(x[order // c.topk], w1.mT, offs=ends)
        h = silu(gates[:, :c.intermediate]) * gates[:, c.intermediate:]
        results = torch._grouped_mm(h, w2.mT, offs=ends)
        placed = torch.empty_like(results).index_copy_(0, order, results)
        return (placed.view(c.rows, c.topk, -1) * weights[..., None]).sum(1).to(x.dtype)

    def check(result):
        """(ok, max_rel_err, experts hit) of up to four tokens against f64."""
        weights, ids = torch.topk(torch.softmax(logits.double(), -1), c.topk)
        weights, worst = weights / weights.sum(-1, keepdim=True), 0.0
        for token in sorted({0, c.rows // 3, c.rows // 2, c.rows - 1}):
            expected = 0
            for weight, expert in zip(weights[token], ids[token].tolist()):
                gates = w1[expert].double() @ x[token].double()
                expected = expected + weight * (w2[expert].double() @ (silu(gates[:c.intermediate]) * gates[c.intermediate:]))
            error = (result[token].double() - expected).norm() / expected.norm()
            worst = max(worst, error.nan_to_num(nan=torch.inf).item())
        return worst <= ROUNDING, worst, ids.unique().numel()

    return run, (x, logits, w1, w2), check


def main(arguments):
    options = common.parse(TOOL, __doc__, arguments, PEERS, "eager")
    found = common.chosen(TOOL, options, moe_configs.config_of)
    for key in [key for key, config in found.items() if config.left_out]:
        print(f"{TOOL}: {key}: left out: {found.pop(key).left_out}", file=sys.stderr)
    if not found:
        common.fail(TOOL, "no config is left to time")
    torch = common.import_torch(TOOL)
    return common.time_functions(torch, TOOL, options, PEERS, found, lambda config: call_of(torch, config), moe_configs.COLUMNS,
                                 moe_configs.row_of)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
