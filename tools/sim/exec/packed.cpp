// SPDX-License-Identifier: MIT
// VOP3P: two results per lane, each picking its halves of the sources with op_sel (low result) and op_sel_hi (high).
#include <algorithm>
#include <cmath>

#include "sim/machine/lanes.hpp"
#include "sim/numbers/float_limits.hpp"

namespace tilewave::sim {
namespace {

using u16 = std::uint16_t;
using i16 = std::int16_t;
using u32 = std::uint32_t;

float f32(Half h) { return static_cast<float>(h); }

/// Source `i` of the low or high result of a packed f32 instruction: one of two registers.
void read_half_pair(const Wave& w, const Op& op, int i, bool high_result, Lanes<float>& out) {
  const Operand& a = op.arg[i + 1];
  const bool high = (high_result ? op.op_sel_hi : op.op_sel) >> i & 1;
  // No document says what the high half of a constant or of a single register is; zero is zero either way.
  if (high && a.kind == Kind::constant && a.lo) throw Error("the high half of a packed constant is not simulated");
  if (high && a.kind != Kind::constant && a.words < 2) throw Error("the high half of a single register");
  Lanes<u32> words;
  read_words(w, a, high && a.kind != Kind::constant, nullptr, words);
  const u32 flip = (high_result ? op.neg_hi : op.neg_lo) >> i & 1 ? 0x80000000u : 0;
  for (int l = 0; l < wave_lanes; ++l) {
    const float x = std::bit_cast<float>(words[l] ^ flip);
    out[l] = w.mode.flush_in32 ? flushed(x) : x;
  }
}

template <class F, int sources>
void run_packed_f32(Wave& w, const Op& op) {
  Lanes<float> in[3], out[2];
  for (const bool high : {false, true}) {
    for (int i = 0; i < sources; ++i) read_half_pair(w, op, i, high, in[i]);
    for (int l = 0; l < wave_lanes; ++l) out[high][l] = F{}(in[0][l], in[1][l], in[2][l]);
  }
  Op half = op;
  half.op_sel = 0;
  write(w, half, out[0]);
  ++half.arg[0].reg;
  write(w, half, out[1]);
}

/// vdst = { src0's op_sel[0] half, src1's op_sel[1] half }
void run_packed_mov(Wave& w, const Op& op) {
  Lanes<u32> low, high;
  for (int i = 0; i < 2; ++i) {
    const Operand& a = op.arg[i + 1];
    const bool upper = op.op_sel >> i & 1;
    if (upper && (a.kind == Kind::constant ? a.lo != 0 : a.words < 2)) throw Error("v_pk_mov_b32: no high half");
    read_words(w, a, upper && a.kind != Kind::constant, nullptr, i ? high : low);
  }
  Op half = op;
  half.op_sel = 0;
  write(w, half, low);
  ++half.arg[0].reg;
  write(w, half, high);
}

/// Source `i` of a packed 16-bit instruction.
template <class T>
T half_of(const Op& op, int i, bool high_result, u32 word) {
  const bool high = (high_result ? op.op_sel_hi : op.op_sel) >> i & 1;
  const u32 flip = (high_result ? op.neg_hi : op.neg_lo) >> i & 1 ? 0x8000u : 0;
  return std::bit_cast<T>(static_cast<u16>((high ? word >> 16 : word) ^ flip));
}

template <class F, class T, int sources>
void run_packed_16(Wave& w, const Op& op) {
  Lanes<u32> in[3], out;
  for (int i = 0; i < sources; ++i) {
    const Operand& a = op.arg[i + 1];
    const bool high = (op.op_sel | op.op_sel_hi) >> i & 1;
    if (a.kind == Kind::constant && high && a.lo) throw Error("the high half of a packed constant is not simulated");
    read_words(w, a, 0, nullptr, in[i]);
  }
  for (int l = 0; l < wave_lanes; ++l) {
    T half[2];
    for (const bool high : {false, true})
      half[high] = F{}(half_of<T>(op, 0, high, in[0][l]), half_of<T>(op, 1, high, in[1][l]),
                       half_of<T>(op, 2, high, sources > 2 ? in[2][l] : 0));
    out[l] = std::bit_cast<u16>(half[0]) | u32{std::bit_cast<u16>(half[1])} << 16;
  }
  Op plain = op;
  plain.op_sel = 0;
  write(w, plain, out);
}

/// vdst = a * b + c in f32; a source is f32, or with its op_sel_hi bit the f16 half that its op_sel bit names. `to_half`:
/// the result is the f16 of that half of vdst (0 low, 1 high), the other stays; -1: all of vdst.
template <int to_half>
void run_fma_mix(Wave& w, const Op& op) {
  const unsigned is_half = op.op_sel_hi == 0xff ? 0u : op.op_sel_hi;  // not written: none is
  Lanes<float> in[3], out;
  for (int i = 0; i < 3; ++i) {
    const Operand& a = op.arg[i + 1];
    Lanes<u32> words;
    read_words(w, a, 0, nullptr, words);
    for (int l = 0; l < wave_lanes; ++l) {
      const u32 half = op.op_sel >> i & 1 ? words[l] >> 16 : words[l] & 0xffffu;
      float x = is_half >> i & 1 ? f32(Half::from_bits(static_cast<u16>(half))) : std::bit_cast<float>(words[l]);
      if (a.absolute) x = std::fabs(x);
      in[i][l] = a.negate ? -x : x;
    }
  }
  for (int l = 0; l < wave_lanes; ++l) out[l] = std::fma(in[0][l], in[1][l], in[2][l]);
  Op plain = op;
  plain.op_sel = 0;
  if constexpr (to_half < 0) {
    write(w, plain, out);
  } else {
    Lanes<u32> words;
    read_words(w, op.arg[0], 0, nullptr, words);
    for (int l = 0; l < wave_lanes; ++l) {
      const u32 half = Half(out[l]).bits;
      words[l] = to_half ? (words[l] & 0xffffu) | half << 16 : (words[l] & 0xffff0000u) | half;
    }
    write(w, plain, words);
  }
}

/// vdst = a.lo * b.lo + a.hi * b.hi + c, in f32.
template <bool bf16>
void run_dot2(Wave& w, const Op& op) {
  Lanes<u32> a, b;
  Lanes<float> c, out;
  const auto real = [](u32 word, int half) {
    const u32 bits = half ? word >> 16 : word & 0xffffu;
    return bf16 ? std::bit_cast<float>(bits << 16) : static_cast<float>(Half::from_bits(static_cast<u16>(bits)));
  };
  if (op.op_sel || (op.op_sel_hi & 3) != 3 || op.neg_lo || op.neg_hi)
    throw Error("v_dot2 with modifiers is not simulated");
  read(w, op, 1, a);
  read(w, op, 2, b);
  if (op.operands > 3)
    read(w, op, 3, c);
  else
    read(w, op, 0, c);  // v_dot2c accumulates
  for (int l = 0; l < wave_lanes; ++l)
    out[l] = static_cast<float>(double{real(a[l], 0)} * real(b[l], 0) + double{real(a[l], 1)} * real(b[l], 1) + c[l]);
  write(w, op, out);
}

template <class F>
Instruction packed_f32(F, bool three) {
  return {.run = three ? run_packed_f32<F, 3> : run_packed_f32<F, 2>,
          .cls = Class::valu,
          .integer_result = false,
          .accepts_op_sel = true};
}
template <class T, class F>
Instruction packed_16(F, bool three = false) {
  return {.run = three ? run_packed_16<F, T, 3> : run_packed_16<F, T, 2>,
          .cls = Class::valu,
          .widths = {Width::half, Width::half, Width::half, Width::half},
          .accepts_op_sel = true};
}
}  // namespace

void add_packed_instructions(InstructionTable& t) {
  t["v_pk_fma_f32"] = packed_f32([](float a, float b, float c) { return std::fma(a, b, c); }, true);
  t["v_pk_mul_f32"] = packed_f32([](float a, float b, float) { return a * b; }, false);
  t["v_pk_add_f32"] = packed_f32([](float a, float b, float) { return a + b; }, false);
  t["v_pk_mov_b32"] = {.run = run_packed_mov, .cls = Class::valu, .accepts_op_sel = true};
  t["v_pk_add_f16"] = packed_16<Half>([](Half a, Half b, Half) { return Half(f32(a) + f32(b)); });
  t["v_pk_mul_f16"] = packed_16<Half>([](Half a, Half b, Half) { return Half(f32(a) * f32(b)); });
  t["v_pk_fma_f16"] = packed_16<Half>(
      [](Half a, Half b, Half c) { return Half(static_cast<float>(double{f32(a)} * f32(b) + f32(c))); }, true);
  t["v_pk_min_f16"] = packed_16<Half>([](Half a, Half b, Half) { return Half(minimum(f32(a), f32(b))); });
  t["v_pk_max_f16"] = packed_16<Half>([](Half a, Half b, Half) { return Half(maximum(f32(a), f32(b))); });
  t["v_pk_add_u16"] = packed_16<u16>([](u16 a, u16 b, u16) { return static_cast<u16>(a + b); });
  t["v_pk_sub_u16"] = packed_16<u16>([](u16 a, u16 b, u16) { return static_cast<u16>(a - b); });
  t["v_pk_add_i16"] = t["v_pk_add_u16"];
  t["v_pk_sub_i16"] = t["v_pk_sub_u16"];
  t["v_pk_mul_lo_u16"] = packed_16<u16>([](u16 a, u16 b, u16) { return static_cast<u16>(u32{a} * b); });
  t["v_pk_mad_u16"] = packed_16<u16>([](u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * b + c); }, true);
  t["v_pk_mad_i16"] = t["v_pk_mad_u16"];
  t["v_pk_lshlrev_b16"] = packed_16<u16>([](u16 n, u16 x, u16) { return static_cast<u16>(x << (n & 15)); });
  t["v_pk_lshrrev_b16"] = packed_16<u16>([](u16 n, u16 x, u16) { return static_cast<u16>(x >> (n & 15)); });
  t["v_pk_ashrrev_i16"] = packed_16<i16>([](i16 n, i16 x, i16) { return static_cast<i16>(x >> (n & 15)); });
  t["v_pk_max_u16"] = packed_16<u16>([](u16 a, u16 b, u16) { return std::max(a, b); });
  t["v_pk_min_u16"] = packed_16<u16>([](u16 a, u16 b, u16) { return std::min(a, b); });
  t["v_pk_max_i16"] = packed_16<i16>([](i16 a, i16 b, i16) { return std::max(a, b); });
  t["v_pk_min_i16"] = packed_16<i16>([](i16 a, i16 b, i16) { return std::min(a, b); });
  t["v_fma_mix_f32"] = {.run = run_fma_mix<-1>, .cls = Class::valu, .integer_result = false, .accepts_op_sel = true};
  t["v_fma_mixlo_f16"] = {.run = run_fma_mix<0>, .cls = Class::valu, .integer_result = false, .accepts_op_sel = true};
  t["v_fma_mixhi_f16"] = {.run = run_fma_mix<1>, .cls = Class::valu, .integer_result = false, .accepts_op_sel = true};
  t["v_dot2_f32_f16"] = {.run = run_dot2<false>, .cls = Class::valu, .integer_result = false, .accepts_op_sel = true};
  t["v_dot2_f32_bf16"] = {.run = run_dot2<true>, .cls = Class::valu, .integer_result = false, .accepts_op_sel = true};
  t["v_dot2c_f32_f16"] = t["v_dot2_f32_f16"];
  t["v_dot2c_f32_bf16"] = t["v_dot2_f32_bf16"];
}

}  // namespace tilewave::sim
