// SPDX-License-Identifier: MIT
// How the wave group that makes scores takes q: most of it to registers, and the rest to its place in shared memory.
#pragma once

#include "tilewave/ops/mla_decode/specialised/layout.hpp"

namespace tilewave {

/// q comes through the ring of pairs, but for the boxes of bf16 that stay in shared memory.
///
/// Products with codes of fp8 are of f16, which has all their values, but less range than bf16. So each row of bf16 is
/// multiplied by a power of two: its largest element becomes 2^14 to 2^15, and what is lost is below 2^-39 of it.
/// Scores become multiples of units, one for each row. Signs of the scales of q and of the cache join q.
template <class B, class L>
class MlaDecodeHeldQuery {
 public:
  using Registers = Chunk[4 * L::q_boxes];

  /// `wave`: 0 to 3 of the group.
  TILEWAVE_DEVICE MlaDecodeHeldQuery(const MlaDecodeArgs& args, typename L::Shared& shared,
                                     const typename L::Place& place, int wave)
      : args_(args), shared_(shared), place_(place), wave_(wave) {}

  /// Takes the wave's sixteen rows. Returns the units of the lane's two rows, if scores are multiples of them.
  TILEWAVE_DEVICE Vec<float, 2> take(Registers& q) const {
    TILEWAVE_UNROLL
    for (int n = 0; n < L::q_pairs; ++n) {
      const auto at = place_.behind(n);
      B::mbarrier_wait(&shared_.full[at.slot], at.round);
    }
    if constexpr (is_fp8(L::spec.q)) {
      return widen(q);
    } else {
      TILEWAVE_UNROLL
      for (int n = 0; n < count; ++n) q[n] = B::load_matrices(shared_.kv[place_.behind(n / 8).slot] + straight(n % 8));
      if constexpr (L::widens) return scale_up(q);
      return {{1.0f, 1.0f}};
    }
  }

 private:
  static constexpr int count = 4 * L::q_boxes, kept = L::score_slices - count;  // slices of sixteen dimensions

  /// Returns where the lane's row of a slice's matrices lies, of boxes that follow each other.
  TILEWAVE_DEVICE int straight(int slice) const {
    const int matrix = B::lane_id() / 8, row = 16 * wave_ + B::lane_id() % 8 + 8 * (matrix % 2);
    return slice / 4 * L::box_size + L::chunk_of(row, 2 * (slice % 4) + matrix / 2);
  }
  TILEWAVE_DEVICE float cache_scale() const { return B::load(args_.attention.k_scale); }
  TILEWAVE_DEVICE static float with_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
  TILEWAVE_DEVICE static std::uint32_t sign(float x) { return __builtin_bit_cast(std::uint32_t, x) & 0x80000000u; }
  TILEWAVE_DEVICE static float absolute(float x) {
    return with_bits(__builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu);
  }
  /// What other waves of the group wrote is an operand as well.
  TILEWAVE_DEVICE static void finish() {
    B::shared_written();
    B::group_barrier();
  }

  TILEWAVE_DEVICE Vec<float, 2> scale_up(Registers& q) const {
    std::uint32_t largest[2] = {};  // of the exponent's place
    const auto look = [&](const Chunk& words) TILEWAVE_INLINE_LAMBDA {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w)
        largest[w % 2] = max_of(largest[w % 2], max_of(words[w] & 0x7f80u, words[w] >> 16 & 0x7f80u));
    };
    TILEWAVE_UNROLL
    for (int n = 0; n < count; ++n) look(q[n]);
    TILEWAVE_ROLL
    for (int n = 0; n < kept; ++n) look(B::load_matrices(shared_.q + straight(n)));
    const float scale = cache_scale();
    float factor[2];
    Vec<float, 2> unit;
    TILEWAVE_UNROLL
    for (int h = 0; h < 2; ++h) {
      const float of_row = B::template reduce<4>(with_bits(largest[h] << 16), Max{});
      // 2^14 over the power of two below the largest element; exponents are biased by 127
      const std::uint32_t exponent = min_of(268u - (__builtin_bit_cast(std::uint32_t, of_row) >> 23), 253u);
      factor[h] = with_bits(exponent << 23 | sign(scale));
      unit[h] = with_bits((254u - exponent) << 23) * absolute(scale);
    }
    const auto scaled = [&](const Chunk& words) TILEWAVE_INLINE_LAMBDA {
      Chunk to;
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w)
        to[w] =
            B::pack_f16(with_bits(words[w] << 16) * factor[w % 2], with_bits(words[w] & 0xffff0000u) * factor[w % 2]);
      return to;
    };
    TILEWAVE_UNROLL
    for (int n = 0; n < count; ++n) q[n] = scaled(q[n]);
    TILEWAVE_ROLL
    for (int n = 0; n < kept; ++n) {
      Chunk* const at = shared_.q + straight(n);
      B::template store_matrices_straight<4>(at, scaled(B::load_matrices(at)));
    }
    finish();
    return unit;
  }

  /// Codes of q become f16. A box of theirs has 128 dimensions.
  TILEWAVE_DEVICE Vec<float, 2> widen(Registers& q) const {
    const float scale = B::load(args_.q_scale) * cache_scale();
    const std::uint32_t flip = sign(scale) | sign(scale) >> 16;
    const int row = 16 * wave_ + B::lane_id() / 4;
    const auto slice = [&](int n) TILEWAVE_INLINE_LAMBDA {
      const Chunk* const box = shared_.kv[place_.behind(n / 16).slot] + n / 8 % 2 * L::box_size;
      Chunk to;
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        const auto* const codes = reinterpret_cast<const std::uint16_t*>(box + L::chunk_of(row + 8 * (w % 2), n % 8));
        to[w] = B::widen_fp8_to_f16(std::uint32_t{codes[B::lane_id() % 4 + w / 2 * 4]})[0] ^ flip;
      }
      return to;
    };
    TILEWAVE_UNROLL
    for (int n = 0; n < count; ++n) q[n] = slice(n);
    TILEWAVE_ROLL
    for (int n = 0; n < kept; ++n) B::template store_matrices_straight<4>(shared_.q + straight(n), slice(count + n));
    finish();
    return {{absolute(scale), absolute(scale)}};
  }

  const MlaDecodeArgs& args_;
  typename L::Shared& shared_;
  const typename L::Place& place_;
  int wave_;
};

}  // namespace tilewave
