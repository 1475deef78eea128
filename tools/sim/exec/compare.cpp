// SPDX-License-Identifier: MIT
// Vector compares: a bit per active lane into VCC, an SGPR pair or (v_cmpx) EXEC as well.
#include <cmath>

#include "sim/machine/lanes.hpp"

namespace tilewave::sim {
namespace {

using u16 = std::uint16_t;
using i16 = std::int16_t;
using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

template <class F, bool sets_exec, class A, class B>
void run_compare(Wave& w, const Op& op) {
  Lanes<A> a;
  Lanes<B> b;
  read(w, op, 1, a);
  read(w, op, 2, b);
  u64 bits = 0;
  for (int l = 0; l < wave_lanes; ++l) bits |= u64{F{}(a[l], b[l])} << l;
  bits &= w.exec();
  w.set_pair(op.arg[0].reg, bits);
  if (sets_exec) w.set_pair(exec_lo, bits);
}

template <class A, class B, class F>
void add_compare(InstructionTable& t, const std::string& name, F) {
  for (const bool sets_exec : {false, true})
    t[(sets_exec ? "v_cmpx_" : "v_cmp_") + name] = {
        .run = sets_exec ? run_compare<F, true, A, B> : run_compare<F, false, A, B>,
        .cls = Class::valu,
        .widths = {width_of<A>(), width_of<B>(), Width::word, Width::word},
        .accepts_sdwa = true};
}

float value(Half h) { return static_cast<float>(h); }
template <class T>
T value(T x) {
  return x;
}
template <class T>
bool unordered(T a, T b) {
  return std::isnan(value(a)) || std::isnan(value(b));
}

template <class T>
void add_float(InstructionTable& t, const std::string& type) {
  const auto add = [&](const char* relation, auto f) { add_compare<T, T>(t, std::string(relation) + "_" + type, f); };
  add("f", [](T, T) { return false; });
  add("lt", [](T a, T b) { return value(a) < value(b); });
  add("eq", [](T a, T b) { return value(a) == value(b); });
  add("le", [](T a, T b) { return value(a) <= value(b); });
  add("gt", [](T a, T b) { return value(a) > value(b); });
  add("lg", [](T a, T b) { return value(a) < value(b) || value(a) > value(b); });
  add("ge", [](T a, T b) { return value(a) >= value(b); });
  add("o", [](T a, T b) { return !unordered(a, b); });
  add("u", [](T a, T b) { return unordered(a, b); });
  add("nge", [](T a, T b) { return !(value(a) >= value(b)); });
  add("nlg", [](T a, T b) { return !(value(a) < value(b) || value(a) > value(b)); });
  add("ngt", [](T a, T b) { return !(value(a) > value(b)); });
  add("nle", [](T a, T b) { return !(value(a) <= value(b)); });
  add("neq", [](T a, T b) { return value(a) != value(b); });
  add("nlt", [](T a, T b) { return !(value(a) < value(b)); });
  add("tru", [](T, T) { return true; });
}

template <class T>
void add_integer(InstructionTable& t, const std::string& type) {
  const auto add = [&](const char* relation, auto f) { add_compare<T, T>(t, std::string(relation) + "_" + type, f); };
  add("f", [](T, T) { return false; });
  add("lt", [](T a, T b) { return a < b; });
  add("eq", [](T a, T b) { return a == b; });
  add("le", [](T a, T b) { return a <= b; });
  add("gt", [](T a, T b) { return a > b; });
  add("ne", [](T a, T b) { return a != b; });
  add("ge", [](T a, T b) { return a >= b; });
  add("t", [](T, T) { return true; });
}

/// Mask bits: 0 signalling NaN, 1 quiet NaN, 2 -inf, 3 -normal, 4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal,
/// 9 +inf.
template <class T>
bool in_class(T x, u32 mask) {
  const bool negative = std::signbit(x);
  int bit;
  switch (std::fpclassify(x)) {
    case FP_NAN:
      bit = sizeof(T) == 4 ? static_cast<int>(std::bit_cast<u32>(static_cast<float>(x)) >> 22 & 1u) : 1;
      break;
    case FP_INFINITE: bit = negative ? 2 : 9; break;
    case FP_SUBNORMAL: bit = negative ? 4 : 7; break;
    case FP_ZERO: bit = negative ? 5 : 6; break;
    default: bit = negative ? 3 : 8;
  }
  return mask >> bit & 1;
}

}  // namespace

void add_compare_instructions(InstructionTable& t) {
  add_float<Half>(t, "f16");
  add_float<float>(t, "f32");
  add_float<double>(t, "f64");
  add_integer<u16>(t, "u16");
  add_integer<i16>(t, "i16");
  add_integer<u32>(t, "u32");
  add_integer<i32>(t, "i32");
  add_integer<u64>(t, "u64");
  add_integer<i64>(t, "i64");
  add_compare<float, u32>(t, "class_f32", [](float x, u32 mask) { return in_class(x, mask); });
  add_compare<double, u32>(t, "class_f64", [](double x, u32 mask) { return in_class(x, mask); });
}

}  // namespace tilewave::sim
