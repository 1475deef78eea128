// SPDX-License-Identifier: MIT
// GPU time of a call, from the kernel traces of two runs of one command.
#pragma once

#include <string>
#include <utility>

#include "tools/tilewave/compare/compare.hpp"
#include "tools/tilewave/trace/kernel_times.hpp"

namespace tilewave::tool {

struct KernelChoice {
  std::string kernels;   // regular expression of those that are added up; empty: all
  std::string per_call;  // regular expression of a kernel that each call launches once; empty: a trace is one call
};

/// The times of all launches, over the calls.
KernelSum kernel_sum(const KernelTimes& times, const KernelChoice& choice, const std::string& source);

/// Returns the sums of both traces. Without per_call both must be of the same calls: it refuses (Exit::refused) a
/// candidate with fewer launches, unless the baseline's hottest kernel is launched as often as before.
std::pair<KernelSum, KernelSum> kernel_sums(const std::string& base, const std::string& cand,
                                            const KernelChoice& choice);

}  // namespace tilewave::tool
