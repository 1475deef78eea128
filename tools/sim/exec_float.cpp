// SPDX-License-Identifier: MIT
// Floating-point vector instructions. Transcendentals are computed in double and rounded once, so they are at least as
// exact as the hardware's 1 ulp; a result within a kernel's tolerance must not depend on the last bit.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lanes.hpp"

namespace isa_sim {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;

float f32(Half h) { return static_cast<float>(h); }
float rounded(double x) { return static_cast<float>(x); }

bool signalling(float x) {
  const u32 bits = std::bit_cast<u32>(x);
  return std::isnan(x) && !(bits & 0x400000u);
}
bool signalling(double x) { return std::isnan(x) && !(std::bit_cast<std::uint64_t>(x) >> 51 & 1); }

/// IEEE mode: a signalling NaN becomes quiet and wins; otherwise the number wins over a NaN; -0 < +0.
template <class T>
T minimum(T a, T b) {
  if (signalling(a)) return a + T(0);
  if (signalling(b)) return b + T(0);
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
  if (signalling(a)) return a + T(0);
  if (signalling(b)) return b + T(0);
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
float median(float a, float b, float c) {
  if (std::isnan(a) || std::isnan(b) || std::isnan(c)) return minimum(minimum(a, b), c);
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}
/// v_minimum3 / v_maximum3 (CDNA4): any NaN wins.
float minimum_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : minimum(a, b); }
float maximum_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : maximum(a, b); }

/// exp, log, rcp, rsq and sqrt flush denormals on both sides, whatever the mode says.
template <class F>
float flushing(float x, F f) {
  return flushed(rounded(f(static_cast<double>(flushed(x)))));
}

int exponent_of(float x) {
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
  t["v_ldexp_f64"] = valu([](double x, i32 e) { return std::ldexp(x, e); });
}

void add_half(InstructionTable& t) {
  t["v_add_f16"] = valu([](Half a, Half b) { return Half(f32(a) + f32(b)); });
  t["v_sub_f16"] = valu([](Half a, Half b) { return Half(f32(a) - f32(b)); });
  t["v_subrev_f16"] = valu([](Half a, Half b) { return Half(f32(b) - f32(a)); });
  t["v_mul_f16"] = valu([](Half a, Half b) { return Half(f32(a) * f32(b)); });  // exact product, one rounding
  t["v_min_f16"] = valu([](Half a, Half b) { return Half(minimum(f32(a), f32(b))); });
  t["v_max_f16"] = valu([](Half a, Half b) { return Half(maximum(f32(a), f32(b))); });
  t["v_rcp_f16"] = valu([](Half x) { return Half(1 / f32(x)); });
  t["v_sqrt_f16"] = valu([](Half x) { return Half(std::sqrt(f32(x))); });
  t["v_exp_f16"] = valu([](Half x) { return Half(std::exp2(f32(x))); });
  t["v_log_f16"] = valu([](Half x) { return Half(std::log2(f32(x))); });
}

// Division: v_div_scale, a Newton iteration in v_fma, v_div_fmas, v_div_fixup (CDNA3 ISA guide, pseudo-code of these).
// Where reciprocal and quotient are both denormal the guide scales the denominator by 2^64, which overflows; only 2^-64
// gives the right quotients.
struct Scaled {
  float value;
  bool vcc;
};
Scaled div_scale(float s0, float denominator, float numerator) {
  const int de = std::isfinite(denominator) && denominator != 0 ? std::ilogb(denominator) : 0;
  const int ne = std::isfinite(numerator) && numerator != 0 ? std::ilogb(numerator) : 0;
  const bool tiny_denominator = std::fpclassify(denominator) == FP_SUBNORMAL;
  const float quotient = numerator / denominator;
  if (denominator == 0 || numerator == 0) return {NAN, false};
  if (ne - de >= 96) return {s0 == denominator ? std::ldexp(s0, 64) : s0, true};
  if (tiny_denominator) return {std::ldexp(s0, 64), false};
  if (std::fpclassify(1 / denominator) == FP_SUBNORMAL && std::fpclassify(quotient) == FP_SUBNORMAL)
    return {s0 == denominator ? std::ldexp(s0, -64) : s0, true};
  if (std::fpclassify(1 / denominator) == FP_SUBNORMAL) return {std::ldexp(s0, -64), false};
  if (std::fpclassify(quotient) == FP_SUBNORMAL) return {s0 == numerator ? std::ldexp(s0, 64) : s0, true};
  if (ne <= -104) return {std::ldexp(s0, 64), false};  // exponent field <= 23
  return {s0, false};
}
void run_div_scale(Wave& w, const Op& op) {  // vdst, vcc or sgpr pair, s0, s1 = denominator, s2 = numerator
  Lanes<float> s0, s1, s2, out;
  read(w, op, 2, s0);
  read(w, op, 3, s1);
  read(w, op, 4, s2);
  std::uint64_t scaled = 0;
  for (int l = 0; l < wave_lanes; ++l) {
    const Scaled r = div_scale(s0[l], s1[l], s2[l]);
    out[l] = r.value;
    if (r.vcc && (w.exec() >> l & 1)) scaled |= std::uint64_t{1} << l;
  }
  write(w, op, out);
  w.set_pair(op.arg[1].reg, scaled);
}
void run_div_fmas(Wave& w, const Op& op) {
  Lanes<float> a, b, c, out;
  read(w, op, 1, a);
  read(w, op, 2, b);
  read(w, op, 3, c);
  for (int l = 0; l < wave_lanes; ++l) {
    const double sum = double{a[l]} * b[l] + c[l];  // rounded to f32 once, after scaling: the result may be denormal
    const bool scaled = w.vcc() >> l & 1;
    out[l] = scaled ? rounded(std::ldexp(sum, exponent_of(c[l]) > 1 ? 64 : -64)) : std::fma(a[l], b[l], c[l]);
  }
  write(w, op, out);
}
float div_fixup(float quotient, float denominator, float numerator) {
  const float sign = std::signbit(denominator) != std::signbit(numerator) ? -1.0f : 1.0f;
  if (std::isnan(numerator)) return numerator + 0.0f;
  if (std::isnan(denominator)) return denominator + 0.0f;
  if ((numerator == 0 && denominator == 0) || (std::isinf(numerator) && std::isinf(denominator))) return -NAN;
  if (denominator == 0 || std::isinf(numerator)) return sign * INFINITY;
  if (std::isinf(denominator) || numerator == 0) return sign * 0.0f;
  const int exponent = std::ilogb(numerator) - std::ilogb(denominator);
  if (exponent < -150) return sign * 0.0f;
  if (exponent > 150) return sign * INFINITY;
  return std::copysign(quotient, sign);
}

}  // namespace

void add_float_instructions(InstructionTable& t) {
  add_single(t);
  add_double(t);
  add_half(t);
  t["v_div_scale_f32"] = {.run = run_div_scale, .cls = Class::valu, .first_source = 2};
  t["v_div_fmas_f32"] = {.run = run_div_fmas, .cls = Class::valu};
  t["v_div_fixup_f32"] = valu([](float q, float d, float n) { return div_fixup(q, d, n); });
}

}  // namespace isa_sim
