#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`tilewave isa` says of real code objects what the gate's own reader says. Usage: isa_command_test.py TILEWAVE TOOLS FILES..."""
import json
import subprocess
import sys

sys.dont_write_bytecode = True
tilewave, tools, files = sys.argv[1], sys.argv[2], sys.argv[3:]
sys.path.insert(0, tools)
from kernel_stats import inspect  # noqa: E402

shown = json.loads(subprocess.run([tilewave, "isa", "show", "--json", *files], capture_output=True, text=True, check=True).stdout)
ours = {(kernel["file"], kernel["symbol"]): kernel for kernel in shown["kernels"]}
kinds = {"store": "store", "exchange": "exchange", "lds": "lds", "wait": "waitcnt", "barrier": "barrier", "vector": "valu",
         "acc_move": "acc_move", "lane_move": "lane_move", "scratch": "scratch", "call": "call", "nop": "nop"}
compared = 0


def same(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got}, the gate has {wanted}")


for file in files:
    for theirs in inspect(file):
        got = ours.pop((file, theirs.kernel.name))
        name = f"{file}: {theirs.kernel.name}"
        same(f"{name}: VGPRs", got["vgprs"], theirs.kernel.vgprs)
        same(f"{name}: registers", got["allocated"], theirs.kernel.allocated_registers)
        same(f"{name}: waves", got["waves_per_simd"], theirs.waves_per_simd())
        parts = [("whole", theirs.whole)]
        if theirs.hot.instructions:
            parts += [("loop", theirs.hot), ("steady", theirs.steady.mix)]
        for part, mix in parts:
            same(f"{name}: {part}", got[part]["instructions"], mix.instructions)
            same(f"{name}: {part}: matrix", got[part]["matrix"], dict(mix.mfma))
            same(f"{name}: {part}: loads", got[part]["loads_by_bytes"], {str(width): n for width, n in mix.loads.items()})
            for mine, gate in kinds.items():
                same(f"{name}: {part}: {mine}", got[part]["kinds"].get(mine, 0), mix.count[gate])
        compared += 1
same("kernels that only one knows", len(ours), 0)
print(f"{compared} kernels")
sys.exit(0 if compared else "no kernel")
