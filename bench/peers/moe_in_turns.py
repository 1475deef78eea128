#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Our layers of experts beside PyTorch's grouped products and Triton's kernels in one process, in turns by sample on the same
tensors, each side as a graph; CSV on stdout. Ours are libraries, built by the command at the head of moe_tilewave.cu. Peers are
unchanged sources of others. Configs are those of bench_moe by the names of their rows.

  moe_in_turns.py --ours=moe_bf16.so,moe_blocks.so,moe_mxfp4.so,moe_int4.so --state=both --peers=grouped_mm,fused_moe,routed,triton_kernels
      --fused-moe=vllm/model_executor/layers/fused_moe/fused_moe.py --triton-kernels=triton/python/triton_kernels names.csv"""
import argparse
import csv
import ctypes
import os
import sys

import common
import in_turns
import moe_configs
import moe_layer
import torch_moe
import turns

TOOL = "moe_in_turns"
PEERS = {"grouped_mm": "PyTorch's grouped products with choice, sort and sum, under torch.compile; bf16",
         "fused_moe": "fused_moe_kernel from --fused-moe, of int4 fused_moe_kernel_gptq_awq, twice, with quantisation, silu and sum; choices "
                      "are sorted before: neither choice nor sort is timed",
         "routed": "the same behind the choice and sort of --triton-kernels",
         "triton_kernels": "the whole layer of --triton-kernels; MXFP4",
         "marlin": "vLLM's Marlin of experts, a library of moe_marlin.cu, with activation and sum; choices are sorted before; MXFP4",
         "deep_gemm": "DeepGEMM's contiguous groups, a library of moe_deep_gemm.cu, with quantisation, copies, activation and sum; places "
                      "are found before; DeepSeek-V3"}
NEEDS = {"fused_moe": ("fused_moe",), "routed": ("fused_moe", "triton_kernels"), "triton_kernels": ("triton_kernels",),
         "marlin": ("marlin",), "deep_gemm": ("deep_gemm",)}
WEIGHTS = ("bf16", "blocks", "mxfp4", "int4")  # MoeCall::weights


class MoeCall(ctypes.Structure):
    """moe_call.hpp"""
    _fields_ = ([(name, ctypes.c_void_p) for name in "x logits w1 w2 w1_scale w2_scale w1_zero w2_zero bias1 bias2 out".split()] +
                [(name, ctypes.c_int32) for name in "tokens hidden intermediate experts topk weights scale_k".split()])


class Library:
    def __init__(self, path):
        self.path = path
        self.of = ctypes.CDLL(os.path.abspath(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
        for function in (self.of.moe_prepare, self.of.moe_run, self.of.moe_name):
            function.restype = ctypes.c_char_p
        for function in (self.of.moe_name, self.of.moe_free):
            function.argtypes = [ctypes.c_void_p]

    def prepare(self, torch, call):
        """(function, name of what it runs, function that frees it), or why the library does not take the layer."""
        plan = ctypes.c_void_p()
        reason = self.of.moe_prepare(ctypes.byref(call), ctypes.byref(plan))
        if reason is not None:
            return reason.decode()

        def run():
            wrong = self.of.moe_run(plan, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
            if wrong is not None:
                raise RuntimeError(f"{self.path}: {wrong.decode()}")
        return run, self.of.moe_name(plan).decode(), lambda: self.of.moe_free(plan)


def call_of(layer, out):
    """The call of a library, and tensors that it names and that nobody else holds."""
    w, c = layer.weights, layer.config
    shipped = tuple(zip(*(w.gptq(which) for which in (0, 1)))) if w.kind == "int4" else (w.values, w.scales, (None, None))
    tensors = (layer.x, layer.logits, *(x for of_both in shipped for x in of_both), *w.biases, out)
    return MoeCall(*(None if x is None else x.data_ptr() for x in tensors), c.rows, c.columns, c.intermediate, c.experts, c.topk,
                   WEIGHTS.index(w.kind), c.scale_k), shipped


def ours_of(torch, layer, libraries):
    """(function that returns the result, name, function that frees) by the first library that takes the layer, or why none does."""
    out, reasons = layer.out(), []
    call, shipped = call_of(layer, out)  # these live until all libraries were asked
    if layer.weights.kind == "int4":
        torch.cuda.synchronize()  # a library repacks on a stream of its own
    for library in libraries:
        made = library.prepare(torch, call)
        if not isinstance(made, str):
            run, name, free = made

            def returns():
                run()
                return out
            return returns, name, free
        reasons.append(made)
    del shipped
    return "; ".join(dict.fromkeys(reasons))


class Peers:
    """Loads what the peers need, once."""

    def __init__(self, torch, options):
        self.torch, self.options = torch, options
        self.triton = self.kernels = self.package = self.marlin = self.deep_gemm = None
        if {"fused_moe", "routed", "triton_kernels"} & set(options.peers):
            import triton_moe
            self.triton = triton_moe
        if {"fused_moe", "routed"} & set(options.peers):
            self.kernels = self.triton.jit_functions(options.fused_moe)
        if {"routed", "triton_kernels"} & set(options.peers):
            self.package = self.triton.TritonKernels(options.triton_kernels)
        if "marlin" in options.peers:
            import moe_marlin
            self.marlin = moe_marlin.Marlin(options.marlin)
        if "deep_gemm" in options.peers:
            import moe_deep_gemm
            self.deep_gemm = moe_deep_gemm.DeepGemm(options.deep_gemm)

    def of(self, peer, layer):
        """A function that returns the layer's result, or why the peer is left out."""
        torch, w = self.torch, layer.weights
        if peer == "grouped_mm":
            function = torch_moe.function_of(torch, layer.config)
            if isinstance(function, str):
                return function
            torch.compiler.reset()
            compiled = torch.compile(function, dynamic=False)
            return lambda: compiled(layer.x, layer.logits, *w.values)
        if peer == "marlin":
            return self.marlin.layer(layer, moe_layer.SWIGLU_ALPHA, moe_layer.SWIGLU_LIMIT)
        if peer == "deep_gemm":
            return self.deep_gemm.layer(layer)
        if peer == "triton_kernels":
            return self.package.layer(layer, moe_layer.SWIGLU_ALPHA, moe_layer.SWIGLU_LIMIT)
        function = self.triton.fused_moe(layer, self.kernels, self.options.configs)
        return function if isinstance(function, str) or peer == "fused_moe" else self.package.routed(layer, function)


def parse(arguments):
    parser = common.Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="bench_moe, which is asked for its rows; or a file whose first column, or - for stdin, "
                        "holds names of rows")
    parser.add_argument("--ours", required=True, help="comma list of libraries of moe_tilewave.cu")
    parser.add_argument("--fused-moe", default="", help="source file that has fused_moe_kernel: vLLM's fused_moe.py, or SGLang's "
                        "fused_moe_triton_kernels.py")
    parser.add_argument("--configs", default="", help="folder of vLLM's tuned configs; without the file of a layer, its fallback is timed")
    parser.add_argument("--triton-kernels", default="", help="folder that has the package triton_kernels")
    parser.add_argument("--marlin", default="", help="library of moe_marlin.cu")
    parser.add_argument("--deep-gemm", default="", help="library of moe_deep_gemm.cu")
    turns.add_options(parser, PEERS, "grouped_mm", max_seconds=0.2)
    options = turns.checked(TOOL, parser.parse_args(arguments), PEERS)
    options.ours = [path for path in options.ours.split(",") if path]
    for peer in options.peers:
        for need in NEEDS.get(peer, ()):
            if not getattr(options, need):
                common.fail(TOOL, f"--{need.replace('_', '-')}: names nothing, which --peers={peer} asks for")
    files = {"fused-moe": options.fused_moe, "marlin": options.marlin, "deep-gemm": options.deep_gemm}
    for name, path in [("ours", path) for path in options.ours] + list(files.items()):
        if path and not os.path.isfile(path):
            common.fail(TOOL, f"--{name}: no file '{path}'")
    if options.triton_kernels and not os.path.isdir(os.path.join(options.triton_kernels, "triton_kernels")):
        common.fail(TOOL, f"--triton-kernels: no folder triton_kernels in '{options.triton_kernels}'")
    return options


def verified(torch, layer, call):
    """(graph of the call, whether its result is right, its error)."""
    graph = common.graph_of(torch, call)
    result = graph()
    torch.cuda.synchronize()
    ok, error = layer.verify(result.view(layer.x.shape))
    return graph, ok, error


def main(arguments):
    options = parse(arguments)
    found = common.chosen(TOOL, options, moe_configs.config_of)
    torch = common.import_torch(TOOL)
    libraries, peers = [Library(path) for path in options.ours], Peers(torch, options)
    samplers = turns.samplers(torch, options)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(in_turns.COLUMNS + ["gbps", "entry"])
    failed, held = False, (None, None)
    with torch.no_grad():
        for key, c, tell in turns.asked(TOOL, found):
            shape = (c.columns, c.intermediate, c.experts, c.weights, c.scale_k, c.zeros)
            if held[0] != shape:  # layers of one shape have the same weights
                held = (None, None)
                torch.cuda.empty_cache()
                held = (shape, moe_layer.Weights(torch, c))
            layer, sides, errors = moe_layer.Layer(torch, c, held[1]), {}, {}
            calls = []  # live as long as their graphs, which read their tensors
            ours = ours_of(torch, layer, libraries)
            if isinstance(ours, str):
                tell("ours", f"left out: {ours}")
                continue
            for name in ("ours", *options.peers):
                try:
                    call = ours[0] if name == "ours" else peers.of(name, layer)
                    if isinstance(call, str):
                        tell(name, f"left out: {call}")
                        continue
                    calls.append(call)
                    sides[name], ok, errors[name] = verified(torch, layer, call)
                    if not ok:
                        tell(name, f"wrong: max_rel_err {errors[name]:.3g}")
                        failed = True
                except Exception as error:  # of whatever kind a peer's compiler raises
                    tell(name, (str(error).splitlines() or [repr(error)])[0])
                    failed = True
            if "ours" in sides and len(sides) > 1:
                for state, sampler in samplers.items():
                    timing = sampler.sample(sides)
                    for name in list(sides)[1:]:
                        line = in_turns.line_of(key, name, state, options.flush, timing["ours"], timing[name], [errors["ours"], errors[name]])
                        out.writerow(line + [format(c.bytes_ideal(layer.hit()) / timing["ours"].us() * 1e-3, ".6g"), ours[1]])
                sys.stdout.flush()
            sides.clear()  # graphs end before what they run
            ours[2]()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
