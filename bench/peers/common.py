# SPDX-License-Identifier: MIT
"""What scripts that time peers share: options, names of rows, and the benchmarks' sampler with its statistics. Only what is
handed `torch` needs PyTorch."""
import argparse
import csv
import math
import os
import re
import subprocess
import sys
import time

# What a benchmark measures of a state and of who is beside it, but for `peer`: empty in the rows of a peer that was timed alone.
BESIDE = """state sm_mhz power_w peer_us peer_ratio peer_sm_mhz peer_power_w peer_rel_err floor_us over_floor sustained_us sustained_sm_mhz
sustained_power_w sustained_peer_us sustained_peer_ratio sustained_peer_sm_mhz sustained_peer_power_w sustained_floor_us"""
SEED = 123  # of the inputs
SCHEMA = 2  # of the CSV: docs/reference/benchmarking-columns.md


def fail(tool, message):
    print(f"{tool}: {message}", file=sys.stderr)
    sys.exit(2)


class Parser(argparse.ArgumentParser):
    """Of a tool whose errors are one line."""

    def error(self, message):
        fail(self.prog, message)


def checked(tool, options, peers):
    """The options with a list of peers and a compiled filter. Ends the tool over what is none."""
    options.peers = options.peers.split(",")
    for peer in options.peers:
        if peer not in peers:
            fail(tool, f"--peers: '{peer}' is none of {', '.join(peers)}")
    try:
        options.filter = re.compile(options.filter)
    except re.error as error:
        fail(tool, f"--filter: {error}")
    return options


def parse(tool, description, arguments, peers, default):
    """Options of a tool that times `peers`, `default` of them unless told otherwise."""
    parser = Parser(prog=tool, description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="a benchmark, which is asked for its rows; or a file whose first column, "
                        "or - for stdin, holds names of rows")
    parser.add_argument("--filter", default="", help="regular expression searched in the config: a row's name without "
                        "architecture and policy")
    parser.add_argument("--peers", default=default, help=f"comma list of {', '.join(peers)} (default: {default})")
    parser.add_argument("--graph", action="store_true", help="replay a CUDA graph of the call, for rows of microseconds")
    parser.add_argument("--max-seconds", type=float, default=0.3, help="time cap of a row's cold samples (default: 0.3)")
    options = parser.parse_args(arguments)
    if not 0 <= options.max_seconds <= 3600:
        fail(tool, f"--max-seconds: {options.max_seconds} is not between 0 and 3600")
    return checked(tool, options, peers)


def key_of(name):
    """A row's config as a string: its name without the architecture, the policy and what the emulated device leaves out.
    A row of a peer has the peer in place of the policy, and `peer_` in place of `pa_` if it is attention."""
    parts = name.split("/")
    if len(parts) < 4:
        raise ValueError(f"'{name}' is no row of a benchmark")
    del parts[-1], parts[1]
    return re.sub(r"([a-z]+)\d+of(\d+)", r"\1\2", "/".join(parts)).replace("peer_decode/", "pa_decode/", 1)


def policy_of(name):
    """The policy of a row of ours, the peer of a row of a peer."""
    return name.split("/")[-1]


def names_from(source, stdin, *listing):
    """Names of rows: those a benchmark lists when run with `listing`, or the first column of a file, or of stdin for `-`."""
    if source == "-":
        text = stdin.read()
    elif os.path.isfile(source) and os.access(source, os.X_OK):
        done = subprocess.run([source, *listing, "--benchmark_list_tests"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ValueError(f"{source} --benchmark_list_tests exits with {done.returncode}")
        text = done.stdout
    else:
        with open(source, encoding="utf-8") as file:
            text = file.read()
    names = [line.split(",")[0].strip().strip('"') for line in text.splitlines()]
    return [name for name in names if name and name != "name"]


def chosen(tool, options, config_of, *listing):
    """Keys and configs, each once, in the order of the names."""
    found = {}
    try:
        for source in options.names:
            for name in names_from(source, sys.stdin, *listing):
                key = key_of(name)
                if key not in found and options.filter.search(key):
                    found[key] = config_of(key)
    except (OSError, ValueError) as error:
        fail(tool, error)
    if not found:
        fail(tool, "no config is left to time")
    return found


def drawn_below(n, *coordinates):
    """A number in [0, n), the one that bench/harness/random.hpp draws."""
    state, mask = 0, 2 ** 64 - 1
    for coordinate in coordinates:
        state = (state + 0x9e3779b97f4a7c15 + coordinate) & mask
        for shift, factor in (30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb):
            state = (state ^ state >> shift) * factor & mask
        state ^= state >> 31
    return (state >> 32) * n >> 32


def quantile(ordered, fraction):
    """By linear interpolation, as the benchmarks' stats.hpp."""
    at = fraction * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def noise_of(samples):
    """Standard deviation (n - 1) / mean; NaN below two samples."""
    if len(samples) < 2:
        return math.nan
    mean = sum(samples) / len(samples)
    return math.sqrt(sum((s - mean) ** 2 for s in samples) / (len(samples) - 1)) / mean


def is_enough(samples, seconds, max_seconds):
    """The benchmarks' stop rule: ten samples or more, and quiet or out of time."""
    return len(samples) >= 10 and (noise_of(samples) < 0.005 or seconds >= max_seconds)


def times_of(cold, hot, bytes_ideal):
    """The counters of time, from the microseconds of cold and hot samples."""
    ordered = sorted(cold)
    us = quantile(ordered, 0.5)
    return {"us": us, "us_min": ordered[0], "us_q1": quantile(ordered, 0.25), "us_q3": quantile(ordered, 0.75),
            "us_cold": us, "us_hot": quantile(sorted(hot), 0.5), "cv_pct": 100 * noise_of(cold), "samples": len(cold),
            "gbps": bytes_ideal / us * 1e-3, "bytes_ideal": bytes_ideal}


def line_of(values, columns):
    """A line of the CSV; columns that a peer has no value for are empty."""
    cells = [values.get(column, "") for column in columns]
    return [format(cell, ".6g") if isinstance(cell, float) else cell for cell in cells]


def import_torch(tool):
    try:
        import torch
    except ImportError as error:
        fail(tool, f"needs PyTorch: {error}")
    if not torch.cuda.is_available():
        fail(tool, "needs a GPU that PyTorch can use")
    torch.manual_seed(SEED)
    print(f"{tool}: {torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}", file=sys.stderr)
    return torch


def arch_of(torch):
    if torch.version.hip:
        return torch.cuda.get_device_properties(0).gcnArchName.split(":")[0]
    return "sm{}{}".format(*torch.cuda.get_device_capability(0))


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
        while not is_enough(samples, time.perf_counter() - start, max_seconds):
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
    """The call captured once, as a function that returns its result; replaying it costs the host next to nothing."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def replay():
        graph.replay()
        return result

    return replay


def time_functions(torch, tool, options, peers, found, call_of, columns, row_of):
    """CSV on stdout: functions of PyTorch, compiled (peer `compile`) or as they are, on the configs of `found`. call_of(config)
    is a function, or for each peer one or why the peer is left out, its arguments and a check of what it returns; or why the
    config is left out. A check's verdict begins with whether all is right. row_of(key, config, arch, peer, cold, hot, verdict)
    is a line. Returns the exit status."""
    arch, sampler = arch_of(torch), Sampler(torch, options.max_seconds)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(columns)
    failed = False
    with torch.no_grad():
        for key, config in found.items():
            for peer in options.peers:
                torch.compiler.reset()
                try:
                    prepared = call_of(config)
                    if isinstance(prepared, str):
                        print(f"{tool}: {key}: left out: {prepared}", file=sys.stderr)
                        break
                    function, inputs, check = prepared
                    function = function[peer] if isinstance(function, dict) else function
                    if isinstance(function, str):
                        print(f"{tool}: {key}: {peers[peer]}: left out: {function}", file=sys.stderr)
                        continue
                    run = torch.compile(function, dynamic=False) if peer == "compile" else function
                    call = graph_of(torch, lambda: run(*inputs)) if options.graph else lambda: run(*inputs)
                    cold, hot = sampler.measure(call)
                    verdict = check(call())
                except RuntimeError as error:
                    print(f"{tool}: {key}: {peers[peer]}: {str(error).splitlines()[0]}", file=sys.stderr)
                    failed = True
                    continue
                if not verdict[0]:
                    print(f"{tool}: {key}: {peers[peer]}: wrong: max_rel_err {verdict[1]:.3g}", file=sys.stderr)
                    failed = True
                name = peers[peer] + (".graph" if options.graph else "")
                out.writerow(row_of(key, config, arch, name, cold, hot, verdict))
                sys.stdout.flush()
    return 1 if failed else 0
