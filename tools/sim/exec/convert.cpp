// SPDX-License-Identifier: MIT
// Conversions between integers and floats of 16 bits and more.
#include <cmath>
#include <limits>

#include "sim/machine/lanes.hpp"

namespace tilewave::sim {

namespace {

using u16 = std::uint16_t;
using u32 = std::uint32_t;
using i32 = std::int32_t;

template <class I, class F>
I saturated(F x) {
  if (std::isnan(x)) return 0;
  const double d = std::trunc(static_cast<double>(x));
  constexpr double lowest = std::numeric_limits<I>::min(), highest = std::numeric_limits<I>::max();
  return d <= lowest ? std::numeric_limits<I>::min() : d >= highest ? std::numeric_limits<I>::max() : static_cast<I>(d);
}

u32 bf16(float x) {
  const u32 bits = std::bit_cast<u32>(x);
  if (std::isnan(x)) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

Half toward_zero(float x) {
  Half h(x);
  if (std::isfinite(x) && std::fabs(static_cast<float>(h)) > std::fabs(x)) --h.bits;
  return h;
}

}  // namespace

void add_convert_instructions(InstructionTable& t, Arch arch) {
  t["v_cvt_f32_u32"] = valu([](u32 x) { return static_cast<float>(x); });
  t["v_cvt_f32_i32"] = valu([](i32 x) { return static_cast<float>(x); });
  t["v_cvt_u32_f32"] = valu([](float x) { return saturated<u32>(x); });
  t["v_cvt_i32_f32"] = valu([](float x) { return saturated<i32>(x); });
  t["v_cvt_flr_i32_f32"] = valu([](float x) { return saturated<i32>(std::floor(x)); });
  t["v_cvt_rpi_i32_f32"] = valu([](float x) { return saturated<i32>(std::floor(x + 0.5f)); });
  t["v_cvt_f32_ubyte0"] = valu([](u32 x) { return static_cast<float>(x & 255); });
  t["v_cvt_f32_ubyte1"] = valu([](u32 x) { return static_cast<float>(x >> 8 & 255); });
  t["v_cvt_f32_ubyte2"] = valu([](u32 x) { return static_cast<float>(x >> 16 & 255); });
  t["v_cvt_f32_ubyte3"] = valu([](u32 x) { return static_cast<float>(x >> 24); });
  t["v_cvt_f32_f16"] = valu([](Half x) { return static_cast<float>(x); });
  t["v_cvt_f16_f32"] = valu([](float x) { return Half(x); });
  t["v_cvt_pkrtz_f16_f32"] =
      valu([](float a, float b) { return toward_zero(a).bits | u32{toward_zero(b).bits} << 16; });
  t["v_pack_b32_f16"] = valu([](Half a, Half b) { return a.bits | u32{b.bits} << 16; });
  t["v_cvt_f64_f32"] = valu([](float x) { return static_cast<double>(x); });
  t["v_cvt_f32_f64"] = valu([](double x) { return static_cast<float>(x); });
  t["v_cvt_f64_i32"] = valu([](i32 x) { return static_cast<double>(x); });
  t["v_cvt_f64_u32"] = valu([](u32 x) { return static_cast<double>(x); });
  t["v_cvt_off_f32_i4"] = valu([](u32 x) { return static_cast<float>(static_cast<i32>(x << 28) >> 28) / 16; });
  t["v_cvt_i32_f64"] = valu([](double x) { return saturated<i32>(x); });
  t["v_cvt_u32_f64"] = valu([](double x) { return saturated<u32>(x); });
  if (arch == Arch::gfx950) {
    t["v_cvt_pk_bf16_f32"] = valu([](float a, float b) { return bf16(a) | bf16(b) << 16; });
    t["v_cvt_pk_f16_f32"] = valu([](float a, float b) { return Half(a).bits | u32{Half(b).bits} << 16; });
    t["v_cvt_f32_bf16"] = valu([](u16 x) { return std::bit_cast<float>(u32{x} << 16); });
  }
}

}  // namespace tilewave::sim
