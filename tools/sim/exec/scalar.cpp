// SPDX-License-Identifier: MIT
// Scalar ALU: SOP1, SOP2, SOPC (CDNA3 ISA guide, chapter "Scalar ALU operations").
#include "sim/exec/scalar.hpp"

#include <algorithm>

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

template <class T>
constexpr T mask_of(u32 bits) {
  return bits >= sizeof(T) * 8 ? ~T{0} : (T{1} << bits) - 1;
}

/// Field of s0 at s1[4:0] (5:0 for 64 bits), s1[22:16] bits wide.
template <class T>
T bit_field(T s0, u32 s1) {
  using U = std::make_unsigned_t<T>;
  constexpr u32 size = sizeof(T) * 8;
  const u32 offset = s1 & (size - 1), width = std::min(s1 >> 16 & 0x7fu, size - offset);
  if (width == 0) return 0;
  const U field = static_cast<U>(s0) << (size - offset - width);
  return static_cast<T>(field) >> (size - width);  // arithmetic for a signed T
}

template <int shift>
u32 shift_add(bool& carry, u32 a, u32 b) {
  const u64 sum = (u64{a} << shift) + b;
  carry = sum >> 32;
  return static_cast<u32>(sum);
}

/// dst = EXEC; EXEC = f(src, EXEC); SCC = EXEC != 0.
template <class F>
Instruction saveexec(F) {
  return {.run =
              [](Wave& w, const Op& op) {
                const u64 source = scalar_pair(w, op.arg[1]), old = w.exec();
                const u64 made = F{}(source, old);
                w.set_pair(op.arg[0].reg, old);
                w.set_pair(exec_lo, made);
                w.scc = made != 0;
              },
          .cls = Class::salu,
          .widths = {Width::bits64, Width::bits64, Width::bits64, Width::bits64}};
}
template <class F>
Instruction wrexec(F) {
  return {.run =
              [](Wave& w, const Op& op) {
                const u64 made = F{}(scalar_pair(w, op.arg[1]), w.exec());
                w.set_pair(op.arg[0].reg, made);
                w.set_pair(exec_lo, made);
                w.scc = made != 0;
              },
          .cls = Class::salu,
          .widths = {Width::bits64, Width::bits64, Width::bits64, Width::bits64}};
}

template <class F32, class F64>
void logic(InstructionTable& t, const std::string& name, F32 f32, F64 f64) {
  t[name + "_b32"] = salu_nz(f32);
  t[name + "_b64"] = salu_nz(f64);
}

void add_arithmetic(InstructionTable& t) {
  t["s_add_u32"] = salu([](bool& c, u32 a, u32 b) {
    u64 r = u64{a} + b;
    c = r >> 32;
    return static_cast<u32>(r);
  });
  t["s_addc_u32"] = salu([](bool& c, u32 a, u32 b) {
    u64 r = u64{a} + b + c;
    c = r >> 32;
    return static_cast<u32>(r);
  });
  t["s_sub_u32"] = salu([](bool& c, u32 a, u32 b) {
    c = b > a;
    return a - b;
  });
  t["s_subb_u32"] = salu([](bool& c, u32 a, u32 b) {
    u32 r = a - b - c;
    c = u64{b} + c > a;
    return r;
  });
  t["s_add_i32"] = salu([](bool& c, i32 a, i32 b) {
    i32 r;
    c = __builtin_add_overflow(a, b, &r);
    return r;
  });
  t["s_sub_i32"] = salu([](bool& c, i32 a, i32 b) {
    i32 r;
    c = __builtin_sub_overflow(a, b, &r);
    return r;
  });
  t["s_mul_i32"] = salu([](u32 a, u32 b) { return a * b; });
  t["s_mul_hi_u32"] = salu([](u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); });
  t["s_mul_hi_i32"] = salu([](i32 a, i32 b) { return static_cast<i32>(i64{a} * b >> 32); });
  t["s_absdiff_i32"] = salu_nz([](i32 a, i32 b) {
    const i64 d = i64{a} - b;
    return static_cast<u32>(d < 0 ? -d : d);
  });
  t["s_abs_i32"] = salu_nz([](i32 a) { return a < 0 ? 0u - static_cast<u32>(a) : static_cast<u32>(a); });
  t["s_min_i32"] = salu([](bool& c, i32 a, i32 b) {
    c = a < b;
    return std::min(a, b);
  });
  t["s_min_u32"] = salu([](bool& c, u32 a, u32 b) {
    c = a < b;
    return std::min(a, b);
  });
  t["s_max_i32"] = salu([](bool& c, i32 a, i32 b) {
    c = a > b;
    return std::max(a, b);
  });
  t["s_max_u32"] = salu([](bool& c, u32 a, u32 b) {
    c = a > b;
    return std::max(a, b);
  });
  t["s_lshl1_add_u32"] = salu([](bool& c, u32 a, u32 b) { return shift_add<1>(c, a, b); });
  t["s_lshl2_add_u32"] = salu([](bool& c, u32 a, u32 b) { return shift_add<2>(c, a, b); });
  t["s_lshl3_add_u32"] = salu([](bool& c, u32 a, u32 b) { return shift_add<3>(c, a, b); });
  t["s_lshl4_add_u32"] = salu([](bool& c, u32 a, u32 b) { return shift_add<4>(c, a, b); });
}

void add_bits(InstructionTable& t) {
  logic(
      t, "s_and", [](u32 a, u32 b) { return a & b; }, [](u64 a, u64 b) { return a & b; });
  logic(
      t, "s_or", [](u32 a, u32 b) { return a | b; }, [](u64 a, u64 b) { return a | b; });
  logic(
      t, "s_xor", [](u32 a, u32 b) { return a ^ b; }, [](u64 a, u64 b) { return a ^ b; });
  logic(
      t, "s_andn2", [](u32 a, u32 b) { return a & ~b; }, [](u64 a, u64 b) { return a & ~b; });
  logic(
      t, "s_orn2", [](u32 a, u32 b) { return a | ~b; }, [](u64 a, u64 b) { return a | ~b; });
  logic(
      t, "s_nand", [](u32 a, u32 b) { return ~(a & b); }, [](u64 a, u64 b) { return ~(a & b); });
  logic(
      t, "s_nor", [](u32 a, u32 b) { return ~(a | b); }, [](u64 a, u64 b) { return ~(a | b); });
  logic(
      t, "s_xnor", [](u32 a, u32 b) { return ~(a ^ b); }, [](u64 a, u64 b) { return ~(a ^ b); });
  logic(
      t, "s_lshl", [](u32 a, u32 b) { return a << (b & 31); }, [](u64 a, u32 b) { return a << (b & 63); });
  logic(
      t, "s_lshr", [](u32 a, u32 b) { return a >> (b & 31); }, [](u64 a, u32 b) { return a >> (b & 63); });
  t["s_ashr_i32"] = salu_nz([](i32 a, u32 b) { return a >> (b & 31); });
  t["s_ashr_i64"] = salu_nz([](i64 a, u32 b) { return a >> (b & 63); });
  t["s_bfm_b32"] = salu([](u32 a, u32 b) { return mask_of<u32>(a & 31) << (b & 31); });
  t["s_bfm_b64"] = salu([](u32 a, u32 b) { return mask_of<u64>(a & 63) << (b & 63); });
  t["s_bfe_u32"] = salu_nz([](u32 a, u32 b) { return bit_field(a, b); });
  t["s_bfe_i32"] = salu_nz([](i32 a, u32 b) { return bit_field(a, b); });
  t["s_bfe_u64"] = salu_nz([](u64 a, u32 b) { return bit_field(a, b); });
  t["s_bfe_i64"] = salu_nz([](i64 a, u32 b) { return bit_field(a, b); });
  t["s_pack_ll_b32_b16"] = salu([](u32 a, u32 b) { return (a & 0xffffu) | b << 16; });
  t["s_pack_lh_b32_b16"] = salu([](u32 a, u32 b) { return (a & 0xffffu) | (b & 0xffff0000u); });
  t["s_pack_hh_b32_b16"] = salu([](u32 a, u32 b) { return a >> 16 | (b & 0xffff0000u); });
  t["s_not_b32"] = salu_nz([](u32 a) { return ~a; });
  t["s_not_b64"] = salu_nz([](u64 a) { return ~a; });
  t["s_wqm_b64"] = salu_nz([](u64 a) {
    u64 r = 0;
    for (int i = 0; i < 64; i += 4)
      if (a >> i & 15) r |= u64{15} << i;
    return r;
  });
  t["s_brev_b32"] = salu([](u32 a) {
    u32 r = 0;
    for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
    return r;
  });
  t["s_brev_b64"] = salu([](u64 a) {
    u64 r = 0;
    for (int i = 0; i < 64; ++i) r |= (a >> i & 1) << (63 - i);
    return r;
  });
  t["s_bcnt1_i32_b32"] = salu_nz([](u32 a) { return static_cast<u32>(std::popcount(a)); });
  t["s_bcnt1_i32_b64"] = salu_nz([](u64 a) { return static_cast<u32>(std::popcount(a)); });
  t["s_bcnt0_i32_b32"] = salu_nz([](u32 a) { return static_cast<u32>(std::popcount(~a)); });
  t["s_bcnt0_i32_b64"] = salu_nz([](u64 a) { return static_cast<u32>(std::popcount(~a)); });
  // Position of a bit, -1 when there is none.
  t["s_ff1_i32_b32"] = salu([](u32 a) { return a ? std::countr_zero(a) : -1; });
  t["s_ff1_i32_b64"] = salu([](u64 a) { return a ? std::countr_zero(a) : -1; });
  t["s_ff0_i32_b32"] = salu([](u32 a) { return ~a ? std::countr_one(a) : -1; });
  t["s_ff0_i32_b64"] = salu([](u64 a) { return ~a ? std::countr_one(a) : -1; });
  t["s_flbit_i32_b32"] = salu([](u32 a) { return a ? std::countl_zero(a) : -1; });
  t["s_flbit_i32_b64"] = salu([](u64 a) { return a ? std::countl_zero(a) : -1; });
  t["s_flbit_i32"] = salu([](u32 a) {
    const u32 x = a >> 31 ? ~a : a;
    return x ? std::countl_zero(x) : -1;
  });
  t["s_flbit_i32_i64"] = salu([](u64 a) {
    const u64 x = a >> 63 ? ~a : a;
    return x ? std::countl_zero(x) : -1;
  });
  t["s_sext_i32_i8"] = salu([](u32 a) { return static_cast<i32>(static_cast<std::int8_t>(a)); });
  t["s_sext_i32_i16"] = salu([](u32 a) { return static_cast<i32>(static_cast<std::int16_t>(a)); });
  for (const bool set : {false, true}) {
    t[set ? "s_bitset1_b32" : "s_bitset0_b32"] = {
        .run =
            set ? Handler{[](Wave& w, const Op& op) { w.s[op.arg[0].reg] |= 1u << (scalar_word(w, op.arg[1]) & 31); }}
                : Handler{[](Wave& w, const Op& op) {
                    w.s[op.arg[0].reg] &= ~(1u << (scalar_word(w, op.arg[1]) & 31));
                  }},
        .cls = Class::salu};
  }
}

void add_moves(InstructionTable& t) {
  t["s_mov_b32"] = salu([](u32 a) { return a; });
  t["s_mov_b64"] = salu([](u64 a) { return a; });
  t["s_cselect_b32"] = salu([](bool& c, u32 a, u32 b) { return c ? a : b; });
  t["s_cselect_b64"] = salu([](bool& c, u64 a, u64 b) { return c ? a : b; });
  const auto cmov = [](auto wide) -> Handler {
    return [](Wave& w, const Op& op) {
      if (!w.scc) return;
      if constexpr (decltype(wide)::value)
        w.set_pair(op.arg[0].reg, scalar_pair(w, op.arg[1]));
      else
        w.s[op.arg[0].reg] = scalar_word(w, op.arg[1]);
    };
  };
  t["s_cmov_b32"] = {.run = cmov(std::false_type{}), .cls = Class::salu};
  t["s_cmov_b64"] = {.run = cmov(std::true_type{}),
                     .cls = Class::salu,
                     .widths = {Width::bits64, Width::bits64, Width::bits64, Width::bits64}};
  t["s_and_saveexec_b64"] = saveexec([](u64 s, u64 e) { return s & e; });
  t["s_or_saveexec_b64"] = saveexec([](u64 s, u64 e) { return s | e; });
  t["s_xor_saveexec_b64"] = saveexec([](u64 s, u64 e) { return s ^ e; });
  t["s_andn2_saveexec_b64"] = saveexec([](u64 s, u64 e) { return s & ~e; });
  t["s_orn2_saveexec_b64"] = saveexec([](u64 s, u64 e) { return s | ~e; });
  t["s_nand_saveexec_b64"] = saveexec([](u64 s, u64 e) { return ~(s & e); });
  t["s_nor_saveexec_b64"] = saveexec([](u64 s, u64 e) { return ~(s | e); });
  t["s_xnor_saveexec_b64"] = saveexec([](u64 s, u64 e) { return ~(s ^ e); });
  t["s_andn1_saveexec_b64"] = saveexec([](u64 s, u64 e) { return ~s & e; });
  t["s_orn1_saveexec_b64"] = saveexec([](u64 s, u64 e) { return ~s | e; });
  t["s_andn1_wrexec_b64"] = wrexec([](u64 s, u64 e) { return ~s & e; });
  t["s_andn2_wrexec_b64"] = wrexec([](u64 s, u64 e) { return s & ~e; });
}

template <class T>
void add_compares(InstructionTable& t, const std::string& type) {
  t["s_cmp_eq_" + type] = salu([](bool& c, T a, T b) { c = a == b; });
  t["s_cmp_lg_" + type] = salu([](bool& c, T a, T b) { c = a != b; });
  t["s_cmp_gt_" + type] = salu([](bool& c, T a, T b) { c = a > b; });
  t["s_cmp_ge_" + type] = salu([](bool& c, T a, T b) { c = a >= b; });
  t["s_cmp_lt_" + type] = salu([](bool& c, T a, T b) { c = a < b; });
  t["s_cmp_le_" + type] = salu([](bool& c, T a, T b) { c = a <= b; });
}

}  // namespace

void add_scalar_instructions(InstructionTable& t) {
  add_arithmetic(t);
  add_bits(t);
  add_moves(t);
  add_compares<i32>(t, "i32");
  add_compares<u32>(t, "u32");
  t["s_cmp_eq_u64"] = salu([](bool& c, u64 a, u64 b) { c = a == b; });
  t["s_cmp_lg_u64"] = salu([](bool& c, u64 a, u64 b) { c = a != b; });
  t["s_bitcmp0_b32"] = salu([](bool& c, u32 a, u32 b) { c = !(a >> (b & 31) & 1); });
  t["s_bitcmp1_b32"] = salu([](bool& c, u32 a, u32 b) { c = a >> (b & 31) & 1; });
  t["s_bitcmp0_b64"] = salu([](bool& c, u64 a, u32 b) { c = !(a >> (b & 63) & 1); });
  t["s_bitcmp1_b64"] = salu([](bool& c, u64 a, u32 b) { c = a >> (b & 63) & 1; });
}

}  // namespace tilewave::sim
