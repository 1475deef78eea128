// SPDX-License-Identifier: MIT
// Instructions that move values between lanes or choose by a lane mask.
#include <bit>

#include "sim/exec/scalar.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

void run_cndmask(Wave& w, const Op& op) {
  Lanes<u32> a, b, out;
  read(w, op, 1, a);
  read(w, op, 2, b);
  const u64 mask = scalar_pair(w, op.arg[3]);
  for (int l = 0; l < wave_lanes; ++l) out[l] = mask >> l & 1 ? b[l] : a[l];
  write(w, op, out);
}

const Operand& vector_operand(const Operand& a) {
  if (!a.is_vector()) throw Error("lane read of something that is no vector register");
  return a;
}

void run_readfirstlane(Wave& w, const Op& op) {
  const int lane = w.exec() ? std::countr_zero(w.exec()) : 0;
  w.s[op.arg[0].reg] = w.v[vector_operand(op.arg[1]).reg][lane];
}
void run_readlane(Wave& w, const Op& op) {
  w.s[op.arg[0].reg] = w.v[vector_operand(op.arg[1]).reg][scalar_word(w, op.arg[2]) & 63u];
}
void run_writelane(Wave& w, const Op& op) {
  w.v[op.arg[0].reg][scalar_word(w, op.arg[2]) & 63u] = scalar_word(w, op.arg[1]);
}

/// v_mbcnt: bits of the mask below this lane, in its low or high word, plus src1.
template <bool high>
void run_mbcnt(Wave& w, const Op& op) {
  Lanes<u32> mask, base, out;
  read(w, op, 1, mask);
  read(w, op, 2, base);
  for (int l = 0; l < wave_lanes; ++l) {
    const u64 below = (u64{1} << l) - 1;
    out[l] = static_cast<u32>(std::popcount(mask[l] & static_cast<u32>(high ? below >> 32 : below))) + base[l];
  }
  write(w, op, out);
}

void run_swap(Wave& w, const Op& op) {
  Wave::Row &a = w.v[op.arg[0].reg], &b = w.v[op.arg[1].reg];
  for (int l = 0; l < wave_lanes; ++l)
    if (w.exec() >> l & 1) std::swap(a[l], b[l]);
}

/// v_permlane32_swap: lanes 32..63 of vdst change places with lanes 0..31 of vsrc; v_permlane16_swap: the odd rows of
/// 16 lanes of vdst with the even rows of vsrc (CDNA4 ISA guide). EXEC must be full: the guide leaves the rest open. Then
/// bound_ctrl and fi, which say what an inactive lane gives, say nothing.
template <int rows>
void run_permlane_swap(Wave& w, const Op& op) {
  if (w.exec() != ~u64{0}) throw Error("permlane swap with inactive lanes is not simulated");
  Wave::Row &d = w.v[op.arg[0].reg], &s = w.v[op.arg[1].reg];
  for (int l = 0; l < wave_lanes; ++l)
    if (!(l & rows)) std::swap(d[l + rows], s[l]);
}

}  // namespace

void add_lane_instructions(InstructionTable& t) {
  t["v_cndmask_b32"] = {.run = run_cndmask, .cls = Class::valu, .accepts_dpp = true, .accepts_sdwa = true};
  t["v_readfirstlane_b32"] = {.run = run_readfirstlane, .cls = Class::valu};
  t["v_readlane_b32"] = {.run = run_readlane, .cls = Class::valu};
  t["v_writelane_b32"] = {.run = run_writelane, .cls = Class::valu};
  t["v_mbcnt_lo_u32_b32"] = {.run = run_mbcnt<false>, .cls = Class::valu};
  t["v_mbcnt_hi_u32_b32"] = {.run = run_mbcnt<true>, .cls = Class::valu};
  t["v_swap_b32"] = {.run = run_swap, .cls = Class::valu};
  t["v_permlane32_swap_b32"] = {.run = run_permlane_swap<32>, .cls = Class::valu};
  t["v_permlane16_swap_b32"] = {.run = run_permlane_swap<16>, .cls = Class::valu};
  // AGPRs are ordinary rows here; reading and writing them is a move.
  const Instruction move = valu([](u32 x) { return x; });
  t["v_accvgpr_read_b32"] = t["v_accvgpr_write_b32"] = t["v_accvgpr_mov_b32"] = move;
  t["v_nop"] = {.run = [](Wave&, const Op&) {}, .cls = Class::valu};
}

}  // namespace tilewave::sim
