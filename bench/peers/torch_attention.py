#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch's attention back ends on the configs of bench_pa's decode sweep, in the same way, on contiguous caches; CSV
with bench_pa's columns on stdout.

  torch_attention.py --filter '/bs64/mtp1/' build/sm90/bench/bench_pa >peers.csv
  torch_attention.py --graph --peers flash,cudnn ours.csv"""
import csv
import sys

import attention_configs
import common

TOOL = "torch_attention"
PEERS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "math": "MATH"}
MATH_ELEMENTS = 2 ** 27  # of K, repeated for every q head: MATH writes it out, in f32
MASKED = -3e4  # exp of it is 0; cuDNN wants finite biases
REFUSALS = "No available kernel", "No viable backend", "cuDNN Frontend error"  # of a back end that does not take a call
ELEMENT, ROW = 8e-3, 1e-2  # tolerances of bench/ops/paged_attention/verify.hpp


class Attention:
    """A call's inputs, U(-1, 1): Q [batch, q heads, mtp, D], K and V [batch, kv heads, context, D]."""

    def __init__(self, torch, call):
        self.torch, self.call = torch, call
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16}[call.dtype]

        def uniform(heads, tokens):
            shape = call.batch, heads, tokens, call.head_size
            return torch.empty(shape, dtype=dtype, device="cuda").uniform_(-1, 1)

        self.q = uniform(call.q_heads, call.mtp)
        self.k, self.v = uniform(call.kv_heads, call.context), uniform(call.kv_heads, call.context)
        # Bottom right: of [mtp, context], query i sees all but the last mtp - 1 - i tokens.
        self.hidden = torch.ones(call.mtp, call.context, dtype=torch.bool, device="cuda").triu(call.context - call.mtp + 1)

    def run_of(self, peer):
        """A function that attends, to be called under sdpa_kernel, or why this back end is not asked to."""
        torch, c = self.torch, self.call
        attend = torch.nn.functional.scaled_dot_product_attention
        if peer == "math" and self.k.numel() * c.group() > MATH_ELEMENTS:
            return "K of every q head is too large"
        bias = None
        if c.mtp > 1 and peer == "flash":  # takes no bias but this
            from torch.nn.attention.bias import causal_lower_right
            bias = causal_lower_right(c.mtp, c.context)
        elif c.mtp > 1:
            bias = torch.zeros_like(self.hidden, dtype=self.q.dtype).masked_fill_(self.hidden, MASKED)
        if peer != "efficient":
            return lambda: attend(self.q, self.k, self.v, attn_mask=bias, enable_gqa=True)
        # It knows no grouped heads. To a kv head, the query tokens of its q heads are just more query tokens.
        queries = self.q.view(c.batch, c.kv_heads, c.group() * c.mtp, c.head_size)
        biases = None if bias is None else bias.repeat(c.group(), 1)
        return lambda: attend(queries, self.k, self.v, attn_mask=biases).reshape(self.q.shape)

    def verify(self, out):
        """(ok, max_abs_err, max_rel_err) of the first, the middle and the last (sequence, q head) pair against f64, judged as
        bench_pa judges its rows."""
        torch, c = self.torch, self.call
        ok, max_abs, max_rel = True, 0.0, 0.0
        for sequence, head in [(0, 0), (c.batch // 2, c.q_heads // 2), (c.batch - 1, c.q_heads - 1)]:
            k, v = (cache[sequence, head // c.group()].double() for cache in (self.k, self.v))
            scores = self.q[sequence, head].double() @ k.T * c.head_size ** -0.5
            expected = torch.softmax(scores.masked_fill(self.hidden, -torch.inf), -1) @ v
            difference = (out[sequence, head].double() - expected).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
            rows = difference.norm(dim=-1) / expected.norm(dim=-1)
            ok = ok and bool((difference <= ELEMENT * (1 + expected.abs())).all() and (rows <= ROW).all())
            max_abs, max_rel = max(max_abs, difference.max().item()), max(max_rel, rows.max().item())
        return ok, max_abs, max_rel


def measure(torch, sampler, attention, peer, graph):
    """(cold, hot, verdict) of the back end, or why it is left out."""
    run = attention.run_of(peer)
    if isinstance(run, str):
        return run
    from torch.nn.attention import SDPBackend, sdpa_kernel
    with sdpa_kernel(getattr(SDPBackend, PEERS[peer])):
        try:
            run()
        except RuntimeError as error:
            if any(refusal in str(error) for refusal in REFUSALS):
                return str(error).splitlines()[0]
            raise
        run = common.graph_of(torch, run) if graph else run
        return *sampler.measure(run), attention.verify(run())


def calls_of(options):
    """The configs that PyTorch is asked for, by call: those that differ in their pages alone are one."""
    calls, left_out = {}, {}
    for key, config in common.chosen(TOOL, options, attention_configs.config_of, "--sweep=decode").items():
        if config.left_out:
            left_out[config.left_out] = left_out.get(config.left_out, 0) + 1
        else:
            calls.setdefault(config.call, {})[key] = config
    for reason, count in left_out.items():
        print(f"{TOOL}: {count} config{'s' * (count > 1)} left out: {reason}", file=sys.stderr)
    if not calls:
        common.fail(TOOL, "no config is left to time")
    return calls


def main(arguments):
    options = common.parse(TOOL, __doc__, arguments, PEERS, ",".join(PEERS))
    calls = calls_of(options)
    torch = common.import_torch(TOOL)
    arch, sampler = common.arch_of(torch), common.Sampler(torch, options.max_seconds)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(attention_configs.COLUMNS)
    failed = False

    def tell(key, peer, what):
        print(f"{TOOL}: {key}: {PEERS[peer]}: {what}", file=sys.stderr)

    with torch.no_grad():
        for call, configs in calls.items():
            attention, first = Attention(torch, call), next(iter(configs))
            for peer in options.peers:
                try:
                    measured = measure(torch, sampler, attention, peer, options.graph)
                except RuntimeError as error:
                    tell(first, peer, str(error).splitlines()[0])
                    failed = True
                    continue
                if isinstance(measured, str):
                    tell(first, peer, f"left out: {measured}")
                    continue
                cold, hot, verdict = measured
                if not verdict[0]:
                    tell(first, peer, "wrong: max_abs_err {1:.3g}, max_rel_err {2:.3g}".format(*verdict))
                    failed = True
                name = peer + (".graph" if options.graph else "")
                entry = f"{PEERS[peer]}/torch {torch.__version__}"
                for key, config in configs.items():
                    out.writerow(attention_configs.row_of(key, config, arch, name, entry, cold, hot, verdict))
                sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
