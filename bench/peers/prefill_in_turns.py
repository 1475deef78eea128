#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Our flash attention beside cuDNN (by PyTorch), FlashAttention-3 and FlashInfer in one process, in turns by sample on the
same tensors; CSV on stdout. Ours and the latter two are libraries, each built by the command at the head of its source
(prefill_tilewave.cu, prefill_fa3.cu, prefill_flashinfer.cu). Configs are those of bench_flash_attention by the names of
their rows.

  prefill_in_turns.py --ours=prefill_tilewave.so --peers=cudnn,fa3 --fa3=fa3_128.so,fa3_64.so --state=both names.csv"""
import argparse
import csv
import ctypes
import math
import os
import sys

import common
import in_turns
import prefill_configs
import turns

TOOL = "prefill_in_turns"
LIBRARIES = ("fa3", "flashinfer")
PEERS = {"cudnn": "scaled_dot_product_attention by cuDNN", "fa3": "FlashAttention-3 from --fa3",
         "flashinfer": "FlashInfer's ragged prefill from --flashinfer",
         "pages": "ours with K and V in pages of 16, 64 and 256 beside ours with contiguous ones"}
ROW = {False: 1e-2, True: 8e-2}  # of a row, by whether products are of fp8: bench/ops/flash_attention/verify.hpp


class PrefillCall(ctypes.Structure):
    """prefill_call.hpp"""
    _fields_ = ([(name, ctypes.c_void_p) for name in "q k v out one table lengths".split()] +
                [(name, ctypes.c_int32) for name in
                 "batch q_heads kv_heads q_length kv_length head_size block_size fp8 causal window".split()])


class Library:
    def __init__(self, path):
        self.path = path
        self.of = ctypes.CDLL(os.path.abspath(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
        for function in (self.of.prefill_prepare, self.of.prefill_run, self.of.prefill_name):
            function.restype = ctypes.c_char_p

    def prepare(self, torch, call):
        """(function, name of what it runs), or why the library does not take the call."""
        plan = ctypes.c_void_p()
        reason = self.of.prefill_prepare(ctypes.byref(call), ctypes.byref(plan))
        if reason is not None:
            return reason.decode()
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def run():
            wrong = self.of.prefill_run(plan, stream)
            if wrong is not None:
                raise RuntimeError(f"{self.path}: {wrong.decode()}")
        return run, self.of.prefill_name(plan).decode()


class Prefill:
    """A call's inputs, normal: q [batch, queries, heads, D], K and V [batch, keys, kv heads, D]; in fp8 rounded to codes."""

    def __init__(self, torch, call):
        self.torch, self.call = torch, call

        def normal(heads, tokens):
            x = torch.randn(call.batch, tokens, heads, call.head_size, device="cuda", dtype=torch.bfloat16)
            return x.to(torch.float8_e4m3fn) if call.fp8 else x

        self.q = normal(call.q_heads, call.q_length)
        self.k, self.v = normal(call.kv_heads, call.kv_length), normal(call.kv_heads, call.kv_length)
        self.one = torch.ones(1, device="cuda")
        self.lengths = torch.full((call.batch,), call.kv_length, device="cuda", dtype=torch.int32)

    def out(self):
        return self.torch.full(self.q.shape, math.nan, device="cuda", dtype=self.torch.bfloat16)

    def in_pages(self, x, size, order):
        """K or V in pages of `size` tokens, anywhere: page order[i] is the i-th."""
        c = self.call
        pages = self.torch.empty(order.numel(), size, c.kv_heads, c.head_size, device="cuda", dtype=x.dtype)
        pages[order] = x.reshape(pages.shape)
        return pages

    def arguments(self, out, block_size=0):
        """The call of a library, with what must live as long."""
        c = self.call
        k, v, table = self.k, self.v, None
        if block_size:
            order = self.torch.randperm(c.batch * c.kv_length // block_size, device="cuda")
            k, v = self.in_pages(k, block_size, order), self.in_pages(v, block_size, order)
            table = order.view(c.batch, -1).int()
        call = PrefillCall(*(x.data_ptr() if x is not None else None for x in
                             (self.q, k, v, out, self.one, table, self.lengths)), c.batch, c.q_heads, c.kv_heads,
                           c.q_length, c.kv_length, c.head_size, block_size, int(c.fp8), int(c.causal), c.window)
        return call, (k, v, table, out)

    def cudnn(self, out):
        """(function, name, what holds its answer), or why it is left out."""
        torch, c = self.torch, self.call
        if c.fp8 or c.window or (c.causal and c.q_length != c.kv_length):
            return "scaled_dot_product_attention has no fp8, no windows and no causal mask of a chunk by cuDNN"
        from torch.nn.attention import SDPBackend, sdpa_kernel
        q, k, v = (x.transpose(1, 2).contiguous() for x in (self.q, self.k, self.v))  # the layout that it is fastest on
        held = {}

        def run():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                held["out"] = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=c.causal, enable_gqa=True)
        return run, f"cuDNN {torch.backends.cudnn.version()}", lambda: held["out"].transpose(1, 2)

    def verify(self, out):
        """(ok, largest error of a row over its norm) of some queries of three heads against f64."""
        torch, c = self.torch, self.call
        ok, worst = True, 0.0
        for sequence, head in [(0, 0), (c.batch // 2, c.q_heads // 2), (c.batch - 1, c.q_heads - 1)]:
            kv_head = head * c.kv_heads // c.q_heads
            k, v = (x[sequence, :, kv_head].double() for x in (self.k, self.v))
            for query in {0, c.q_length // 2, c.q_length - 1}:
                end = c.kv_length - c.q_length + query + 1 if c.causal else c.kv_length
                first = max(0, end - c.window) if c.window else 0
                scores = k[first:end] @ self.q[sequence, query, head].double() * c.head_size ** -0.5
                expected = torch.softmax(scores, 0) @ v[first:end]
                error = ((out[sequence, query, head].double() - expected).norm() / expected.norm()).item()
                ok, worst = ok and error <= ROW[c.fp8], max(worst, error if error == error else math.inf)
        return ok, worst


def side_of(torch, prefill, libraries, block_size=0):
    """(function, name, answer) by the first library that takes the call, or why none does."""
    out = prefill.out()
    call, lives = prefill.arguments(out, block_size)
    reasons = []
    for library in libraries:
        made = library.prepare(torch, call)
        if not isinstance(made, str):
            run, name = made
            return (lambda keep=lives: run()), name, lambda: out
        reasons.append(made)
    return "; ".join(dict.fromkeys(reasons)) or "no library is given"


def sides_of(torch, call, options, libraries, tell):
    """{name: (function, name of what runs, answer)}, ours first."""
    prefill, sides = Prefill(torch, call), {}

    def add(name, side):
        if isinstance(side, str):
            tell(name, f"left out: {side}")
        else:
            sides[name] = side

    add("ours", side_of(torch, prefill, libraries["ours"], call.block_size))
    for peer in options.peers:
        if peer == "cudnn":
            add(peer, prefill.cudnn(prefill.out()))
        elif peer == "pages":
            for size in (16, 64, 256):
                if not call.block_size and not call.fp8 and call.kv_length % size == 0:
                    add(f"pages{size}", side_of(torch, prefill, libraries["ours"], size))
        elif call.block_size:
            tell(peer, "left out: pages")
        else:
            add(peer, side_of(torch, prefill, libraries[peer]))
    return prefill, sides


def parse(arguments):
    parser = common.Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="bench_flash_attention, which is asked for its rows; or a file whose first "
                        "column, or - for stdin, holds names of rows")
    parser.add_argument("--ours", required=True, help="prefill_tilewave.so")
    parser.add_argument("--fa3", default="", help="comma list of libraries of prefill_fa3.cu")
    parser.add_argument("--flashinfer", default="", help="comma list of libraries of prefill_flashinfer.cu")
    turns.add_options(parser, PEERS, "cudnn", max_seconds=0.1)
    options = turns.checked(TOOL, parser.parse_args(arguments), PEERS)
    for peer in options.peers:
        if peer in LIBRARIES and not getattr(options, peer):
            common.fail(TOOL, f"--{peer}: names no library, which --peers asks for")
    options.paths = {"ours": [options.ours], **{peer: [path for path in getattr(options, peer).split(",") if path] for peer in LIBRARIES}}
    for name, paths in options.paths.items():
        for path in paths:
            if not os.path.isfile(path):
                common.fail(TOOL, f"--{name}: no file '{path}'")
    return options


def main(arguments):
    options = parse(arguments)
    found = common.chosen(TOOL, options, prefill_configs.config_of)
    torch = common.import_torch(TOOL)
    libraries = {name: [Library(path) for path in paths] for name, paths in options.paths.items()}
    samplers = turns.samplers(torch, options)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(in_turns.COLUMNS + ["tflops", "entry", "peer_entry"])
    failed = False
    with torch.no_grad():
        for key, config, tell in turns.asked(TOOL, found):
            try:
                prefill, sides = sides_of(torch, config.call, options, libraries, tell)
                if "ours" not in sides or len(sides) == 1:
                    continue
                errors = {}
                for name, (run, _, answer) in sides.items():
                    run()
                    torch.cuda.synchronize()
                    ok, errors[name] = prefill.verify(answer())
                    if not ok:
                        tell(name, f"wrong: max_rel_err {errors[name]:.3g}")
                        failed = True
                timings = {state: sampler.sample({name: side[0] for name, side in sides.items()}) for state, sampler in samplers.items()}
            except RuntimeError as error:
                tell("all", str(error).splitlines()[0])
                failed = True
                continue
            for state, timing in timings.items():
                for name in list(sides)[1:]:
                    line = in_turns.line_of(key, name, state, options.flush, timing["ours"], timing[name],
                                            [errors["ours"], errors[name]])
                    out.writerow(line + [format(config.call.flops() / timing["ours"].us() * 1e-6, ".6g"), sides["ours"][1], sides[name][1]])
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
