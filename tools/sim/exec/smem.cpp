// SPDX-License-Identifier: MIT
// Scalar memory: loads (plain, and through a buffer resource), stores, atomics, clocks.
#include <algorithm>

#include "sim/exec/atomics.hpp"
#include "sim/exec/scalar.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

/// Operands sdata, sbase, offset: base + offset (a constant, an SGPR, or SGPR plus `offset:`).
u64 offset_of(const Op& op, const Wave& w) {
  const i64 offset = op.arg[2].kind == Kind::constant ? op.arg[2].integer : i64{scalar_word(w, op.arg[2])};
  return static_cast<u64>(offset + op.offset);
}
u64 address_of(const Op& op, const Wave& w) {
  return ((scalar_pair(w, op.arg[1]) & ~u64{3}) + offset_of(op, w)) & ~u64{3};
}

void issue(Wave& w) {
  ++w.lgkm.issued;
  ++w.scalar_loads;
}
void fill(Wave& w, u32 reg, u32 value) {
  w.s[reg] = value;
  w.s_lgkm[reg] = w.lgkm.issued;
}

void run_load(Wave& w, const Op& op) {
  const std::uint8_t* from = w.memory->access(address_of(op, w), 4 * op.parameter, false, w.hint);
  issue(w);
  for (u32 i = 0; i < op.parameter; ++i) fill(w, op.arg[0].reg + i, load_bytes<u32>(from + 4 * i));
}

/// Words beyond num_records (bytes, or records of `stride`) read 0.
void run_buffer_load(Wave& w, const Op& op) {
  const Operand& r = op.arg[1];
  const u64 base = w.s[r.reg] | u64{w.s[r.reg + 1] & 0xffffu} << 32;
  const u64 stride = w.s[r.reg + 1] >> 16 & 0x3fffu, size = w.s[r.reg + 2] * std::max(stride, u64{1});
  const u64 offset = offset_of(op, w) & ~u64{3};
  issue(w);
  for (u32 i = 0; i < op.parameter; ++i) {
    const u64 at = offset + 4 * i;
    fill(w, op.arg[0].reg + i, at + 4 <= size ? load_bytes<u32>(w.memory->access(base + at, 4, false, w.hint)) : 0);
  }
}

void run_store(Wave& w, const Op& op) {
  std::uint8_t* to = w.memory->access(address_of(op, w), 4 * op.parameter, true, w.hint);
  issue(w);
  for (u32 i = 0; i < op.parameter; ++i) std::memcpy(to + 4 * i, &w.s[op.arg[0].reg + i], 4);
  w.counts.stored += 4 * op.parameter;
}

template <class F>
void run_atomic(Wave& w, const Op& op) {
  std::uint8_t* at = w.memory->access(address_of(op, w), 4, true, w.hint);
  issue(w);
  const std::lock_guard lock(atomic_mutex);
  const u32 old = load_bytes<u32>(at), made = F{}(old, w.s[op.arg[0].reg]);
  std::memcpy(at, &made, 4);
  if (op.glc) fill(w, op.arg[0].reg, old);
}

}  // namespace

void add_scalar_memory_instructions(InstructionTable& t) {
  for (const u32 words : {1u, 2u, 4u, 8u, 16u}) {
    const std::string width = words == 1 ? "" : "x" + std::to_string(words);
    t["s_load_dword" + width] = {.run = run_load, .cls = Class::smem, .fills_first = true, .parameter = words};
    t["s_buffer_load_dword" + width] = {
        .run = run_buffer_load, .cls = Class::smem, .fills_first = true, .parameter = words};
    if (words <= 4) t["s_store_dword" + width] = {.run = run_store, .cls = Class::smem, .parameter = words};
  }
  for_each_atomic([&t](const char* name, auto f) {
    using F = decltype(f);
    if constexpr (std::is_invocable_r_v<u32, F, u32, u32> && std::is_same_v<decltype(f(0, 0)), u32>)
      t[std::string("s_atomic_") + name] = {.run = run_atomic<F>, .cls = Class::smem};
  });
  // A clock that moves: the number of instructions this wave has executed.
  for (const char* name : {"s_memtime", "s_memrealtime"})
    t[name] = {.run =
                   [](Wave& w, const Op& op) {
                     issue(w);
                     fill(w, op.arg[0].reg, static_cast<u32>(w.executed));
                     fill(w, op.arg[0].reg + 1, static_cast<u32>(w.executed >> 32));
                   },
               .cls = Class::smem};
}

}  // namespace tilewave::sim
