// SPDX-License-Identifier: MIT
// Typed access to the 64 lanes of an operand, and valu(f): an instruction from a function of one lane's values.
//
// A handler is written as a plain lambda; the types of its arguments decide how operands are read (registers taken,
// constants expanded, neg / abs applied, denormals flushed), the type of its result how it is written.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sim/machine/wave.hpp"

namespace tilewave::sim {

template <class T>
struct alignas(64) Lanes {
  T value[wave_lanes];
  T& operator[](int lane) { return value[lane]; }
  const T& operator[](int lane) const { return value[lane]; }
};

/// IEEE half as a type of its own: converts to float to compute, from float with one rounding.
struct Half {
  std::uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
  static Half from_bits(std::uint16_t bits) {
    Half h;
    h.bits = bits;
    return h;
  }
};

template <class T>
constexpr bool is_real = std::is_floating_point_v<T> || std::is_same_v<T, Half>;

template <class T>
constexpr Width width_of() {
  if constexpr (sizeof(T) == 2) return Width::half;
  if constexpr (std::is_same_v<T, double>) return Width::real64;
  if constexpr (sizeof(T) == 8) return Width::bits64;
  return Width::word;
}

inline std::uint32_t scalar_word(const Wave& w, const Operand& a, int word = 0) {
  switch (a.kind) {
    case Kind::scalar: return w.s[a.reg + word];
    case Kind::constant: return word ? a.hi : a.lo;
    case Kind::scc: return word ? 0 : w.scc;
    case Kind::vccz: return word ? 0 : w.vcc() == 0;
    case Kind::execz: return word ? 0 : w.exec() == 0;
    default: throw Error("operand cannot be read as a scalar");
  }
}
inline std::uint64_t scalar_pair(const Wave& w, const Operand& a) {
  return scalar_word(w, a) | std::uint64_t{scalar_word(w, a, 1)} << 32;
}

/// Raw 32-bit words of an operand in every lane; DPP moves them between lanes.
void read_words(const Wave& w, const Operand& a, int word, const Dpp* dpp, Lanes<std::uint32_t>& out);
/// Lanes an instruction writes: EXEC, less what its DPP control masks out.
std::uint64_t write_mask(const Wave& w, const Op& op);
/// Put one SDWA-selected part of each word in the low bits.
void select_part(Lanes<std::uint32_t>& words, Select select, bool sign_extend);
void merge_part(Lanes<std::uint32_t>& words, const Wave::Row& old, const Sdwa& sdwa);

inline float flushed(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) == 0
             ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0x80000000u)
             : x;
}
inline double flushed(double x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0, x) : x; }

/// Operand number `i` of the instruction, typed.
template <class T>
void read(const Wave& w, const Op& op, int i, Lanes<T>& out) {
  const Operand& a = op.arg[i];
  const int source = i - 1;  // SDWA and op_sel count sources; every instruction read here has one destination
  const Dpp* dpp = i == 1 ? op.dpp.get() : nullptr;
  if constexpr (sizeof(T) == 8) {
    Lanes<std::uint32_t> lo, hi;
    read_words(w, a, 0, dpp, lo);
    read_words(w, a, 1, dpp, hi);
    for (int l = 0; l < wave_lanes; ++l) out[l] = std::bit_cast<T>(lo[l] | std::uint64_t{hi[l]} << 32);
    if constexpr (std::is_same_v<T, double>) {
      if (a.absolute)
        for (T& x : out.value) x = std::fabs(x);
      if (a.negate)
        for (T& x : out.value) x = -x;
      if (w.mode.flush_in16_64)
        for (T& x : out.value) x = flushed(x);
    }
  } else if constexpr (std::is_same_v<T, std::uint32_t>) {  // most operands are these, and need no other copy
    read_words(w, a, 0, dpp, out);
    if (op.sdwa && source >= 0 && source < 2) select_part(out, op.sdwa->source[source], a.sign_extend);
    if (a.absolute || a.negate) {
      const std::uint32_t clear = a.absolute ? 0x7fffffffu : 0xffffffffu, flip = a.negate ? 0x80000000u : 0u;
      for (auto& x : out.value) x = (x & clear) ^ flip;
    }
  } else {
    Lanes<std::uint32_t> words;
    read_words(w, a, 0, dpp, words);
    if (op.sdwa && source >= 0 && source < 2) select_part(words, op.sdwa->source[source], a.sign_extend);
    if constexpr (sizeof(T) == 2) {
      if (a.kind != Kind::constant && source >= 0 && (op.op_sel >> source & 1))
        for (auto& x : words.value) x >>= 16;
      const std::uint32_t clear = a.absolute ? 0x7fffu : 0xffffu, flip = a.negate ? 0x8000u : 0u;
      for (int l = 0; l < wave_lanes; ++l)
        out[l] = std::bit_cast<T>(static_cast<std::uint16_t>((words[l] & clear) ^ flip));
    } else {
      if (a.absolute || a.negate) {
        const std::uint32_t clear = a.absolute ? 0x7fffffffu : 0xffffffffu, flip = a.negate ? 0x80000000u : 0u;
        for (auto& x : words.value) x = (x & clear) ^ flip;
      }
      for (int l = 0; l < wave_lanes; ++l) out[l] = std::bit_cast<T>(words[l]);
      if constexpr (std::is_same_v<T, float>)
        if (w.mode.flush_in32)
          for (T& x : out.value) x = flushed(x);
    }
  }
}

template <class T>
T finished(T x, const Op& op) {
  using F = std::conditional_t<std::is_same_v<T, double>, double, float>;
  F y = static_cast<F>(x);
  y *= op.omod == 1 ? F(2) : op.omod == 2 ? F(4) : op.omod == 3 ? F(0.5) : F(1);
  if (op.clamp) y = y > F(0) ? (y < F(1) ? y : F(1)) : F(0);  // NaN clamps to 0 (DX10_CLAMP)
  return static_cast<T>(y);
}

/// Write a vector result to arg[0], or to the register `word` behind it, with clamp, omod, denormal flushing, DPP and in the
/// first SDWA applied.
template <class T>
void write(Wave& w, const Op& op, Lanes<T>& result, int word = 0) {
  const std::uint64_t mask = write_mask(w, op);
  Wave::Row* row = &w.v[op.arg[0].reg + word];
  if constexpr (is_real<T>)
    if (op.omod || op.clamp)
      for (T& x : result.value) x = finished(x, op);
  if constexpr (std::is_same_v<T, float>)
    if (w.mode.flush_out32)
      for (T& x : result.value) x = flushed(x);
  if constexpr (std::is_same_v<T, double>)
    if (w.mode.flush_out16_64)
      for (T& x : result.value) x = flushed(x);
  if constexpr (sizeof(T) == 8) {
    for (int l = 0; l < wave_lanes; ++l) {
      if (!(mask >> l & 1)) continue;
      const auto bits = std::bit_cast<std::uint64_t>(result[l]);
      row[0][l] = static_cast<std::uint32_t>(bits);
      row[1][l] = static_cast<std::uint32_t>(bits >> 32);
    }
  } else {
    Lanes<std::uint32_t> words;
    for (int l = 0; l < wave_lanes; ++l) {
      if constexpr (sizeof(T) == 2)
        words[l] = std::bit_cast<std::uint16_t>(result[l]);
      else
        words[l] = std::bit_cast<std::uint32_t>(result[l]);
    }
    if constexpr (sizeof(T) == 2)
      if (op.op_sel >> 3 & 1)  // the destination's high half; the low half stays
        for (int l = 0; l < wave_lanes; ++l) words[l] = words[l] << 16 | (row[0][l] & 0xffffu);
    if (op.sdwa && word == 0) merge_part(words, row[0], *op.sdwa);
    if (mask != ~std::uint64_t{0})
      for (int l = 0; l < wave_lanes; ++l) words[l] = mask >> l & 1 ? words[l] : row[0][l];
    std::memcpy(row[0].data(), words.value, sizeof(words.value));  // a loop that stores would not be vectorised
  }
}

/// Lanes that a tuple does not set to 0, since they are read before they are used.
template <class T>
struct Unset {
  Unset() {}
  Lanes<T> lanes;
};

template <bool accumulates, class F, class R, class... A>
struct Valu {
  static void run(Wave& w, const Op& op) { call(w, op, std::make_index_sequence<sizeof...(A)>{}); }
  template <std::size_t... i>
  static void call(Wave& w, const Op& op, std::index_sequence<i...>) {
    std::tuple<Unset<A>...> in;
    (read(w, op, accumulates && i + 1 == sizeof...(A) ? 0 : static_cast<int>(i) + 1, std::get<i>(in).lanes), ...);
    Lanes<R> out;
    for (int l = 0; l < wave_lanes; ++l) out[l] = F{}(std::get<i>(in).lanes[l]...);
    write(w, op, out);
  }
  static Instruction instruction() {
    Instruction made{.run = &run, .cls = Class::valu, .integer_result = !is_real<R>};
    made.accepts_dpp = made.accepts_sdwa = true;
    made.accepts_op_sel = (... || (sizeof(A) == 2)) || sizeof(R) == 2;
    int n = 0;
    ((made.widths[n++] = width_of<A>()), ...);
    return made;
  }
};

template <bool accumulates, class F, class R, class... A>
Instruction valu_of(R (*)(A...)) {
  return Valu<accumulates, F, R, A...>::instruction();
}
/// The table entry of a vector instruction whose lane computes f(src0, src1, ...); f is a lambda without captures.
template <class F>
Instruction valu(F f) {
  return valu_of<false, F>(+f);
}
/// Works like valu, with the old destination as the last argument of f.
template <class F>
Instruction accumulating(F f) {
  return valu_of<true, F>(+f);
}

}  // namespace tilewave::sim
