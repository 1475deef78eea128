# SPDX-License-Identifier: MIT
"""tilewave as an attention implementation of transformers: unchanged models run on torch.ops.tilewave.flash_attention.

  import tilewave_torch, tilewave_transformers
  tilewave_torch.load(only=("attention",))
  tilewave_transformers.register()
  model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="tilewave", dtype=torch.bfloat16, device_map="cuda")

It serves what the operator was compiled for: bf16, heads of 128, causal masks without padding or windows, caches that grow. Everything
else is a ValueError that says what it is."""


def attention(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, sliding_window=None, softcap=None, **kwargs):
    """query [batch, q heads, queries, size], key and value [batch, kv heads, keys, size]: [batch, queries, q heads, size] and no weights.
    The queries are the last of the keys' positions."""
    import torch

    if attention_mask is not None:
        raise ValueError("tilewave: attention_mask: only causal masks are served")
    if dropout:
        raise ValueError(f"tilewave: dropout is {dropout}: there is none in inference")
    if softcap:
        raise ValueError(f"tilewave: softcap is {softcap}: the operator was compiled without it")
    if sliding_window is not None and sliding_window < key.shape[2]:
        raise ValueError(f"tilewave: sliding_window is {sliding_window}, fewer than {key.shape[2]} keys: the operator was compiled without windows")
    out, _ = torch.ops.tilewave.flash_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
                                                getattr(module, "is_causal", True), scaling)
    return out, None


def mask(attention_mask=None, kv_length=None, cache_position=None, q_length=None, q_offset=None, **kwargs):
    """No mask: the operator makes a causal one of positions. What it could not say is refused while the model is not traced."""
    import torch

    if torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing():
        return None
    if attention_mask is not None and not bool(attention_mask.all()):
        raise ValueError("tilewave: attention_mask: padding is not served; sequences of one length are")
    end = None
    if cache_position is not None:
        end = int(cache_position[-1]) + 1
    elif q_length is not None and q_offset is not None:
        end = int(q_length) + int(q_offset)
    if end is not None and kv_length is not None and int(kv_length) != end:
        raise ValueError("tilewave: the cache has keys behind the last query: a cache that grows is served, a static one is not")
    return None


def register(name="tilewave"):
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)
