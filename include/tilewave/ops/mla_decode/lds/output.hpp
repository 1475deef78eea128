// SPDX-License-Identifier: MIT
// A wave of path lds writes its rows. A lane has few columns of one row side by side, so sums go through LDS, where no
// tiles are needed any more, 64 columns of all rows at a time: lanes then write whole cache lines.
#pragma once

#include "tilewave/ops/mla_decode/lds/main_loop.hpp"
#include "tilewave/ops/mla_decode/row_output.hpp"

namespace tilewave {

template <class L>
struct MlaLdsOutput {
  using B = typename L::B;
  using Products = MlaLdsProducts<L>;
  using Write = MlaDecodeRowOutput<B, L::policy>;
  using Four = Vec<float, 4>;
  static constexpr int lane_rows = MlaLdsState<L>::score_rows;
  static constexpr int rows = mla_lds_wave_rows, columns = 64, passes = latent_value_size / columns;
  // A gap of 16 bytes behind each row spreads rows over banks.
  static constexpr int pitch = columns + 4, row_lanes = columns / 4, rows_together = L::lanes / row_lanes;
  static_assert(L::row_waves * rows * pitch * sizeof(float) <= sizeof(typename L::Shared), "all waves write at once");

  TILEWAVE_DEVICE static void write(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                    const MlaLdsState<L>& s, typename L::Shared& shared) {
    const int lane = L::lane(), first_row = B::wave_id() * rows;
    float v_scale = 1.0f;
    if constexpr (mla_one_scale(L::spec)) v_scale = B::load(a.k_scale);
    float* const wave = reinterpret_cast<float*>(&shared) + first_row * pitch;
    MlaDecodeRowScale scale[lane_rows];
    TILEWAVE_UNROLL
    for (int r = 0; r < lane_rows; ++r) {
      const MlaDecodeRow of =
          row(a, item, first_row + Products::row(lane, r), Products::over_lanes(s.sum[r], Sum{}), s.reference[r]);
      scale[r] = Write::scale(a, item, of, v_scale, L::Map::unit(lane) == 0);
    }
    // A wave alone is faster without. Of fp8, LLVM has no registers left for both.
    if constexpr (L::row_waves == 1 && L::element == 2) {
      write_straight(a, item, s, scale);
      return;
    }
    float* const put = wave + Products::row(lane, 0) * pitch;
    static_for<passes>([&](auto pass) TILEWAVE_INLINE_LAMBDA {
      Products::template each_run<pass>(s.out, [&](int r, int column, const Four& sums) TILEWAVE_INLINE_LAMBDA {
        Four values;
        TILEWAVE_UNROLL
        for (int i = 0; i < 4; ++i) values[i] = scale[r].template of<B>(sums[i]);
        *reinterpret_cast<Four*>(put + r * (rows / lane_rows) * pitch + column) = values;
      });
      B::wave_barrier();
      const int from = L::lane();  // made anew, as sums leave no registers for what follows from it
      const float* const take = wave + from / row_lanes * pitch + from % row_lanes * 4;
      TILEWAVE_UNROLL
      for (int r = 0; r < rows; r += rows_together) {
        const auto values = *reinterpret_cast<const Four*>(take + r * pitch);
        const std::int32_t in_block = first_row + r + from / row_lanes;
        if (!Write::is_row(a, item, in_block)) continue;
        const int column = pass * columns + from % row_lanes * 4;
        if (scale[0].partial) {
          B::store(reinterpret_cast<Four*>(Write::partial_out(a, item, row(a, item, in_block, 0.0f, 0.0f)) + column),
                   values);
        } else {
          B::store(reinterpret_cast<Vec<std::uint32_t, 2>*>(Write::out(a, item, item.first_row + in_block) + column),
                   narrow<B, DType::bf16, 4>(values));
        }
      }
      B::wave_barrier();
    });
  }

 private:
  TILEWAVE_DEVICE static void write_straight(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                             const MlaLdsState<L>& s, const MlaDecodeRowScale (&scale)[lane_rows]) {
    static_assert(lane_rows == 1 || L::row_waves > 1, "a lane that writes straight has one row");
    const std::int32_t in_block = B::wave_id() * rows + Products::row(L::lane(), 0);
    if (!Write::is_row(a, item, in_block)) return;
    const MlaDecodeRow of = row(a, item, in_block, 0.0f, 0.0f);
    float* const partial = Write::partial_out(a, item, of);
    std::uint16_t* const out = Write::out(a, item, of.in_sequence);
    static_for<passes>([&](auto pass) TILEWAVE_INLINE_LAMBDA {
      Products::template each_run<pass>(s.out, [&](int, int column, const Four& sums) TILEWAVE_INLINE_LAMBDA {
        Four values;
        TILEWAVE_UNROLL
        for (int i = 0; i < 4; ++i) values[i] = scale[0].template of<B>(sums[i]);
        if (scale[0].partial) {
          B::store(reinterpret_cast<Four*>(partial + pass * columns + column), values);
        } else {
          B::store(reinterpret_cast<Vec<std::uint32_t, 2>*>(out + pass * columns + column),
                   narrow<B, DType::bf16, 4>(values));
        }
      });
    });
  }
  TILEWAVE_DEVICE static MlaDecodeRow row(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                          std::int32_t in_block, float sum, float reference) {
    return {in_block, min_of(item.first_row + in_block, a.rows - 1), sum, reference};
  }
};

}  // namespace tilewave
