// SPDX-License-Identifier: MIT
// Flash attention for the harness of row operations: its tensors, work and tolerance.
#pragma once

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "bench/ops/flash_attention/case.hpp"
#include "entries/flash_attention.hpp"
#include "tilewave/reference/flash_attention.hpp"

namespace tilewave::bench {

/// The columns of a policy. Without a policy its numbers are 0.
template <class Visit>
void each_column(const FlashAttentionPolicy* policy, Visit& visit) {
  const FlashAttentionPolicy p =
      policy != nullptr ? *policy : FlashAttentionPolicy{FlashAttentionPath::registers, 0, 0, 0, 0, 0, false, 0};
  visit("path", p.path);
  visit("tile_rows", p.rows);
  visit("tile_keys", p.keys);
  visit("waves", p.waves);
  visit("stages", p.stages);
  visit("waves_per_simd", p.waves_per_simd);
  visit("turns", p.turns);
  visit("cluster", p.cluster);
}

struct FlashAttentionTensors {
  TwinBuffer q, k, v, out, lse, q_scale, k_scale, v_scale, out_scale, q_starts, kv_starts, kv_lengths, table, counter,
      workspace;
};

struct FlashAttentionOp {
  using Case = FlashAttentionCase;
  using Problem = FlashAttentionProblem;
  using Entry = FlashAttentionEntry;
  using Tensors = FlashAttentionTensors;

  static std::span<const Entry* const> entries() {
#ifdef TILEWAVE_GENERATED  // by a tuner, or bench/ladder
    static const std::vector<const Entry*> all = [] {
      const auto lists = {all_flash_attention_entries(), all_flash_attention_generated_entries()};
      std::vector<const Entry*> both;
      for (const auto& list : lists) both.insert(both.end(), list.begin(), list.end());
      return both;
    }();
    return all;
#else
    return all_flash_attention_entries();
#endif
  }
  static constexpr auto select = flash_attention_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/flash_attention/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  static std::int64_t pages(const Case& c, const FlashAttentionExtents& e) {
    return std::int64_t{e.batch} * c.table_columns(e);
  }

  /// Returns the bytes that some entry can use as a workspace.
  static std::size_t workspace_bytes(const Case& c, const Problem& p) {
    std::size_t bytes = 0;
    for (const FlashAttentionPolicy& policy : flash_attention_policies(c.arch, c.spec))
      bytes = max_of(bytes, flash_attention_workspace_size(p, policy));
    return bytes;
  }
  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p = without_workspace(c, t, address);
    p.workspace_bytes = workspace_bytes(c, p);
    if (p.workspace_bytes > 0) p.workspace = address(t.workspace);
    return p;
  }
  template <class Address>
  static Problem without_workspace(const Case& c, const Tensors& t, const Address& address) {
    const FlashAttentionExtents e = c.launched();
    const auto floats = [&](const TwinBuffer& b) { return static_cast<float*>(address(b)); };
    const auto words = [&](const TwinBuffer& b) { return static_cast<const std::int32_t*>(address(b)); };
    Problem p;
    p.spec = c.spec;
    p.q = address(t.q);
    p.k = address(t.k);
    p.v = address(t.v);
    p.out = address(t.out);
    if (c.lse) p.lse = floats(t.lse);
    if (is_fp8(c.spec.q)) p.q_scale = floats(t.q_scale);
    if (is_fp8(c.spec.kv)) p.k_scale = floats(t.k_scale), p.v_scale = floats(t.v_scale);
    if (is_fp8(c.spec.out)) p.out_scale = floats(t.out_scale);
    p.causal = c.causal;
    if (c.window > 0) p.window_left = c.window - 1;
    p.batch = e.batch;
    p.q_length = e.q;
    p.q_heads = e.q_heads;
    p.kv_heads = e.kv_heads;
    if (c.packed()) {
      p.q_starts = words(t.q_starts), p.total_q = c.q_tokens(e);
      p.item_counter = static_cast<std::uint32_t*>(address(t.counter));
    }
    if (c.spec.paged()) {
      p.kv_lengths = words(t.kv_lengths);
      p.block_table = words(t.table);
      p.block_size = c.block_size;
      p.table_columns = c.table_columns(e);
      p.num_pages = pages(c, e);
      return Problem::nhd(p);
    }
    p.kv_length = e.kv;
    if (c.packed()) p.kv_starts = words(t.kv_starts), p.total_kv = c.kv_tokens(e);
    return c.packed() ? Problem::ragged(p) : Problem::bshd(p);
  }

  /// q is 4 U(-1, 1), so that the weights of keys differ; K and V are U(-1, 1).
  static Tensors fill(const Case& c, int threads) {
    const FlashAttentionExtents e = c.launched();
    const FlashAttentionSpec& s = c.spec;
    const auto queries = static_cast<std::int32_t>(c.q_tokens(e));
    const auto tokens = static_cast<std::int32_t>(s.paged() ? pages(c, e) * c.block_size : c.kv_tokens(e));
    const auto uniform = [&](DType type, std::int32_t rows, std::int32_t columns, char name, float scale) {
      return filled(type, rows, columns, threads,
                    [&](std::int64_t r, std::int64_t column) { return scale * drawn(c.seed, name, r, column); });
    };
    const auto scales = [&](bool there, std::int64_t per_token, std::int32_t per_head, char name) {
      const std::int64_t count = !there                          ? 0
                                 : s.quant == Scaling::per_token ? per_token
                                 : s.quant == Scaling::per_head  ? per_head
                                                                 : 1;
      return filled(DType::f32, static_cast<std::int32_t>(count), 1, threads,
                    [&](std::int64_t i, std::int64_t) { return 1 + drawn(c.seed, name, i, 0) / 2; });
    };
    const auto words = [](bool there, std::int64_t count, const auto& value) {
      TwinBuffer buffer(there ? static_cast<std::size_t>(count) * 4 : 0, "i32");
      for (std::int64_t i = 0; there && i < count; ++i)
        reinterpret_cast<std::int32_t*>(buffer.host())[i] = static_cast<std::int32_t>(value(i));
      buffer.upload();
      return buffer;
    };
    const auto starts = [&](bool there, const auto& length) {
      std::int64_t start = 0;
      return words(there, e.batch + 1,
                   [&](std::int64_t i) { return start += i > 0 ? length(i - 1) : std::int64_t{0}; });
    };
    Tensors t;
    t.q = uniform(s.q, queries, e.q_heads * s.head_size, 'q', 4);
    t.k = uniform(s.kv, tokens, e.kv_heads * s.head_size, 'k', 1);
    t.v = uniform(s.kv, tokens, e.kv_heads * s.value_size, 'v', 1);
    t.out = poisoned(s.out, std::int64_t{queries} * e.q_heads * s.value_size);
    t.lse = poisoned(DType::f32, c.lse ? std::int64_t{queries} * e.q_heads : 0);
    const std::int64_t slots = std::int64_t{tokens} * e.kv_heads;
    t.q_scale = scales(is_fp8(s.q), 1, e.q_heads, 'a');
    t.k_scale = scales(is_fp8(s.kv), slots, e.kv_heads, 'b');
    t.v_scale = scales(is_fp8(s.kv), slots, e.kv_heads, 'c');
    t.out_scale = filled(DType::f32, is_fp8(s.out) ? 1 : 0, 1, 1, [](std::int64_t, std::int64_t) { return 2.0f; });
    t.q_starts = starts(c.packed(), [&](std::int64_t i) { return std::int64_t{c.queries(e, i)}; });
    t.kv_starts = starts(c.packed() && !s.paged(), [&](std::int64_t i) { return std::int64_t{c.keys(e, i)}; });
    t.kv_lengths = words(s.paged(), e.batch, [&](std::int64_t i) { return c.keys(e, i); });
    // Pages have an order that looks drawn: a step that shares no factor with any number of them.
    const std::int64_t all = pages(c, e);
    t.table = words(s.paged(), all, [&](std::int64_t i) { return i * 1000003 % all; });
    t.counter = words(c.packed(), 1, [](std::int64_t) { return 0; });
    const Problem p = without_workspace(c, t, [](const TwinBuffer& b) { return b.device(); });
    t.workspace = poisoned_words(static_cast<std::int64_t>(workspace_bytes(c, p) / 4));
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out, &t.lse}; }

  /// Bytes, once each: q, out, lse, K and V of keys that any query sees with their scales, and what leads to them.
  /// Operations of a pair of a query and a key that it sees, of each head: 2 for a dimension of K and for one of V.
  static Work work_of(const Case& c) {
    const FlashAttentionExtents e = c.launched();
    const FlashAttentionSpec& s = c.spec;
    const auto triangle = [](std::int64_t n) { return n > 0 ? n * (n + 1) / 2 : 0; };
    std::int64_t keys = 0, pairs = 0, tables = 0;
    for (std::int32_t i = 0; i < e.batch; ++i) {
      const std::int64_t m = c.queries(e, i), n = c.keys(e, i), w = c.window;
      pairs += c.causal ? triangle(n) - triangle(n - m) : m * n;
      if (w > 0) pairs -= triangle(n - w) - triangle(n - m - w);
      const std::int64_t first = w > 0 ? max_of<std::int64_t>(0, n - m + 1 - w) : 0;  // the first key that is seen
      keys += n - first;
      if (s.paged()) tables += ceil_div<std::int64_t>(n, c.block_size) - first / c.block_size;
    }
    const std::int64_t queries = c.q_tokens(e), rows = queries * e.q_heads;
    const std::int64_t lists = tables + (s.paged() ? e.batch : 0) + (c.packed() ? e.batch + 1 : 0) +
                               (c.packed() && !s.paged() ? e.batch + 1 : 0);
    const std::int64_t of_kv = s.quant == Scaling::per_token  ? keys * e.kv_heads
                               : s.quant == Scaling::per_head ? e.kv_heads
                                                              : 1;
    const std::int64_t of_q = s.quant == Scaling::per_head ? e.q_heads : 1;
    const std::int64_t scales = (is_fp8(s.kv) ? 2 * of_kv : 0) + (is_fp8(s.q) ? of_q : 0) + (is_fp8(s.out) ? 1 : 0);
    const std::int64_t written = rows * (s.value_size * size_of(s.out) + (c.lse ? 4 : 0));
    const std::int64_t sizes = s.head_size + s.value_size;
    return {.bytes = rows * s.head_size * size_of(s.q) + keys * e.kv_heads * sizes * size_of(s.kv) +
                     4 * (scales + lists) + written,
            .written = written,
            .flops = 2 * sizes * pairs * e.q_heads,
            .flops_per_second = matrix_flops(facts_of(c.arch), s.q)};
  }

  /// The rounding of probabilities for their products and that of the output. lse has the error of sums in f32.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const FlashAttentionSpec& s = p.spec;
    std::int64_t rest = row;
    std::int32_t sequence = 0;
    reference::FlashAttentionTokens tokens = reference::flash_attention_tokens(p, 0);
    for (; rest >= tokens.q_count * p.q_heads; tokens = reference::flash_attention_tokens(p, ++sequence))
      rest -= tokens.q_count * p.q_heads;
    const auto head = static_cast<std::int32_t>(rest / tokens.q_count);
    const std::int64_t query = rest % tokens.q_count;
    const reference::FlashAttentionRow wanted = reference::flash_attention_row(p, sequence, query, head);
    const double probability = is_fp8(s.q) ? 0x1p-4 : is_fp8(s.kv) || s.kv == DType::bf16 ? 0x1p-8 : 0x1p-10;
    // Native fp8 products take codes below 2^-6 for numbers of that size when they align sums, which have 14 bits.
    const double floor = is_fp8(s.out) ? 0x1p-9 : is_fp8(s.q) ? 0x1p-13 : 0x1p-24;
    const double rounding = is_fp8(s.out) ? 0x1p-4 : s.out == DType::bf16 ? 0x1p-8 : 0x1p-10;
    const std::int64_t token = tokens.q_first + query;
    const std::int64_t at = token * p.out_strides.token + head * p.out_strides.head;
    for (std::int32_t d = 0; d < s.value_size; ++d) {
      const double got = reference::element(s.out, p.out, at + d), want = wanted.out[d];
      const double bound = probability * wanted.magnitudes[d] + rounding * std::abs(want) + floor;
      errors.out(std::abs(got - want) <= bound, row, d, got, want);
    }
    if (p.lse == nullptr) return;
    const double got = p.lse[head * p.lse_head_stride + token];
    const double relative = is_fp8(s.q) ? 1e-3 : 1e-4;  // sums of native fp8 products keep 14 bits
    errors.expect(std::abs(got - wanted.lse) <= relative * (1 + std::abs(wanted.lse)), "lse", row, 0, got, wanted.lse);
  }
};

}  // namespace tilewave::bench
