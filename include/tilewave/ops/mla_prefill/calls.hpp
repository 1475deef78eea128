// SPDX-License-Identifier: MIT
// The calls of other ops that a prefill of latent attention consists of, and the workspace between them.
#pragma once

#include "tilewave/ops/attention_combine/registry.hpp"
#include "tilewave/ops/flash_attention/registry.hpp"
#include "tilewave/ops/gemm/registry.hpp"
#include "tilewave/ops/mla_prefill/kernel.hpp"
#include "tilewave/ops/mla_prefill/problem.hpp"

namespace tilewave {

/// Returns the specs of the parts: keys and values of all heads in one product, the heads being its groups, since
/// groups have as many rows as the device says.
constexpr GemmSpec mla_prefill_up_spec() {
  GemmSpec s;
  s.groups = GemmGroups::masked;
  return s;
}
constexpr FlashAttentionSpec mla_prefill_attention_spec() {
  FlashAttentionSpec s;
  s.head_size = mla_head_size, s.value_size = mla_value_size;
  return s;
}
constexpr AttentionCombineSpec mla_prefill_merge_spec() { return {DType::bf16, DType::bf16}; }

/// The calls of one part: its rows are gathered, keys and values are made of them, and queries attend those.
struct MlaPrefillPart {
  MlaPrefillGatherArgs gather{};
  GemmProblem up{};
  FlashAttentionProblem attend{};
};

/// In the workspace a row has, of each head, 192 elements of its key and then 192 of its value, of which 64 are not
/// used. So heads' keys and values lie at one stride, like their rows of `up`, and one product makes them all.
struct MlaPrefillCalls {
  MlaPrefillStartsArgs starts{};
  AttentionCombineProblem merge{};  // with chunks
  std::size_t workspace_bytes = 0;

  /// `base`: the workspace, or an address at which nothing lies, for the choice of entries. `up_bytes`: of workspace
  /// that the entries of products ask for.
  MlaPrefillCalls(const MlaPrefillProblem& p, void* base, std::size_t up_bytes)
      : p_(p), next_(reinterpret_cast<std::uintptr_t>(base)), up_bytes_(up_bytes) {
    const std::int64_t chunks = p.chunks(), parts = 1 + chunks;
    const std::int64_t rows = max_of(p.total_q, p.chunk()), starts_of = std::int64_t{p.batch} + 1;
    starts = {.q_starts = p.q_starts,
              .kv_lengths = p.kv_lengths,
              .context_starts = take<std::int32_t>(starts_of),
              .chunk_starts = take<std::int32_t>(chunks * starts_of),
              .part_rows = take<std::int32_t>(parts),
              .spoilt = take<std::int32_t>(p.batch),
              .capacity = p.capacity(),
              .batch = p.batch,
              .total_q = p.total_q,
              .context_tokens = p.context_tokens,
              .chunk = p.chunk(),
              .chunks = static_cast<std::int32_t>(chunks)};
    latent_ = take<std::uint16_t>(rows * latent_value_size);
    keys_ = take<std::uint16_t>(rows * row_elements());
    up_workspace_ = take<char>(static_cast<std::int64_t>(up_bytes));
    if (chunks > 0) {
      partial_ = take<std::uint16_t>(parts * p.total_q * out_row());
      partial_lse_ = take<float>(parts * p.total_q * p.q_heads);
      merge.spec = mla_prefill_merge_spec();
      merge.x = partial_, merge.x_lse = partial_lse_, merge.out = p.out, merge.lse = p.lse;
      merge.partials = static_cast<std::int32_t>(parts);
      merge.rows = p.total_q, merge.heads = p.q_heads, merge.head_size = mla_value_size;
      merge.x_strides = {p.total_q * out_row(), out_row(), mla_value_size};
      merge.x_lse_strides = {std::int64_t{p.total_q} * p.q_heads, 1, p.total_q};
      merge.out_strides = {p.out_token_stride, p.out_head_stride};
      if (p.lse != nullptr) merge.lse_strides = {1, p.lse_head_stride};
    }
    workspace_bytes = static_cast<std::size_t>(next_ - reinterpret_cast<std::uintptr_t>(base));
  }

  /// Returns the calls of part 0, of the queries' own tokens, or of a chunk of earlier ones.
  MlaPrefillPart part(std::int32_t i) const {
    const MlaPrefillProblem& p = p_;
    const bool own = i == 0, apart = p.chunks() > 0;  // apart: results are merged
    const std::int32_t rows = own ? p.total_q : p.chunk();
    const int size = size_of(p.spec.kv);
    MlaPrefillPart c;
    c.gather = {.kv = p.kv,
                .kv_scale = p.kv_scale,
                .block_table = p.block_table,
                .starts = own ? p.q_starts : starts.context_starts,
                .kv_lengths = own ? p.kv_lengths : nullptr,
                .spoilt = starts.spoilt,
                .latent = latent_,
                .rope = keys_ + mla_nope_size,
                .rope_token = row_elements(),
                .rope_head = 2 * mla_head_size,
                .table_row = p.table_row_stride,
                .page_bytes = p.num_pages > 1 ? p.page_stride * size : 0,
                .token_bytes = p.block_size > 1 ? p.token_stride * size : 0,
                .capacity = p.capacity(),
                .block_size = FastDiv::by(p.block_size),
                .batch = p.batch,
                .first = own ? 0 : (i - 1) * p.chunk(),
                .rows = rows,
                .heads = p.q_heads};
    c.up.spec = mla_prefill_up_spec();
    c.up.a = latent_, c.up.b = p.up, c.up.out = keys_;
    c.up.m = rows, c.up.n = mla_nope_size, c.up.k = latent_value_size;
    c.up.groups = 2 * p.q_heads, c.up.group_rows = starts.part_rows + i;
    c.up.shared_a = true, c.up.a_stride = latent_value_size;
    c.up.b_stride = p.up_stride, c.up.b_batch_stride = mla_nope_size * p.up_stride;
    c.up.out_stride = row_elements(), c.up.out_batch_stride = mla_head_size;
    if (up_bytes_ > 0) c.up.workspace = up_workspace_, c.up.workspace_bytes = up_bytes_;

    FlashAttentionProblem& f = c.attend;
    f.spec = mla_prefill_attention_spec();
    f.q = p.q, f.k = keys_, f.v = keys_ + mla_head_size;
    f.out = apart ? partial_ + i * p.total_q * out_row() : p.out;
    f.lse = apart ? partial_lse_ + std::int64_t{i} * p.total_q * p.q_heads : p.lse;
    f.q_starts = p.q_starts;
    f.kv_starts = own ? p.q_starts : starts.chunk_starts + (i - 1) * (std::int64_t{p.batch} + 1);
    f.softmax_scale = p.softmax_scale, f.causal = own;
    f.batch = p.batch, f.q_length = p.q_length, f.total_q = p.total_q;
    f.kv_length = own ? p.q_length : rows, f.total_kv = rows;
    f.q_heads = f.kv_heads = p.q_heads;
    f.q_strides = {0, p.q_token_stride, p.q_head_stride};
    f.k_strides = f.v_strides = {0, row_elements(), 2 * mla_head_size};
    f.out_strides =
        apart ? TokenStrides{0, out_row(), mla_value_size} : TokenStrides{0, p.out_token_stride, p.out_head_stride};
    f.lse_head_stride = apart ? p.total_q : p.lse_head_stride;
    return c;
  }

 private:
  template <class T>
  T* take(std::int64_t count) {
    T* const at = reinterpret_cast<T*>(next_);
    next_ += static_cast<std::uintptr_t>(align_up<std::int64_t>(count * static_cast<std::int64_t>(sizeof(T)), 256));
    return at;
  }
  /// Returns the elements of all keys and values of a token, and those of a token's partial results.
  std::int64_t row_elements() const { return std::int64_t{2} * p_.q_heads * mla_head_size; }
  std::int64_t out_row() const { return std::int64_t{p_.q_heads} * mla_value_size; }

  MlaPrefillProblem p_;
  std::uintptr_t next_;  // no pointer: from a bad address it may wrap, before a check says so
  std::size_t up_bytes_;
  std::uint16_t *latent_ = nullptr, *keys_ = nullptr, *partial_ = nullptr;
  float* partial_lse_ = nullptr;
  char* up_workspace_ = nullptr;
};

}  // namespace tilewave
