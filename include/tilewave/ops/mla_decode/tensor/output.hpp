// SPDX-License-Identifier: MIT
// At the end of an item, each wave group writes its 256 columns of all rows: the output, which passes through the place
// of q so that lanes store 16 bytes, or a partial result. q of fp8 has a place for half of the output at a time.
#pragma once

#include "tilewave/ops/mla_decode/tensor/softmax.hpp"

namespace tilewave {

/// `Softmax` knows the lane's rows, their sums and references, as MlaDecodeSoftmax does.
template <class B, class L, class Softmax = MlaDecodeSoftmax<B, L>>
struct MlaDecodeOutput {
  static constexpr int wave_rows = 16, row_units = L::half_columns / 8;
  static constexpr int places = 2, place_units = row_units / places;
  static_assert(L::lanes == row_units && place_units == 2 * L::box_chunks, "a wave stores whole rows");

  /// `total` has the sums of the lane's rows. Nobody else uses `staged` until release() is called: two
  /// places of two boxes of 64 rows by 128 bytes.
  template <class Release>
  TILEWAVE_DEVICE static void write(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item,
                                    const Softmax& softmax, const float (&total)[2], const typename L::Sums& out,
                                    int group, Chunk* const (&staged)[places], const Release& release) {
    const PagedAttentionArgs& a = args.attention;
    float scale[2];
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      scale[h] = total[h] == 0.0f ? 0.0f : 1.0f / total[h];
      float lse = softmax.lse(h, total[h]);
      const std::int32_t row = item.first_row + softmax.block_row(h);
      const QueryRow query = query_row(a, item, min_of(row, a.rows - 1));
      if (item.slot < 0 && a.sinks != nullptr) {
        const JoinedSink joined = join_sink<B>(lse, B::load(a.sinks + query.head));
        scale[h] *= joined.out_scale;
        lse = joined.lse;
      }
      if (row >= a.rows || group != 0 || B::lane_id() % 4 != 0) continue;
      const std::int64_t index = query.out_row * a.num_q_heads + query.head;
      if (item.slot >= 0) {
        B::store(a.partial_lse + partial(a, item, softmax.block_row(h), index), lse);
      } else if (a.lse != nullptr) {
        B::store(a.lse + index, lse);
      }
    }
    if (item.slot >= 0) {
      release();
      write_partial(a, item, softmax, out, scale, group);
    } else {
      write_rows(a, item, softmax, out, scale, group, staged, release);
    }
  }

 private:
  TILEWAVE_DEVICE static std::int64_t partial(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                              int block_row, std::int64_t index) {
    return L::policy.balanced() ? std::int64_t{item.slot} * L::rows + block_row : index * a.splits.divisor + item.slot;
  }

  TILEWAVE_DEVICE static void write_partial(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                            const Softmax& softmax, const typename L::Sums& out,
                                            const float (&scale)[2], int group) {
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const std::int32_t row = item.first_row + softmax.block_row(h);
      if (row >= a.rows) continue;
      const QueryRow query = query_row(a, item, row);
      float* const to =
          a.partial_out +
          partial(a, item, softmax.block_row(h), query.out_row * a.num_q_heads + query.head) * latent_value_size +
          group * L::half_columns + 2 * (B::lane_id() % 4);
      TILEWAVE_UNROLL
      for (int j = 0; j < L::half_columns / 8; ++j) {
        B::store(reinterpret_cast<Vec<float, 2>*>(to + 8 * j),
                 Vec<float, 2>{{out.at(4 * j + 2 * h) * scale[h], out.at(4 * j + 2 * h + 1) * scale[h]}});
      }
    }
  }

  template <class Release>
  TILEWAVE_DEVICE static void write_rows(const PagedAttentionArgs& a, const PagedAttentionWorkItem& item,
                                         const Softmax& softmax, const typename L::Sums& out, const float (&scale)[2],
                                         int group, Chunk* const (&staged)[places], const Release& release) {
    const int lane = B::lane_id(), first_row = softmax.block_row(0) - lane / 4;  // of the wave
    const int matrix = lane / 8, lane_row = first_row + lane % 8 + 8 * (matrix % 2);
    TILEWAVE_UNROLL
    for (int square = 0; square < row_units / 2; ++square) {
      Chunk words;
      TILEWAVE_UNROLL
      for (int m = 0; m < 4; ++m) {
        const int i = 8 * square + 4 * (m / 2) + 2 * (m % 2);
        // Combine adds partial results to 0, which turns -0 into +0. So does this.
        words[m] = B::round_bf16(fused(out.at(i), scale[m % 2], 0.0f), fused(out.at(i + 1), scale[m % 2], 0.0f));
      }
      const int unit = 2 * square % place_units + matrix / 2;
      B::template store_matrices_straight<4>(staged[2 * square / place_units] + chunk(lane_row, unit), words);
    }
    B::wave_barrier();
    const Chunk* const from = lane < place_units ? staged[0] : staged[1];
    TILEWAVE_ROLL
    for (int r = first_row; r < first_row + wave_rows; ++r) {
      const std::int32_t row = item.first_row + r;
      if (row >= a.rows) continue;
      const QueryRow query = query_row(a, item, row);
      auto* const to = static_cast<std::uint16_t*>(a.out) + query.out_row * a.out_row_stride +
                       query.head * a.out_head_stride + group * L::half_columns;
      B::store(reinterpret_cast<Chunk*>(to) + lane, from[chunk(r, lane % place_units)]);
    }
    B::shared_written();
    release();
  }
  TILEWAVE_DEVICE static int chunk(int row, int unit) {
    return unit / L::box_chunks * L::box_size + L::chunk_of(row, unit % L::box_chunks);
  }
};

}  // namespace tilewave
