// SPDX-License-Identifier: MIT
#include "sim/machine/wave.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace tilewave::sim {

void Counts::add(const Counts& other) {
  for (int i = 0; i < class_count; ++i) instructions[i] += other.instructions[i];
  for (const auto& [width, bytes] : other.loaded) loaded[width] += bytes;
  stored += other.stored;
  lds_bytes += other.lds_bytes;
  waves += other.waves;
  barriers += other.barriers;
}

std::uint64_t Counts::total() const {
  return std::accumulate(instructions.begin(), instructions.end(), std::uint64_t{0});
}

void Wave::wait(std::uint32_t vmcnt, std::uint32_t lgkmcnt) {
  if (vm.outstanding() > vmcnt) vm.done = vm.issued - vmcnt;
  if (lgkmcnt == 0) {
    lgkm.done = lgkm.issued;
    scalar_loads = 0;
  } else if (scalar_loads == 0 && lgkm.outstanding() > lgkmcnt) {
    lgkm.done = lgkm.issued - lgkmcnt;  // LDS alone returns in order; mixed with scalar loads nothing is certain
  }
  if (!reads.empty() && reads.front().ticket <= lgkm.done)
    reads.erase(reads.begin(),
                std::find_if(reads.begin(), reads.end(), [&](const auto& read) { return read.ticket > lgkm.done; }));
  if (reads.empty()) reads_in = {};
  if (!copies.empty() && copies.front().ticket <= vm.done) {
    const auto end =
        std::find_if(copies.begin(), copies.end(), [&](const auto& copy) { return copy.ticket > vm.done; });
    std::for_each(copies.begin(), end, [&](const auto& copy) { block->land(copy); });
    copies.erase(copies.begin(), end);
  }
}

namespace {

std::string register_name(bool vector, int reg) {
  if (!vector) return "s" + std::to_string(reg);
  return reg >= first_agpr ? "a" + std::to_string(reg - first_agpr) : "v" + std::to_string(reg);
}

[[noreturn]] void missing_wait(bool vector, int reg, const char* counter) {
  throw Error("missing wait: " + register_name(vector, reg) + " is still to be filled by an outstanding load (" +
              counter + ")");
}

}  // namespace

void Wave::check_waits(const Op& op) const {
  const bool vm_clear = vm.outstanding() == 0, lgkm_clear = lgkm.outstanding() == 0;
  if (vm_clear && lgkm_clear) return;
  for (int i = 0; i < op.operands; ++i) {
    const Operand& arg = op.arg[i];
    if (arg.kind == Kind::vector) {
      // Loads of one kind return in order, so a later one may overwrite (or fill the other half of) a destination.
      const bool own_vm = i == 0 && op.cls == Class::vmem && op.fills_first,
                 own_lds = i == 0 && op.cls == Class::lds && op.fills_first;
      for (int r = arg.reg; r < arg.reg + arg.words; ++r) {
        if (!vm_clear && !own_vm && v_vm[r] > vm.done) missing_wait(true, r, "vmcnt");
        if (!lgkm_clear && !own_lds && v_lgkm[r] > lgkm.done) missing_wait(true, r, "lgkmcnt");
      }
    } else if (arg.kind == Kind::scalar && !lgkm_clear) {
      for (int r = arg.reg; r < arg.reg + arg.words; ++r)
        if (s_lgkm[r] > lgkm.done) missing_wait(false, r, "lgkmcnt");
    }
  }
}

void Block::check_bounds(std::uint32_t address, std::uint32_t bytes) const {
  if (lds_touched) lds_touched->push_back(address);
  if (address > lds.size() || lds.size() - address < bytes)
    throw Error("LDS address " + std::to_string(address) + " (" + std::to_string(bytes) +
                " bytes) is outside the block's " + std::to_string(lds.size()) + " bytes");
}

bool Block::published(const LdsShadow& dword) const {
  const Wave& writer = *waves[dword.writer];
  return dword.ticket <= (dword.copied ? writer.published.copies : writer.published.writes);
}

namespace {

[[noreturn]] void race(std::uint32_t dword, const std::string& what) {
  throw Error("LDS race: address " + std::to_string(dword * 4) + " " + what);
}

}  // namespace

std::uint8_t* Block::lds_read(Wave& wave, std::uint32_t address, std::uint32_t bytes) {
  check_bounds(address, bytes);
  if (!checks) return lds.data() + address;
  for (std::uint32_t i = address / 4; i <= (address + bytes - 1) / 4; ++i) {
    LdsShadow& dword = shadow[i];
    if (dword.in_flight) race(i, "is the target of a global-to-LDS copy that was not waited for (vmcnt)");
    if (dword.writer >= 0 && dword.writer != wave.id && !published(dword))
      race(i, "was written by wave " + std::to_string(dword.writer) +
                  " and no s_barrier after that write's s_waitcnt orders this read");
    if (dword.read_epoch != epoch) dword.read_epoch = epoch, dword.readers = 0;
    dword.readers |= static_cast<std::uint16_t>(1u << wave.id);
    dword.read_by |= static_cast<std::uint16_t>(1u << wave.id);
  }
  wave.reads.push_back({wave.lgkm.issued, address, bytes});
  wave.reads_in.add(address, bytes);
  return lds.data() + address;
}

/// A read is done at its s_waitcnt, not when it was issued: what another wave writes behind a barrier is in no order to a
/// read that was still on its way there, nor is a copy to a read of its own wave. (LLVM, AMDGPU memory model: requests of
/// different waves to LDS may be reordered, and with vector memory operations.)
void Block::check_reads(const Wave& wave, std::uint32_t dword, bool copied) const {
  const auto holds = [dword](const PendingRead& read) {
    return dword >= read.address / 4 && dword <= (read.address + read.bytes - 1) / 4;
  };
  for (unsigned readers = shadow[dword].read_by; readers; readers &= readers - 1) {
    const Wave& reader = *waves[static_cast<std::size_t>(std::countr_zero(readers))];
    if (reader.id == wave.id) {
      if (copied && wave.reads_in.holds(dword) && std::any_of(wave.reads.begin(), wave.reads.end(), holds))
        race(dword, "is read by this wave, which has not waited for that (lgkmcnt) before its copy");
      continue;
    }
    const auto& reads = reader.published.reads;
    if (reader.published.reads_in.holds(dword) && std::any_of(reads.begin(), reads.end(), holds))
      race(dword, "was read by wave " + std::to_string(reader.id) +
                      ", whose s_waitcnt for that (lgkmcnt) comes behind the barrier");
  }
}

void Block::note_write(const Wave& wave, std::uint32_t address, std::uint32_t bytes, bool copied, bool atomic) {
  check_bounds(address, bytes);
  if (!checks) return;
  for (std::uint32_t i = address / 4; i <= (address + bytes - 1) / 4; ++i) {
    LdsShadow& dword = shadow[i];
    if (dword.in_flight) race(i, "is the target of a global-to-LDS copy that was not waited for (vmcnt)");
    const bool exempt = (atomic && dword.atomic) || bytes < 4;  // bytes of one dword may belong to different waves
    if (!exempt && dword.writer >= 0 && dword.writer != wave.id && !published(dword))
      race(i, "was written by wave " + std::to_string(dword.writer) + " and no barrier orders this write after it");
    if (!exempt && dword.read_epoch == epoch && (dword.readers & ~(1u << wave.id)))
      race(i, "was read by another wave since the last barrier");
    if (!exempt && dword.read_by) check_reads(wave, i, copied);
    if (!exempt) dword.read_by = 0;
    dword.writer = static_cast<std::int8_t>(wave.id);
    dword.ticket = copied ? wave.vm.issued : wave.lgkm.issued;
    dword.copied = dword.in_flight = copied;
    dword.atomic = atomic;
  }
}

std::uint8_t* Block::lds_write(const Wave& wave, std::uint32_t address, std::uint32_t bytes, bool atomic) {
  note_write(wave, address, bytes, false, atomic);
  return lds.data() + address;
}

std::uint8_t* Block::lds_copy(Wave& wave, std::uint32_t address, std::uint32_t bytes) {
  note_write(wave, address, bytes, true, false);
  wave.copies.push_back({wave.vm.issued, address, bytes});
  return lds.data() + address;
}

void Block::land(const PendingCopy& copy) {
  for (std::uint32_t i = copy.address / 4; i <= (copy.address + copy.bytes - 1) / 4; ++i) shadow[i].in_flight = false;
}

}  // namespace tilewave::sim
