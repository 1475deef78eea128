#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Our operators beside PyTorch's and DeepGEMM's in one process, in turns by sample on the same tensors; CSV on stdout. Ours are
torch.ops.tilewave (docs/examples/torch), which is compiled when it is first loaded. Configs are those of bench_norm, bench_softmax,
bench_quant, bench_gemm and bench_pa by the names of their rows.

  in_turns.py --state=both build/sm90/bench/bench_norm
  in_turns.py --peers=eager,deep_gemm --deep-gemm=../DeepGEMM --filter='/m4096/' names.csv"""
import argparse
import csv
import math
import os
import sys

import attention_configs
import common
import configs
import gemm_configs
import torch_attention
import torch_gemm
import torch_groups
import torch_peers
import turns

TOOL = "in_turns"
PEERS = {"eager": "functions of PyTorch: norms, softmax; matmul and _scaled_mm with fast sums",
         "exact": "_scaled_mm with promoted sums", "compile": "the same functions under torch.compile",
         "cudnn": "scaled_dot_product_attention by cuDNN", "flash": "the same by its flash attention",
         "deep_gemm": "DeepGEMM from --deep-gemm"}
COLUMNS = """name peer state us us_q1 us_q3 sm_mhz power_w max_rel_err peer_us peer_q1 peer_q3 peer_ratio peer_sm_mhz peer_power_w
peer_rel_err samples flush schema_version""".split()
PAGE = 64  # tokens of a page of our cache
HERE = os.path.dirname(os.path.abspath(__file__))


def row_sides(torch, tw, ops, c, peer):
    """(ours, theirs, check) of a row operation, or why it is left out."""
    if peer not in ("eager", "compile"):
        return "not a peer of row operations"
    prepared = ops.call_of(c)
    if isinstance(prepared, str):
        return prepared
    function, inputs, check = prepared
    plain, codes = c.scale == "none", c.x == "bf16" and c.out == "fp8"
    if c.x != "bf16" and not (c.op in ("softmax", "log_softmax") and c.x == "f32"):
        return "tilewave_torch was built without this type"
    if c.op in ("softmax", "log_softmax"):
        ours = lambda x: getattr(tw, c.op)(x)
    elif c.op == "quant" and codes and not c.given:
        ours = lambda x, scale: tw.quant(x, c.scale)
    elif c.op == "rmsnorm" and plain and c.residual:
        ours = lambda x, weight, bias, residual, scale: tw.add_rms_norm(x, residual, weight)
    elif c.op == "rmsnorm" and plain:
        ours = lambda x, weight, bias, residual, scale: tw.rms_norm(x, weight)
    elif c.op == "layernorm" and plain and not c.residual:
        ours = lambda x, weight, bias, residual, scale: tw.layer_norm(x, weight, bias)
    elif c.op == "rmsnorm" and codes and c.scale == "per_token" and not c.residual:
        ours = lambda x, weight, bias, residual, scale: tw.rms_norm_fp8(x, weight)
    else:
        return "tilewave_torch has no such operator"
    if c.op == "quant" and c.scale == "per_tensor":
        verify = lambda result: check((result[0], result[1].squeeze()))
    else:
        verify = check
    theirs = torch.compile(function, dynamic=False) if peer == "compile" else function
    return (lambda: ours(*inputs)), (lambda: theirs(*inputs)), verify


def group_sides(torch, tw, c, peer, deep_gemm):
    if peer != "deep_gemm":
        return "not a peer of grouped products"
    if deep_gemm is None:
        return "--deep-gemm says no checkout"
    if (c.a, c.scale) not in (("bf16", "none"), ("fp8", "block")) or c.out != "bf16":
        return "tilewave_torch was built without this spec"
    groups = torch_groups.Groups(torch, c)
    return groups.ours(tw), groups.deep_gemm(deep_gemm), groups.verify


def gemm_sides(torch, tw, c, peer, arch, deep_gemm):
    if c.groups is not None:
        return group_sides(torch, tw, c, peer, deep_gemm)
    if peer not in ("eager", "exact", "deep_gemm"):
        return "not a peer of products"
    if c.left_out or c.batch > 1 or c.a not in ("bf16", "fp8") or c.out != "bf16":
        return c.left_out or "tilewave_torch was built without this spec"
    gemm = torch_gemm.Gemm(torch, c, arch)
    scales = (gemm.a_scale, gemm.b_scale) if c.a == "fp8" else ()
    if c.scale == "tensor":
        scales = tuple(scale.view(1) for scale in scales)
    fast = peer == "eager" and c.scale == "row"
    ours = lambda: tw.gemm(gemm.a, gemm.b, *scales, fast_sums=fast)
    if peer == "deep_gemm":
        if deep_gemm is None:
            return "--deep-gemm says no checkout"
        if c.scale not in ("none", "block"):
            return "DeepGEMM has scales of blocks alone"
        out = torch.empty(c.m, c.n, dtype=gemm.out, device="cuda")

        def theirs():
            if c.a == "bf16":
                deep_gemm.bf16_gemm_nt(gemm.a, gemm.b, out)
            else:
                deep_gemm.fp8_gemm_nt((gemm.a, gemm.a_scale), (gemm.b, gemm.b_scale), out)
            return out
    else:
        theirs = gemm.run_of("torch" if peer == "eager" and c.scale != "block" else "exact" if c.a == "fp8" else "torch")
        if isinstance(theirs, str):
            return theirs
    return ours, theirs, lambda out: gemm.verify(out)[::2]


def attention_sides(torch, tw, c, peer):
    if peer not in ("cudnn", "flash"):
        return "not a peer of attention"
    call = c.call
    if c.left_out or call.dtype != "bf16" or call.head_size != 128 or call.context % PAGE:
        return c.left_out or "tilewave_torch was built without this spec"
    attention = torch_attention.Attention(torch, call)
    function = attention.run_of(peer)
    if isinstance(function, str):
        return function
    pages = call.batch * call.context // PAGE
    order = torch.randperm(pages, device="cuda")

    def cache_of(tokens):  # [batch, kv heads, context, D] in pages anywhere
        cache = torch.empty(pages, PAGE, call.kv_heads, call.head_size, dtype=tokens.dtype, device="cuda")
        cache[order] = tokens.transpose(1, 2).reshape(cache.shape)
        return cache

    k_cache, v_cache = cache_of(attention.k), cache_of(attention.v)
    table = order.view(call.batch, -1).int()
    lengths = torch.full((call.batch,), call.context, dtype=torch.int32, device="cuda")
    q = attention.q.transpose(1, 2).reshape(call.batch * call.mtp, call.q_heads, call.head_size)

    def ours():
        out = tw.paged_attention(q, k_cache, v_cache, table, lengths)[0]
        return out.view(call.batch, call.mtp, call.q_heads, call.head_size).transpose(1, 2)

    from torch.nn.attention import SDPBackend, sdpa_kernel

    def theirs():
        with sdpa_kernel(getattr(SDPBackend, torch_attention.PEERS[peer])):
            return function()

    return ours, theirs, lambda out: attention.verify(out)[::2]


def config_of(key):
    """The config of a name and which function makes its sides."""
    if key.startswith("gemm/"):
        return "gemm", gemm_configs.config_of(key)
    if key.startswith("pa_decode/"):
        return "attention", attention_configs.config_of(key)
    return "rows", configs.config_of(key)


def parse(arguments):
    parser = common.Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="a benchmark, which is asked for its rows; or a file whose first column, or - for "
                        "stdin, holds names of rows")
    turns.add_options(parser, PEERS, "eager", max_seconds=0.3)
    parser.add_argument("--torch", default=os.path.join(HERE, "..", "..", "docs", "examples", "torch"), help="folder of tilewave_torch.py")
    parser.add_argument("--build", help="folder to compile tilewave_torch in (default: PyTorch's own)")
    parser.add_argument("--deep-gemm", help="an unchanged checkout of DeepGEMM, built in place")
    options = turns.checked(TOOL, parser.parse_args(arguments), PEERS)
    if not os.path.isfile(os.path.join(options.torch, "tilewave_torch.py")):
        common.fail(TOOL, f"--torch: no tilewave_torch.py in '{options.torch}'")
    if options.deep_gemm is not None and not os.path.isdir(os.path.join(options.deep_gemm, "deep_gemm")):
        common.fail(TOOL, f"--deep-gemm: no folder deep_gemm in '{options.deep_gemm}'")
    return options


def line_of(name, peer, state, flush, ours, theirs, errors):
    def quartile(timing, fraction):
        return common.quantile(sorted(timing.samples), fraction)

    values = {"name": name, "peer": peer, "state": state, "flush": flush, "us": ours.us(), "us_q1": quartile(ours, 0.25),
              "us_q3": quartile(ours, 0.75), "sm_mhz": ours.sm_mhz, "power_w": ours.power_w, "max_rel_err": errors[0],
              "peer_us": theirs.us(), "peer_q1": quartile(theirs, 0.25), "peer_q3": quartile(theirs, 0.75),
              "peer_ratio": theirs.us() / ours.us(), "peer_sm_mhz": theirs.sm_mhz, "peer_power_w": theirs.power_w,
              "peer_rel_err": errors[1], "samples": len(ours.samples), "schema_version": common.SCHEMA}
    return common.line_of(values, COLUMNS)


def main(arguments):
    options = parse(arguments)
    found = common.chosen(TOOL, options, config_of)
    torch = common.import_torch(TOOL)
    sys.path.insert(0, options.torch)
    import tilewave_torch
    tilewave_torch.load(build_directory=options.build)
    deep_gemm = None
    if options.deep_gemm:
        sys.path.insert(0, options.deep_gemm)
        import deep_gemm
    tw, arch = torch.ops.tilewave, common.arch_of(torch)
    ops = torch_peers.Ops(torch, arch)
    samplers = turns.samplers(torch, options)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    failed = False
    with torch.no_grad():
        for key, (kind, config) in found.items():
            for peer in options.peers:
                torch.compiler.reset()
                try:
                    sides = (gemm_sides(torch, tw, config, peer, arch, deep_gemm) if kind == "gemm" else
                             attention_sides(torch, tw, config, peer) if kind == "attention" else
                             row_sides(torch, tw, ops, config, peer))
                    if isinstance(sides, str):
                        print(f"{TOOL}: {key}: {peer}: left out: {sides}", file=sys.stderr)
                        continue
                    ours, theirs, check = sides
                    verdicts = [check(call()) for call in (ours, theirs)]
                    timings = {state: sampler.sample({"ours": ours, "theirs": theirs}) for state, sampler in samplers.items()}
                except (RuntimeError, ValueError) as error:
                    print(f"{TOOL}: {key}: {peer}: {str(error).splitlines()[0]}", file=sys.stderr)
                    failed = True
                    continue
                for side, (ok, error) in zip(("ours", peer), verdicts):
                    if not ok or math.isnan(error):
                        print(f"{TOOL}: {key}: {side} is wrong: max_rel_err {error:.3g}", file=sys.stderr)
                        failed = True
                for state, timing in timings.items():
                    out.writerow(line_of(key, peer, state, options.flush, timing["ours"], timing["theirs"],
                                         [error for _, error in verdicts]))
                sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
