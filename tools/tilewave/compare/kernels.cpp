// SPDX-License-Identifier: MIT
#include "tools/tilewave/compare/kernels.hpp"

#include <fmt/format.h>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

KernelSum sum_of(const std::vector<KernelTime>& kernels) {
  KernelSum sum;
  for (const KernelTime& k : kernels) sum.us += k.total_us, sum.launches += k.calls;
  return sum;
}

}  // namespace

KernelSum kernel_sum(const KernelTimes& times, const KernelChoice& choice, const std::string& source) {
  KernelSum sum = sum_of(matching(times, choice.kernels, source));
  if (!choice.per_call.empty())
    sum.calls = static_cast<double>(sum_of(matching(times, choice.per_call, source)).launches);
  sum.us /= sum.calls;
  return sum;
}

std::pair<KernelSum, KernelSum> kernel_sums(const std::string& base, const std::string& cand,
                                            const KernelChoice& choice) {
  const KernelTimes before = read_kernel_times(base), after = read_kernel_times(cand);
  const KernelSum a = kernel_sum(before, choice, base), b = kernel_sum(after, choice, cand);
  if (!(a.us > 0)) refuse(base + ": a kernel time of 0");
  if (choice.per_call.empty() && b.launches < a.launches) {
    // Fewer kernels in each call, or fewer calls in the trace? The hottest kernel tells, if it is still there.
    const KernelTime hottest = matching(before, choice.kernels, base).front();
    const auto same = std::find_if(after.kernels.begin(), after.kernels.end(),
                                   [&](const KernelTime& k) { return k.name == hottest.name; });
    if (same == after.kernels.end() || same->calls != hottest.calls) {
      throw Error(Exit::refused,
                  fmt::format("not comparable: {} launches in {}, {} in {}: fewer calls, or fewer kernels in a call? "
                              "--per-call names a kernel that each call launches once",
                              a.launches, base, b.launches, cand));
    }
  }
  return {a, b};
}

}  // namespace tilewave::tool
