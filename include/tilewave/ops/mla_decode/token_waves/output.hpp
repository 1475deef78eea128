// SPDX-License-Identifier: MIT
// The waves of a block of path token_waves add up what they have of its rows, in LDS, where no values are needed any
// more, and write them: 128 columns of sixteen rows at a time, whole cache lines.
#pragma once

#include "tilewave/ops/mla_decode/row_output.hpp"
#include "tilewave/ops/mla_decode/token_waves/main_loop.hpp"

namespace tilewave {

template <class L>
struct MlaTokenWavesOutput {
  using B = typename L::B;
  using Map = typename L::Map;
  using Loop = MlaTokenWavesLoop<L>;
  using Merged = typename L::Merged;
  using Write = MlaDecodeRowOutput<B, L::policy>;
  using Four = Vec<float, 4>;
  static constexpr int waves = L::waves, row_tiles = L::row_tiles, columns = Merged::columns;
  static constexpr int passes = latent_value_size / columns, pass_groups = columns / L::group_columns;
  static constexpr int row_lanes = columns / 4, rows_together = L::lanes / row_lanes, wave_rows = L::side / waves;

  TILEWAVE_DEVICE static void write(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item, const Loop& s,
                                    typename L::Shared& lds) {
    Merged& shared = lds.merged;
    const int lane = L::lane(), wave = B::wave_id(), row = Map::row(lane);
    MlaDecodeRowScale scale[row_tiles];
    float factor[row_tiles], v_scale = 1.0f;
    if constexpr (mla_one_scale(L::spec)) v_scale = B::load(a.k_scale);
    B::lds_barrier();  // nobody reads values any more
    TILEWAVE_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
      float sum = s.sum[r];
      sum += B::shuffle_xor(sum, 16);
      sum += B::shuffle_xor(sum, 32);
      if (Map::unit(lane) == 0) {
        shared.reference[wave][r * L::side + row] = s.reference[r];
        shared.sum[wave][r * L::side + row] = sum;
      }
    }
    B::lds_barrier();
    TILEWAVE_UNROLL
    for (int r = 0; r < row_tiles; ++r) {
      // The row's sums of all waves, relative to the largest reference.
      const int in_block = r * L::side + row;
      float reference = shared.reference[0][in_block], sum = 0.0f;
      TILEWAVE_UNROLL
      for (int w = 1; w < waves; ++w) reference = Max{}(reference, shared.reference[w][in_block]);
      TILEWAVE_UNROLL
      for (int w = 0; w < waves; ++w)
        sum += shared.sum[w][in_block] * B::exp2(shared.reference[w][in_block] - reference);
      const MlaDecodeRow of{in_block, min_of(item.first_row + in_block, a.rows - 1), sum, reference};
      scale[r] = Write::scale(a, item, of, v_scale, wave == 0 && Map::unit(lane) == 0);
      factor[r] = B::exp2(s.reference[r] - reference);
    }

    static_for<row_tiles * passes>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      constexpr int r = i / passes, pass = i % passes;
      if constexpr (i > 0) B::lds_barrier();  // nobody reads the columns before any more
      TILEWAVE_UNROLL
      for (int g = 0; g < pass_groups; ++g) {
        TILEWAVE_UNROLL
        for (int of = 0; of < Map::sums; ++of) {
          float* const to = shared.sums[wave][row] + g * L::group_columns + L::group_tiles * Map::kv_row(lane, of);
          TILEWAVE_UNROLL
          for (int d = 0; d < L::group_tiles; d += 4) {
            Four values;
            TILEWAVE_UNROLL
            for (int n = 0; n < 4; ++n) {
              const auto& sums = s.out[(pass * pass_groups + g) * L::group_tiles + d + n][r];
              values[n] = scale[r].template of<B>(sums[of] * factor[r]);
            }
            *reinterpret_cast<Four*>(to + d) = values;
          }
        }
      }
      B::lds_barrier();
      const int from = L::lane(), first = from / row_lanes, column = from % row_lanes * 4;
      TILEWAVE_UNROLL
      for (int of = 0; of < wave_rows; of += rows_together) {
        const std::int32_t in_tile = wave * wave_rows + of + first, in_block = r * L::side + in_tile;
        Four values = {};
        TILEWAVE_UNROLL
        for (int w = 0; w < waves; ++w) {
          const auto part = *reinterpret_cast<const Four*>(shared.sums[w][in_tile] + column);
          TILEWAVE_UNROLL
          for (int n = 0; n < 4; ++n) values[n] += part[n];
        }
        if (!Write::is_row(a, item, in_block)) continue;
        if (scale[0].partial) {
          const MlaDecodeRow to{in_block, item.first_row + in_block, 0.0f, 0.0f};
          B::store(reinterpret_cast<Four*>(Write::partial_out(a, item, to) + pass * columns + column), values);
        } else {
          std::uint16_t* const out = Write::out(a, item, item.first_row + in_block);
          B::store(reinterpret_cast<Vec<std::uint32_t, 2>*>(out + pass * columns + column),
                   narrow<B, DType::bf16, 4>(values));
        }
      }
    });
  }
};

}  // namespace tilewave
