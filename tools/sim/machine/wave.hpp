// SPDX-License-Identifier: MIT
// The state of one wave and of its block.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/machine/instruction.hpp"
#include "sim/machine/memory.hpp"

namespace tilewave::sim {

/// The parts of FLOAT_MODE that change results. Rounding is always to nearest even (other modes are refused).
struct FloatMode {
  bool flush_in32 = false, flush_out32 = false;
  bool flush_in16_64 = false, flush_out16_64 = false;
  bool fp16_overflow = false;  // conversions to fp8 saturate instead of giving NaN
};

struct Counts {
  std::array<std::uint64_t, class_count> instructions{};
  std::map<int, std::uint64_t> loaded;  // global bytes by bytes per lane and access
  std::uint64_t stored = 0;             // global bytes
  std::uint64_t lds_bytes = 0;
  std::uint64_t waves = 0, barriers = 0;

  void add(const Counts& other);
  std::uint64_t total() const;
};

/// A copy straight into LDS that may land at any time until the wave waits for it.
struct PendingCopy {
  std::uint32_t ticket;  // of vmcnt
  std::uint32_t address;
  std::uint32_t bytes;
};

/// A read of LDS that the wave has not waited for yet.
struct PendingRead {
  std::uint32_t ticket;  // of lgkmcnt
  std::uint32_t address;
  std::uint32_t bytes;
};

/// Where reads lie, which mostly tells at once that none of them holds a dword.
struct DwordRange {
  std::uint32_t first = ~0u, last = 0;
  void add(std::uint32_t address, std::uint32_t bytes) {
    first = std::min(first, address / 4), last = std::max(last, (address + bytes - 1) / 4);
  }
  bool holds(std::uint32_t dword) const { return dword >= first && dword <= last; }
};

/// Tickets of one in-order counter: operation n is complete once `done >= n`.
struct Counter {
  std::uint32_t issued = 0, done = 0;
  std::uint32_t outstanding() const { return issued - done; }
};

/// Who touched a dword of LDS last, for race detection.
struct LdsShadow {
  std::uint32_t ticket = 0;      // writer's lgkm (or vm) ticket
  std::uint32_t read_epoch = 0;  // barriers passed when `readers` read it
  std::uint16_t readers = 0;     // waves
  std::uint16_t read_by = 0;     // waves that have read it since it was written
  std::int8_t writer = -1;
  bool copied = false;     // ticket counts vmcnt: the write was a global-to-LDS copy
  bool in_flight = false;  // ... which nobody has waited for yet
  bool atomic = false;
};

struct Block;

enum class WaveStatus : std::uint8_t { running, at_barrier, ended };

struct Wave {
  using Row = std::array<std::uint32_t, wave_lanes>;

  Block* block = nullptr;
  const Memory* memory = nullptr;
  int id = 0;
  WaveStatus status = WaveStatus::running;
  std::size_t pc = 0;  // index of the next Op
  std::uint64_t executed = 0;
  bool scc = false;
  bool indexed = false, skips_vector = false;  // s_set_gpr_idx_on, s_setvskip
  FloatMode mode{};
  std::array<std::uint32_t, scalar_registers> s{};
  std::unique_ptr<Row[]> v = std::make_unique<Row[]>(vector_registers);

  Counter vm, lgkm;
  std::uint32_t scalar_loads = 0;  // outstanding; they return out of order, so only lgkmcnt(0) waits for them
  /// The LDS operations that were complete when this wave arrived at a barrier; others may rely on them once all have
  /// arrived.
  struct Completed {
    std::uint32_t writes = 0, copies = 0;  // tickets of lgkmcnt and vmcnt
    std::vector<PendingRead> reads{};      // those that were not
    DwordRange reads_in{};
  } arrived, published;
  std::array<std::uint32_t, vector_registers> v_vm{}, v_lgkm{};  // ticket of the load that fills the register
  std::array<std::uint32_t, scalar_registers> s_lgkm{};
  std::vector<PendingCopy> copies;
  std::vector<PendingRead> reads;  // of LDS, in order
  DwordRange reads_in;

  const Region* hint = nullptr;
  Counts counts;

  std::uint64_t exec() const { return pair(exec_lo); }
  std::uint64_t vcc() const { return pair(vcc_lo); }
  std::uint64_t pair(int reg) const { return s[reg] | std::uint64_t{s[reg + 1]} << 32; }
  void set_pair(int reg, std::uint64_t value) {
    s[reg] = static_cast<std::uint32_t>(value);
    s[reg + 1] = static_cast<std::uint32_t>(value >> 32);
  }

  /// s_waitcnt: at most this many operations of each counter stay outstanding.
  void wait(std::uint32_t vmcnt, std::uint32_t lgkmcnt);
  /// Error if the instruction touches a register that a load still has to fill.
  void check_waits(const Op& op) const;
};

/// The instruction with its vector registers moved as M0 says, while s_set_gpr_idx_on holds.
Op indexed(const Wave& wave, const Op& op);

struct Program;

struct Block {
  std::array<std::uint32_t, 3> id{};
  std::vector<std::uint8_t> lds;
  std::vector<LdsShadow> shadow;
  std::vector<std::unique_ptr<Wave>> waves;
  std::uint32_t epoch = 1;  // barriers passed
  Arch arch = Arch::gfx950;
  bool checks = true;  // LDS races
  const Program* program = nullptr;
  std::uint64_t load_base = 0;  // where the code object was placed
  std::uint32_t scratch_bytes = 0;
  std::vector<std::uint8_t> scratch;                  // scratch_bytes per lane
  std::vector<std::uint32_t>* lds_touched = nullptr;  // where addresses are noted for the clock, lane after lane

  /// Bounds-checked LDS accesses that also record who did what, for race detection.
  std::uint8_t* lds_read(Wave& wave, std::uint32_t address, std::uint32_t bytes);
  std::uint8_t* lds_write(const Wave& wave, std::uint32_t address, std::uint32_t bytes, bool atomic = false);
  std::uint8_t* lds_copy(Wave& wave, std::uint32_t address, std::uint32_t bytes);
  void land(const PendingCopy& copy);

 private:
  void note_write(const Wave& wave, std::uint32_t address, std::uint32_t bytes, bool copied, bool atomic);
  void check_bounds(std::uint32_t address, std::uint32_t bytes) const;
  void check_reads(const Wave& wave, std::uint32_t dword, bool copied) const;
  bool published(const LdsShadow& dword) const;
};

}  // namespace tilewave::sim
