#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the tiny models of engine_test and what transformers says of them. Usage: make_fixtures.py OUT_FOLDER [FAMILY...]

Needs torch and transformers, on the CPU. For each family: a folder with config.json, model.safetensors (random weights in
bf16) and expected.json: prompts, the greedy tokens, and the logits behind the prompt, computed in float32 from the bf16
weights. Seeds are tried until every greedy step is won by a margin that bf16 arithmetic cannot turn around."""
import json
import pathlib
import sys

import torch
import transformers

PROMPTS, TOKENS, MARGIN = (3, 17, 40), 8, 0.12  # lengths, tokens to draw, least distance of the two best logits


def common(**more):
    return dict(vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                head_dim=64, max_position_embeddings=512, initializer_range=0.15, eos_token_id=0, bos_token_id=1, pad_token_id=None, **more)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
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
    "qwen3": lambda: (transformers.Qwen3Config(**common(tie_word_embeddings=True)), transformers.Qwen3ForCausalLM),
}


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
            if name.endswith("bias"):
                values.copy_((0.3 * torch.randn_like(values)).bfloat16().float())
    cases = []
    for length in PROMPTS:
        case = None
        while case is None:
            case = greedy(model, torch.randint(1, 256, (length,)).tolist())
        cases.append(case)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
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
