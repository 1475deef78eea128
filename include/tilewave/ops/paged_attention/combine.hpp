// SPDX-License-Identifier: MIT
// Combine the partial results of the splits: out = sum_p w_p o_p with w_p = exp(lse_p - lse). Grid: one wave per output
// row (sequence, mtp token, head), `waves` rows a block. No LDS, no barrier. Bound: the partials' bytes, from cache.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

template <class B, int head_size>
struct PagedAttentionCombine {
  using Room = B;
  using Args = PagedAttentionArgs;
  struct Shared {};

  static constexpr int lanes = B::facts.wave_lanes, waves = 4;
  static constexpr int block_threads = waves * lanes;
  static constexpr int waves_per_simd = 2;
  static constexpr int columns = head_size / lanes;  // head dimensions of one lane
  static_assert(columns * lanes == head_size);

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t row = B::block_id() * waves + B::wave_id();
    if (row >= a.output_rows) return;
    const std::int32_t splits = a.splits.divisor, column = B::lane_id() * columns;
    const float* partial_lse = a.partial_lse + std::int64_t{row} * splits;
    const float* partial_out = a.partial_out + std::int64_t{row} * splits * head_size + column;

    float maximum = -__builtin_inff();
    for (int p = 0; p < splits; ++p) maximum = __builtin_fmaxf(maximum, B::load(partial_lse + p));
    const float reference = maximum == -__builtin_inff() ? 0.0f : maximum;  // no split saw a token
    float sum = 0.0f;
    Vec<float, columns> out{};
    for (int p = 0; p < splits; ++p) {
      const float lse = B::load(partial_lse + p);
      const float weight = B::exp2((lse - reference) * log2_e);
      const auto partial = load_columns(partial_out + std::int64_t{p} * head_size);
      sum += weight;
      TILEWAVE_UNROLL
      for (int c = 0; c < columns; ++c) out[c] += weight * partial[c];
    }
    const float scale = sum == 0.0f ? 0.0f : 1.0f / sum;

    const std::int32_t out_row = row / a.num_q_heads, head = row - out_row * a.num_q_heads;
    auto* to = static_cast<std::uint16_t*>(a.out) + out_row * a.out_row_stride + head * a.out_head_stride + column;
    store_columns(to, out, scale);
    if (a.lse != nullptr && B::lane_id() == 0) {
      B::store(a.lse + row, sum == 0.0f ? -__builtin_inff() : reference + B::log2(sum) * ln_2);
    }
  }

 private:
  static constexpr int piece = columns < 4 ? columns : 4;  // one access is at most 16 bytes

  TILEWAVE_DEVICE static Vec<float, columns> load_columns(const float* from) {
    Vec<float, columns> values;
    TILEWAVE_UNROLL
    for (int i = 0; i < columns; i += piece) {
      const auto part = B::load(reinterpret_cast<const Vec<float, piece>*>(from + i));
      TILEWAVE_UNROLL
      for (int c = 0; c < piece; ++c) values[i + c] = part[c];
    }
    return values;
  }

  TILEWAVE_DEVICE static void store_columns(std::uint16_t* to, const Vec<float, columns>& values, float scale) {
    if constexpr (columns == 1) {
      B::store(to, static_cast<std::uint16_t>(B::pack_bf16(values[0] * scale, 0.0f)));
    } else {
      Vec<std::uint32_t, columns / 2> words;
      TILEWAVE_UNROLL
      for (int w = 0; w < columns / 2; ++w) words[w] = B::pack_bf16(values[2 * w] * scale, values[2 * w + 1] * scale);
      B::store(reinterpret_cast<decltype(words)*>(to), words);
    }
  }
};

}  // namespace tilewave
