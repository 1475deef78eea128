// SPDX-License-Identifier: MIT
// The read-modify-write operations that global and buffer atomics have in common.
#pragma once

#include <algorithm>
#include <mutex>

#include "sim/machine/lanes.hpp"

namespace tilewave::sim {

/// Blocks run on several threads; atomics of all of them go one by one.
inline std::mutex atomic_mutex;

struct Bf16Pair {
  static std::uint32_t add(std::uint32_t a, std::uint32_t b) {
    const auto half = [](std::uint32_t x, std::uint32_t y) {
      const float sum = std::bit_cast<float>(x << 16) + std::bit_cast<float>(y << 16);
      const auto bits = std::bit_cast<std::uint32_t>(sum);
      return std::isnan(sum) ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    };
    return half(a & 0xffffu, b & 0xffffu) | half(a >> 16, b >> 16) << 16;
  }
};
struct HalfPair {
  static std::uint32_t add(std::uint32_t a, std::uint32_t b) {
    const auto half = [](std::uint32_t x, std::uint32_t y) {
      const auto value = [](std::uint32_t bits) {
        return static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(bits)));
      };
      return std::uint32_t{Half(value(x) + value(y)).bits};
    };
    return half(a, b) | half(a >> 16, b >> 16) << 16;
  }
};

/// visit(name, f) for every operation; f takes the old value and the operand, their type is the memory's.
template <class Visit>
void for_each_atomic(Visit visit) {
  using u32 = std::uint32_t;
  using i32 = std::int32_t;
  using u64 = std::uint64_t;
  using i64 = std::int64_t;
  visit("add", [](u32 a, u32 b) { return a + b; });
  visit("sub", [](u32 a, u32 b) { return a - b; });
  visit("umin", [](u32 a, u32 b) { return std::min(a, b); });
  visit("umax", [](u32 a, u32 b) { return std::max(a, b); });
  visit("smin", [](i32 a, i32 b) { return std::min(a, b); });
  visit("smax", [](i32 a, i32 b) { return std::max(a, b); });
  visit("and", [](u32 a, u32 b) { return a & b; });
  visit("or", [](u32 a, u32 b) { return a | b; });
  visit("xor", [](u32 a, u32 b) { return a ^ b; });
  visit("swap", [](u32, u32 b) { return b; });
  visit("inc", [](u32 a, u32 b) { return a >= b ? 0u : a + 1; });
  visit("dec", [](u32 a, u32 b) { return a == 0 || a > b ? b : a - 1; });
  visit("add_f32", [](float a, float b) { return a + b; });
  visit("add_f64", [](double a, double b) { return a + b; });
  visit("pk_add_f16", [](u32 a, u32 b) { return HalfPair::add(a, b); });
  visit("pk_add_bf16", [](u32 a, u32 b) { return Bf16Pair::add(a, b); });
  visit("min_f64", [](double a, double b) { return std::fmin(a, b); });
  visit("max_f64", [](double a, double b) { return std::fmax(a, b); });
  visit("add_x2", [](u64 a, u64 b) { return a + b; });
  visit("sub_x2", [](u64 a, u64 b) { return a - b; });
  visit("umin_x2", [](u64 a, u64 b) { return std::min(a, b); });
  visit("umax_x2", [](u64 a, u64 b) { return std::max(a, b); });
  visit("smin_x2", [](i64 a, i64 b) { return std::min(a, b); });
  visit("smax_x2", [](i64 a, i64 b) { return std::max(a, b); });
  visit("and_x2", [](u64 a, u64 b) { return a & b; });
  visit("or_x2", [](u64 a, u64 b) { return a | b; });
  visit("xor_x2", [](u64 a, u64 b) { return a ^ b; });
  visit("swap_x2", [](u64, u64 b) { return b; });
  visit("inc_x2", [](u64 a, u64 b) { return a >= b ? u64{0} : a + 1; });
  visit("dec_x2", [](u64 a, u64 b) { return a == 0 || a > b ? b : a - 1; });
}

template <class T>
T register_value(const Wave& w, int reg, int lane) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<T>(w.v[reg][lane] | std::uint64_t{w.v[reg + 1][lane]} << 32);
  else
    return std::bit_cast<T>(w.v[reg][lane]);
}

}  // namespace tilewave::sim
