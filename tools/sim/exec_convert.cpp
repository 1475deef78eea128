// SPDX-License-Identifier: MIT
// Conversions, with both chips' fp8 flavours.
#include <algorithm>
#include <cmath>
#include <limits>

#include "fp8.hpp"
#include "lanes.hpp"

namespace isa_sim {

float fp8_decode(Fp8Format format, std::uint8_t code) {
  const int m = format.mantissa_bits, exponent_mask = (1 << format.exponent_bits()) - 1;
  const int magnitude = code & 0x7f, exponent = magnitude >> m, mantissa = magnitude & ((1 << m) - 1);
  if (format.fnuz) {
    if (code == 0x80) return NAN;
  } else if (m == 3) {
    if (magnitude == 0x7f) return NAN;
  } else if (exponent == exponent_mask) {
    return mantissa ? NAN : code & 0x80 ? -INFINITY : INFINITY;
  }
  const double value = exponent ? std::ldexp((1 << m) + mantissa, exponent - format.bias() - m)
                                : std::ldexp(mantissa, 1 - format.bias() - m);
  return static_cast<float>(code & 0x80 ? -value : value);
}

const std::array<float, 256>& fp8_values(Fp8Format format) {
  static const auto tables = [] {
    std::array<std::array<float, 256>, 4> made{};
    for (int i = 0; i < 4; ++i)
      for (int code = 0; code < 256; ++code)
        made[i][code] = fp8_decode({i & 1 ? 3 : 2, (i & 2) != 0}, static_cast<std::uint8_t>(code));
    return made;
  }();
  return tables[(format.mantissa_bits == 3) + 2 * format.fnuz];
}

std::uint8_t fp8_encode(Fp8Format format, float value, bool saturate) {
  const auto& values = fp8_values(format);
  const bool infinities = !format.fnuz && format.mantissa_bits == 2;
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0, nan = format.fnuz ? 0x80 : 0x7f;
  if (std::isnan(value)) return format.fnuz ? nan : static_cast<std::uint8_t>(sign | nan);
  const int largest = infinities ? 0x7b : format.fnuz ? 0x7f : 0x7e;
  const double x = std::fabs(static_cast<double>(value));
  // The first code above the largest, were there one: values from halfway to it overflow.
  const double ulp = static_cast<double>(values[largest]) - values[largest - 1];
  if (x >= values[largest] + ulp / 2) {
    const int code = saturate ? largest : infinities ? 0x7c : nan;
    return static_cast<std::uint8_t>(format.fnuz && code == nan ? code : sign | code);
  }
  const auto above = std::upper_bound(values.begin(), values.begin() + largest + 1, x,
                                      [](double a, float b) { return a < static_cast<double>(b); });
  int code = static_cast<int>(above - values.begin()) - 1;
  if (code < largest) {
    const double down = x - values[code], up = values[code + 1] - x;
    if (up < down || (up == down && (code & 1))) ++code;
  }
  if (format.fnuz && code == 0) return 0;
  return static_cast<std::uint8_t>(sign | code);
}

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

/// The power of two a scale operand stands for: only its exponent counts (CDNA4 ISA guide, "scale").
float scale_of(u32 bits) { return std::bit_cast<float>(bits & 0x7f800000u); }

constexpr Arch arch_of(bool ocp) { return ocp ? Arch::gfx950 : Arch::gfx942; }

template <bool bf8, bool ocp>
constexpr Fp8Format format = bf8 ? bf8_format(arch_of(ocp)) : fp8_format(arch_of(ocp));

template <bool bf8, bool ocp>
void run_decode_one(Wave& w, const Op& op) {
  Lanes<u32> in;
  Lanes<float> out;
  read(w, op, 1, in);  // SDWA has moved the byte down; op_sel names it otherwise
  const auto& values = fp8_values(format<bf8, ocp>);
  for (int l = 0; l < wave_lanes; ++l) out[l] = values[in[l] >> 8 * (op.op_sel & 3) & 0xff];
  write(w, op, out);
}

void write_pair(Wave& w, const Op& op, Lanes<float>& low, Lanes<float>& high) {
  Op half = op;  // two registers, no SDWA on the destination
  half.sdwa = nullptr;
  write(w, half, low);
  ++half.arg[0].reg;
  write(w, half, high);
}

/// vdst[2] = the two values of a source halfword, times a scale for the `scalef32` forms.
template <bool bf8, bool ocp, bool scaled>
void run_decode_pair(Wave& w, const Op& op) {
  Lanes<u32> in, scale;
  Lanes<float> low, high;
  read(w, op, 1, in);
  if (scaled) read(w, op, 2, scale);
  const auto& values = fp8_values(format<bf8, ocp>);
  for (int l = 0; l < wave_lanes; ++l) {
    const u32 word = op.op_sel & 1 ? in[l] >> 16 : in[l];
    const float factor = scaled ? scale_of(scale[l]) : 1.0f;
    low[l] = values[word & 0xff] * factor;
    high[l] = values[word >> 8 & 0xff] * factor;
  }
  write_pair(w, op, low, high);
}

/// vdst = two bf16 (or f16) in one register from a source halfword and a scale.
template <bool bf8, bool to_bf16>
void run_decode_scaled_16(Wave& w, const Op& op) {
  Lanes<u32> in, scale, out;
  read(w, op, 1, in);
  read(w, op, 2, scale);
  const auto& values = fp8_values(format<bf8, true>);
  const auto narrow = [](float x) { return to_bf16 ? bf16(x) : u32{Half(x).bits}; };
  for (int l = 0; l < wave_lanes; ++l) {
    const u32 word = op.op_sel & 1 ? in[l] >> 16 : in[l];
    const float factor = scale_of(scale[l]);
    out[l] = narrow(values[word & 0xff] * factor) | narrow(values[word >> 8 & 0xff] * factor) << 16;
  }
  Op plain = op;
  plain.op_sel = 0;
  write(w, plain, out);
}

/// One half of vdst = two fp8 codes; the other half stays.
template <bool bf8, bool ocp>
void run_encode_pair(Wave& w, const Op& op) {
  Lanes<float> a, b;
  Lanes<u32> old, out;
  read(w, op, 1, a);
  read(w, op, 2, b);
  read_words(w, op.arg[0], 0, nullptr, old);
  const bool saturate = w.mode.fp16_overflow, upper = op.op_sel >> 3 & 1;
  for (int l = 0; l < wave_lanes; ++l) {
    const u32 pair = fp8_encode(format<bf8, ocp>, a[l], saturate) | u32{fp8_encode(format<bf8, ocp>, b[l], saturate)}
                                                                        << 8;
    out[l] = upper ? (old[l] & 0xffffu) | pair << 16 : (old[l] & 0xffff0000u) | pair;
  }
  write(w, op, out);
}

template <bool ocp>
void add_fp8(InstructionTable& t) {
  const auto add = [&t](const char* name, Handler run) {
    t[name] = {.run = run, .cls = Class::valu, .accepts_dpp = true, .accepts_sdwa = true, .accepts_op_sel = true};
  };
  add("v_cvt_f32_fp8", run_decode_one<false, ocp>);
  add("v_cvt_f32_bf8", run_decode_one<true, ocp>);
  add("v_cvt_pk_f32_fp8", run_decode_pair<false, ocp, false>);
  add("v_cvt_pk_f32_bf8", run_decode_pair<true, ocp, false>);
  add("v_cvt_pk_fp8_f32", run_encode_pair<false, ocp>);
  add("v_cvt_pk_bf8_f32", run_encode_pair<true, ocp>);
  if constexpr (ocp) {
    add("v_cvt_scalef32_pk_f32_fp8", run_decode_pair<false, ocp, true>);
    add("v_cvt_scalef32_pk_f32_bf8", run_decode_pair<true, ocp, true>);
    add("v_cvt_scalef32_pk_bf16_fp8", run_decode_scaled_16<false, true>);
    add("v_cvt_scalef32_pk_bf16_bf8", run_decode_scaled_16<true, true>);
    add("v_cvt_scalef32_pk_f16_fp8", run_decode_scaled_16<false, false>);
    add("v_cvt_scalef32_pk_f16_bf8", run_decode_scaled_16<true, false>);
  }
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
  t["v_cvt_i32_f64"] = valu([](double x) { return saturated<i32>(x); });
  t["v_cvt_u32_f64"] = valu([](double x) { return saturated<u32>(x); });
  if (arch == Arch::gfx950) {
    t["v_cvt_pk_bf16_f32"] = valu([](float a, float b) { return bf16(a) | bf16(b) << 16; });
    t["v_cvt_pk_f16_f32"] = valu([](float a, float b) { return Half(a).bits | u32{Half(b).bits} << 16; });
    t["v_cvt_f32_bf16"] = valu([](u16 x) { return std::bit_cast<float>(u32{x} << 16); });
    add_fp8<true>(t);
  } else {
    add_fp8<false>(t);
  }
}

}  // namespace isa_sim
