// SPDX-License-Identifier: MIT
// Latent decode for the harness of row operations: its tensors, work and tolerance.
#pragma once

#include <cmath>
#include <cstring>

#include "bench/harness/rows/row_op.hpp"
#include "bench/harness/shapes.hpp"
#include "bench/ops/mla_decode/case.hpp"
#include "entries/mla_decode.hpp"
#include "tilewave/reference/mla_decode.hpp"

namespace tilewave::bench {

/// The columns of a policy. Without a policy its numbers are 0.
template <class Visit>
void each_column(const MlaDecodePolicy* policy, Visit& visit) {
  const MlaDecodePolicy p = policy != nullptr ? *policy : MlaDecodePolicy{MlaDecodePath::registers,     0, 0,    0,
                                                                          PagedAttentionSchedule::even, 0, false};
  visit("path", p.path);
  visit("tile_rows", p.rows);
  visit("tile_tokens", p.tokens);
  visit("waves", p.waves);
  visit("balanced", p.balanced());
  visit("waves_per_simd", p.waves_per_simd);
  visit("gathered", p.gathered);
}

struct MlaDecodeTensors {
  TwinBuffer q, kv, out, lse, q_scale, kv_scale, table, lengths, workspace;
};

struct MlaDecodeOp {
  using Case = MlaDecodeCase;
  using Problem = MlaDecodeProblem;
  using Entry = MlaDecodeEntry;
  using Tensors = MlaDecodeTensors;

  static std::span<const Entry* const> entries() { return all_mla_decode_entries(); }
  static constexpr auto select = mla_decode_select;
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/mla_decode/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  static Problem extents_of(const Case& c) {
    Problem p;
    p.spec = c.spec;
    p.softmax_scale = 0.1147f;  // that of DeepSeek-V3: 192^-0.5 with the factor of long contexts
    p.split_tokens = c.split_tokens;
    p.batch = c.launched_batch();
    p.query_tokens = c.query_tokens;
    p.num_q_heads = c.q_heads;
    p.block_size = c.block_size;
    p.table_columns = c.table_columns();
    p.num_pages = c.pages();
    return Problem::dense(p);
  }
  /// The workspace that any entry of the spec asks for.
  static std::size_t workspace_bytes(const Case& c) {
    std::size_t bytes = 0;
    for (const MlaDecodePolicy& policy : mla_decode_policies(c.arch, c.spec))
      bytes = std::max(bytes, mla_decode_workspace_size(extents_of(c), policy, facts_of(c.arch)));
    return bytes;
  }

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    const auto floats = [&](const TwinBuffer& b) { return static_cast<float*>(address(b)); };
    const auto words = [&](const TwinBuffer& b) { return static_cast<const std::int32_t*>(address(b)); };
    Problem p = extents_of(c);
    p.q = address(t.q);
    p.kv = address(t.kv);
    p.out = address(t.out);
    if (c.lse) p.lse = floats(t.lse);
    if (is_fp8(c.spec.q)) p.q_scale = floats(t.q_scale);
    if (is_fp8(c.spec.kv) && c.spec.layout == LatentLayout::plain) p.kv_scale = floats(t.kv_scale);
    p.block_table = words(t.table);
    p.context_lengths = words(t.lengths);
    p.workspace = address(t.workspace);
    p.workspace_bytes = workspace_bytes(c);
    return p;
  }

  /// q and rows are U(-1, 1), rows of groups times their scale, which is 2^-1, 1 or 2.
  static Tensors fill(const Case& c, int threads) {
    const MlaDecodeSpec& s = c.spec;
    const LatentRow row = s.row();
    const Problem p = extents_of(c);
    const auto tokens = static_cast<std::int32_t>(p.num_pages * p.block_size);
    const auto words = [](std::int64_t count, const auto& value) {
      TwinBuffer buffer(static_cast<std::size_t>(count) * 4, "i32");
      for (std::int64_t i = 0; i < count; ++i)
        reinterpret_cast<std::int32_t*>(buffer.host())[i] = static_cast<std::int32_t>(value(i));
      buffer.upload();
      return buffer;
    };
    const auto one = [&](bool there, float value) {
      return filled(DType::f32, there ? 1 : 0, 1, 1, [&](std::int64_t, std::int64_t) { return value; });
    };
    Tensors t;
    t.q = filled(s.q, c.rows, s.head_size, threads,
                 [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 'q', r, column); });
    if (s.layout == LatentLayout::plain) {
      t.kv = filled(s.kv, tokens, s.head_size, threads,
                    [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 'k', r, column); });
    } else {
      t.kv = TwinBuffer(static_cast<std::size_t>(p.num_pages * p.page_stride), "fp8");
      auto* const bytes = reinterpret_cast<unsigned char*>(t.kv.host());
      for (std::int64_t token = 0; token < tokens; ++token) {
        unsigned char* const page = bytes + token / p.block_size * p.page_stride;
        const std::int64_t in_page = token % p.block_size;
        unsigned char* const at = page + in_page * row.token_bytes();
        for (int d = 0; d < row.codes(); ++d) at[d] = f32_to_fp8(s.kv, drawn(c.seed, 'k', token, d));
        for (int d = 0; d < 64; ++d) {
          const std::uint16_t x = f32_to_bf16(drawn(c.seed, 'r', token, d));
          std::memcpy(at + row.wide_byte() + 2 * d, &x, 2);
        }
        for (int g = 0; g < row.scales(); ++g) {
          const int exponent = static_cast<int>((token + g) % 3) - 1;
          const float scale = std::ldexp(1.0f, exponent);
          if (row.scales_apart()) {
            page[p.block_size * row.token_bytes() + in_page * LatentRow::apart_bytes + g] =
                static_cast<unsigned char>(127 + exponent);
          } else {
            std::memcpy(at + row.scale_byte() + 4 * g, &scale, 4);
          }
        }
      }
      t.kv.upload();
    }
    t.out = poisoned(DType::bf16, std::int64_t{c.rows} * latent_value_size);
    t.lse = poisoned(DType::f32, c.lse ? c.rows : 0);
    t.q_scale = one(is_fp8(s.q), 1.25f);
    t.kv_scale = one(is_fp8(s.kv) && s.layout == LatentLayout::plain, 0.75f);
    t.lengths = words(p.batch, [&](std::int64_t i) { return c.length(i); });
    // Pages have an order that looks drawn: a step that shares no factor with any number of them.
    t.table = words(p.num_pages, [&](std::int64_t i) { return i * 1000003 % p.num_pages; });
    t.workspace = poisoned(DType::f32, static_cast<std::int64_t>(workspace_bytes(c) / 4));
    return t;
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out, &t.lse}; }

  /// Bytes, once each: q, out, lse, rows of the cache, and what leads to them. Operations of a pair of a query token
  /// and a token that it sees, of each head: 2 for a dimension of the row and for one of the value.
  static Work work_of(const Case& c) {
    const MlaDecodeSpec& s = c.spec;
    std::int64_t tokens = 0, pairs = 0, lists = 0;
    for (std::int32_t i = 0; i < c.launched_batch(); ++i) {
      const std::int64_t n = c.length(i);
      tokens += n;
      for (std::int32_t q = 0; q < c.query_tokens; ++q) pairs += max_of<std::int64_t>(0, n - q);
      lists += 1 + ceil_div<std::int64_t>(n, c.block_size);
    }
    const std::int64_t written = std::int64_t{c.rows} * (latent_value_size * 2 + (c.lse ? 4 : 0));
    return {.bytes = std::int64_t{c.rows} * s.head_size * size_of(s.q) + tokens * s.row().read_bytes() + 4 * lists +
                     4 * (is_fp8(s.q) + (is_fp8(s.kv) && s.layout == LatentLayout::plain)) + written,
            .written = written,
            .flops = 2 * (s.head_size + std::int64_t{latent_value_size}) * pairs * c.q_heads,
            .flops_per_second = matrix_flops(facts_of(c.arch), s.q)};
  }

  /// The rounding of probabilities and of the output, and sums in f32.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    const std::int32_t head = row % p.num_q_heads, token = row / p.num_q_heads;
    const reference::MlaDecodeRow wanted =
        reference::mla_decode_row(p, token / p.query_tokens, token % p.query_tokens, head);
    const double score = wanted.score_error * (is_fp8(p.spec.q) ? 0x1p-12 : 0x1p-20);
    const std::int64_t at = token * p.out_row_stride + head * p.out_head_stride;
    for (std::int32_t d = 0; d < latent_value_size; ++d) {
      const double got = reference::element(DType::bf16, p.out, at + d), want = wanted.out[d];
      const double bound = reference::mla_probability_error(wanted, d, is_fp8(p.spec.q)) +
                           2 * score * wanted.magnitudes[d] + 0x1p-8 * std::abs(want) + 0x1p-130;
      errors.out(std::abs(got - want) <= bound, row, d, got, want);
    }
    if (p.lse == nullptr) return;
    const double got = p.lse[row];
    errors.expect(std::abs(got - wanted.lse) <= 1e-5 * (1 + std::abs(wanted.lse)) + score, "lse", row, 0, got,
                  wanted.lse);
  }
};

}  // namespace tilewave::bench
