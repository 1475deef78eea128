// SPDX-License-Identifier: MIT
// Queries of products of f16, whose other operand is codes of fp8. f16 has all values of fp8, but its range is less
// than that of bf16, so each row of bf16 is multiplied by a power of two: its largest element becomes 2^14 to 2^15, and
// what is lost is below 2^-39 of it. Scores become multiples of units, one for each row.
#pragma once

#include "tilewave/ops/mla_decode/tensor/layout.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

template <class B, class L>
class MlaDecodeHalfQuery {
 public:
  /// The waves that multiply share the rows, and put them into q's place. Signs of the scales of q and of the cache
  /// join them.
  TILEWAVE_DEVICE static void put(const MlaDecodeArgs& args, const PagedAttentionWorkItem& item,
                                  typename L::Shared& shared, int wave) {
    const PagedAttentionArgs& a = args.attention;
    float scale = 1.0f;
    if constexpr (L::one_scale) scale = B::load(a.k_scale);
    if constexpr (is_fp8(L::spec.q)) scale *= B::load(args.q_scale);
    const std::uint32_t sign = __builtin_bit_cast(std::uint32_t, scale) & 0x80000000u;
    TILEWAVE_ROLL
    for (int i = 0; i < wave_rows; i += at_once) {
      Chunk loaded[at_once][slots];
      TILEWAVE_UNROLL
      for (int n = 0; n < at_once; ++n) {
        const std::int32_t row = item.first_row + wave * wave_rows + i + n;
        const QueryRow query = query_row(a, item, min_of(row, a.rows - 1));
        const auto* const from = reinterpret_cast<const Chunk*>(
            static_cast<const char*>(a.q) +
            (query.out_row * a.q_row_stride + query.head * a.q_head_stride) * size_of(L::spec.q));
        TILEWAVE_UNROLL
        for (int slot = 0; slot < slots; ++slot) {
          const int chunk = B::lane_id() + slot * L::lanes;
          loaded[n][slot] = row < a.rows && chunk < row_chunks ? B::load(from + chunk) : Chunk{};
        }
      }
      TILEWAVE_UNROLL
      for (int n = 0; n < at_once; ++n) put_row(shared, wave * wave_rows + i + n, loaded[n], sign, scale);
    }
  }

 private:
  static constexpr int wave_rows = L::rows / (L::groups * L::group_waves);
  static constexpr int row_chunks = L::spec.head_size * size_of(L::spec.q) / int{sizeof(Chunk)};
  static constexpr int slots = ceil_div(row_chunks, L::lanes), at_once = min_of(wave_rows, 4);

  TILEWAVE_DEVICE static void put_row(typename L::Shared& shared, int r, const Chunk (&loaded)[slots],
                                      std::uint32_t sign, float scale) {
    if constexpr (is_fp8(L::spec.q)) {
      TILEWAVE_UNROLL
      for (int slot = 0; slot < slots; ++slot) {
        const int chunk = B::lane_id() + slot * L::lanes;
        if (chunk >= row_chunks) continue;
        TILEWAVE_UNROLL
        for (int n = 0; n < 2; ++n) {
          const auto low = B::widen_fp8_to_f16(loaded[slot][2 * n]),
                     high = B::widen_fp8_to_f16(loaded[slot][2 * n + 1]);
          const std::uint32_t flip = sign >> 16 | sign;
          L::put_q(shared, r, 2 * chunk + n, Chunk{{low[0] ^ flip, low[1] ^ flip, high[0] ^ flip, high[1] ^ flip}});
        }
      }
      if (B::lane_id() == 0) shared.aside.unit[r] = absolute(scale);
      return;
    }
    std::uint32_t largest = 0;  // of the exponent's place
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      if (!is_code(slot)) continue;
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w)
        largest = max_of(largest, max_of(loaded[slot][w] & 0x7f80u, loaded[slot][w] >> 16 & 0x7f80u));
    }
    // 2^14 over the power of two below the largest element; exponents are biased by 127
    const std::uint32_t exponent = min_of(268u - (B::highest(largest) >> 7), 253u);
    const float factor = __builtin_bit_cast(float, exponent << 23 | sign),
                unit = __builtin_bit_cast(float, (254u - exponent) << 23);
    TILEWAVE_UNROLL
    for (int slot = 0; slot < slots; ++slot) {
      const int chunk = B::lane_id() + slot * L::lanes;
      if (chunk >= row_chunks) continue;
      Chunk words;
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) {
        words[w] = B::pack_f16(__builtin_bit_cast(float, loaded[slot][w] << 16) * factor,
                               __builtin_bit_cast(float, loaded[slot][w] & 0xffff0000u) * factor);
      }
      L::put_q(shared, r, chunk, is_code(slot) ? words : loaded[slot]);
    }
    if (B::lane_id() == 0) shared.aside.unit[r] = unit * absolute(scale);
  }
  /// Returns whether the lane's dimensions of a slot meet codes. Others stay bf16.
  TILEWAVE_DEVICE static bool is_code(int slot) {
    return L::one_scale || 8 * (B::lane_id() + slot * L::lanes) < L::spec.row().codes();
  }
  TILEWAVE_DEVICE static float absolute(float x) {
    return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) & 0x7fffffffu);
  }
};

}  // namespace tilewave
