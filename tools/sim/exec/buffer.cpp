// SPDX-License-Identifier: MIT
// Buffer (MUBUF) accesses through a four-word resource: loads, stores and copies to LDS.
#include <algorithm>
#include <bit>

#include "sim/exec/atomics.hpp"
#include "sim/exec/scalar.hpp"
#include "sim/exec/vector_memory.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

/// CDNA3 ISA guide, "Buffer resource descriptor": base 47:0, stride 61:48, swizzle 63, num_records in word 2, index
/// stride (8, 16, 32, 64) in bits 22:21 of word 3, thread-id 23.
struct Resource {
  u64 base;
  u32 stride, records, index_stride;
  bool swizzled;

  Resource(const Wave& w, const Operand& a) {
    if (a.kind != Kind::scalar || a.words != 4) throw Error("a buffer resource must be four SGPRs");
    const u32 word1 = w.s[a.reg + 1], word3 = w.s[a.reg + 3];
    base = w.s[a.reg] | u64{word1 & 0xffffu} << 32;
    stride = word1 >> 16 & 0x3fffu;
    records = w.s[a.reg + 2];
    index_stride = 8u << (word3 >> 21 & 3u);
    swizzled = word1 >> 31;
    if (word3 >> 23 & 1u) throw Error("thread-id buffers are not simulated");
  }

  /// Bytes from the base, less the scalar offset. Swizzled: dwords of the same offset in `index_stride` neighbouring records
  /// lie side by side (the guide, "Swizzled buffer addressing"; GFX9 has no other element size).
  u64 swizzled_offset(u32 index, u32 offset) const {
    if (!swizzled) return offset + u64{index} * stride;
    constexpr u32 element = 4;
    return (u64{index / index_stride} * stride + offset / element * element) * index_stride +
           index % index_stride * element + offset % element;
  }
};

struct LaneAddress {
  u64 address;
  bool in_range;
};

/// Operands from `first` on: vaddr (offset, index or both), resource, soffset.
LaneAddress lane_address(const Wave& w, const Op& op, const Resource& r, int first, int lane, u32 extra, u32 bytes) {
  const Operand& vaddr = op.arg[first];
  const u32 soffset = scalar_word(w, op.arg[first + 2]);
  u32 index = 0, offset = static_cast<u32>(op.offset) + extra;
  int reg = vaddr.reg;
  if (op.idxen) index = w.v[reg++][lane];
  if (op.offen) offset += w.v[reg][lane];
  // Raw buffers compare bytes, with the scalar offset counted; structured ones compare records. Without an index a swizzled
  // one is raw, too: HipKittens reads matrices as they lie through such descriptors.
  const bool raw = r.stride == 0 || !op.idxen;
  const bool in_range = raw ? u64{offset} + soffset + bytes <= r.records : index < r.records;
  return {r.base + soffset + (raw ? u64{offset} + u64{index} * r.stride : r.swizzled_offset(index, offset)), in_range};
}

/// Words out of range read 0 and are not written, as the hardware does.
void run_load(Wave& w, const Op& op) {  // vdst, vaddr, resource, soffset
  const Access access = Access::unpack(op.parameter);
  const Resource resource(w, op.arg[op.lds ? 1 : 2]);
  const u32 step = std::min(access.bytes, 4u);
  ++w.vm.issued;
  for_active(w, [&](int l) {
    std::array<std::uint8_t, 16> data{};  // read in full first: vaddr may be one of the destinations
    for (u32 done = 0; done < access.bytes; done += step) {
      const auto [address, in_range] = lane_address(w, op, resource, op.lds ? 0 : 1, l, done, step);
      if (in_range) std::copy_n(w.memory->access(address, step, false, w.hint), step, data.begin() + done);
    }
    if (op.lds)
      copy_lane(w, op, l, access, data.data());
    else
      load_lane(w, op.arg[0].reg, l, access, data.data());
  });
  if (!op.lds) mark_pending(w, op.arg[0], true, false);
  w.counts.loaded[static_cast<int>(access.bytes)] += u64{access.bytes} * std::popcount(w.exec());
}

void run_store(Wave& w, const Op& op) {  // vdata, vaddr, resource, soffset
  const Access access = Access::unpack(op.parameter);
  const Resource resource(w, op.arg[2]);
  const u32 step = std::min(access.bytes, 4u);
  ++w.vm.issued;
  for_active(w, [&](int l) {
    for (u32 done = 0; done < access.bytes; done += step) {
      const auto [address, in_range] = lane_address(w, op, resource, 1, l, done, step);
      if (!in_range) continue;
      store_lane(w, op.arg[0].reg + static_cast<int>(done / 4), l, {step, false, access.d16, access.high},
                 w.memory->access(address, step, true, w.hint));
    }
  });
  w.counts.stored += u64{access.bytes} * std::popcount(w.exec());
}

/// With sc0 the old values replace the operands. Lanes out of range do nothing and receive 0.
template <class F, class T, bool compares = false>
void run_atomic(Wave& w, const Op& op) {  // vdata, vaddr, resource, soffset
  const Resource resource(w, op.arg[2]);
  ++w.vm.issued;
  const std::lock_guard lock(atomic_mutex);
  for_active(w, [&](int l) {
    const auto [address, in_range] = lane_address(w, op, resource, 1, l, 0, sizeof(T));
    T old{};
    if (in_range) {
      std::uint8_t* at = w.memory->access(address, sizeof(T), true, w.hint);
      old = load_bytes<T>(at);
      const int data = op.arg[0].reg;  // compared: the new value first, then the expected one
      T made = register_value<T>(w, data, l);
      if constexpr (compares)
        made = old == register_value<T>(w, data + static_cast<int>(sizeof(T)) / 4, l) ? made : old;
      else
        made = F{}(old, made);
      std::memcpy(at, &made, sizeof(T));
    }
    if (op.glc) load_lane(w, op.arg[0].reg, l, {sizeof(T)}, reinterpret_cast<const std::uint8_t*>(&old));
  });
  if (op.glc) mark_pending(w, op.arg[0], true, false);
}

}  // namespace

void add_buffer_instructions(InstructionTable& t) {
  for (const auto& [name, access] : load_kinds)
    t[std::string("buffer_load_") + name] = {
        .run = run_load, .cls = Class::vmem, .fills_first = true, .parameter = access.pack()};
  for (const auto& [name, access] : store_kinds)
    t[std::string("buffer_store_") + name] = {.run = run_store, .cls = Class::vmem, .parameter = access.pack()};
  for_each_atomic([&t](const char* name, auto f) {
    using F = decltype(f);
    t[std::string("buffer_atomic_") + name] = {.run = run_atomic<F, decltype(f({}, {}))>, .cls = Class::vmem};
  });
  t["buffer_atomic_cmpswap"] = {.run = run_atomic<void, u32, true>, .cls = Class::vmem};
  t["buffer_atomic_cmpswap_x2"] = {.run = run_atomic<void, u64, true>, .cls = Class::vmem};
}

}  // namespace tilewave::sim
