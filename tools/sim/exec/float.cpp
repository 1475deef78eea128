// SPDX-License-Identifier: MIT
// Floating-point vector instructions. Transcendentals are computed in double and rounded once, so they are at least as
// exact as the hardware's 1 ulp; a result within a kernel's tolerance must not depend on the last bit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/machine/lanes.hpp"
#include "sim/numbers/float_limits.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;

float rounded(double x) { return static_cast<float>(x); }

/// v_minimum3 / v_maximum3 (CDNA4): any NaN wins.
float minimum_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : minimum(a, b); }
float maximum_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : maximum(a, b); }

/// exp, log, rcp, rsq and sqrt flush denormals on both sides, whatever the mode says.
template <class F>
float flushing(float x, F f) {
  return flushed(rounded(f(static_cast<double>(flushed(x)))));
}

template <class T>
int exponent_of(T x) {
  if (x == 0 || !std::isfinite(x)) return 0;
  int e;
  std::frexp(x, &e);
  return e;
}

float legacy_product(float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; }

void add_single(InstructionTable& t) {
  t["v_add_f32"] = valu([](float a, float b) { return a + b; });
  t["v_sub_f32"] = valu([](float a, float b) { return a - b; });
  t["v_subrev_f32"] = valu([](float a, float b) { return b - a; });
  t["v_mul_f32"] = valu([](float a, float b) { return a * b; });
  t["v_mul_legacy_f32"] = valu([](float a, float b) { return legacy_product(a, b); });
  t["v_min_f32"] = valu([](float a, float b) { return minimum(a, b); });
  t["v_max_f32"] = valu([](float a, float b) { return maximum(a, b); });
  t["v_min3_f32"] = valu([](float a, float b, float c) { return minimum(minimum(a, b), c); });
  t["v_max3_f32"] = valu([](float a, float b, float c) { return maximum(maximum(a, b), c); });
  t["v_med3_f32"] = valu([](float a, float b, float c) { return median(a, b, c); });
  t["v_minimum3_f32"] = valu([](float a, float b, float c) { return minimum_nan(minimum_nan(a, b), c); });
  t["v_maximum3_f32"] = valu([](float a, float b, float c) { return maximum_nan(maximum_nan(a, b), c); });
  t["v_fma_f32"] = valu([](float a, float b, float c) { return std::fma(a, b, c); });
  t["v_fmac_f32"] = accumulating([](float a, float b, float d) { return std::fma(a, b, d); });
  // v_fmamk d, a, K, b and v_fmaak d, a, b, K are printed in the order of the product, then the addend.
  t["v_fmamk_f32"] = valu([](float a, float k, float b) { return std::fma(a, k, b); });
  t["v_fmaak_f32"] = valu([](float a, float b, float k) { return std::fma(a, b, k); });
  t["v_exp_f32"] = valu([](float x) { return flushing(x, [](double d) { return std::exp2(d); }); });
  t["v_log_f32"] = valu([](float x) { return flushing(x, [](double d) { return std::log2(d); }); });
  t["v_rcp_f32"] = valu([](float x) { return flushing(x, [](double d) { return 1 / d; }); });
  t["v_rcp_iflag_f32"] = t["v_rcp_f32"];
  t["v_rsq_f32"] = valu([](float x) { return flushing(x, [](double d) { return 1 / std::sqrt(d); }); });
  t["v_sqrt_f32"] = valu([](float x) { return flushing(x, [](double d) { return std::sqrt(d); }); });
  t["v_sin_f32"] = valu([](float x) { return rounded(std::sin(2 * M_PI * x)); });  // input in revolutions
  t["v_cos_f32"] = valu([](float x) { return rounded(std::cos(2 * M_PI * x)); });
  t["v_fract_f32"] = valu([](float x) { return std::min(x - std::floor(x), 0x1.fffffep-1f); });
  t["v_trunc_f32"] = valu([](float x) { return std::trunc(x); });
  t["v_ceil_f32"] = valu([](float x) { return std::ceil(x); });
  t["v_floor_f32"] = valu([](float x) { return std::floor(x); });
  t["v_rndne_f32"] = valu([](float x) { return std::nearbyint(x); });
  t["v_ldexp_f32"] = valu([](float x, i32 e) { return std::ldexp(x, e); });
  t["v_frexp_exp_i32_f32"] = valu([](float x) { return exponent_of(x); });
  t["v_frexp_mant_f32"] = valu([](float x) {
    int e;
    return std::isfinite(x) ? std::frexp(x, &e) : x;
  });
}

void add_double(InstructionTable& t) {
  t["v_add_f64"] = valu([](double a, double b) { return a + b; });
  t["v_mul_f64"] = valu([](double a, double b) { return a * b; });
  t["v_fma_f64"] = valu([](double a, double b, double c) { return std::fma(a, b, c); });
  t["v_fmac_f64"] = accumulating([](double a, double b, double d) { return std::fma(a, b, d); });
  t["v_min_f64"] = valu([](double a, double b) { return minimum(a, b); });
  t["v_max_f64"] = valu([](double a, double b) { return maximum(a, b); });
  t["v_rcp_f64"] = valu([](double x) { return 1 / x; });
  t["v_rsq_f64"] = valu([](double x) { return 1 / std::sqrt(x); });
  t["v_sqrt_f64"] = valu([](double x) { return std::sqrt(x); });
  t["v_floor_f64"] = valu([](double x) { return std::floor(x); });
  t["v_ceil_f64"] = valu([](double x) { return std::ceil(x); });
  t["v_trunc_f64"] = valu([](double x) { return std::trunc(x); });
  t["v_rndne_f64"] = valu([](double x) { return std::nearbyint(x); });
  t["v_fract_f64"] = valu([](double x) { return std::min(x - std::floor(x), 0x1.fffffffffffffp-1); });
  t["v_frexp_exp_i32_f64"] = valu([](double x) { return exponent_of(x); });
  t["v_frexp_mant_f64"] = valu([](double x) {
    int e;
    return std::isfinite(x) ? std::frexp(x, &e) : x;
  });
  t["v_ldexp_f64"] = valu([](double x, i32 e) { return std::ldexp(x, e); });
}

// Division: v_div_scale, a Newton iteration in v_fma, v_div_fmas, v_div_fixup (CDNA3 ISA guide, pseudo-code of these).
// Where reciprocal and quotient are both denormal the guide scales the denominator by 2^64, which overflows; only 2^-64
// gives the right quotients.
template <class T>
struct Division {
  static constexpr bool wide = sizeof(T) == 8;
  // Exponents from which operands are scaled, by how much, and beyond which the quotient has none.
  static constexpr int apart = wide ? 768 : 96, by = wide ? 128 : 64, small = wide ? -970 : -104;
  static constexpr int beyond = wide ? 1075 : 150;

  struct Scaled {
    T value;
    bool vcc;
  };
  static bool subnormal(T x) { return std::fpclassify(x) == FP_SUBNORMAL; }
  static int exponent(T x) { return std::isfinite(x) && x != 0 ? std::ilogb(x) : 0; }

  static Scaled scale(T s0, T denominator, T numerator) {
    const int de = exponent(denominator), ne = exponent(numerator);
    const T quotient = numerator / denominator;
    if (denominator == 0 || numerator == 0) return {std::numeric_limits<T>::quiet_NaN(), false};
    if (ne - de >= apart) return {s0 == denominator ? std::ldexp(s0, by) : s0, true};
    if (subnormal(denominator)) return {std::ldexp(s0, by), false};
    if (subnormal(1 / denominator) && subnormal(quotient)) return {s0 == denominator ? std::ldexp(s0, -by) : s0, true};
    if (subnormal(1 / denominator)) return {std::ldexp(s0, -by), false};
    if (subnormal(quotient)) return {s0 == numerator ? std::ldexp(s0, by) : s0, true};
    if (ne <= small) return {std::ldexp(s0, by), false};  // exponent field <= 23, or 53
    return {s0, false};
  }
  /// vdst, vcc or sgpr pair, s0, s1 = denominator, s2 = numerator
  static void run_scale(Wave& w, const Op& op) {
    Lanes<T> s0, s1, s2, out;
    read(w, op, 2, s0);
    read(w, op, 3, s1);
    read(w, op, 4, s2);
    std::uint64_t scaled = 0;
    for (int l = 0; l < wave_lanes; ++l) {
      const Scaled r = scale(s0[l], s1[l], s2[l]);
      out[l] = r.value;
      if (r.vcc && (w.exec() >> l & 1)) scaled |= std::uint64_t{1} << l;
    }
    write(w, op, out);
    w.set_pair(op.arg[1].reg, scaled);
  }

  /// Rounded once, after scaling: the result may be denormal. (Twice in f64.)
  static T fmas(T a, T b, T c, bool scaled) {
    if (!scaled) return std::fma(a, b, c);
    const int exponent = exponent_of(c) > 1 ? by : -by;
    if constexpr (wide)
      return std::ldexp(std::fma(a, b, c), exponent);
    else
      return rounded(std::ldexp(double{a} * b + c, exponent));
  }
  static void run_fmas(Wave& w, const Op& op) {
    Lanes<T> a, b, c, out;
    read(w, op, 1, a);
    read(w, op, 2, b);
    read(w, op, 3, c);
    for (int l = 0; l < wave_lanes; ++l) out[l] = fmas(a[l], b[l], c[l], w.vcc() >> l & 1);
    write(w, op, out);
  }

  static T fixup(T quotient, T denominator, T numerator) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const T sign = std::signbit(denominator) != std::signbit(numerator) ? T(-1) : T(1);
    if (std::isnan(numerator)) return numerator + T(0);
    if (std::isnan(denominator)) return denominator + T(0);
    if ((numerator == 0 && denominator == 0) || (std::isinf(numerator) && std::isinf(denominator)))
      return -std::numeric_limits<T>::quiet_NaN();
    if (denominator == 0 || std::isinf(numerator)) return sign * infinity;
    if (std::isinf(denominator) || numerator == 0) return sign * T(0);
    const int difference = std::ilogb(numerator) - std::ilogb(denominator);
    if (difference < -beyond) return sign * T(0);
    if (difference > beyond) return sign * infinity;
    return std::copysign(quotient, sign);
  }

  static void add(InstructionTable& t, const std::string& type) {
    const Width width = width_of<T>();
    const std::array<Width, 4> widths{width, width, width, width};
    t["v_div_scale_" + type] = {.run = run_scale, .cls = Class::valu, .first_source = 2, .widths = widths};
    t["v_div_fmas_" + type] = {.run = run_fmas, .cls = Class::valu, .widths = widths, .integer_result = false};
    t["v_div_fixup_" + type] = valu([](T q, T d, T n) { return fixup(q, d, n); });
  }
};

}  // namespace

void add_float_instructions(InstructionTable& t) {
  add_single(t);
  add_double(t);
  Division<float>::add(t, "f32");
  Division<double>::add(t, "f64");
}

}  // namespace tilewave::sim
