// SPDX-License-Identifier: MIT
// The end of an item: rows are divided by their sums and stored, 64 bytes at a time.
#pragma once

#include "tilewave/ops/flash_attention/tensor/work.hpp"

namespace tilewave {

template <class B, FlashAttentionSpec S, class L>
struct FlashAttentionOutput {
  template <class Softmax>
  TILEWAVE_DEVICE static void write(const FlashAttentionArgs& a, const FlashAttentionItem& item, const Softmax& softmax,
                                    const typename L::Output& out) {
    const AttentionSequence& s = item.sequence;
    TILEWAVE_UNROLL
    for (int h = 0; h < Softmax::rows; ++h) {
      const JoinedSink joined = softmax.finish(h);
      const std::int32_t row = softmax.row(h);
      const bool there = row < s.q_count;
      auto* const to = static_cast<std::uint16_t*>(a.out) + s.query_at(a, a.out_strides, there ? row : 0, item.head);
      write_row(out, h, joined.out_scale, to, there);
      if (there && a.lse != nullptr && B::lane_id() % 4 == 0) {
        B::store(a.lse + item.head * a.lse_head_stride + s.q_first + row, joined.lse);
      }
    }
  }

 private:
  /// Four lanes have a row, two columns each of every eight. Of each 32 columns they exchange words, so that a lane has
  /// eight neighbours.
  TILEWAVE_DEVICE static void write_row(const typename L::Output& out, int h, float scale, std::uint16_t* to,
                                        bool there) {
    const int quarter = B::lane_id() % 4;
    TILEWAVE_UNROLL
    for (int part = 0; part < L::value_parts; ++part) {
      TILEWAVE_UNROLL
      for (int first = 0; first < L::value_columns; first += 32) {
        Chunk words;
        TILEWAVE_UNROLL
        for (int w = 0; w < 4; ++w) {
          const int i = (first / 8 + w) * 4 + 2 * h;
          words[w] = round_out(out.of[part][i] * scale, out.of[part][i + 1] * scale);
        }
        exchange<1>(words, quarter);
        exchange<2>(words, quarter);
        if (!there) continue;
        B::store(reinterpret_cast<Chunk*>(to + part * L::value_columns + first + 8 * quarter), words);
      }
    }
  }
  /// Transposes squares of 2 x 2 words among lanes that are `distance` apart.
  template <int distance>
  TILEWAVE_DEVICE static void exchange(Chunk& words, int quarter) {
    const bool upper = (quarter & distance) != 0;
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      if ((w & distance) != 0) continue;
      const std::uint32_t other = B::shuffle_xor(upper ? words[w] : words[w + distance], distance);
      words[w] = upper ? other : words[w];
      words[w + distance] = upper ? words[w + distance] : other;
    }
  }
  TILEWAVE_DEVICE static std::uint32_t round_out(float low, float high) {
    return S.out == DType::f16 ? B::pack_f16(low, high) : B::round_bf16(low, high);
  }
};

}  // namespace tilewave
