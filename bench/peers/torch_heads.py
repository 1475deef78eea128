#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch on the configs of bench_rope and bench_kv_cache_write, in the same way; CSV on stdout.

  torch_heads.py build/sm90/bench/bench_rope build/sm90/bench/bench_kv_cache_write >peers.csv
  torch_heads.py --graph --filter '/r4096/' ours.csv"""
import sys

import common
import head_configs

TOOL = "torch_heads"
PEERS = {"compile": "torch.compile", "eager": "torch.eager"}


ROUNDING = {"f32": 2 ** -18, "f16": 2 ** -10, "bf16": 2 ** -7}  # of the l2 norm of a head, which may be rounded twice


def call_of(torch, c):
    """A function and its arguments, as a user of PyTorch would write it; arithmetic in f32. And a check of what it leaves."""
    dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    dtype, half = dtypes[c.x], c.rotary // 2

    def uniform(kind, *shape):
        return (2 * torch.rand(shape, device="cuda") - 1).to(kind)

    qkv = uniform(dtype, c.tokens, c.q_heads + 2 * c.kv_heads, c.head_size)
    weight = uniform(dtype, c.head_size) if c.norm else None
    cos, sin = (uniform(dtypes[c.table], head_configs.TABLE_ROWS, half) for _ in range(2))
    positions = torch.randperm(head_configs.TABLE_ROWS, device="cuda")[:c.tokens]
    slots = torch.randperm(max(c.tokens, 64), device="cuda")[:c.tokens]
    caches = [torch.zeros(max(c.tokens, 64), c.kv_heads, c.head_size, dtype=dtype, device="cuda") for _ in range(2)]

    def turned(x, cos, sin):
        """Heads [tokens, heads, head_size] by angles [tokens, 1, rotary / 2]."""
        values, rest = x[..., :c.rotary].float(), x[..., c.rotary:]
        halves = c.pairs == "halves"
        a, b = (values[..., :half], values[..., half:]) if halves else (values[..., 0::2], values[..., 1::2])
        both = (a * cos - b * sin, b * cos + a * sin)
        out = torch.cat(both, -1) if halves else torch.stack(both, -1).flatten(-2)
        return torch.cat((out.to(dtype), rest), -1)

    def run(qkv, weight, cos, sin, positions, slots, k_cache, v_cache):
        heads, v = qkv[:, :c.q_heads + c.kv_heads], qkv[:, c.q_heads + c.kv_heads:]
        if weight is not None:
            heads = torch.nn.functional.rms_norm(heads.float(), (c.head_size,), weight.float(), 1e-6).to(dtype)
        if c.pairs:
            heads = turned(heads, cos[positions][:, None].float(), sin[positions][:, None].float())
        if not c.cached:
            return heads
        k_cache.index_copy_(0, slots, heads[:, c.q_heads:])
        v_cache.index_copy_(0, slots, v)
        return heads[:, :c.q_heads]

    def check(result):
        """(ok, max_rel_err) of up to eight tokens against f64, where a pair turns as a complex number does."""
        tokens = torch.linspace(0, c.tokens - 1, min(c.tokens, 8), device="cuda").long()
        heads, v = qkv[tokens, :c.q_heads + c.kv_heads].double(), qkv[tokens, c.q_heads + c.kv_heads:]
        if weight is not None:
            heads = heads * (heads.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()
        if c.pairs:
            angles = torch.complex(*(table[positions[tokens]][:, None].double() for table in (cos, sin)))
            halves, x = c.pairs == "halves", heads[..., :c.rotary]
            a, b = x.unflatten(-1, (2, half) if halves else (half, 2)).unbind(-2 if halves else -1)
            x = torch.view_as_real(torch.complex(a.contiguous(), b.contiguous()) * angles)
            heads = torch.cat(((x.mT if halves else x).flatten(-2), heads[..., c.rotary:]), -1)
        got = torch.cat((result[tokens], caches[0][slots[tokens]]), 1) if c.cached else result[tokens]
        error = ((got.double() - heads).norm(dim=-1) / heads.norm(dim=-1)).nan_to_num(nan=torch.inf).max().item()
        return error <= ROUNDING[c.x] and (not c.cached or torch.equal(caches[1][slots[tokens]], v)), error

    return run, (qkv, weight, cos, sin, positions, slots, *caches), check


def main(arguments):
    options = common.parse(TOOL, __doc__, arguments, PEERS, "compile")
    found = common.chosen(TOOL, options, head_configs.config_of)
    for key in [key for key, config in found.items() if config.left_out]:
        print(f"{TOOL}: {key}: left out: {found.pop(key).left_out}", file=sys.stderr)
    if not found:
        common.fail(TOOL, "no config is left to time")
    torch = common.import_torch(TOOL)
    return common.time_functions(torch, TOOL, options, PEERS, found, lambda config: call_of(torch, config),
                                 head_configs.COLUMNS, head_configs.row_of)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
