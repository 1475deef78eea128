// SPDX-License-Identifier: MIT
// Repacks weights of four bits into strips of sixteen rows, once, when they are loaded.
// Grid: a block for each strip of each layer. It writes the strip's codes word after word, which are eight k of a row
// each, and then the strip's scales, zero points and bias. Weights of bf16 are quantised on the way: a lane has the
// values of one scale. Bound: memory.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/gemm/fragments.hpp"
#include "tilewave/ops/gemm/repack/problem.hpp"

namespace tilewave {

template <class B, GemmShipped shipped>
struct GemmRepackKernel {
  using Room = B;
  using Args = GemmRepackProblem;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 1, strip_rows = 16, words_per_line = 2 * strip_rows;

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const std::int32_t strips = a.n / strip_rows, layer = B::block_id() / strips;
    const std::int32_t first_row = (B::block_id() - layer * strips) * strip_rows;
    if constexpr (shipped == GemmShipped::bf16) {
      quantise(a, layer, first_row);
    } else {
      repack(a, layer, first_row);
    }
    if (a.bias == nullptr || B::block_lane_id() >= strip_rows) return;
    const std::int32_t to_row = first_row + B::block_lane_id();
    const std::int64_t bias = std::int64_t{layer} * a.n;
    if (size_of(a.bias_type) == 4) {
      copy<std::uint32_t>(a, bias + shipped_row(a, to_row), bias + to_row);
    } else {
      copy<std::uint16_t>(a, bias + shipped_row(a, to_row), bias + to_row);
    }
  }

 private:
  /// Writes the codes, scales and zero points of a strip.
  TILEWAVE_DEVICE static void repack(const Args& a, std::int32_t layer, std::int32_t first_row) {
    const std::int64_t codes = std::int64_t{layer} * (a.n / 8) * a.k;  // words in front of the layer's
    const auto* const from = static_cast<const std::uint32_t*>(a.codes) + codes;
    auto* const to = static_cast<std::uint32_t*>(a.out_codes) + codes + std::int64_t{first_row} * (a.k / 8);
    // A line of a strip is 16 k: two words of each row.
    for (std::int32_t w = B::block_lane_id(); w < a.k / 16 * words_per_line; w += block_threads) {
      if (shipped == GemmShipped::mxfp4 && a.weights == GemmWeights::fragments) {
        B::store(to + w, fragment(a, reinterpret_cast<const std::uint8_t*>(from), first_row, w));
        continue;
      }
      const std::int32_t row = shipped_row(a, first_row + w % words_per_line / 2);
      B::store(to + w, spread(word(a, from, row, w / words_per_line * 16 + w % 2 * 8)));
    }
    const std::int32_t scale_rows = a.k / a.scale_k;
    const std::int64_t scales = std::int64_t{layer} * scale_rows * a.n;  // in front of the layer's
    for (std::int32_t i = B::block_lane_id(); i < scale_rows * strip_rows; i += block_threads) {
      const std::int32_t group = i / strip_rows, to_row = first_row + i % strip_rows, row = shipped_row(a, to_row);
      const std::int64_t out = scales + std::int64_t{group} * a.n + to_row;
      if constexpr (shipped == GemmShipped::mxfp4) {
        const auto* const e8m0 = static_cast<const std::uint8_t*>(a.scales);
        B::store(static_cast<std::uint8_t*>(a.out_scales) + out,
                 B::load(e8m0 + scales + std::int64_t{row} * scale_rows + group));
      } else {
        const std::int64_t in = scales + std::int64_t{group} * a.n + row;
        const std::uint16_t scale = B::load(static_cast<const std::uint16_t*>(a.scales) + in);
        B::store(static_cast<std::uint16_t*>(a.out_scales) + out, converted(a, scale));
        if (a.out_zeros != nullptr) B::store(static_cast<std::int8_t*>(a.out_zeros) + out, zero_point(a, in));
      }
    }
  }
  /// Quantises the weights of a strip and writes their codes and scales.
  TILEWAVE_DEVICE static void quantise(const Args& a, std::int32_t layer, std::int32_t first_row) {
    const std::int32_t groups = a.k / a.scale_k;
    const std::int64_t rows = std::int64_t{layer} * a.n;  // in front of the layer's
    auto* const to = static_cast<std::uint32_t*>(a.out_codes) + (rows + first_row) * (a.k / 8);
    auto* const scales = static_cast<std::uint16_t*>(a.out_scales) + rows * groups;
    for (std::int32_t i = B::block_lane_id(); i < groups * strip_rows; i += block_threads) {
      const std::int32_t group = i / strip_rows, in_strip = i % strip_rows, row = shipped_row(a, first_row + in_strip);
      const auto* const pairs =  // of values
          static_cast<const std::uint32_t*>(a.codes) + ((rows + row) * a.k + std::int64_t{group} * a.scale_k) / 2;
      float largest = 0.0f;
      for (int pair = 0; pair < a.scale_k / 2; ++pair) {
        const std::uint32_t two = B::load(pairs + pair) & 0x7fff7fffu;  // magnitudes
        largest = max_of(largest, max_of(bf16_to_f32(static_cast<std::uint16_t>(two)),
                                         bf16_to_f32(static_cast<std::uint16_t>(two >> 16))));
      }
      const float exact = largest > 0.0f ? largest / 7.0f : 1.0f;
      const std::uint16_t rounded = a.out_scale == DType::bf16 ? f32_to_bf16(exact) : f32_to_f16(exact);
      B::store(scales + std::int64_t{group} * a.n + first_row + in_strip, rounded);
      const float scale = a.out_scale == DType::bf16 ? bf16_to_f32(rounded) : f16_to_f32(rounded);
      for (std::int32_t k = group * a.scale_k, pair = 0; pair < a.scale_k / 2; k += 8, pair += 4) {
        std::uint32_t eight = 0;
        TILEWAVE_UNROLL
        for (int j = 0; j < 4; ++j) {
          const std::uint32_t two = B::load(pairs + pair + j);
          eight |= (code(two & 0xffffu, scale) | code(two >> 16, scale) << 4) << 8 * j;
        }
        B::store(to + k / 16 * words_per_line + in_strip * 2 + k % 16 / 8, spread(eight));
      }
    }
  }
  /// Returns the four bits of a value: the nearest whole number of scales, half a scale away from zero.
  TILEWAVE_DEVICE static std::uint32_t code(std::uint32_t bf16, float scale) {
    const float x = min_of(max_of(bf16_to_f32(static_cast<std::uint16_t>(bf16)) / scale, -8.0f), 7.0f);
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(x < 0.0f ? x - 0.5f : x + 0.5f)) & 15u;
  }
  /// Returns the row of the checkpoint that becomes a row of the output.
  TILEWAVE_DEVICE static std::int32_t shipped_row(const Args& a, std::int32_t row) {
    if (!a.interleaved) return row;
    return row < a.n / 2 ? 2 * row : 2 * row - a.n + 1;
  }
  /// Returns the place of column n in a word of eight columns.
  TILEWAVE_DEVICE static int place(std::int32_t n) {
    const int in = n % 8;
    return shipped == GemmShipped::awq ? in % 2 * 4 + in / 2 : in;
  }
  /// Returns the codes of eight k of a row, the first in the lowest bits.
  TILEWAVE_DEVICE static std::uint32_t word(const Args& a, const std::uint32_t* codes, std::int32_t row,
                                            std::int32_t k) {
    if constexpr (shipped == GemmShipped::mxfp4) {
      return B::load(codes + std::int64_t{row} * (a.k / 8) + k / 8);
    } else if constexpr (shipped == GemmShipped::gptq) {
      return B::load(codes + std::int64_t{k / 8} * a.n + row) ^ 0x88888888u;  // 8 less, in two's complement
    } else {
      std::uint32_t eight = 0;
      TILEWAVE_UNROLL
      for (int i = 0; i < 8; ++i)
        eight |= (B::load(codes + std::int64_t{k + i} * (a.n / 8) + row / 8) >> 4 * place(row) & 15u) << 4 * i;
      return eight ^ 0x88888888u;
    }
  }
  /// Returns word w of a strip of fragments.
  TILEWAVE_DEVICE static std::uint32_t fragment(const Args& a, const std::uint8_t* codes, std::int32_t first_row,
                                                std::int32_t w) {
    const std::int32_t lane = w / 2 % 32, first_k = w / 64 * 32 + w % 2 * 16 + lane % 4 * 2;
    std::uint32_t eight = 0;
    TILEWAVE_UNROLL
    for (int reg = 0; reg < 4; ++reg) {
      const std::int32_t row = lane / 4 + reg % 2 * 8, k = first_k + reg / 2 * 8;
      const std::uint32_t two = B::load(codes + std::int64_t{shipped_row(a, first_row + row)} * (a.k / 2) + k / 2);
      eight |= gemm_fragment(row, k, a.k).placed(two & 15u) | gemm_fragment(row, k + 1, a.k).placed(two >> 4);
    }
    return eight;
  }
  /// Puts the first four of eight codes into the low halves of the bytes, and the others into the high ones.
  TILEWAVE_DEVICE static std::uint32_t spread(std::uint32_t eight) {
    const auto to_bytes = [](std::uint32_t four) {
      four = (four | four << 8) & 0x00ff00ffu;
      return (four | four << 4) & 0x0f0f0f0fu;
    };
    return to_bytes(eight & 0xffffu) | to_bytes(eight >> 16) << 4;
  }
  TILEWAVE_DEVICE static std::uint16_t converted(const Args& a, std::uint16_t scale) {
    if (a.scale == a.out_scale) return scale;
    return a.out_scale == DType::bf16 ? f32_to_bf16(f16_to_f32(scale)) : f32_to_f16(bf16_to_f32(scale));
  }
  TILEWAVE_DEVICE static std::int8_t zero_point(const Args& a, std::int64_t at) {
    const std::uint32_t eight = B::load(static_cast<const std::uint32_t*>(a.zeros) + at / 8);
    return static_cast<std::int8_t>(static_cast<int>(eight >> 4 * place(static_cast<std::int32_t>(at % 8)) & 15u) +
                                    a.zero_offset - 8);
  }
  template <class T>
  TILEWAVE_DEVICE static void copy(const Args& a, std::int64_t from, std::int64_t to) {
    B::store(static_cast<T*>(a.out_bias) + to, B::load(static_cast<const T*>(a.bias) + from));
  }
};

}  // namespace tilewave
