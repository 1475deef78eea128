// SPDX-License-Identifier: MIT
// What a wave group of a staged decode kernel reads once: queries and scales, and how it starts with them.
#pragma once

#include "tilewave/ops/paged_attention/bulk/layout.hpp"

namespace tilewave {

/// L is a PagedAttentionStagedLayout. load() begins to read all of it at the same time; set_up() needs it.
template <class L>
class PagedAttentionStagedInputs {
  using B = typename L::Room;
  static constexpr PagedAttentionSpec spec = L::spec;
  static constexpr int row_pieces = spec.head_size / 8;  // 16 bytes of a row of Q, a few for each lane

 public:
  TILEWAVE_DEVICE void load(const PagedAttentionArgs& a, const PagedAttentionPlace& at) {
    k_scale = L::common_scale(a, a.k_scale, at.kv_head);
    v_scale = L::common_scale(a, a.v_scale, at.kv_head);
    q = {};
    TILEWAVE_UNROLL
    for (int i = 0; i < q.size; ++i) {
      if (row_of(i) >= L::rows || at.first_row + row_of(i) >= a.rows) continue;
      const QueryRow query = query_row(a, at, at.first_row + row_of(i));
      const auto* row =
          static_cast<const std::uint16_t*>(a.q) + query.out_row * a.q_row_stride + query.head * a.q_head_stride;
      q[i] = B::load(reinterpret_cast<const Chunk*>(row) + piece());
    }
  }

  /// Q into shared memory, and the state before the first token.
  TILEWAVE_DEVICE void set_up(const PagedAttentionArgs& a, const PagedAttentionPlace& at, typename L::State& s,
                              typename L::OfGroup& own) {
    TILEWAVE_UNROLL
    for (int i = 0; i < q.size; ++i) {
      if (row_of(i) >= L::rows) break;  // whole waves
      Chunk& here = q[i];
      if constexpr (L::scales_q) {
        const float scale = scale_row(here);
        if (piece() == 0) own.q_scale[row_of(i)] = scale;
      }
      auto* column = &own.operand.q[0][row_of(i)];
      const auto half_of = [&](int chunk) {
        return reinterpret_cast<Vec<std::uint32_t, 2>*>(column + chunk * L::rows) + piece() % 2;
      };
      if constexpr (spec.native) {
        *half_of(piece() / 2) = {{here[0], here[1]}};
      } else if constexpr (L::widened) {  // as units of K are dealt out
        auto* low = half_of(piece() / 2 * 2);
        low[0] = {{here[0], here[2]}};
        low[2 * L::rows] = {{here[1], here[3]}};
      } else {
        column[piece() * L::rows] = here;
      }
    }
    B::shared_written();
    B::group_barrier();
    s.v_scale = v_scale / L::probability_scale;
    L::each_row([&](int j, int e) {
      const int row = L::query_of(B::lane_id(), j, e);
      const QueryRow query = query_row(a, at, min_of(at.first_row + row, a.rows - 1));
      s.causal_end[j][e] = at.end - a.query_tokens + 1 + query.token;
      s.row_max[j][e] = L::minus_infinity;
      s.row_sum[j][e] = 0.0f;
      s.factor[j][e] = a.scale_log2 * k_scale * (L::scales_q ? own.q_scale[row] : 1.0f);
      if constexpr (spec.alibi) s.slope[j][e] = B::load(a.alibi_slopes + query.head) * log2_e;
    });
    TILEWAVE_UNROLL
    for (int d = 0; d < L::out_tiles; ++d) s.out[d] = {};
  }

 private:
  TILEWAVE_DEVICE static int row_of(int i) { return (i * L::group_lanes + L::group_lane()) / row_pieces; }
  TILEWAVE_DEVICE static int piece() { return L::group_lane() % row_pieces; }

  /// Elements 2 w and 2 w + 1 of a chunk of Q.
  TILEWAVE_DEVICE static Vec<float, 2> pair_of(const Chunk& chunk, int w) {
    if constexpr (spec.q == DType::f16) {
      return B::widen_f16(chunk[w]);
    } else {
      return {{__builtin_bit_cast(float, chunk[w] << 16), __builtin_bit_cast(float, chunk[w] & 0xffff0000u)}};
    }
  }

  /// A row of Q, a chunk a lane, from bf16 to f16, its largest element brought to [2^14, 2^15), where even 2^-28 of it
  /// is still exact; or to fp8, in the first two words, to [2^7, 2^8), of which 2^-13 is as exact as it. Returns the
  /// power of two it was divided by; NaN for infinities in fp8, which has none.
  TILEWAVE_DEVICE static float scale_row(Chunk& chunk) {
    constexpr int power = spec.native ? 7 : 14;
    std::uint32_t top = 0;  // exponent and mantissa order magnitudes, as integers
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const Vec<float, 2> x = pair_of(chunk, w);
      top = max_of(top, max_of(__builtin_bit_cast(std::uint32_t, x[0]) & 0x7fffffffu,
                               __builtin_bit_cast(std::uint32_t, x[1]) & 0x7fffffffu));
    }
    TILEWAVE_UNROLL
    for (int mask = 1; mask < row_pieces; mask *= 2) top = max_of(top, B::shuffle_xor(top, mask));
    if (spec.native && top >= 0x7f800000u) return __builtin_nanf("");     // fp8 would be its largest value
    const std::uint32_t exponent = min_of(max_of(top >> 23, 15u), 254u);  // of zeros and infinities, any
    const float factor = __builtin_bit_cast(float, (127 + power + 127 - exponent) << 23);
    if constexpr (spec.native) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 2; ++w) {
        const Vec<float, 2> x = pair_of(chunk, 2 * w), y = pair_of(chunk, 2 * w + 1);
        chunk[w] = B::pack_fp8(x[0] * factor, x[1] * factor, y[0] * factor, y[1] * factor);
      }
    } else {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        const Vec<float, 2> x = pair_of(chunk, w);
        chunk[w] = B::pack_f16(x[0] * factor, x[1] * factor);
      }
    }
    return __builtin_bit_cast(float, (exponent - power) << 23);
  }

  Vec<Chunk, ceil_div(L::rows* row_pieces, L::group_lanes)> q;
  float k_scale, v_scale;  // common to all tokens
};

}  // namespace tilewave
