// SPDX-License-Identifier: MIT
// GPU time by kernel, from what a profiler wrote.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tilewave/trace/dispatches.hpp"

namespace tilewave::tool {

struct KernelTime {
  std::string name;
  std::int64_t calls = 0;
  double total_us = 0, min_us = 0, max_us = 0;
  // Numbers of the launch, where the file has them: vgpr, accum_vgpr, sgpr, lds_bytes, scratch_bytes, workgroup, grid
  // (lanes). From some profilers also waves_per_simd, and the blocks of an SM by what limits them: blocks_by_registers,
  // ..._lds, ..._waves.
  std::map<std::string, double> launch;
  std::string registers_from{};   // where vgpr and accum_vgpr come from, if not from the profiler
  bool registers_halved = false;  // the profiler may have written half of them, and nothing tells
  // Launches during which later ones of the same queue begin, and how many of these: their times are not those of one alone.
  std::int64_t overlapping = 0, overlapped = 0;
  double mean_us() const { return total_us / static_cast<double>(calls); }
};

struct KernelTimes {
  std::string format;  // "rocprofv3 kernel trace", "rocprofv3 kernel stats", "page details of ncu", "page raw of ncu"
  std::vector<KernelTime> kernels;  // most total time first
};

/// The simulator's clock puts this into the name of a kernel.
inline constexpr std::string_view modelled_kernel = "(modelled on ";

KernelTimes times_of(const std::vector<Dispatch>& dispatches, const std::string& source);
/// Adds the launches of another file.
void merge(KernelTimes& times, KernelTimes more);

/// Refuses a file that is none of these, has a negative or infinite time, or no kernel at all.
KernelTimes parse_kernel_times(std::string_view text, const std::string& source);
KernelTimes read_kernel_times(const std::string& path);

/// Returns the kernels whose name matches the regular expression (all if it is empty). Refuses a malformed one.
std::vector<KernelTime> matching(const KernelTimes& times, const std::string& regex, const std::string& source);

}  // namespace tilewave::tool
