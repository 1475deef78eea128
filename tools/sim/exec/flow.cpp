// SPDX-License-Identifier: MIT
// Program flow, waits and 16-bit-immediate scalar instructions.

#include "sim/exec/scalar.hpp"
#include "sim/programs/code_object.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

template <class F>
Instruction branch_if(F) {
  return {.run =
              [](Wave& w, const Op& op) {
                if (!F{}(w)) return;
                if (op.target < 0) throw Error("branch to an address without an instruction");
                w.pc = static_cast<std::size_t>(op.target);
              },
          .cls = Class::branch};
}

/// A load that is still on its way to VCC must not decide a branch.
bool vcc_zero(const Wave& w) {
  for (const int r : {vcc_lo, vcc_lo + 1})
    if (w.s_lgkm[r] > w.lgkm.done) throw Error("missing wait: vcc is still to be filled by a scalar load (lgkmcnt)");
  return w.vcc() == 0;
}

i32 simm(const Op& op) { return static_cast<std::int16_t>(op.simm16()); }

/// SOPK: f(scc, register, immediate) -> new register value.
template <class F>
Instruction sopk(F) {
  return {.run = [](Wave& w, const Op& op) { w.s[op.arg[0].reg] = F{}(w.scc, w.s[op.arg[0].reg], simm(op)); },
          .cls = Class::salu};
}
template <class F>
Instruction cmpk(F) {
  return {.run = [](Wave& w, const Op& op) { w.scc = F{}(w.s[op.arg[0].reg], op.simm16()); }, .cls = Class::salu};
}
i32 s(u32 x) { return static_cast<i32>(x); }
i32 extended(u32 x) { return static_cast<std::int16_t>(x); }

void add_branches(InstructionTable& t) {
  t["s_branch"] = branch_if([](const Wave&) { return true; });
  t["s_cbranch_scc0"] = branch_if([](const Wave& w) { return !w.scc; });
  t["s_cbranch_scc1"] = branch_if([](const Wave& w) { return w.scc; });
  t["s_cbranch_vccz"] = branch_if([](const Wave& w) { return vcc_zero(w); });
  t["s_cbranch_vccnz"] = branch_if([](const Wave& w) { return !vcc_zero(w); });
  t["s_cbranch_execz"] = branch_if([](const Wave& w) { return w.exec() == 0; });
  t["s_cbranch_execnz"] = branch_if([](const Wave& w) { return w.exec() != 0; });
  const auto here = [](const Wave& w, const Op& op) { return w.block->load_base + op.address + op.bytes; };
  static constexpr auto next = +here;
  static constexpr auto jump = +[](Wave& w, u64 target) { w.pc = w.block->program->at(target - w.block->load_base); };
  t["s_getpc_b64"] = {.run = [](Wave& w, const Op& op) { w.set_pair(op.arg[0].reg, next(w, op)); }, .cls = Class::salu};
  t["s_setpc_b64"] = {.run = [](Wave& w, const Op& op) { jump(w, scalar_pair(w, op.arg[0])); }, .cls = Class::salu};
  t["s_swappc_b64"] = {.run =
                           [](Wave& w, const Op& op) {
                             const u64 target = scalar_pair(w, op.arg[1]);
                             w.set_pair(op.arg[0].reg, next(w, op));
                             jump(w, target);
                           },
                       .cls = Class::salu};
}

void add_waits(InstructionTable& t) {
  // Immediate: vmcnt in bits 3:0 and 15:14, lgkmcnt in 11:8 (CDNA3 ISA guide, S_WAITCNT); all ones means no limit.
  t["s_waitcnt"] = {.run =
                        [](Wave& w, const Op& op) {
                          const u32 x = op.simm16(), vm = (x & 15u) | (x >> 14 & 3u) << 4, lgkm = x >> 8 & 15u;
                          w.wait(vm == 63 ? ~0u : vm, lgkm == 15 ? ~0u : lgkm);
                        },
                    .cls = Class::wait};
  t["s_barrier"] = {.run =
                        [](Wave& w, const Op&) {
                          w.status = WaveStatus::at_barrier;
                          w.arrived = {w.lgkm.done, w.vm.done, w.reads, w.reads_in};
                          ++w.counts.barriers;
                        },
                    .cls = Class::wait};
  t["s_endpgm"] = {.run = [](Wave& w, const Op&) { w.status = WaveStatus::ended; }, .cls = Class::other};
  for (const char* name : {"s_nop", "s_sleep", "s_setprio", "s_icache_inv", "s_inst_prefetch", "s_dcache_inv",
                           "s_dcache_wb", "s_incperflevel", "s_decperflevel", "s_code_end"})
    t[name] = {.run = [](Wave&, const Op&) {}, .cls = Class::other};
  t["s_trap"] = {
      .run = [](Wave&,
                const Op& op) { throw Error("the kernel trapped (s_trap " + std::to_string(op.simm16()) + ")"); },
      .cls = Class::other};
}

void add_immediates(InstructionTable& t) {
  t["s_movk_i32"] = sopk([](bool&, u32, i32 k) { return static_cast<u32>(k); });
  t["s_cmovk_i32"] = sopk([](bool& scc, u32 x, i32 k) { return scc ? static_cast<u32>(k) : x; });
  t["s_mulk_i32"] = sopk([](bool&, u32 x, i32 k) { return x * static_cast<u32>(k); });
  t["s_addk_i32"] = sopk([](bool& scc, u32 x, i32 k) {
    i32 sum;
    scc = __builtin_add_overflow(static_cast<i32>(x), k, &sum);
    return static_cast<u32>(sum);
  });
  t["s_cmpk_eq_i32"] = cmpk([](u32 a, u32 k) { return s(a) == extended(k); });
  t["s_cmpk_lg_i32"] = cmpk([](u32 a, u32 k) { return s(a) != extended(k); });
  t["s_cmpk_gt_i32"] = cmpk([](u32 a, u32 k) { return s(a) > extended(k); });
  t["s_cmpk_ge_i32"] = cmpk([](u32 a, u32 k) { return s(a) >= extended(k); });
  t["s_cmpk_lt_i32"] = cmpk([](u32 a, u32 k) { return s(a) < extended(k); });
  t["s_cmpk_le_i32"] = cmpk([](u32 a, u32 k) { return s(a) <= extended(k); });
  t["s_cmpk_eq_u32"] = cmpk([](u32 a, u32 k) { return a == k; });
  t["s_cmpk_lg_u32"] = cmpk([](u32 a, u32 k) { return a != k; });
  t["s_cmpk_gt_u32"] = cmpk([](u32 a, u32 k) { return a > k; });
  t["s_cmpk_ge_u32"] = cmpk([](u32 a, u32 k) { return a >= k; });
  t["s_cmpk_lt_u32"] = cmpk([](u32 a, u32 k) { return a < k; });
  t["s_cmpk_le_u32"] = cmpk([](u32 a, u32 k) { return a <= k; });
}

}  // namespace

void add_flow_instructions(InstructionTable& t) {
  add_branches(t);
  add_waits(t);
  add_immediates(t);
}

}  // namespace tilewave::sim
