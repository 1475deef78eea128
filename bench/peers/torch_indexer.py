#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch and a Triton kernel on the configs of bench_mqa_logits, in the same way; CSV on stdout.

  torch_indexer.py build/sm90/bench/bench_mqa_logits >peers.csv
  torch_indexer.py --graph --peers triton --filter '^paged' ours.csv"""
import sys

import common
import indexer_configs
from indexer_configs import HEAD_SIZE, PAGE

TOOL = "torch_indexer"
PEERS = {"triton": "triton", "compile": "torch.compile", "eager": "torch.eager"}
SCORES = 2 ** 32  # of all heads, which PyTorch writes out
ROUNDING = 2 ** -7  # of the l2 norm of a row, scores of which may be rounded to bf16


def keys_of(torch, c):
    """Keys in fp8 and scales: paged, in pages of both; the pages of each sequence."""
    count = c.rows * -(-c.columns // PAGE) if c.kind == "paged" else 1
    keys = PAGE if c.kind == "paged" else c.columns
    split = keys * HEAD_SIZE
    pages = torch.empty(count, split + 4 * keys, dtype=torch.uint8, device="cuda")
    for some in pages.split(4096):  # what is drawn in f32 takes four times the memory
        some[:, :split].view(torch.float8_e4m3fn).copy_(2 * torch.rand(len(some), split, device="cuda") - 1)
        some[:, split:].view(torch.float32).copy_(torch.rand(len(some), keys, device="cuda") + 0.5)
    tables = torch.randperm(count, device="cuda").int().view(c.rows if c.kind == "paged" else 1, -1)
    return pages[:, :split].view(torch.float8_e4m3fn), pages[:, split:].view(torch.float32), tables


def call_of(torch, c):
    """A function of each peer, its arguments, and a check of logits [queries, columns]."""
    paged = c.kind == "paged"
    keys, scales, tables = keys_of(torch, c)
    if not paged:
        keys, scales = keys[0].view(c.columns, HEAD_SIZE), scales[0]
    q = (2 * torch.rand(c.all_queries(), c.heads, HEAD_SIZE, device="cuda") - 1).to(torch.float8_e4m3fn)
    weights = 2 * torch.rand(c.all_queries(), c.heads, device="cuda") - 1
    ends = torch.tensor(c.ends(), dtype=torch.int32, device="cuda")

    def seen(ends):
        """One past the last key that each query sees."""
        if not paged:
            return ends
        return (ends[:, None] - c.queries + 1 + torch.arange(c.queries, device="cuda")).flatten()

    def run(q, weights, keys, scales, tables, ends):
        if paged:
            bytes_of_rows = keys.view(torch.uint8)[tables.long()]  # more of PyTorch indexes those
            of_rows = bytes_of_rows.view(keys.dtype).view(c.rows, -1, HEAD_SIZE)[:, :c.columns].bfloat16()
            scores = q.bfloat16().view(c.rows, -1, HEAD_SIZE) @ of_rows.mT
            scale = scales[tables.long()].view(c.rows, 1, -1)[..., :c.columns].expand(-1, c.queries, -1).flatten(0, 1)
        else:
            scores, scale = q.bfloat16().view(-1, HEAD_SIZE) @ keys.bfloat16().T, scales
        heads = torch.relu(scores.view(c.all_queries(), c.heads, c.columns))
        logits = (heads.float() * weights[..., None]).sum(1) * scale
        hidden = torch.arange(c.columns, device="cuda") >= seen(ends)[:, None]
        return logits.masked_fill(hidden, -torch.inf)

    def run_triton(*inputs):
        import triton_indexer
        return triton_indexer.logits_of(c, *inputs)

    def check(result):
        """(ok, max_rel_err) of up to four queries against f64: which keys are seen, and the l2 norm over those."""
        ok, worst, last = True, 0.0, seen(ends).tolist()
        for query in sorted({0, c.all_queries() // 3, c.all_queries() // 2, c.all_queries() - 1}):
            own, scale = keys.float(), scales
            if paged:
                pages = tables[query // c.queries].long()
                own, scale = keys.view(torch.uint8)[pages].view(keys.dtype).float(), scales[pages]
            own, scale = own.reshape(-1, HEAD_SIZE)[:last[query]].double(), scale.reshape(-1)[:last[query]].double()
            expected = (torch.relu(q[query].float().double() @ own.T) * weights[query, :, None].double()).sum(0) * scale
            got = result[query].double()
            error = (got[:last[query]] - expected).norm() / expected.norm()
            worst = max(worst, error.nan_to_num(nan=torch.inf).item())
            ok = ok and bool((got[last[query]:] == -torch.inf).all())
        return ok and worst <= ROUNDING, worst

    large = c.all_queries() * c.heads * c.columns > SCORES
    plain = "scores of all heads are too large" if large else run
    return {"triton": run_triton, "compile": plain, "eager": plain}, (q, weights, keys, scales, tables, ends), check


def main(arguments):
    options = common.parse(TOOL, __doc__, arguments, PEERS, "triton,compile")
    found = common.chosen(TOOL, options, indexer_configs.config_of)
    for key in [key for key, config in found.items() if config.left_out]:
        print(f"{TOOL}: {key}: left out: {found.pop(key).left_out}", file=sys.stderr)
    if not found:
        common.fail(TOOL, "no config is left to time")
    torch = common.import_torch(TOOL)
    return common.time_functions(torch, TOOL, options, PEERS, found, lambda config: call_of(torch, config),
                                 indexer_configs.COLUMNS, indexer_configs.row_of)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
