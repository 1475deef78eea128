#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Times PyTorch on the configs of bench_norm, bench_softmax and bench_quant, in the same way; CSV on stdout.

  torch_peers.py build/sm90/bench/bench_norm build/sm90/bench/bench_softmax >peers.csv
  torch_peers.py --graph --filter '/r(128|32)/' ours.csv"""
import argparse
import csv
import functools
import re
import sys
import time

import configs

TOOL = "torch_peers"
PEERS = {"compile": "torch.compile", "eager": "torch.eager"}
fail = functools.partial(configs.fail, TOOL)


def parse(arguments):
    parser = configs.Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="a benchmark, whose default sweep is timed; or a file whose first column, "
                        "or - for stdin, holds names of rows")
    parser.add_argument("--filter", default="", help="regular expression searched in the config, as softmax/bf16/c8192/...")
    parser.add_argument("--peers", default="compile", help="compile, eager or both (default: compile)")
    parser.add_argument("--graph", action="store_true", help="replay a CUDA graph of the call, for rows of microseconds")
    parser.add_argument("--max-seconds", type=float, default=0.3, help="time cap of a row's cold samples (default: 0.3)")
    options = parser.parse_args(arguments)
    options.peers = options.peers.split(",")
    for peer in options.peers:
        if peer not in PEERS:
            fail(f"--peers: '{peer}' is not compile or eager")
    if not 0 <= options.max_seconds <= 3600:
        fail(f"--max-seconds: {options.max_seconds} is not between 0 and 3600")
    try:
        options.filter = re.compile(options.filter)
    except re.error as error:
        fail(f"--filter: {error}")
    return options


def chosen(options):
    """Keys and configs, each once, in the order of the names."""
    found = {}
    try:
        for source in options.names:
            for name in configs.names_from(source, sys.stdin):
                key = configs.key_of(name)
                if key not in found and options.filter.search(key):
                    found[key] = configs.config_of(key)
    except (OSError, ValueError) as error:
        fail(error)
    if not found:
        fail("no config is left to time")
    return found


def import_torch():
    try:
        import torch
    except ImportError as error:
        fail(f"needs PyTorch: {error}")
    if not torch.cuda.is_available():
        fail("needs a GPU that PyTorch can use")
    return torch


def arch_of(torch):
    if torch.version.hip:
        return torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
    return "sm{}{}".format(*torch.cuda.get_device_capability(0))


class Ops:
    """The calls, as a user of PyTorch would write them; arithmetic in f32."""

    def __init__(self, torch, arch):
        self.torch = torch
        fp8 = torch.float8_e4m3fnuz if arch == "gfx942" else torch.float8_e4m3fn
        self.dtypes = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8, "fp8": fp8}
        self.largest = {"i8": 127.0, "fp8": torch.finfo(fp8).max}

    def uniform(self, dtype, *shape):
        return (4 * self.torch.rand(shape, device="cuda") - 2).to(self.dtypes[dtype])

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
        """A function and its arguments, or why PyTorch is not asked to do this."""
        torch, functional = self.torch, self.torch.nn.functional
        if c.causal:
            return "a causal mask over lengths"
        if c.scale == "per_group" and c.columns % configs.GROUP:
            return "columns that are not whole groups"
        if c.op == "dequant":
            return self.dequantise_call(c)
        x = self.uniform(c.x, c.rows, c.columns)
        if c.op in ("softmax", "log_softmax"):
            function = getattr(torch, c.op)
            return (lambda x: function(x, -1)), (x,)
        scale = torch.full((), 3.5 / self.largest[c.out], device="cuda") if c.scale == "per_tensor" else None
        if c.op == "quant":
            if c.given and scale is None:
                return "given scales of rows or groups"
            return (lambda x, scale: self.quantise(x.float(), c, scale)), (x, scale if c.given else None)
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

        return norm, (x, weight, bias, residual, scale)

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

        return dequantise, (codes, scale)


class Sampler:
    """As bench/harness/sampler.hpp: cold samples follow a read that displaces the caches, hot ones come ten at a time behind
    such a read and one untimed call. Python is slow to queue calls: the read is repeated until it covers that."""

    def __init__(self, torch, max_seconds):
        self.torch, self.max_seconds = torch, max_seconds
        size = max(512 << 20, 2 * torch.cuda.get_device_properties(0).L2_cache_size)
        self.buffer = torch.randint(-2 ** 31, 2 ** 31 - 1, (size // 4,), dtype=torch.int32, device="cuda")
        self.buffer.amax()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            self.buffer.amax()
        torch.cuda.synchronize()
        self.read_seconds = (time.perf_counter() - start) / 10

    def measure(self, call):
        for _ in range(3):  # the first compiles
            call()
        self.torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            call()
        queue_seconds = (time.perf_counter() - start) / 10
        self.torch.cuda.synchronize()
        return (self.sample(call, 1, 0, queue_seconds, self.max_seconds),
                self.sample(call, 10, 1, queue_seconds, self.max_seconds / 3))

    def sample(self, call, batch, warm, queue_seconds, max_seconds):
        event = self.torch.cuda.Event
        reads = 1 + int(1.5 * (batch + warm) * queue_seconds / self.read_seconds)
        samples, start = [], time.perf_counter()
        while not configs.is_enough(samples, time.perf_counter() - start, max_seconds):
            begin = [event(enable_timing=True) for _ in range(batch)]
            end = [event(enable_timing=True) for _ in range(batch)]
            for _ in range(reads):
                self.buffer.amax()
            for _ in range(warm):
                call()
            for first, last in zip(begin, end):
                first.record()
                call()
                last.record()
            self.torch.cuda.synchronize()
            samples += [1e3 * first.elapsed_time(last) for first, last in zip(begin, end)]
        return samples


def graph_of(torch, call):
    """The call captured once; replaying it costs the host next to nothing."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def main(arguments):
    options = parse(arguments)
    found = chosen(options)
    torch = import_torch()
    torch.manual_seed(123)
    arch = arch_of(torch)
    ops, sampler = Ops(torch, arch), Sampler(torch, options.max_seconds)
    print(f"{TOOL}: {torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}", file=sys.stderr)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(configs.COLUMNS)
    failed = False
    with torch.no_grad():
        for key, config in found.items():
            for peer in options.peers:
                torch.compiler.reset()
                try:
                    prepared = ops.call_of(config)
                    if isinstance(prepared, str):
                        print(f"{TOOL}: {key}: left out: {prepared}", file=sys.stderr)
                        break
                    function, inputs = prepared
                    run = torch.compile(function, dynamic=False) if peer == "compile" else function
                    call = graph_of(torch, lambda: run(*inputs)) if options.graph else lambda: run(*inputs)
                    cold, hot = sampler.measure(call)
                except RuntimeError as error:
                    print(f"{TOOL}: {key}: {PEERS[peer]}: {str(error).splitlines()[0]}", file=sys.stderr)
                    failed = True
                    continue
                name = PEERS[peer] + (".graph" if options.graph else "")
                out.writerow(configs.row_of(key, config, arch, name, cold, hot))
                sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
