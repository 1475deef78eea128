// SPDX-License-Identifier: MIT
// Sums over the integers that a register holds several of: dot products and sums of absolute differences.
#include "sim/machine/lanes.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;

/// Number i of `bits` each.
template <int bits, bool is_signed>
u32 part(u32 word, int i) {
  const u32 up = word << (32 - bits - bits * i);
  return is_signed ? static_cast<u32>(static_cast<i32>(up) >> (32 - bits)) : up >> (32 - bits);
}
template <int bits, bool is_signed>
u32 dot(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32 / bits; ++i) c += part<bits, is_signed>(a, i) * part<bits, is_signed>(b, i);
  return c;
}
template <int bits>
u32 differences(u32 a, u32 b, u32 c) {
  for (int i = 0; i < 32 / bits; ++i) {
    const u32 x = part<bits, false>(a, i), y = part<bits, false>(b, i);
    c += x > y ? x - y : y - x;
  }
  return c;
}

/// Without modifiers; v_dot4c and its like add to what vdst holds.
template <int bits, bool is_signed>
void run_dot(Wave& w, const Op& op) {
  if (op.op_sel || (op.op_sel_hi & 7) != 7 || op.neg_lo || op.neg_hi)
    throw Error("v_dot with modifiers is not simulated");
  Lanes<u32> a, b, c, out;
  read(w, op, 1, a);
  read(w, op, 2, b);
  read(w, op, op.operands > 3 ? 3 : 0, c);
  for (int l = 0; l < wave_lanes; ++l) out[l] = dot<bits, is_signed>(a[l], b[l], c[l]);
  write(w, op, out);
}

}  // namespace

void add_dot_instructions(InstructionTable& t) {
  const auto add = [&t](const char* name, Handler run) {
    t[name] = {.run = run, .cls = Class::valu, .accepts_op_sel = true};
  };
  for (const char* name : {"v_dot2_i32_i16", "v_dot2c_i32_i16"}) add(name, run_dot<16, true>);
  for (const char* name : {"v_dot4_i32_i8", "v_dot4c_i32_i8"}) add(name, run_dot<8, true>);
  for (const char* name : {"v_dot8_i32_i4", "v_dot8c_i32_i4"}) add(name, run_dot<4, true>);
  add("v_dot2_u32_u16", run_dot<16, false>);
  add("v_dot4_u32_u8", run_dot<8, false>);
  add("v_dot8_u32_u4", run_dot<4, false>);
  t["v_sad_u8"] = valu([](u32 a, u32 b, u32 c) { return differences<8>(a, b, c); });
  t["v_sad_u16"] = valu([](u32 a, u32 b, u32 c) { return differences<16>(a, b, c); });
}

}  // namespace tilewave::sim
