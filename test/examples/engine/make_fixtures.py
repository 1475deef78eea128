#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the tiny models of engine_test and what transformers says of them. Usage: make_fixtures.py OUT_FOLDER [FAMILY...]

Needs torch and transformers, on the CPU. For each family: a folder with config.json, model.safetensors (random weights in
bf16) and expected.json: prompts, the greedy tokens, and the logits behind the prompt, computed in float32 from the bf16
weights. Seeds are tried until every greedy step is won by a margin that bf16 arithmetic cannot turn around. llama_int4's weights are int4 in
groups of 128 with powers of two as scales, so quantising them changes nothing. gpt_oss has its experts in MXFP4, as they are shipped."""
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

PROMPTS, TOKENS, MARGIN = (3, 17, 40), 8, 0.12  # lengths, tokens to draw, least distance of the two best logits


def common(**more):
    return dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                head_dim=64, max_position_embeddings=512, initializer_range=0.15, eos_token_id=0, bos_token_id=1, pad_token_id=None, **more)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
        "original_max_position_embeddings": 64}
GEMMA = dict(head_dim=256, query_pre_attn_scalar=128, sliding_window=24, hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True,
             layer_types=["sliding_attention", "full_attention"], attn_implementation="eager")
FAMILIES = {
    "llama": lambda: (transformers.LlamaConfig(**common(rope_theta=10000.0, rope_scaling=LLAMA3, tie_word_embeddings=True)), transformers.LlamaForCausalLM),
    "mistral": lambda: (transformers.MistralConfig(**common(sliding_window=24, tie_word_embeddings=False)), transformers.MistralForCausalLM),
    "qwen2": lambda: (transformers.Qwen2Config(**{**common(tie_word_embeddings=True), "num_attention_heads": 1}), transformers.Qwen2ForCausalLM),
    "gemma2": lambda: (transformers.Gemma2Config(**{**common(), **GEMMA}, attn_logit_softcapping=20.0, final_logit_softcapping=15.0),
                       transformers.Gemma2ForCausalLM),
    "gemma3": lambda: (transformers.Gemma3TextConfig(**{**common(), **GEMMA}), transformers.Gemma3ForCausalLM),
    "mixtral": lambda: (transformers.MixtralConfig(**common(num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True)),
                        transformers.MixtralForCausalLM),
    "qwen3_moe": lambda: (transformers.Qwen3MoeConfig(**common(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True,
                                                               tie_word_embeddings=True)), transformers.Qwen3MoeForCausalLM),
    "llama_int4": lambda: (transformers.LlamaConfig(**{**common(tie_word_embeddings=True), "hidden_size": 128, "intermediate_size": 256}),
                           transformers.LlamaForCausalLM),
    "gpt_oss": lambda: (transformers.GptOssConfig(**common(num_local_experts=4, num_experts_per_tok=2, sliding_window=24, attn_implementation="eager",
                                                           rope_parameters=YARN, tie_word_embeddings=False)), transformers.GptOssForCausalLM),
    "qwen3": lambda: (transformers.Qwen3Config(**common(tie_word_embeddings=True)), transformers.Qwen3ForCausalLM),
}


def make_int4(model):
    """Weights of the layers are code * 2^e, with a code of 7 or -7 in each group of 128."""
    for layer in model.model.layers:
        for module in layer.modules():
            if isinstance(module, torch.nn.Linear):
                n, k = module.weight.shape
                codes = torch.randint(-7, 8, (n, k // 128, 128))
                codes[:, :, 5] = torch.where(codes[:, :, 5] < 0, -7, 7)
                scales = 2.0 ** torch.randint(-6, -4, (n, k // 128, 1))
                module.weight.copy_((codes * scales).reshape(n, k))


def make_mxfp4(model):
    """Gives the experts of gpt-oss random codes, and returns them as checkpoints have them: blocks [experts, n, k / 32, 16] and scales."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    shipped = {}
    for i, layer in enumerate(model.model.layers):
        for name in ("gate_up_proj", "down_proj"):
            weight = getattr(layer.mlp.experts, name)  # [experts, k, n]
            experts, k, n = weight.shape
            codes = torch.randint(0, 16, (experts, n, k // 32, 32), dtype=torch.uint8)
            scales = torch.randint(121, 124, (experts, n, k // 32), dtype=torch.uint8)
            wide = values[codes.long()] * 2.0 ** (scales.float() - 127)[..., None]
            weight.copy_(wide.reshape(experts, n, k).transpose(1, 2))
            where = f"model.layers.{i}.mlp.experts.{name}"
            shipped[where + "_blocks"], shipped[where + "_scales"] = codes[..., 0::2] | codes[..., 1::2] << 4, scales
    return shipped


def save(model, folder, shipped):
    """As save_pretrained, but with the experts that are shipped in another format."""
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if not shipped:
        return
    tensors = {name: t for name, t in safetensors.torch.load_file(folder / "model.safetensors").items()
               if not name.endswith(("experts.gate_up_proj", "experts.down_proj"))}
    safetensors.torch.save_file({**tensors, **shipped}, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "mxfp4"}}, indent=2) + "\n")


def greedy(model, prompt):
    """The logits behind the prompt and the greedy tokens, or None where a step is close or ends the text."""
    tokens, logits = list(prompt), None
    for _ in range(TOKENS):
        with torch.no_grad():
            row = model(torch.tensor([tokens])).logits[0, -1].float()
        logits = row.tolist() if logits is None else logits
        best = row.topk(2)
        if best.values[0] - best.values[1] < MARGIN or best.indices[0] == 0:
            return None
        tokens.append(best.indices[0].item())
    return {"prompt": prompt, "tokens": tokens[len(prompt):], "logits": [round(x, 4) for x in logits]}


def make(family, folder):
    config, kind = FAMILIES[family]()
    torch.manual_seed(36)
    model = kind(config).to(torch.bfloat16).to(torch.float32).eval()  # weights of bf16, arithmetic of float32
    with torch.no_grad():
        for name, values in model.named_parameters():  # norms and biases that do something
            if "norm" in name:
                one = 0.0 if family.startswith("gemma") else 1.0  # Gemma's are added to one
                values.copy_((one + 0.2 * torch.randn_like(values)).bfloat16().float())
            if name.endswith(("bias", "sinks")):
                values.copy_((0.3 * torch.randn_like(values)).bfloat16().float())
        shipped = make_mxfp4(model) if family == "gpt_oss" else {}
        if family == "llama_int4":
            make_int4(model)
    cases = []
    for length in PROMPTS:
        case = None
        while case is None:
            case = greedy(model, torch.randint(1, 256, (length,)).tolist())
        cases.append(case)
    save(model, folder, shipped)
    (folder / "expected.json").write_text(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "cases": cases}))


def main():
    if len(sys.argv) < 2:
        raise SystemExit("usage: make_fixtures.py OUT_FOLDER [FAMILY...]")
    for family in sys.argv[2:] or FAMILIES:
        folder = pathlib.Path(sys.argv[1]) / family
        folder.mkdir(parents=True, exist_ok=True)
        make(family, folder)
        print(family, flush=True)


if __name__ == "__main__":
    main()
