// SPDX-License-Identifier: MIT
// Two profiles side by side: by kernel, by counter, and by instruction.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/trace/profile.hpp"

namespace tilewave::tool {

/// A number of both; nothing where one of them has none.
struct Change {
  std::string what;
  std::optional<double> base, next;
};

struct KernelChange {
  std::string name;                // "A, now B" where the only two that are left over have different names
  std::vector<Change> of_launch;   // calls, mean us, us in all, waves per SIMD, registers, LDS, scratch
  std::vector<Change> of_counter;  // a dispatch's counters, or metrics of ncu with their unit
};

struct InstructionChange {
  std::string what, kind;
  std::string base_address, next_address, source;  // an address is empty where it has no such instruction
  double base_hits = 0, next_hits = 0, base_stall = 0, next_stall = 0;
  double stall() const { return next_stall - base_stall; }
};

struct TraceChange {
  std::string name, unit;  // "cycles of a wave"; of ncu: samples
  double base_latency = 0, next_latency = 0;
  std::vector<Change> kinds;                    // stalls by class
  std::size_t kept = 0, gone = 0, added = 0;    // instructions
  std::vector<InstructionChange> instructions;  // in the order of the code, those that are gone before those that came
};

struct ProfileDiff {
  std::vector<KernelChange> kernels;  // whose total time changes most first
  std::vector<TraceChange> traces;
};

/// Pairs of rows of two codes that are the same instruction, in order: the alignment with most that are equal in text, or, as
/// registers have other numbers after any change, in their mnemonic.
std::vector<std::pair<std::size_t, std::size_t>> aligned(const std::vector<Instruction>& base,
                                                         const std::vector<Instruction>& next);

/// Kernels are paired by name; the only one that is left over on each side is taken for the same, as where a policy is part of
/// the name. Refuses two profiles of which no kernel is paired.
ProfileDiff diff_of(const Profile& base, const Profile& next, const Chip* chip);

std::string diff_md(const ProfileDiff& diff, const std::string& base, const std::string& next, std::size_t top);
std::string diff_json(const ProfileDiff& diff, std::size_t top);

}  // namespace tilewave::tool
