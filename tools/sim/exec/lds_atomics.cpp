// SPDX-License-Identifier: MIT
// LDS atomics. Those that return the old value have _rtn before their type.
#include <algorithm>
#include <bit>

#include "sim/exec/atomics.hpp"
#include "sim/exec/vector_memory.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

/// Operands: vdst if it returns, vaddr, vdata, and for a comparison what is written where memory equals vdata.
template <class F, class T, bool returns>
void run_atomic(Wave& w, const Op& op) {
  constexpr bool compares = std::is_invocable_v<F, T, T, T>;
  ++w.lgkm.issued;
  for_active(w, [&](int l) {
    const u32 address = w.v[op.arg[returns].reg][l] + static_cast<u32>(op.offset);
    if (address % sizeof(T)) throw Error("misaligned atomic of LDS address " + std::to_string(address));
    std::uint8_t* at = w.block->lds_write(w, address, sizeof(T), true);
    const T old = load_bytes<T>(at), data = register_value<T>(w, op.arg[returns + 1].reg, l);
    T made;
    if constexpr (compares)
      made = F{}(old, data, register_value<T>(w, op.arg[returns + 2].reg, l));
    else
      made = F{}(old, data);
    std::memcpy(at, &made, sizeof(T));
    if (returns) load_lane(w, op.arg[0].reg, l, {sizeof(T)}, reinterpret_cast<const std::uint8_t*>(&old));
  });
  if (returns) mark_pending(w, op.arg[0], false, true);
  w.counts.lds_bytes += u64{sizeof(T)} * static_cast<u64>(std::popcount(w.exec()));
}

template <class T, class F>
void add(InstructionTable& t, const std::string& name, const std::string& type, F) {
  t["ds_" + name + "_" + type] = {.run = run_atomic<F, T, false>, .cls = Class::lds};
  t["ds_" + name + "_rtn_" + type] = {.run = run_atomic<F, T, true>, .cls = Class::lds, .fills_first = true};
}

/// Registers the atomics of unsigned and signed numbers with equally many bits.
template <class U, class I>
void add_integer(InstructionTable& t, const std::string& bits) {
  add<U>(t, "add", "u" + bits, [](U a, U b) { return a + b; });
  add<U>(t, "sub", "u" + bits, [](U a, U b) { return a - b; });
  add<U>(t, "rsub", "u" + bits, [](U a, U b) { return b - a; });
  add<U>(t, "inc", "u" + bits, [](U a, U b) { return a >= b ? U{0} : a + 1; });
  add<U>(t, "dec", "u" + bits, [](U a, U b) { return a == 0 || a > b ? b : a - 1; });
  add<U>(t, "max", "u" + bits, [](U a, U b) { return std::max(a, b); });
  add<U>(t, "min", "u" + bits, [](U a, U b) { return std::min(a, b); });
  add<I>(t, "max", "i" + bits, [](I a, I b) { return std::max(a, b); });
  add<I>(t, "min", "i" + bits, [](I a, I b) { return std::min(a, b); });
  add<U>(t, "and", "b" + bits, [](U a, U b) { return a & b; });
  add<U>(t, "or", "b" + bits, [](U a, U b) { return a | b; });
  add<U>(t, "xor", "b" + bits, [](U a, U b) { return a ^ b; });
  add<U>(t, "wrxchg", "b" + bits, [](U, U b) { return b; });
  add<U>(t, "cmpst", "b" + bits, [](U a, U expected, U b) { return a == expected ? b : a; });
}

template <class F>
void add_real(InstructionTable& t, const std::string& type) {
  add<F>(t, "add", type, [](F a, F b) { return a + b; });
  add<F>(t, "min", type, [](F a, F b) { return std::fmin(a, b); });
  add<F>(t, "max", type, [](F a, F b) { return std::fmax(a, b); });
}

}  // namespace

void add_lds_atomics(InstructionTable& t) {
  add_integer<u32, i32>(t, "32");
  add_integer<u64, i64>(t, "64");
  add_real<float>(t, "f32");
  add_real<double>(t, "f64");
  add<u32>(t, "pk_add", "f16", [](u32 a, u32 b) { return HalfPair::add(a, b); });
  add<u32>(t, "pk_add", "bf16", [](u32 a, u32 b) { return Bf16Pair::add(a, b); });
}

}  // namespace tilewave::sim
