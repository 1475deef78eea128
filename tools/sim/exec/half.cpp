// SPDX-License-Identifier: MIT
// f16 vector instructions, computed in f32 and rounded once, or where that is not exact in double.
#include <limits>

#include "sim/machine/lanes.hpp"
#include "sim/numbers/float_limits.hpp"

namespace tilewave::sim {
namespace {

using u16 = std::uint16_t;
using i16 = std::int16_t;

float f32(Half h) { return static_cast<float>(h); }
Half fused(Half a, Half b, Half c) { return Half(static_cast<float>(double{f32(a)} * f32(b) + f32(c))); }

template <class I>
I saturated(Half h) {
  const float x = std::trunc(f32(h));
  if (std::isnan(x)) return 0;
  constexpr float lowest = std::numeric_limits<I>::min(), highest = std::numeric_limits<I>::max();
  return static_cast<I>(std::min(std::max(x, lowest), highest));
}

}  // namespace

void add_half_instructions(InstructionTable& t) {
  t["v_add_f16"] = valu([](Half a, Half b) { return Half(f32(a) + f32(b)); });
  t["v_sub_f16"] = valu([](Half a, Half b) { return Half(f32(a) - f32(b)); });
  t["v_subrev_f16"] = valu([](Half a, Half b) { return Half(f32(b) - f32(a)); });
  t["v_mul_f16"] = valu([](Half a, Half b) { return Half(f32(a) * f32(b)); });  // exact product, one rounding
  t["v_fma_f16"] = valu([](Half a, Half b, Half c) { return fused(a, b, c); });
  t["v_min_f16"] = valu([](Half a, Half b) { return Half(minimum(f32(a), f32(b))); });
  t["v_max_f16"] = valu([](Half a, Half b) { return Half(maximum(f32(a), f32(b))); });
  t["v_min3_f16"] = valu([](Half a, Half b, Half c) { return Half(minimum(minimum(f32(a), f32(b)), f32(c))); });
  t["v_max3_f16"] = valu([](Half a, Half b, Half c) { return Half(maximum(maximum(f32(a), f32(b)), f32(c))); });
  t["v_med3_f16"] = valu([](Half a, Half b, Half c) { return Half(median(f32(a), f32(b), f32(c))); });
  t["v_rcp_f16"] = valu([](Half x) { return Half(1 / f32(x)); });
  t["v_sqrt_f16"] = valu([](Half x) { return Half(std::sqrt(f32(x))); });
  t["v_rsq_f16"] = valu([](Half x) { return Half(static_cast<float>(1 / std::sqrt(double{f32(x)}))); });
  t["v_exp_f16"] = valu([](Half x) { return Half(std::exp2(f32(x))); });
  t["v_log_f16"] = valu([](Half x) { return Half(std::log2(f32(x))); });
  t["v_sin_f16"] = valu([](Half x) { return Half(static_cast<float>(std::sin(2 * M_PI * f32(x)))); });  // revolutions
  t["v_cos_f16"] = valu([](Half x) { return Half(static_cast<float>(std::cos(2 * M_PI * f32(x)))); });
  t["v_trunc_f16"] = valu([](Half x) { return Half(std::trunc(f32(x))); });
  t["v_ceil_f16"] = valu([](Half x) { return Half(std::ceil(f32(x))); });
  t["v_floor_f16"] = valu([](Half x) { return Half(std::floor(f32(x))); });
  t["v_rndne_f16"] = valu([](Half x) { return Half(std::nearbyint(f32(x))); });
  t["v_fract_f16"] = valu([](Half x) { return Half(std::min(f32(x) - std::floor(f32(x)), 0x1.ffcp-1f)); });
  t["v_ldexp_f16"] = valu([](Half x, i16 e) { return Half(std::ldexp(f32(x), e)); });
  t["v_cvt_f16_u16"] = valu([](u16 x) { return Half(static_cast<float>(x)); });
  t["v_cvt_f16_i16"] = valu([](i16 x) { return Half(static_cast<float>(x)); });
  t["v_cvt_u16_f16"] = valu([](Half x) { return saturated<u16>(x); });
  t["v_cvt_i16_f16"] = valu([](Half x) { return saturated<i16>(x); });
}

}  // namespace tilewave::sim
