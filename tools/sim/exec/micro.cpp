// SPDX-License-Identifier: MIT
// Conversions to and from floats of 8, 6 and 4 bits: v_cvt_*fp8*, v_cvt_sr_*, and gfx950's v_cvt_scalef32_* (CDNA4 ISA
// guide, "Vector ALU opcodes"). A scale operand stands for the power of two that the exponent of its f32 names: decoding
// multiplies by it, encoding divides.
#include <algorithm>
#include <bit>
#include <cmath>

#include "sim/machine/lanes.hpp"
#include "sim/numbers/microfloat.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;

enum class Real : std::uint8_t { f32, f16, bf16 };
constexpr const char* real_names[] = {"f32", "f16", "bf16"};

/// A family member, packed into Instruction::parameter.
struct Conversion {
  MicroFormat format;
  Real real = Real::f32;
  int count = 1;
  bool scaled = false, seeded = false;

  constexpr u32 pack() const {
    return static_cast<u32>(format.exponent_bits | format.mantissa_bits << 4 | format.fnuz << 8 |
                            static_cast<int>(real) << 9 | count << 12 | scaled << 20 | seeded << 21);
  }
  static Conversion unpack(u32 x) {
    return {{static_cast<int>(x & 15), static_cast<int>(x >> 4 & 15), (x >> 8 & 1) != 0},
            static_cast<Real>(x >> 9 & 3),
            static_cast<int>(x >> 12 & 0xff),
            (x >> 20 & 1) != 0,
            (x >> 21 & 1) != 0};
  }
  int per_register() const { return real == Real::f32 ? 1 : 2; }
  /// Bits of all codes: 8 or 16 of one register, chosen by op_sel, or whole registers.
  int code_bits() const { return count * format.bits(); }
};

double scale_of(u32 bits) {
  const int exponent = static_cast<int>(bits >> 23 & 0xff);
  return exponent == 0xff ? NAN : std::bit_cast<double>(std::uint64_t(exponent - 127 + 1023) << 52);
}

double widened(Real real, u32 bits) {
  if (real == Real::f16) return static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(bits)));
  return std::bit_cast<float>(real == Real::bf16 ? bits << 16 : bits);
}

/// `f` holds what a double held exactly up to f32's precision.
u32 narrowed(Real real, float f) {
  if (real == Real::f16) return Half(f).bits;
  const u32 bits = std::bit_cast<u32>(f);
  if (real == Real::f32) return bits;
  if (std::isnan(f)) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

void run_decode(Wave& w, const Op& op) {  // vdst, src, scale
  const Conversion c = Conversion::unpack(op.parameter);
  const auto& values = micro_values(c.format);
  const int bits = c.format.bits(), source_words = (c.code_bits() + 31) / 32;
  Lanes<u32> scale, in[7];
  Lanes<double> factor;
  if (c.scaled) read(w, op, 2, scale);
  for (int l = 0; l < wave_lanes; ++l) factor[l] = c.scaled ? scale_of(scale[l]) : 1;
  for (int i = 0; i < source_words; ++i) {
    if (source_words == 1)
      read(w, op, 1, in[0]);
    else
      read_words(w, op.arg[1], i, nullptr, in[i]);
  }
  in[source_words] = {};
  const int first = c.code_bits() == 8 ? 8 * (op.op_sel & 3) : c.code_bits() == 16 ? 16 * (op.op_sel & 1) : 0;
  for (int i = 0; i < c.count; i += c.per_register()) {
    Lanes<u32> out{};
    const bool half = c.real != Real::f32 && c.count == 1;  // the other half of vdst stays
    if (half) read_words(w, op.arg[0], 0, nullptr, out);
    for (int e = 0; e < std::min(c.per_register(), c.count); ++e) {
      const int at = first + bits * (i + e);
      const Lanes<u32>&low = in[at / 32], &high = in[at / 32 + (source_words > 1)];
      for (int l = 0; l < wave_lanes; ++l) {
        const std::uint64_t pair = low[l] | std::uint64_t{high[l]} << 32;
        const auto code = static_cast<u32>(pair >> at % 32) & ((1u << bits) - 1);
        const u32 result = narrowed(c.real, static_cast<float>(double{values[code]} * factor[l]));
        if (half)
          out[l] = op.op_sel >> 3 & 1 ? (out[l] & 0xffffu) | result << 16 : (out[l] & 0xffff0000u) | result;
        else
          out[l] |= result << 16 * e;
      }
    }
    write(w, op, out, i / c.per_register());
  }
}

void run_encode(Wave& w, const Op& op) {  // vdst, values (one operand, or two of f32 in turns), seed, scale
  const Conversion c = Conversion::unpack(op.parameter);
  const int operands = c.real == Real::f32 && !c.seeded ? 2 : 1;
  Lanes<u32> seed, scale, out[6]{};
  if (c.seeded) read(w, op, operands + 1, seed);
  if (c.scaled) read(w, op, operands + 1 + c.seeded, scale);
  const bool part = c.code_bits() < 32;  // the rest of vdst stays
  if (part) read_words(w, op.arg[0], 0, nullptr, out[0]);
  const int first_bit = c.code_bits() == 8 ? 8 * (op.op_sel >> 2 & 3) : part ? 16 * (op.op_sel >> 3 & 1) : 0;
  Rounding rounding{.saturate = w.mode.fp16_overflow};
  rounding.seed_bits = 23 - c.format.mantissa_bits;  // that many bits of an f32 are dropped
  for (int i = 0; i < c.count; ++i) {
    const int operand = 1 + i % operands, element = i / operands, word = element / c.per_register();
    Lanes<u32> in;
    if (op.arg[operand].words > 1) {
      read_words(w, op.arg[operand], word, nullptr, in);
    } else if (c.real == Real::f32) {
      Lanes<float> real;
      read(w, op, operand, real);
      for (int l = 0; l < wave_lanes; ++l) in[l] = std::bit_cast<u32>(real[l]);
    } else {
      read(w, op, operand, in);
    }
    const bool upper = c.real != Real::f32 && (c.count == 1 ? op.op_sel & 1 : element & 1);
    const int at = first_bit + c.format.bits() * i;
    const u32 mask = (1u << c.format.bits()) - 1;
    for (int l = 0; l < wave_lanes; ++l) {
      const u32 bits = upper ? in[l] >> 16 : c.real == Real::f32 ? in[l] : in[l] & 0xffffu;
      if (c.seeded) rounding.seed = seed[l];
      const double value = widened(c.real, bits) / (c.scaled ? scale_of(scale[l]) : 1);
      const std::uint64_t code = micro_encode(c.format, value, rounding), field = std::uint64_t{mask} << at % 32;
      out[at / 32][l] = static_cast<u32>((out[at / 32][l] & ~field) | code << at % 32);
      if (field >> 32) out[at / 32 + 1][l] |= static_cast<u32>(code << at % 32 >> 32);
    }
  }
  for (int word = 0; word * 32 < c.code_bits(); ++word) write(w, op, out[word], word);
}

/// Rounds to 16 bits by a seed: its top bits, as many as are dropped, are added below the result's last bit.
template <Real real>
void run_stochastic(Wave& w, const Op& op) {  // vdst half, src, seed
  Lanes<float> in;
  Lanes<u32> seed, out;
  read(w, op, 1, in);
  read(w, op, 2, seed);
  read_words(w, op.arg[0], 0, nullptr, out);
  for (int l = 0; l < wave_lanes; ++l) {
    u32 result = narrowed(real, in[l]);
    if (std::isfinite(in[l])) {
      const int dropped = real == Real::bf16 ? 16 : 13;
      u32 below = std::bit_cast<u32>(in[l]) + (seed[l] >> (32 - dropped));
      below &= ~0u << dropped;
      result = narrowed(real, std::bit_cast<float>(below));
    }
    out[l] = op.op_sel >> 3 & 1 ? (out[l] & 0xffffu) | result << 16 : (out[l] & 0xffff0000u) | result;
  }
  write(w, op, out);
}

struct Adder {
  InstructionTable& t;

  void operator()(const std::string& name, Handler run, Conversion c, bool classic = false) const {
    t[name] = {.run = run,
               .cls = Class::valu,
               .accepts_dpp = classic,
               .accepts_sdwa = classic,
               .accepts_op_sel = true,
               .parameter = c.pack()};
  }
};

void add_scaled(const Adder& add, const std::string& type, MicroFormat format) {
  const std::string prefix = "v_cvt_scalef32_";
  for (int i = 0; i < 3; ++i) {
    const auto real = static_cast<Real>(i);
    const std::string name = real_names[i];
    const Conversion pair{format, real, 2, true};
    if (format.bits() != 6) {
      add(prefix + "pk_" + name + "_" + type, run_decode, pair);
      add(prefix + "pk_" + type + "_" + name, run_encode, pair);
    }
    if (format.bits() == 8) {
      if (real != Real::bf16) add(prefix + name + "_" + type, run_decode, {format, real, 1, true});
      add(prefix + "sr_" + type + "_" + name, run_encode, {format, real, 1, true, true});
    }
    if (format.bits() == 4) add(prefix + "sr_pk_" + type + "_" + name, run_encode, {format, real, 2, true, true});
    if (format.bits() == 6) {
      add(prefix + "pk32_" + name + "_" + type, run_decode, {format, real, 32, true});
      add(prefix + (i ? "pk32_" : "2xpk16_") + type + "_" + name, run_encode, {format, real, 32, true});
      add(prefix + "sr_pk32_" + type + "_" + name, run_encode, {format, real, 32, true, true});
    }
  }
}

}  // namespace

void add_micro_instructions(InstructionTable& t, Arch arch) {
  const Adder add{t};
  for (const auto& [type, format] : {std::pair{"fp8", fp8_format(arch)}, {"bf8", bf8_format(arch)}}) {
    const std::string name = type;
    add("v_cvt_f32_" + name, run_decode, {format, Real::f32, 1}, true);
    add("v_cvt_pk_f32_" + name, run_decode, {format, Real::f32, 2}, true);
    add("v_cvt_pk_" + name + "_f32", run_encode, {format, Real::f32, 2}, true);
    add("v_cvt_sr_" + name + "_f32", run_encode, {format, Real::f32, 1, false, true});
    if (arch == Arch::gfx950) add_scaled(add, name, format);
  }
  if (arch != Arch::gfx950) return;
  add_scaled(add, "fp6", fp6_format);
  add_scaled(add, "bf6", bf6_format);
  add_scaled(add, "fp4", fp4_format);
  for (const bool half : {false, true})
    t[half ? "v_cvt_sr_f16_f32" : "v_cvt_sr_bf16_f32"] = {
        .run = half ? run_stochastic<Real::f16> : run_stochastic<Real::bf16>,
        .cls = Class::valu,
        .accepts_op_sel = true};
  t["v_prng_b32"] = valu([](u32 x) { return x << 1 ^ (x >> 31 ? 197u : 0u); });
}

}  // namespace tilewave::sim
