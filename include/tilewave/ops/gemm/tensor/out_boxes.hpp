// SPDX-License-Identifier: MIT
// How the lanes of a wave group fill a box of output, which the copy engine then writes.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

template <class L, GemmPolicy P, class Epilogue>
struct GemmOutBoxes {
  using B = typename L::Backend;

  /// Fills a box of 16-bit elements. The engine's swizzle has unit u of row r at 8 r + (u ^ r % 8).
  template <int wide>
  TILEWAVE_DEVICE static void fill_matrices(Chunk* box, const Vec<float, L::sums_of(wide)>& part) {
    fill_matrices<wide>(box,
                        [&](int w) TILEWAVE_INLINE_LAMBDA { return Epilogue::pack(part[2 * w], part[2 * w + 1]); });
  }
  /// The same of words, two neighbours of a row each.
  template <int wide, class Word>
  TILEWAVE_DEVICE static void fill_matrices(Chunk* box, const Word& word) {
    const int lane = B::lane_id(), wave = L::wave_in_wave_group();
    if constexpr (L::pairs) {  // matrix m is rows 8 (j + m) of the wide side by eight columns of C
      static_assert(wide % 32 == 0, "four matrices at a time");
      TILEWAVE_UNROLL
      for (int j = 0; j < wide / 8; j += 4) {
        const int row = 8 * (j + lane / 8) + lane % 8;
        B::template store_matrices<4>(box + row * 8 + (wave ^ row % 8),
                                      Vec<std::uint32_t, 4>{{word(j), word(j + 1), word(j + 2), word(j + 3)}});
      }
      return;
    }
    TILEWAVE_UNROLL
    for (int j = 0; j < wide / 8; j += 2) {
      // Matrix m is rows 8 (j + m / 2) of the wide side by rows 16 wave + 8 (m % 2) of the tall side.
      const int m = lane / 8, pairs = min_of(2, wide / 8 - j);
      Vec<std::uint32_t, 4> words{};
      TILEWAVE_UNROLL
      for (int w = 0; w < 2 * pairs; ++w) words[w] = word(2 * (j + w / 2) + w % 2);
      if constexpr (P.swapped) {
        const int row = 8 * min_of(j + m / 2, wide / 8 - 1) + lane % 8, unit = 2 * wave + m % 2;
        Chunk* const to = box + row * 8 + (unit ^ row % 8);
        if (pairs == 2) {
          B::template store_matrices<4>(to, words);
        } else {
          B::template store_matrices<2>(to, Vec<std::uint32_t, 2>{{words[0], words[1]}});
        }
      } else {
        static_assert(wide % 16 == 0, "a box takes whole pairs of 8 x 8 matrices");
        const int row = 8 * (m % 2) + lane % 8, unit = j + m / 2;
        B::template store_matrices_straight<4>(box + row * 8 + (unit ^ row % 8), words);
      }
    }
  }
  /// Fills a box of f32, two neighbours of a row at a time.
  template <int wide>
  TILEWAVE_DEVICE static void fill_floats(Chunk* box, const Vec<float, wide / 2>& part) {
    const int lane = B::lane_id(), row = lane / 4, first = B::opaque(row * 8 + (lane % 4 / 2 ^ row));
    TILEWAVE_UNROLL
    for (int i = 0; i < wide / 2; i += 2) {
      Chunk* const unit = box + ((first ^ (2 * (i / 4))) + i / 2 % 2 * 64);
      reinterpret_cast<Vec<float, 2>*>(unit)[lane % 2] = {{part[i], part[i + 1]}};
    }
  }
  /// Fills a box of one-byte elements: two neighbours of a row at a time, or (swapped) one.
  template <int wide>
  TILEWAVE_DEVICE static void fill_bytes(Chunk* box, const Vec<std::uint32_t, wide / 8>& codes) {
    const int lane = B::lane_id(), of_tall = lane / 4 + 16 * L::wave_in_wave_group() * P.swapped,
              of_wide = 2 * (lane % 4);
    const auto put = [&](int row, int column, auto bits) TILEWAVE_INLINE_LAMBDA {
      char* const chunk = reinterpret_cast<char*>(box + row * 8 + (column / 16 ^ row % 8));
      *reinterpret_cast<decltype(bits)*>(chunk + column % 16) = bits;
    };
    TILEWAVE_UNROLL
    for (int j = 0; j < wide / 8; ++j) {
      const std::uint32_t four = codes[j];
      TILEWAVE_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int tall = of_tall + 8 * h, first = 8 * j + of_wide;
        if constexpr (P.swapped) {
          put(first, tall, static_cast<std::uint8_t>(four >> 16 * h));
          put(first + 1, tall, static_cast<std::uint8_t>(four >> (16 * h + 8)));
        } else {
          put(tall, first, static_cast<std::uint16_t>(four >> 16 * h));
        }
      }
    }
  }
};

}  // namespace tilewave
