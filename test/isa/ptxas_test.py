#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What ptxas says of sm90's kernels of products: of GEMM's specs that a user can name, registered or not, and of latent
decode. Nothing serialises the products, and no tile's sums are in local memory. Some kernels of large tiles keep a few values there
(docs/notebook/2026-11-27-gemm-ptxas.md); the sums of a lane are 256 to 512 bytes.

usage: ptxas_test.py NVCC LIST_SPECS INCLUDE SAMPLES [--seed N]     LIST_SPECS: list_specs.cpp, compiled; SAMPLES: how many
kernels, besides those that once failed"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

MOST_STACK = 192  # bytes a thread
SERIALISED = re.compile(r"C75(?:10|1[1-9])\b")  # wgmma's pipeline is given up: a call, a wait, registers
# Those that were seen to keep their sums in local memory, by the words of their specs and the place of the policy.
ONCE_FAILED = [
    ("a = fp8 b = fp8 out = f32 scale = per_block groups = contiguous", 0),
    ("a = fp8 b = fp8 scale = per_row", 0),
]
FIELDS = {"a": "DType", "b": "DType", "out": "DType", "scale": "Scaling", "groups": "GemmGroups"}
SOURCE = pathlib.Path(__file__).with_name("ptxas_entry.cu.in").read_text()
# Latent decode: the places of a spec and of its policy. The first one was seen to have products waited for (C7519).
MLA_DECODE = [("0", 2), ("0", 0), ("1", 1), ("1", 0), ("3", 0), ("1", 2), ("2", 0)]
MLA_SOURCE = pathlib.Path(__file__).with_name("ptxas_mla_decode.cu.in").read_text()


def spec_of(words):
    pairs = re.findall(r"(\w+) = (\w+)", words)
    return "GemmSpec{" + ", ".join(f".{field} = {FIELDS[field]}::{value.replace('fp8', 'fp8_e4m3fn')}" for field, value in pairs) + "}"


def faults_of(log):
    """What is wrong in ptxas' words."""
    faults = [line.strip() for line in log.splitlines() if SERIALISED.search(line)]
    stacks = [int(bytes_) for bytes_ in re.findall(r"(\d+) bytes stack frame", log)]
    if not stacks:
        faults.append("ptxas says nothing of the kernel: " + log[-500:])
    faults += [f"{stack} bytes of local memory a thread, of at most {MOST_STACK}" for stack in stacks if stack > MOST_STACK]
    return faults


def judge(nvcc, include, kernels, folder):
    """What is wrong with these kernels: none to many lines for each. They are compiled as one file, whose headers take as long as
    two of them, and one by one where something is wrong with any."""
    file = pathlib.Path(folder) / f"{abs(hash(tuple(kernels)))}.cu"
    file.write_text("".join(
        (MLA_SOURCE if spec.isdigit() else SOURCE).replace("@NAME@", f"kernel_{i}").replace("@SPEC@", spec).replace("@POLICY@", str(policy))
        for i, (spec, policy) in enumerate(kernels)))
    done = subprocess.run([nvcc, "-std=c++20", "-O2", "-w", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-I", include,
                           "-cubin", "-o", os.devnull, str(file)], capture_output=True, text=True)
    log = done.stdout + done.stderr
    faults = faults_of(log) if done.returncode == 0 else [done.stderr[-2000:]]
    if done.returncode == 0 and log.count("Compiling entry function") != len(kernels):
        faults.append(f"ptxas compiled {log.count('Compiling entry function')} kernels of {len(kernels)}")
    if not faults or len(kernels) == 1:
        return [faults] * len(kernels)
    return [fault for kernel in kernels for fault in judge(nvcc, include, [kernel], folder)]


def main():
    parser = argparse.ArgumentParser()
    for name in ("nvcc", "list_specs", "include"):
        parser.add_argument(name)
    parser.add_argument("samples", type=int)
    parser.add_argument("--seed", type=int, default=30)
    options = parser.parse_args()
    # Words of ptxas that must be found, before those of the compiler in use are trusted.
    bad = "warning : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized\n 544 bytes stack frame, 24 bytes spill stores"
    if len(faults_of(bad)) != 2 or faults_of("16 bytes stack frame, 0 bytes spill stores") or not faults_of(""):
        sys.exit("ptxas_test.py does not find what it looks for")

    lines = subprocess.run([options.list_specs], capture_output=True, text=True, check=True).stdout.splitlines()
    named = [(int(count), spec) for count, spec in (line.split(" ", 1) for line in lines)]
    if len(named) < 500:
        sys.exit(f"only {len(named)} specs can be named")
    draw = random.Random(options.seed)
    kernels = [(spec_of(words), policy) for words, policy in ONCE_FAILED]
    kernels += [("GemmSpec" + spec, draw.randrange(count)) for count, spec in draw.sample(named, options.samples)]
    kernels += MLA_DECODE if options.samples > 10 else MLA_DECODE[:1]
    wrong = 0
    of_gemm = [kernel for kernel in kernels if not kernel[0].isdigit()]
    of_mla = kernels[len(of_gemm):]
    files = [some[at:at + 4] for some in (of_gemm, of_mla) for at in range(0, len(some), 4)]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for of_file, found in zip(files, pool.map(lambda some: judge(options.nvcc, options.include, some, folder), files)):
            for (spec, policy), faults in zip(of_file, found):
                for fault in faults:
                    print(f"{spec}, policy {policy}: {fault}")
                wrong += bool(faults)
    print(f"{len(kernels)} kernels, those of GEMM of {len(named)} specs that can be named: {wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
