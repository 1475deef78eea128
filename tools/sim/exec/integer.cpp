// SPDX-License-Identifier: MIT
// Integer and bit vector instructions, and the 64-bit and carry forms that address arithmetic is made of.
#include <algorithm>
#include <bit>

#include "sim/machine/lanes.hpp"

namespace tilewave::sim {
namespace {

using u16 = std::uint16_t;
using i16 = std::int16_t;
using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

u32 low24(u32 x) { return x & 0xffffffu; }
i32 signed24(u32 x) { return static_cast<i32>(x << 8) >> 8; }
u32 high(u64 x) { return static_cast<u32>(x >> 32); }

/// Selector bytes 0-3 take a byte of b, 4-7 of a, 8-11 the sign of a halfword, 12 gives 0x00, above 0xff.
u32 permute_bytes(u32 a, u32 b, u32 selector) {
  const u64 bytes = u64{a} << 32 | b;
  u32 out = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 s = selector >> 8 * i & 0xffu;
    u32 byte;
    if (s >= 13)
      byte = 0xff;
    else if (s == 12)
      byte = 0;
    else if (s >= 8)
      byte = bytes >> (16 * (s - 8) + 15) & 1 ? 0xff : 0;
    else
      byte = bytes >> 8 * s & 0xff;
    out |= byte << 8 * i;
  }
  return out;
}

template <class T>
T field(T x, u32 offset, u32 width) {
  offset &= 31, width &= 31;
  if (width == 0) return 0;
  if (offset + width >= 32) return x >> offset;
  return static_cast<T>(static_cast<u32>(x) << (32 - offset - width)) >> (32 - width);
}

u32 reversed(u32 x) {
  u32 r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}

void add_arithmetic(InstructionTable& t) {
  t["v_add_u32"] = valu([](u32 a, u32 b) { return a + b; });
  t["v_sub_u32"] = valu([](u32 a, u32 b) { return a - b; });
  t["v_subrev_u32"] = valu([](u32 a, u32 b) { return b - a; });
  t["v_add_i32"] = t["v_add_u32"];
  t["v_sub_i32"] = t["v_sub_u32"];
  t["v_sub_u32"].clamped = valu([](u32 a, u32 b) { return a > b ? a - b : 0; }).run;
  t["v_add3_u32"] = valu([](u32 a, u32 b, u32 c) { return a + b + c; });
  t["v_mul_lo_u32"] = valu([](u32 a, u32 b) { return a * b; });
  t["v_mul_hi_u32"] = valu([](u32 a, u32 b) { return high(u64{a} * b); });
  t["v_mul_hi_i32"] = valu([](i32 a, i32 b) { return high(static_cast<u64>(i64{a} * b)); });
  t["v_mul_u32_u24"] = valu([](u32 a, u32 b) { return low24(a) * low24(b); });
  t["v_mul_hi_u32_u24"] = valu([](u32 a, u32 b) { return high(u64{low24(a)} * low24(b)); });
  t["v_mul_i32_i24"] = valu([](u32 a, u32 b) { return static_cast<u32>(i64{signed24(a)} * signed24(b)); });
  t["v_mul_hi_i32_i24"] = valu([](u32 a, u32 b) { return high(static_cast<u64>(i64{signed24(a)} * signed24(b))); });
  t["v_mad_u32_u24"] = valu([](u32 a, u32 b, u32 c) { return low24(a) * low24(b) + c; });
  t["v_mad_i32_i24"] = valu([](u32 a, u32 b, u32 c) { return static_cast<u32>(i64{signed24(a)} * signed24(b)) + c; });
  t["v_min_u32"] = valu([](u32 a, u32 b) { return std::min(a, b); });
  t["v_max_u32"] = valu([](u32 a, u32 b) { return std::max(a, b); });
  t["v_min_i32"] = valu([](i32 a, i32 b) { return std::min(a, b); });
  t["v_max_i32"] = valu([](i32 a, i32 b) { return std::max(a, b); });
  t["v_min3_u32"] = valu([](u32 a, u32 b, u32 c) { return std::min({a, b, c}); });
  t["v_max3_u32"] = valu([](u32 a, u32 b, u32 c) { return std::max({a, b, c}); });
  t["v_min3_i32"] = valu([](i32 a, i32 b, i32 c) { return std::min({a, b, c}); });
  t["v_max3_i32"] = valu([](i32 a, i32 b, i32 c) { return std::max({a, b, c}); });
  t["v_med3_u32"] = valu([](u32 a, u32 b, u32 c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); });
  t["v_med3_i32"] = valu([](i32 a, i32 b, i32 c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); });
  t["v_sad_u32"] = valu([](u32 a, u32 b, u32 c) { return (a > b ? a - b : b - a) + c; });
}

void add_bits(InstructionTable& t) {
  t["v_mov_b32"] = valu([](u32 a) { return a; });
  t["v_mov_b64"] = valu([](u64 a) { return a; });
  t["v_not_b32"] = valu([](u32 a) { return ~a; });
  t["v_and_b32"] = valu([](u32 a, u32 b) { return a & b; });
  t["v_or_b32"] = valu([](u32 a, u32 b) { return a | b; });
  t["v_xor_b32"] = valu([](u32 a, u32 b) { return a ^ b; });
  t["v_xnor_b32"] = valu([](u32 a, u32 b) { return ~(a ^ b); });
  t["v_or3_b32"] = valu([](u32 a, u32 b, u32 c) { return a | b | c; });
  t["v_and_or_b32"] = valu([](u32 a, u32 b, u32 c) { return (a & b) | c; });
  t["v_bfi_b32"] = valu([](u32 a, u32 b, u32 c) { return (a & b) | (~a & c); });
  t["v_bfe_u32"] = valu([](u32 a, u32 b, u32 c) { return field(a, b, c); });
  t["v_bfe_i32"] = valu([](i32 a, u32 b, u32 c) { return field(a, b, c); });
  t["v_bfm_b32"] = valu([](u32 a, u32 b) { return ((1u << (a & 31)) - 1u) << (b & 31); });
  t["v_bfrev_b32"] = valu([](u32 a) { return reversed(a); });
  t["v_bcnt_u32_b32"] = valu([](u32 a, u32 b) { return static_cast<u32>(std::popcount(a)) + b; });
  t["v_ffbl_b32"] = valu([](u32 a) { return a ? std::countr_zero(a) : -1; });
  t["v_ffbh_u32"] = valu([](u32 a) { return a ? std::countl_zero(a) : -1; });
  t["v_ffbh_i32"] = valu([](u32 a) {
    const u32 x = a >> 31 ? ~a : a;
    return x ? std::countl_zero(x) : -1;
  });
  t["v_perm_b32"] = valu([](u32 a, u32 b, u32 c) { return permute_bytes(a, b, c); });
  t["v_alignbit_b32"] = valu([](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> (c & 31)); });
  t["v_alignbyte_b32"] = valu([](u32 a, u32 b, u32 c) { return static_cast<u32>((u64{a} << 32 | b) >> 8 * (c & 3)); });
}

void add_shifts(InstructionTable& t) {
  t["v_lshlrev_b32"] = valu([](u32 n, u32 x) { return x << (n & 31); });
  t["v_lshrrev_b32"] = valu([](u32 n, u32 x) { return x >> (n & 31); });
  t["v_ashrrev_i32"] = valu([](u32 n, i32 x) { return x >> (n & 31); });
  t["v_lshlrev_b64"] = valu([](u32 n, u64 x) { return x << (n & 63); });
  t["v_lshrrev_b64"] = valu([](u32 n, u64 x) { return x >> (n & 63); });
  t["v_ashrrev_i64"] = valu([](u32 n, i64 x) { return x >> (n & 63); });
  t["v_lshl_add_u32"] = valu([](u32 a, u32 n, u32 c) { return (a << (n & 31)) + c; });
  t["v_add_lshl_u32"] = valu([](u32 a, u32 b, u32 n) { return (a + b) << (n & 31); });
  t["v_lshl_or_b32"] = valu([](u32 a, u32 n, u32 c) { return a << (n & 31) | c; });
  t["v_xad_u32"] = valu([](u32 a, u32 b, u32 c) { return (a ^ b) + c; });
  t["v_lshl_add_u64"] = valu([](u64 a, u32 n, u64 c) { return (a << (n & 7)) + c; });
}

void add_short(InstructionTable& t) {
  t["v_lshlrev_b16"] = valu([](u16 n, u16 x) { return static_cast<u16>(x << (n & 15)); });
  t["v_lshrrev_b16"] = valu([](u16 n, u16 x) { return static_cast<u16>(x >> (n & 15)); });
  t["v_ashrrev_i16"] = valu([](u16 n, i16 x) { return static_cast<i16>(x >> (n & 15)); });
  t["v_add_u16"] = valu([](u16 a, u16 b) { return static_cast<u16>(a + b); });
  t["v_sub_u16"] = valu([](u16 a, u16 b) { return static_cast<u16>(a - b); });
  t["v_subrev_u16"] = valu([](u16 a, u16 b) { return static_cast<u16>(b - a); });
  t["v_mul_lo_u16"] = valu([](u16 a, u16 b) { return static_cast<u16>(u32{a} * b); });
  t["v_mad_legacy_u16"] = t["v_mad_u16"] = valu([](u16 a, u16 b, u16 c) { return static_cast<u16>(u32{a} * b + c); });
  t["v_add_i16"] = t["v_add_u16"];
  t["v_sub_i16"] = t["v_sub_u16"];
  t["v_mad_i16"] = t["v_mad_u16"];
  t["v_mad_u32_u16"] = valu([](u16 a, u16 b, u32 c) { return u32{a} * b + c; });
  t["v_mad_i32_i16"] = valu([](i16 a, i16 b, u32 c) { return static_cast<u32>(i32{a} * b) + c; });
  t["v_min3_u16"] = valu([](u16 a, u16 b, u16 c) { return std::min({a, b, c}); });
  t["v_max3_u16"] = valu([](u16 a, u16 b, u16 c) { return std::max({a, b, c}); });
  t["v_min3_i16"] = valu([](i16 a, i16 b, i16 c) { return std::min({a, b, c}); });
  t["v_max3_i16"] = valu([](i16 a, i16 b, i16 c) { return std::max({a, b, c}); });
  t["v_med3_u16"] = valu([](u16 a, u16 b, u16 c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); });
  t["v_med3_i16"] = valu([](i16 a, i16 b, i16 c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); });
  t["v_max_u16"] = valu([](u16 a, u16 b) { return std::max(a, b); });
  t["v_min_u16"] = valu([](u16 a, u16 b) { return std::min(a, b); });
  t["v_max_i16"] = valu([](i16 a, i16 b) { return std::max(a, b); });
  t["v_min_i16"] = valu([](i16 a, i16 b) { return std::min(a, b); });
}

/// vdst, carry out (vcc or an SGPR pair), a, b, and for addc / subb the carry in.
enum class Carry { add, sub, subrev };
template <Carry kind, bool carry_in>
void run_carry(Wave& w, const Op& op) {
  Lanes<u32> a, b, out;
  read(w, op, 2, a);
  read(w, op, 3, b);
  if (kind == Carry::subrev) std::swap(a, b);
  const u64 in = carry_in ? scalar_pair(w, op.arg[4]) : 0;
  u64 carry = 0;
  for (int l = 0; l < wave_lanes; ++l) {
    const u32 c = in >> l & 1;
    const u64 r = kind == Carry::add ? u64{a[l]} + b[l] + c : u64{a[l]} - b[l] - c;
    out[l] = static_cast<u32>(r);
    carry |= (r >> 32 & 1) << l;
  }
  write(w, op, out);
  w.set_pair(op.arg[1].reg, carry & w.exec());
}

/// vdst[2], carry out, a, b, c[2]: a * b + c in 64 bits.
template <class Wide, class Narrow>
void run_mad64(Wave& w, const Op& op) {
  Lanes<Narrow> a, b;
  Lanes<Wide> c;
  Lanes<u64> out;
  read(w, op, 2, a);
  read(w, op, 3, b);
  read(w, op, 4, c);
  u64 carry = 0;
  for (int l = 0; l < wave_lanes; ++l) {
    Wide sum;
    if (__builtin_add_overflow(static_cast<Wide>(Wide{a[l]} * b[l]), c[l], &sum)) carry |= u64{1} << l;
    out[l] = static_cast<u64>(sum);
  }
  write(w, op, out);
  w.set_pair(op.arg[1].reg, carry & w.exec());
}

template <class T>
void run_bitop3(Wave& w, const Op& op) {
  Lanes<T> a, b, c, out;
  read(w, op, 1, a);
  read(w, op, 2, b);
  read(w, op, 3, c);
  for (int l = 0; l < wave_lanes; ++l) {
    u32 r = 0;  // bit a*4 + b*2 + c of the table
    for (u32 i = 0; i < 8; ++i)
      if (op.bitop3 >> i & 1) r |= (i & 4 ? a[l] : ~a[l]) & (i & 2 ? b[l] : ~b[l]) & (i & 1 ? c[l] : ~c[l]);
    out[l] = static_cast<T>(r);
  }
  write(w, op, out);
}

}  // namespace

void add_integer_instructions(InstructionTable& t) {
  add_arithmetic(t);
  add_bits(t);
  add_shifts(t);
  add_short(t);
  const auto carry = [&t](const char* name, Handler run) {
    t[name] = {.run = run, .cls = Class::valu, .first_source = 2};
  };
  carry("v_add_co_u32", run_carry<Carry::add, false>);
  carry("v_sub_co_u32", run_carry<Carry::sub, false>);
  carry("v_subrev_co_u32", run_carry<Carry::subrev, false>);
  carry("v_addc_co_u32", run_carry<Carry::add, true>);
  carry("v_subb_co_u32", run_carry<Carry::sub, true>);
  carry("v_subbrev_co_u32", run_carry<Carry::subrev, true>);
  const std::array<Width, 4> widths{Width::word, Width::word, Width::bits64, Width::word};
  t["v_mad_u64_u32"] = {.run = run_mad64<u64, u32>, .cls = Class::valu, .first_source = 2, .widths = widths};
  t["v_mad_i64_i32"] = {.run = run_mad64<i64, i32>, .cls = Class::valu, .first_source = 2, .widths = widths};
  t["v_bitop3_b32"] = {.run = run_bitop3<u32>, .cls = Class::valu};
  t["v_bitop3_b16"] = {.run = run_bitop3<u16>, .cls = Class::valu, .accepts_op_sel = true};
}

}  // namespace tilewave::sim
