// SPDX-License-Identifier: MIT
// What a wave group of a staged decode kernel reads once: queries and scales, and how it starts with them.
#pragma once

#include "tilewave/ops/paged_attention/staged_layout.hpp"

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
      if constexpr (L::widened) {  // as units of K are dealt out
        auto* low = reinterpret_cast<Vec<std::uint32_t, 2>*>(column + piece() / 2 * 2 * L::rows) + piece() % 2;
        low[0] = {{here[0], here[2]}};
        low[2 * L::rows] = {{here[1], here[3]}};
      } else {
        column[piece() * L::rows] = here;
      }
    }
    B::shared_written();
    B::group_barrier();
    s.v_scale = v_scale / L::lift;
    L::each_row([&](int j, int e) {
      const int row = L::query_of(B::lane_id(), j, e);
      const QueryRow query = query_row(a, at, min_of(at.first_row + row, a.rows - 1));
      s.causal_end[j][e] = at.end - a.mtp + 1 + query.token;
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

  /// A row of Q, a chunk a lane, from bf16 to f16, its largest element brought to [2^14, 2^15), where even 2^-28 of it
  /// is still exact: returns the power of two it was divided by.
  TILEWAVE_DEVICE static float scale_row(Chunk& chunk) {
    std::uint32_t top = 0;  // exponent and mantissa order magnitudes, as integers
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) top = max_of(top, max_of(chunk[w] & 0x7fff0000u, chunk[w] << 16 & 0x7fff0000u));
    TILEWAVE_UNROLL
    for (int mask = 1; mask < row_pieces; mask *= 2) top = max_of(top, B::shuffle_xor(top, mask));
    const std::uint32_t exponent = min_of(max_of(top >> 23, 15u), 254u);  // of zeros and infinities, any
    const float factor = __builtin_bit_cast(float, (127 + 14 + 127 - exponent) << 23);
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      chunk[w] = B::pack_f16(__builtin_bit_cast(float, chunk[w] << 16) * factor,
                             __builtin_bit_cast(float, chunk[w] & 0xffff0000u) * factor);
    }
    return __builtin_bit_cast(float, (exponent - 14) << 23);
  }

  Vec<Chunk, ceil_div(L::rows* row_pieces, L::group_lanes)> q;
  float k_scale, v_scale;  // common to all tokens
};

}  // namespace tilewave
