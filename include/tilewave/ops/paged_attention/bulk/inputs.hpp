// SPDX-License-Identifier: MIT
// What a wave group of a bulk decode kernel reads once for each work item: queries and scales. It puts Q into shared
// memory and sets up the state before the first token.
#pragma once

#include "tilewave/ops/paged_attention/bulk/layout.hpp"

namespace tilewave {

/// L is a PagedAttentionBulkLayout. load() begins to read all inputs at the same time; set_up() waits for them.
template <class L>
class PagedAttentionBulkInputs {
  using B = typename L::Room;
  static constexpr PagedAttentionSpec spec = L::spec;
  static constexpr int row_chunks = spec.head_size / 8;  // 16-byte chunks of a row of Q; a lane has one of some rows

 public:
  TILEWAVE_DEVICE void load(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item) {
    k_scale = L::common_scale(a, a.k_scale, item.kv_head);
    v_scale = L::common_scale(a, a.v_scale, item.kv_head);
    q = {};
    TILEWAVE_UNROLL
    for (int i = 0; i < q.size; ++i) {
      if (row_of(i) >= L::rows || item.first_row + row_of(i) >= a.rows) continue;
      const QueryRow query = query_row(a, item, item.first_row + row_of(i));
      const auto* row =
          static_cast<const std::uint16_t*>(a.q) + query.out_row * a.q_row_stride + query.head * a.q_head_stride;
      q[i] = B::load(reinterpret_cast<const Chunk*>(row) + chunk());
    }
  }

  TILEWAVE_DEVICE void set_up(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item, typename L::State& s,
                              typename L::GroupShared& group) {
    TILEWAVE_UNROLL
    for (int i = 0; i < q.size; ++i) {
      if (row_of(i) >= L::rows) break;  // true for all lanes of a wave, or for none
      Chunk& loaded = q[i];
      if constexpr (L::scales_q) {
        const float scale = scale_row(loaded);
        if (chunk() == 0) group.q_scale[row_of(i)] = scale;
      }
      auto* column = &group.operand.q[0][row_of(i)];
      const auto half_of = [&](int c) {
        return reinterpret_cast<Vec<std::uint32_t, 2>*>(column + c * L::rows) + chunk() % 2;
      };
      if constexpr (spec.native) {
        *half_of(chunk() / 2) = {{loaded[0], loaded[1]}};
      } else if constexpr (L::widened) {  // in the order in which units of K are dealt out, see token_of
        auto* low = half_of(chunk() / 2 * 2);
        low[0] = {{loaded[0], loaded[2]}};
        low[2 * L::rows] = {{loaded[1], loaded[3]}};
      } else {
        column[chunk() * L::rows] = loaded;
      }
    }
    B::shared_written();
    B::group_barrier();
    s.v_scale = v_scale / L::probability_scale;
    L::each_row([&](int octet, int r) {
      const int row = L::row_of(B::lane_id(), octet, r);
      const QueryRow query = query_row(a, item, min_of(item.first_row + row, a.rows - 1));
      s.causal_end[octet][r] = item.end - a.query_tokens + 1 + query.token;
      s.row_max[octet][r] = L::minus_infinity;
      s.row_sum[octet][r] = 0.0f;
      s.factor[octet][r] = a.scale_log2 * k_scale * (L::scales_q ? group.q_scale[row] : 1.0f);
      if constexpr (spec.alibi) s.slope[octet][r] = B::load(a.alibi_slopes + query.head) * log2_e;
    });
    TILEWAVE_UNROLL
    for (int d = 0; d < L::out_tiles; ++d) s.out[d] = {};
  }

 private:
  TILEWAVE_DEVICE static int row_of(int i) { return (i * L::wave_group_lanes + L::wave_group_lane()) / row_chunks; }
  TILEWAVE_DEVICE static int chunk() { return L::wave_group_lane() % row_chunks; }

  /// Elements 2 w and 2 w + 1 of a chunk of Q.
  TILEWAVE_DEVICE static Vec<float, 2> pair_of(const Chunk& chunk, int w) {
    if constexpr (spec.q == DType::f16) {
      return B::widen_f16(chunk[w]);
    } else {
      return {{__builtin_bit_cast(float, chunk[w] << 16), __builtin_bit_cast(float, chunk[w] & 0xffff0000u)}};
    }
  }

  /// Scales a row of Q, of which each lane has a chunk, by a power of two and rounds it. Widened products take f16: the
  /// largest element comes to [2^14, 2^15), and 2^-28 of it is still exact. Native products take fp8, in the first two
  /// words: the largest element comes to [2^7, 2^8), and elements down to 2^-13 of it are rounded as exactly as it is.
  /// Returns the power of two that the row was divided by, or NaN for infinities in fp8, which has none.
  TILEWAVE_DEVICE static float scale_row(Chunk& chunk) {
    constexpr int power = spec.native ? 7 : 14;
    std::uint32_t top = 0;  // magnitudes are ordered by exponent and mantissa, so integers compare them
    TILEWAVE_UNROLL
    for (int w = 0; w < 4; ++w) {
      const Vec<float, 2> x = pair_of(chunk, w);
      top = max_of(top, max_of(__builtin_bit_cast(std::uint32_t, x[0]) & 0x7fffffffu,
                               __builtin_bit_cast(std::uint32_t, x[1]) & 0x7fffffffu));
    }
    TILEWAVE_UNROLL
    for (int mask = 1; mask < row_chunks; mask *= 2) top = max_of(top, B::shuffle_xor(top, mask));
    if (spec.native && top >= 0x7f800000u) return __builtin_nanf("");     // fp8 would make it its largest value
    const std::uint32_t exponent = min_of(max_of(top >> 23, 15u), 254u);  // any exponent serves zeros and infinities
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

  Vec<Chunk, ceil_div(L::rows* row_chunks, L::wave_group_lanes)> q;
  float k_scale, v_scale;  // common to all tokens of the KV head
};

}  // namespace tilewave
