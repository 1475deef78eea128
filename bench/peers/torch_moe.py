#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch's grouped products on the layers of bench_moe in bf16: choice, sort, both products and sums; CSV on stdout.

  torch_moe.py build/sm90/bench/bench_moe >peers.csv
  torch_moe.py --graph --filter '/random/' ours.csv"""
import sys

import common
import moe_configs
import moe_layer

TOOL = "torch_moe"
PEERS = {"eager": "torch.grouped_mm", "compile": "torch.compile.grouped_mm"}


def function_of(torch, c):
    """The layer as a function of x, logits, w1 and w2, or why there is none."""
    if not hasattr(torch, "_grouped_mm"):
        return "this PyTorch has no grouped products"
    if c.weights != "bf16":
        return "PyTorch's grouped products are of bf16"
    silu = torch.nn.functional.silu

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

    return run


def call_of(torch, c):
    """A function, its arguments, and a check of its result (ok, max_rel_err, experts hit); or why there is none."""
    run = function_of(torch, c)
    if isinstance(run, str):
        return run
    layer = moe_layer.Layer(torch, c)
    return run, (layer.x, layer.logits, *layer.weights.values), lambda out: (*layer.verify(out), layer.hit())


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
