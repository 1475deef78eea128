#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Our steps of Llama 3 8B beside torch.compile with cuDNN's attention, in one process, in turns by sample, on the same weights and cache; CSV
on stdout. The peer has its K and V contiguous, and both are CUDA graphs. LIBRARY is built by the target tilewave_step.

  step_in_turns.py --state=both build/sm90/bench/libtilewave_step.so
  step_in_turns.py --phase=prefill --batch=1 --context=8192 build/sm90/bench/libtilewave_step.so"""
import argparse
import csv
import ctypes
import math
import sys

import common
import turns

TOOL = "step_in_turns"
COLUMNS = "name state us us_q1 us_q3 sm_mhz power_w peer_us peer_q1 peer_q3 peer_ratio peer_sm_mhz peer_power_w samples schema_version".split()
LAYERS, HIDDEN, Q_HEADS, KV_HEADS, HEAD, MLP, VOCAB, EPS, THETA = 32, 4096, 32, 8, 128, 14336, 128256, 1e-5, 5e5


class Ours:
    def __init__(self, torch, library, prefill, batch, context, overlap=True):
        self.torch, self.library = torch, library
        error = ctypes.create_string_buffer(400)
        self.step = library.tilewave_step_make(b"llama3-8b", int(prefill), batch, context, int(overlap), error, 400)
        if not self.step:
            raise RuntimeError(error.value.decode())

    def tensor(self, layer, name, shape, dtype):
        """A view of one of our tensors; nothing is copied."""
        size = ctypes.c_int64()
        address = self.library.tilewave_step_tensor(self.step, layer, name.encode(), ctypes.byref(size))
        width = dtype.itemsize
        assert address and size.value >= width * math.prod(shape), name

        class Lent:
            __cuda_array_interface__ = {"data": (address, False), "shape": tuple(shape), "typestr": f"<i{width}", "version": 3, "strides": None}
        return self.torch.as_tensor(Lent(), device="cuda").view(dtype)

    def launch(self):
        if self.library.tilewave_step_launch(self.step, ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)):
            raise RuntimeError("the step cannot be launched")

    def close(self):
        self.torch.cuda.synchronize()
        self.library.tilewave_step_free(self.step)


class Theirs:
    """The same step as functions of PyTorch, a layer compiled once, and all of them captured."""

    def __init__(self, torch, ours, prefill, batch, context):
        bf16, f32 = torch.bfloat16, torch.float32
        self.torch, self.batch, self.context, self.new = torch, batch, context, context if prefill else 1
        shapes = {"attention_norm": ((HIDDEN,), f32), "mlp_norm": ((HIDDEN,), f32), "qkv": (((Q_HEADS + 2 * KV_HEADS) * HEAD, HIDDEN), bf16),
                  "out": ((HIDDEN, Q_HEADS * HEAD), bf16), "gate_up": ((2 * MLP, HIDDEN), bf16), "down": ((HIDDEN, MLP), bf16)}
        self.layers = [[ours.tensor(i, name, *shapes[name]) for name in shapes] for i in range(LAYERS)]
        # Our pages are a multiple of 64 tokens, so the cache has room for the same numbers as one tensor.
        cache = (batch, KV_HEADS, context, HEAD)
        self.caches = [[ours.tensor(i, name, cache, bf16) for name in ("k_cache", "v_cache")] for i in range(LAYERS)]
        self.embeddings, self.output = (ours.tensor(-1, name, (VOCAB, HIDDEN), bf16) for name in ("embeddings", "output"))
        self.final_norm = ours.tensor(-1, "final_norm", (HIDDEN,), f32)
        positions = torch.arange(context - self.new, context, device="cuda")
        self.ids = ((7 * positions + 13 * torch.arange(batch, device="cuda")[:, None]) % VOCAB).reshape(-1)
        angles = positions[:, None] * THETA ** (-torch.arange(0, HEAD, 2, dtype=torch.float64, device="cuda") / HEAD)
        self.cos, self.sin = angles.cos().float(), angles.sin().float()
        self.layer = torch.compile(self.one_layer, dynamic=False, fullgraph=True)
        self.head = torch.compile(self.last, dynamic=False, fullgraph=True)
        self.graph = common.graph_of(torch, self.step)

    def norm(self, x, weight):
        wide = x.float()
        return (wide * self.torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS) * weight).to(x.dtype)

    def turned(self, x):
        low, high = x.float().chunk(2, -1)
        return self.torch.cat((low * self.cos - high * self.sin, high * self.cos + low * self.sin), -1).to(x.dtype)

    def one_layer(self, x, attention_norm, mlp_norm, qkv, out, gate_up, down, k_cache, v_cache):
        heads = (self.norm(x, attention_norm) @ qkv.T).view(self.batch, self.new, Q_HEADS + 2 * KV_HEADS, HEAD).transpose(1, 2)
        q, k, v = heads.split((Q_HEADS, KV_HEADS, KV_HEADS), 1)
        k_cache[:, :, self.context - self.new:] = self.turned(k)
        v_cache[:, :, self.context - self.new:] = v
        attended = self.torch.nn.functional.scaled_dot_product_attention(self.turned(q), k_cache, v_cache, is_causal=self.new > 1, enable_gqa=True)
        x = x + attended.transpose(1, 2).reshape(self.batch * self.new, Q_HEADS * HEAD) @ out.T
        gate, up = (self.norm(x, mlp_norm) @ gate_up.T).chunk(2, -1)
        return x + (self.torch.nn.functional.silu(gate) * up) @ down.T

    def last(self, x, weight, output):
        x = x.view(self.batch, self.new, HIDDEN)[:, -1]
        logits = (self.norm(x, weight) @ output.T).float()
        return logits, logits.argmax(-1)

    def step(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        x = self.embeddings[self.ids]
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
            for weights, caches in zip(self.layers, self.caches):
                x = self.layer(x, *weights, *caches)
        self.logits, self.token = self.head(x, self.final_norm, self.output)


def measure(torch, library, options, batch, context, writer):
    name, prefill = f"llama3-8b/{options.phase}/b{batch}/c{context}", options.phase == "prefill"
    try:
        ours = Ours(torch, library, prefill, batch, context)
    except RuntimeError as wrong:
        return print(f"{TOOL}: {name}: {wrong}", file=sys.stderr)
    try:
        with torch.no_grad():
            theirs = Theirs(torch, ours, prefill, batch, context)
            for state in turns.states_of(options.state):
                sides = {"ours": ours.launch, "theirs": theirs.graph}
                timed = turns.Turns(torch, options.max_seconds, state).sample(sides)
                mine, peer = timed["ours"], timed["theirs"]
                quartiles = [common.quantile(sorted(t.samples), f) for t in (mine, peer) for f in (0.25, 0.75)]
                writer.writerow(dict(zip(COLUMNS, [name, state, mine.us(), *quartiles[:2], mine.sm_mhz, mine.power_w, peer.us(), *quartiles[2:],
                                                   peer.us() / mine.us(), peer.sm_mhz, peer.power_w, len(mine.samples), 2])))
                sys.stdout.flush()
        del theirs
    finally:
        ours.close()
        torch.cuda.empty_cache()


def main():
    parser = common.Parser(prog=TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="libtilewave_step.so")
    parser.add_argument("--phase", default="decode", choices=("decode", "prefill"))
    parser.add_argument("--batch", default="1,16,64")
    parser.add_argument("--context", default="1024,8192")
    parser.add_argument("--state", default="as_is", choices=("as_is", "rested", "sustained", "both"))
    parser.add_argument("--max-seconds", type=float, default=0.3)
    options = parser.parse_args()
    torch = common.import_torch(TOOL)
    library = ctypes.CDLL(options.library)
    library.tilewave_step_make.restype = library.tilewave_step_tensor.restype = ctypes.c_void_p
    library.tilewave_step_free.argtypes = [ctypes.c_void_p]
    library.tilewave_step_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.tilewave_step_tensor.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    for batch in map(int, options.batch.split(",")):
        for context in map(int, options.context.split(",")):
            measure(torch, library, options, batch, context, writer)


if __name__ == "__main__":
    main()
