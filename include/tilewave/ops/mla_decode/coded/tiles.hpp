// SPDX-License-Identifier: MIT
// The products of a wave group with tiles of codes, which become operands in registers.
#pragma once

#include "tilewave/core/static_for.hpp"
#include "tilewave/ops/mla_decode/coded/layout.hpp"

namespace tilewave {

/// Codes of the next 64 dimensions are read, and widened, while products of those before go on. `wide`: the group's
/// last values are bf16. That is no variable, or ptxas has products wait for one another (C7512).
template <class B, class L, bool wide>
class MlaDecodeCodedTiles {
 public:
  using Place = RingSlot<L::stages>;

  /// `wave`: 0 to 3 of the group.
  TILEWAVE_DEVICE MlaDecodeCodedTiles(typename L::Shared& shared, int group, int wave) : shared_(shared), wave_(wave) {
    const int lane = B::lane_id(), row = L::token_of(lane / 4), of_matrix = L::token_of(lane % 8);
    key_ = L::chunk_of(16 * wave + row, lane % 4);
    first_block_ = 2 * L::first_value_box(group);
    value_ = L::chunk_of(lane / 16 * 16 + lane / 8 % 2 * 8 + of_matrix, wave) + L::first_value_box(group) * L::box_size;
  }

  /// Makes the scores of the tile in a place, of whose tokens `there` are the sequence's. Where scales are of groups,
  /// these are scores of codes, in units of their token and row.
  template <class Before>
  TILEWAVE_DEVICE void make_scores(const Place& at, std::int32_t there, typename L::Scores& scores,
                                   const Before& products_before) {
    B::mbarrier_wait(&shared_.full[at.slot], at.round);
    if (there < L::tokens) clear_behind(there, shared_.codes[at.slot]);
    const Chunk* const codes = shared_.codes[at.slot];
    constexpr int blocks = L::code_blocks;
    Chunk loaded[ahead + 1][2];
    using Scales = Vec<std::uint32_t, 2>;  // each of two tokens that follow each other
    [[maybe_unused]] Scales scales[ahead + 1];
    const int row = B::lane_id() / 4;
    [[maybe_unused]] const std::uint32_t own = row % 2 == 0 ? 0x1010 : 0x3232;
    const auto load = [&](auto block) TILEWAVE_INLINE_LAMBDA {
      if constexpr (block < blocks) {
        const Chunk* const from = codes + block / 2 * L::box_size;
        for (int h = 0; h < 2; ++h)
          loaded[block % (ahead + 1)][h] = from[(key_ ^ block % 2 * 4) + h * 8 * L::box_chunks];
        if constexpr (L::grouped) {
          const auto& pairs = shared_.scales[at.slot].pair[block / L::scale_blocks][row / 2];
          scales[block % (ahead + 1)] = *reinterpret_cast<const Scales*>(pairs[2 * wave_]);
        }
      }
    };
    static_for<ahead>([&](auto block) TILEWAVE_INLINE_LAMBDA { load(block); });
    static_for<blocks>([&](auto block) TILEWAVE_INLINE_LAMBDA {
      constexpr int n = block, in = n % (ahead + 1), out = n % 2;
      load(Index<n + ahead>{});
      [[maybe_unused]] std::uint32_t scale[2];
      if constexpr (L::grouped) {
        for (int h = 0; h < 2; ++h) scale[h] = B::permute_bytes(scales[in][h], 0, own);
      }
      TILEWAVE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto low = B::widen_fp8_to_f16(loaded[in][0][i]), high = B::widen_fp8_to_f16(loaded[in][1][i]);
        a_[out][i] = Chunk{{low[0], high[0], low[1], high[1]}};
        if constexpr (L::grouped) {
          for (int w = 0; w < 4; ++w) a_[out][i][w] = B::multiply_f16(a_[out][i][w], scale[w % 2]);
        }
      }
      B::group_mma_begin();
      static_for<4>([&](auto i) TILEWAVE_INLINE_LAMBDA {
        B::template group_multiply<L::type, L::rows, (n > 0 || i > 0)>(a_[out][i], L::q_operand(shared_, 4 * n + i),
                                                                       scores);
      });
      B::group_mma_end();
      B::template group_mma_wait<1>();
      if constexpr (n == 0) products_before();
    });
    B::template group_mma_wait<0>();
    B::group_mma_fence(scores);
  }

  /// Adds scores of dimensions behind codes. Sixteen neighbouring ones of bf16 of two rows are an operand as they are.
  TILEWAVE_DEVICE void add_wide_scores(const Place& at, typename L::Scores& scores) {
    const Chunk* const box = shared_.codes[at.slot] + wide_box;
    const int lane = B::lane_id(), first = L::chunk_of(16 * wave_ + L::token_of(lane / 4), 2 * (lane % 4));
    Chunk loaded[2][2], a[4];
    for (int unit = 0; unit < 2; ++unit)
      for (int h = 0; h < 2; ++h) loaded[unit][h] = box[(first ^ unit) + h * 8 * L::box_chunks];
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const Chunk &low = loaded[i / 2][0], &high = loaded[i / 2][1];
      a[i] = Chunk{{low[i % 2 * 2], high[i % 2 * 2], low[i % 2 * 2 + 1], high[i % 2 * 2 + 1]}};
    }
    B::group_mma_fence(scores);
    B::group_mma_begin();
    static_for<4>([&](auto i) TILEWAVE_INLINE_LAMBDA {
      B::template group_multiply<DType::bf16, L::rows>(a[i], L::q_operand(shared_, L::code_blocks * 4 + i), scores);
    });
    B::group_mma_end();
    B::template group_mma_wait<0>();
    B::group_mma_fence(scores);
  }

  /// Adds the group's values of the tile in a place, times its probabilities, and passes the place on. The last
  /// products are not waited for. `ready` waits for the probabilities, when the first codes have been widened.
  template <class Before, class Ready>
  TILEWAVE_DEVICE void add_values(const Place& at, int probabilities, typename L::Sums& out,
                                  const Before& products_before, const Ready& ready) {
    const Chunk* const codes = shared_.codes[at.slot];
    constexpr int blocks = L::value_blocks;
    Chunk loaded[ahead + 1][2];
    const auto load = [&](auto block) TILEWAVE_INLINE_LAMBDA {
      if constexpr (block < blocks - (wide ? 1 : 0)) {
        const Chunk* const from = codes + block / 2 * L::box_size;
        for (int h = 0; h < 2; ++h)
          loaded[block % (ahead + 1)][h] =
              B::load_matrices_transposed(from + (value_ ^ block % 2 * 4) + h * 32 * L::box_chunks);
      }
    };
    static_for<ahead>([&](auto block) TILEWAVE_INLINE_LAMBDA { load(block); });
    static_for<blocks>([&](auto block) TILEWAVE_INLINE_LAMBDA {
      constexpr int n = block, in = n % (ahead + 1), to = n % 2;
      load(Index<n + ahead>{});
      if constexpr (wide && n + 1 == blocks) {
        add_wide_values(at, probabilities, a_[to], out.of[n]);
      } else {
        [[maybe_unused]] Chunk scale[2];
        if constexpr (L::grouped) {
          const int of = (first_block_ + n) / L::scale_blocks;
          for (int h = 0; h < 2; ++h)
            scale[h] = reinterpret_cast<const Chunk*>(shared_.scales[at.slot].pair[of][B::lane_id() % 4])[h];
        }
        // All of the tile has been read then: codes are read ahead, and scales are not.
        if constexpr (n + (L::grouped ? 0 : ahead) + 1 == blocks) B::mbarrier_arrive(&shared_.free[at.slot]);
        TILEWAVE_UNROLL
        for (int slice = 0; slice < 4; ++slice) {
          // A word has two neighbouring codes of each of two tokens.
          const Chunk& words = loaded[in][slice / 2];
          const auto low = B::widen_fp8_to_f16(B::permute_bytes(words[slice % 2 * 2], 0, 0x3120)),
                     high = B::widen_fp8_to_f16(B::permute_bytes(words[slice % 2 * 2 + 1], 0, 0x3120));
          a_[to][slice] = Chunk{{low[0], low[1], high[0], high[1]}};
          if constexpr (L::grouped) {
            for (int w = 0; w < 4; ++w)
              a_[to][slice][w] = B::multiply_f16(a_[to][slice][w], scale[slice / 2][slice % 2 * 2 + w / 2]);
          }
        }
        if constexpr (n == 0) ready();
        B::group_mma_begin();
        TILEWAVE_UNROLL
        for (int slice = 0; slice < 4; ++slice) {
          B::template group_multiply<L::type, L::rows>(
              a_[to][slice], L::probability_operand(shared_, probabilities, slice), out.of[n]);
        }
        B::group_mma_end();
      }
      B::template group_mma_wait<1>();
      if constexpr (n == 0) products_before();
    });
  }
  /// Waits for all products.
  TILEWAVE_DEVICE void end_values(typename L::Sums& out) const {
    B::template group_mma_wait<0>();
    out.fence();
  }

 private:
  // Blocks of 64 dimensions whose codes are read before they are widened.
  static constexpr int ahead = L::rows == 64 ? 1 : 2;
  static constexpr int wide_box = (L::code_boxes - 1) * L::box_size;

  /// Adds values of bf16, the last of the tile that are read. Rows of the operand are dimensions in their order.
  TILEWAVE_DEVICE void add_wide_values(const Place& at, int probabilities, Chunk (&a)[4],
                                       Vec<float, L::rows / 2>& out) {
    const int lane = B::lane_id(), row = lane / 16 * 8 + L::token_of(lane % 8);
    const Chunk* const from = shared_.codes[at.slot] + wide_box + L::chunk_of(row, 2 * wave_ + lane / 8 % 2);
    TILEWAVE_UNROLL
    for (int slice = 0; slice < 4; ++slice) a[slice] = B::load_matrices_transposed(from + 16 * slice * L::box_chunks);
    B::mbarrier_arrive(&shared_.free[at.slot]);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int slice = 0; slice < 4; ++slice) {
      B::template group_multiply<DType::bf16, L::rows>(a[slice], L::wide_operand(shared_, probabilities, slice), out);
    }
    B::group_mma_end();
  }

  /// Clears codes of tokens from `first` of the tile on: they may be NaN.
  TILEWAVE_DEVICE void clear_behind(std::int32_t first, Chunk* codes) {
    TILEWAVE_ROLL
    for (int i = first * L::box_chunks + wave_ * L::lanes + B::lane_id(); i < L::box_size; i += L::group_lanes) {
      TILEWAVE_UNROLL
      for (int box = 0; box < L::code_boxes; ++box) codes[box * L::box_size + i] = Chunk{};
    }
    B::shared_written();  // before the copy engine writes there again
    B::group_barrier();
  }

  typename L::Shared& shared_;
  int wave_;
  Chunk a_[2][4] = {};  // operands of products, some of which may be under way
  int key_, value_;     // where the lane reads
  int first_block_;     // of 64 dimensions of the group's values
};

}  // namespace tilewave
