// SPDX-License-Identifier: MIT
// Global, flat and scratch memory, the direct copies from global memory to LDS, and global atomics.
#include <bit>

#include "sim/exec/atomics.hpp"
#include "sim/exec/vector_memory.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using i32 = std::int32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

/// v[0:1] + offset, or s[0:1] + the unsigned v0 + offset. `saddr` is absent in the first form.
inline u64 lane_address(const Wave& w, const Operand& vaddr, const Operand& saddr, i32 offset, int lane) {
  u64 base = 0;
  if (saddr.kind == Kind::scalar) base = w.pair(saddr.reg);
  if (vaddr.is_vector()) {
    base += w.v[vaddr.reg][lane];
    if (saddr.kind != Kind::scalar) base += u64{w.v[vaddr.reg + 1][lane]} << 32;
  }
  return base + static_cast<u64>(i64{offset});
}

template <bool flat>
void issue(Wave& w) {
  ++w.vm.issued;
  if (flat) ++w.lgkm.issued;
}

/// A lane's own scratch bytes.
std::uint8_t* scratch_at(Wave& w, u32 address, u32 bytes, int lane) {
  Block& block = *w.block;
  if (address > block.scratch_bytes || block.scratch_bytes - address < bytes)
    throw Error("scratch address " + std::to_string(address) + " is outside the " +
                std::to_string(block.scratch_bytes) + " bytes of a lane");
  return block.scratch.data() + (u64{static_cast<u32>(w.id)} * wave_lanes + lane) * block.scratch_bytes + address;
}

/// Memory behind a global address, or behind a flat one, which may mean LDS or scratch.
template <bool flat>
std::uint8_t* memory_at(Wave& w, u64 address, u32 bytes, bool write, int lane, bool atomic = false) {
  if constexpr (flat) {
    const auto low = static_cast<u32>(address);
    if ((address ^ shared_aperture) >> 32 == 0)
      return write ? w.block->lds_write(w, low, bytes, atomic) : w.block->lds_read(w, low, bytes);
    if ((address ^ private_aperture) >> 32 == 0) return scratch_at(w, low, bytes, lane);
  }
  return w.memory->access(address, bytes, write, w.hint);
}

template <bool flat>
void run_load(Wave& w, const Op& op) {  // vdst, vaddr, saddr
  const Access access = Access::unpack(op.parameter);
  issue<flat>(w);
  bool from_lds = false;
  for_active(w, [&](int l) {
    const u64 address = lane_address(w, op.arg[1], op.arg[2], op.offset, l);
    from_lds |= flat && (address ^ shared_aperture) >> 32 == 0;
    load_lane(w, op.arg[0].reg, l, access, memory_at<flat>(w, address, access.bytes, false, l));
  });
  mark_pending(w, op.arg[0], true, from_lds);  // a flat load counts twice, but its data comes with one counter
  w.counts.loaded[static_cast<int>(access.bytes)] += u64{access.bytes} * std::popcount(w.exec());
}

template <bool flat>
void run_store(Wave& w, const Op& op) {  // vaddr, vdata, saddr
  const Access access = Access::unpack(op.parameter);
  issue<flat>(w);
  for_active(w, [&](int l) {
    const u64 address = lane_address(w, op.arg[0], op.arg[2], op.offset, l);
    store_lane(w, op.arg[1].reg, l, access, memory_at<flat>(w, address, access.bytes, true, l));
  });
  w.counts.stored += u64{access.bytes} * std::popcount(w.exec());
}

/// The instruction's offset applies to both sides.
void run_load_lds(Wave& w, const Op& op) {  // vaddr, saddr
  const Access access = Access::unpack(op.parameter);
  issue<false>(w);
  for_active(w, [&](int l) {
    const u64 address = lane_address(w, op.arg[0], op.arg[1], op.offset, l);
    copy_lane(w, op, l, access, w.memory->access(address, access.bytes, false, w.hint));
  });
  w.counts.loaded[static_cast<int>(access.bytes)] += u64{access.bytes} * std::popcount(w.exec());
}

/// Scratch address: vaddr + saddr + offset, either of them may be absent.
u32 scratch_address(const Wave& w, const Operand& vaddr, const Operand& saddr, i32 offset, int lane) {
  u32 address = static_cast<u32>(offset);
  if (vaddr.is_vector()) address += w.v[vaddr.reg][lane];
  if (saddr.kind == Kind::scalar) address += w.s[saddr.reg];
  return address;
}
void run_scratch_load(Wave& w, const Op& op) {
  const Access access = Access::unpack(op.parameter);
  issue<false>(w);
  for_active(w, [&](int l) {
    const u32 address = scratch_address(w, op.arg[1], op.arg[2], op.offset, l);
    load_lane(w, op.arg[0].reg, l, access, scratch_at(w, address, access.bytes, l));
  });
  mark_pending(w, op.arg[0], true, false);
}
void run_scratch_store(Wave& w, const Op& op) {
  const Access access = Access::unpack(op.parameter);
  issue<false>(w);
  for_active(w, [&](int l) {
    const u32 address = scratch_address(w, op.arg[0], op.arg[2], op.offset, l);
    store_lane(w, op.arg[1].reg, l, access, scratch_at(w, address, access.bytes, l));
  });
}

/// Without sc0: vaddr, vdata, saddr. With it: vdst first, which receives the old value.
template <bool flat, class F, class T, bool compares>
void run_atomic(Wave& w, const Op& op) {
  const int first = op.glc ? 1 : 0;
  constexpr int words = sizeof(T) / 4;
  const Operand &vaddr = op.arg[first], &data = op.arg[first + 1], &saddr = op.arg[first + 2];
  issue<flat>(w);
  const std::lock_guard lock(atomic_mutex);
  bool in_lds = false;
  for_active(w, [&](int l) {
    const u64 address = lane_address(w, vaddr, saddr, op.offset, l);
    if (address % sizeof(T)) throw Error("misaligned atomic at " + hex(address));
    in_lds |= flat && (address ^ shared_aperture) >> 32 == 0;
    std::uint8_t* at = memory_at<flat>(w, address, sizeof(T), true, l, true);
    const T old = load_bytes<T>(at);
    T made;
    if constexpr (compares)
      made = old == register_value<T>(w, data.reg + words, l) ? register_value<T>(w, data.reg, l)
                                                              : old;  // new value first, then the expected one
    else
      made = F{}(old, register_value<T>(w, data.reg, l));
    std::memcpy(at, &made, sizeof(T));
    if (op.glc) load_lane(w, op.arg[0].reg, l, {sizeof(T)}, reinterpret_cast<const std::uint8_t*>(&old));
  });
  if (op.glc) mark_pending(w, op.arg[0], true, in_lds);
}

template <bool flat>
void add_atomics(InstructionTable& t, const std::string& prefix) {
  for_each_atomic([&](const char* name, auto f) {
    using F = decltype(f);
    t[prefix + name] = {.run = run_atomic<flat, F, decltype(f({}, {})), false>, .cls = Class::vmem};
  });
  const auto never = [](auto a, auto) { return a; };
  t[prefix + "cmpswap"] = {.run = run_atomic<flat, decltype(never), u32, true>, .cls = Class::vmem};
  t[prefix + "cmpswap_x2"] = {.run = run_atomic<flat, decltype(never), u64, true>, .cls = Class::vmem};
}

}  // namespace

void add_global_instructions(InstructionTable& t, Arch arch) {
  const auto add = [&t](const std::string& name, Handler run, bool fills, u32 parameter) {
    t[name] = {.run = run, .cls = Class::vmem, .fills_first = fills, .parameter = parameter};
  };
  for (const auto& [name, access] : load_kinds) {
    add(std::string("global_load_") + name, run_load<false>, true, access.pack());
    add(std::string("flat_load_") + name, run_load<true>, true, access.pack());
    add(std::string("scratch_load_") + name, run_scratch_load, true, access.pack());
  }
  for (const auto& [name, access] : store_kinds) {
    add(std::string("global_store_") + name, run_store<false>, false, access.pack());
    add(std::string("flat_store_") + name, run_store<true>, false, access.pack());
    add(std::string("scratch_store_") + name, run_scratch_store, false, access.pack());
  }
  for (const auto& [name, access] : load_kinds) {
    const bool wide = access.bytes > 8, known = access.bytes <= 4 && !access.d16;
    if (known || (wide && arch == Arch::gfx950))
      add(std::string("global_load_lds_") + name, run_load_lds, false, access.pack());
  }
  add_atomics<false>(t, "global_atomic_");
  add_atomics<true>(t, "flat_atomic_");
  // Cache control: memory here is coherent. A write-back counts in vmcnt, an invalidation does not.
  add(
      "buffer_inv", [](Wave&, const Op&) {}, false, 0);
  add(
      "buffer_wbl2", [](Wave& w, const Op&) { ++w.vm.issued; }, false, 0);
}

}  // namespace tilewave::sim
