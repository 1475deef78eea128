// SPDX-License-Identifier: MIT
// Kernels receive a FlashAttentionArgs: a Problem with its divisions prepared. AttentionSequence and VisibleKeys say
// which tokens a sequence has and which keys a query sees.
#pragma once

#include <cstdint>
#include <limits>

#include "tilewave/attention/sink.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/flash_attention/policy.hpp"
#include "tilewave/ops/flash_attention/problem.hpp"

namespace tilewave {

/// The most keys, and the most queries, of a sequence. Sums of two lengths and a window stay within 32 bits.
inline constexpr std::int32_t max_attention_length = 1 << 29;

/// The arguments of a kernel. Pointers are on the device, and strides are in elements.
struct FlashAttentionArgs {
  const void *q, *k, *v;
  void* out;
  float* lse;  // may be null
  const float *q_scale, *k_scale, *v_scale, *out_scale, *sinks, *alibi_slopes;
  const std::uint32_t* mask;
  const std::int32_t *q_starts, *kv_starts, *kv_lengths, *block_table;  // may be null
  std::uint32_t* item_counter;                                          // may be null
  TokenStrides q_strides, k_strides, v_strides, out_strides;
  PagedKeyStrides k_page_strides;
  PagedValueStrides v_page_strides;
  std::int64_t scale_page_stride, scale_head_stride, table_row_stride, lse_head_stride, mask_token_stride;
  float scale_log2;  // softmax scale * log2(e); with a soft cap softmax scale / cap
  float cap_log2;    // soft cap * log2(e)
  std::int32_t batch, q_length, kv_capacity, q_heads, kv_heads;
  std::int32_t left, right;  // keys of the window on each side; max_attention_length means no bound
  FastDiv gqa_ratio;         // query heads for each kv head
  FastDiv block_size;
};

/// A sequence of a call has `q_count` queries and `kv_count` keys, which begin at tokens q_first and kv_first of packed
/// tensors.
struct AttentionSequence {
  std::int32_t number;
  std::int32_t q_first, q_count;    // the first query token among those of all sequences; the number of queries
  std::int32_t kv_first, kv_count;  // the same for keys
  bool beyond_capacity;             // a length exceeds the capacity of the call, so the output is NaN

  /// Returns sequence s. Its starts and lengths are read from the device, and lengths beyond capacity become 0 keys.
  template <class B>
  TILEWAVE_DEVICE static AttentionSequence of(const FlashAttentionArgs& a, std::int32_t s) {
    AttentionSequence of{.number = s,
                         .q_first = s * a.q_length,
                         .q_count = a.q_length,
                         .kv_first = 0,
                         .kv_count = a.kv_capacity,
                         .beyond_capacity = false};
    if (a.q_starts != nullptr) {
      of.q_first = B::uniform(B::load(a.q_starts + s));
      of.q_count = max_of(B::uniform(B::load(a.q_starts + s + 1)) - of.q_first, 0);
    }
    if (a.kv_starts != nullptr) {
      of.kv_first = B::uniform(B::load(a.kv_starts + s));
      of.kv_count = max_of(B::uniform(B::load(a.kv_starts + s + 1)) - of.kv_first, 0);
    }
    if (a.kv_lengths != nullptr) of.kv_count = max_of(B::uniform(B::load(a.kv_lengths + s)), 0);
    of.beyond_capacity = of.kv_count > a.kv_capacity || of.q_count > a.q_length;
    if (of.beyond_capacity) of.kv_count = 0;
    of.q_count = min_of(of.q_count, a.q_length);
    return of;
  }

  /// Returns the offset in elements of query i of head `head` in q, or in out.
  TILEWAVE_DEVICE std::int64_t query_at(const FlashAttentionArgs& a, const TokenStrides& s, std::int32_t i,
                                        std::int32_t head) const {
    const std::int64_t packed = a.q_starts != nullptr ? q_first * s.token : number * s.sequence;
    return packed + i * s.token + head * s.head;
  }
  /// Returns whether the bit mask lets query i see key t. A key past the last takes the last one's bit.
  template <class B>
  TILEWAVE_DEVICE bool mask_allows(const FlashAttentionArgs& a, std::int32_t i, std::int32_t t) const {
    const std::int64_t token = q_first + i;
    const std::int32_t known = min_of(t, kv_count - 1);
    return (B::load(a.mask + token * a.mask_token_stride + known / 32) >> known % 32 & 1) != 0;
  }
  /// Returns the offset in elements of key t of head `head` in contiguous K, or V.
  TILEWAVE_DEVICE std::int64_t key_at(const FlashAttentionArgs& a, const TokenStrides& s, std::int32_t t,
                                      std::int32_t head) const {
    const std::int64_t packed = a.kv_starts != nullptr ? kv_first * s.token : number * s.sequence;
    return packed + t * s.token + head * s.head;
  }
};

/// Row tiles have queries of several heads that share a kv head, or of one: row r is query r / heads, head r % heads.
struct FlashRowHeads : FastDiv {
  TILEWAVE_DEVICE std::int32_t query_of(std::int32_t row) const { return divisor == 1 ? row : quotient(row); }
  TILEWAVE_DEVICE std::int32_t head_of(std::int32_t row) const { return row - query_of(row) * divisor; }
};

/// A query may see keys [first, end), as lengths, causality and the window allow.
struct VisibleKeys {
  std::int32_t first, end;

  /// Returns the keys of query i of a sequence. Its position among the keys is negative if the sequence has fewer keys
  /// than queries from query i on.
  TILEWAVE_DEVICE static VisibleKeys of(const FlashAttentionArgs& a, const AttentionSequence& s, std::int32_t i) {
    const std::int32_t position = s.kv_count - s.q_count + i;
    return {max_of(position - a.left, 0), max_of(min_of(position + a.right + 1, s.kv_count), 0)};
  }
};

/// Returns a row of head `head` after its sink has joined, if the call has sinks. `lse` is that of the keys alone.
template <class B>
TILEWAVE_DEVICE JoinedSink with_sink(const FlashAttentionArgs& a, std::int32_t head, float lse) {
  JoinedSink joined{1.0f, lse};
  if (a.sinks != nullptr) joined = join_sink<B>(lse, B::load(a.sinks + head));
  return joined;
}

/// Returns the arguments of a kernel for a checked problem.
inline FlashAttentionArgs flash_attention_args(const FlashAttentionProblem& p) {
  FlashAttentionArgs a{};
  a.q = p.q, a.k = p.k, a.v = p.v, a.out = p.out, a.lse = p.lse;
  a.q_scale = p.q_scale, a.k_scale = p.k_scale, a.v_scale = p.v_scale, a.out_scale = p.out_scale;
  a.sinks = p.sinks, a.alibi_slopes = p.alibi_slopes, a.mask = p.mask;
  a.q_starts = p.q_starts, a.kv_starts = p.kv_starts, a.kv_lengths = p.kv_lengths, a.block_table = p.block_table;
  a.item_counter = p.item_counter;
  a.q_strides = p.q_strides, a.k_strides = p.k_strides, a.v_strides = p.v_strides, a.out_strides = p.out_strides;
  a.k_page_strides = p.k_page_strides, a.v_page_strides = p.v_page_strides;
  a.scale_page_stride = p.scale_page_stride, a.scale_head_stride = p.scale_head_stride;
  a.table_row_stride = p.table_row_stride, a.lse_head_stride = p.lse_head_stride;
  a.mask_token_stride = p.mask_token_stride;
  a.scale_log2 = p.spec.soft_cap ? p.softmax_scale / p.soft_cap : p.softmax_scale * log2_e;
  a.cap_log2 = p.soft_cap * log2_e;
  a.batch = p.batch, a.q_length = p.q_length, a.q_heads = p.q_heads, a.kv_heads = p.kv_heads;
  a.kv_capacity = p.spec.paged() ? p.table_columns * p.block_size : p.kv_length;
  const auto bound = [](std::int32_t w) { return w < 0 ? max_attention_length : min_of(w, max_attention_length); };
  a.left = bound(p.window_left);
  a.right = p.causal ? 0 : bound(p.window_right);
  a.gqa_ratio = FastDiv::by(p.q_heads / p.kv_heads);
  a.block_size = FastDiv::by(max_of(p.block_size, 1));
  return a;
}

}  // namespace tilewave
