// SPDX-License-Identifier: MIT
// Combine the partial results of the splits: out = sum_p w_p o_p with w_p = exp(lse_p - lse). Grid: one wave per output
// row (sequence, mtp token, head), `waves` rows a block. No LDS, no barrier. Bound: latency of two dependent reads, so
// a lane holds the weights of its own splits and partials are read `batch` at a time.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/paged_attention/args.hpp"
#include "tilewave/ops/paged_attention/sink.hpp"

namespace tilewave {

template <class B, int head_size>
struct PagedAttentionCombine {
  using Room = B;
  using Args = PagedAttentionArgs;
  struct Shared {};

  static constexpr int lanes = B::facts.wave_lanes, waves = 4;
  static constexpr int block_threads = waves * lanes;
  static constexpr int waves_per_simd = 2;
  static constexpr int columns = head_size / lanes;         // head dimensions of one lane
  static constexpr int held = ceil_div(max_splits, lanes);  // weights of one lane
  static constexpr int batch = 8;
  static_assert(columns * lanes == head_size && lanes % batch == 0);

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t row = B::block_id() * waves + B::wave_id();
    if (row >= a.output_rows) return;
    const std::int32_t splits = a.splits.divisor, column = B::lane_id() * columns;
    const float* partial_lse = a.partial_lse + std::int64_t{row} * splits;
    const float* partial_out = a.partial_out + std::int64_t{row} * splits * head_size + column;

    constexpr float minus_infinity = -__builtin_inff();
    float weight[held], maximum = minus_infinity;
    TILEWAVE_UNROLL
    for (int i = 0; i < held; ++i) {
      const int p = i * lanes + B::lane_id();
      weight[i] = p < splits ? B::load(partial_lse + p) : minus_infinity;
      maximum = __builtin_fmaxf(maximum, weight[i]);
    }
    maximum = over_wave(maximum, [](float x, float y) { return __builtin_fmaxf(x, y); });
    const float reference = maximum == minus_infinity ? 0.0f : maximum;  // no split saw a token
    float sum = 0.0f;
    TILEWAVE_UNROLL
    for (int i = 0; i < held; ++i) {
      weight[i] = B::exp2((weight[i] - reference) * log2_e);
      sum += weight[i];
    }
    sum = over_wave(sum, [](float x, float y) { return x + y; });

    Vec<float, columns> out{};
    static_for<held>([&](auto i) {
      for (int first = i * lanes; first < min_of(splits, (i + 1) * lanes); first += batch) {
        Vec<float, columns> partial[batch];
        TILEWAVE_UNROLL
        for (int j = 0; j < batch; ++j) {  // past the last split: the last one again, with a weight of zero
          partial[j] = load_columns(partial_out + std::int64_t{min_of(first + j, splits - 1)} * head_size);
        }
        TILEWAVE_UNROLL
        for (int j = 0; j < batch; ++j) {
          const float w = B::shuffle(weight[i], (first + j) % lanes);
          TILEWAVE_UNROLL
          for (int c = 0; c < columns; ++c) out[c] += w * partial[j][c];
        }
      }
    });
    float scale = sum == 0.0f ? 0.0f : 1.0f / sum;
    float lse = sum == 0.0f ? minus_infinity : reference + B::log2(sum) * ln_2;

    const std::int32_t out_row = row / a.num_q_heads, head = row - out_row * a.num_q_heads;
    if (a.sinks != nullptr) {
      const JoinedSink joined = join_sink<B>(lse, B::load(a.sinks + head));
      scale *= joined.share;
      lse = joined.lse;
    }
    auto* to = static_cast<std::uint16_t*>(a.out) + out_row * a.out_row_stride + head * a.out_head_stride + column;
    store_columns(to, out, scale);
    if (a.lse != nullptr && B::lane_id() == 0) B::store(a.lse + row, lse);
  }

 private:
  template <class F>
  TILEWAVE_DEVICE static float over_wave(float x, F combine) {
    TILEWAVE_UNROLL
    for (int mask = 1; mask < lanes; mask *= 2) x = combine(x, B::shuffle_xor(x, mask));
    return x;
  }

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
      B::store(to, static_cast<std::uint16_t>(B::round_bf16(values[0] * scale, 0.0f)));
    } else {
      Vec<std::uint32_t, columns / 2> words;
      TILEWAVE_UNROLL
      for (int w = 0; w < columns / 2; ++w) words[w] = B::round_bf16(values[2 * w] * scale, values[2 * w + 1] * scale);
      B::store(reinterpret_cast<decltype(words)*>(to), words);
    }
  }
};

}  // namespace tilewave
