# SPDX-License-Identifier: MIT
"""tilewave as an attention implementation of transformers: unchanged models run on torch.ops.tilewave.

  import tilewave_torch, tilewave_transformers
  tilewave_torch.load(only=("attention",))
  tilewave_transformers.register()
  model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="tilewave", dtype=torch.bfloat16, device_map="cuda")
  model.generate(ids, past_key_values=tilewave_transformers.paged_cache(model.config, batch, most_tokens, "cuda"))

Prompts are computed by flash_attention. With a paged cache, which is optional, steps of one token are computed by paged_attention on its
pages. It serves what the operators were compiled for: bf16, heads of 128, causal masks without padding or windows, caches that grow.
Everything else is a ValueError that says what it is."""
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

PAGE = 64  # tokens


class Pages:
    """Which page has which tokens of `batch` sequences of one length: a table on the device, which all layers share. Steps of one token read and
    write the device alone, so that they can be captured in a graph."""

    def __init__(self, batch, most_tokens, device):
        self.columns = (most_tokens + PAGE - 1) // PAGE
        # As if they had come from a pool: neighbours of a sequence do not lie side by side.
        order = torch.arange(batch * self.columns, dtype=torch.int32, device=device)
        self.table = order.reshape(self.columns, batch).T.contiguous()
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=device)
        self.length = 0  # on the host; a step that is replayed from a graph does not change it
        self.slots = None

    def advance(self, count):
        """Makes room for `count` more tokens of each sequence; their slots, sequence by sequence, are those of the next write."""
        if self.length + count > self.columns * PAGE:
            raise ValueError(f"tilewave: the paged cache has room for {self.columns * PAGE} tokens of a sequence, not for {self.length + count}")
        positions = self.lengths.long()[:, None] + torch.arange(count, device=self.lengths.device)
        pages = self.table.long().gather(1, positions // PAGE)
        self.slots = (pages * PAGE + positions % PAGE).reshape(-1)
        self.lengths += count
        self.length += count


class PagedLayer(CacheLayerMixin):
    """K and V of a layer, [pages, 64, kv heads, size] each."""
    is_sliding = False

    def __init__(self, pages, first):
        super().__init__()
        self.pages, self.first, self.past = pages, first, 0

    def lazy_initialization(self, key_states, value_states):
        _, heads, _, size = key_states.shape
        self.keys, self.values = (torch.zeros(self.pages.table.numel(), PAGE, heads, size, dtype=key_states.dtype, device=key_states.device)
                                  for _ in range(2))
        self.keys.tilewave_pages = self.pages  # how attention() knows it again
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        """Writes the new tokens. Returns what attention needs: the pages themselves for a step of one token, else all tokens in order."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        count = key_states.shape[2]
        if self.first:
            self.pages.advance(count)
        rows = [x.transpose(1, 2).flatten(0, 1) for x in (key_states, value_states)]
        torch.ops.tilewave.kv_cache_write(*rows, self.keys, self.values, self.pages.slots)
        past, self.past = self.past, self.past + count
        if count == 1:
            return self.keys, self.values
        if past == 0:
            return key_states, value_states
        return tuple(cache[self.pages.table.long()].flatten(1, 2)[:, :past + count].transpose(1, 2) for cache in (self.keys, self.values))

    def get_mask_sizes(self, query_length):
        return self.past + query_length, 0

    def get_seq_length(self):
        return self.past

    def get_max_length(self):
        return self.pages.columns * PAGE


def paged_cache(config, batch, most_tokens, device):
    """A cache for generate() and for a model's past_key_values, of `batch` sequences of one length up to most_tokens."""
    pages = Pages(batch, most_tokens, device)
    return Cache(layers=[PagedLayer(pages, i == 0) for i in range(config.get_text_config().num_hidden_layers)])


def attention(module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, sliding_window=None, softcap=None, **kwargs):
    """query [batch, q heads, queries, size], key and value [batch, kv heads, keys, size], or pages: [batch, queries, q heads, size] and no
    weights. The queries are the last of the keys' positions."""
    pages = getattr(key, "tilewave_pages", None)
    keys = key.shape[2] if pages is None else pages.length
    if attention_mask is not None:
        raise ValueError("tilewave: attention_mask: only causal masks are served")
    if dropout:
        raise ValueError(f"tilewave: dropout is {dropout}: there is none in inference")
    if softcap:
        raise ValueError(f"tilewave: softcap is {softcap}: the operator was compiled without it")
    if kwargs.get("s_aux") is not None:
        raise ValueError("tilewave: s_aux: the operators have no sinks")
    if sliding_window is not None and sliding_window < keys:
        raise ValueError(f"tilewave: sliding_window is {sliding_window}, fewer than {keys} keys: the operator was compiled without windows")
    if pages is not None:
        rows = query.transpose(1, 2).flatten(0, 1)
        out, _ = torch.ops.tilewave.paged_attention(rows, key, value, pages.table, pages.lengths, scaling)
        return out[:, None], None
    out, _ = torch.ops.tilewave.flash_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
                                                getattr(module, "is_causal", True), scaling)
    return out, None


def mask(attention_mask=None, kv_length=None, cache_position=None, q_length=None, q_offset=None, **kwargs):
    """No mask: the operator makes a causal one of positions. What it could not say is refused while the model is not traced."""
    if torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
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
