// SPDX-License-Identifier: MIT
// The work that a call cannot avoid: the numbers behind a row's gbps, tflops and roof.
#pragma once

#include <cstdint>
#include <limits>

#include "tilewave/arch/facts.hpp"

namespace tilewave::bench {

/// bytes counts every input and output byte that the call needs, once. written counts those of them that it writes, and
/// is 0 where the roof is that of reading alone. flops counts operations on values, as each op defines them.
/// flops_per_second limits them; where it is not given, the roof is that of memory.
struct Work {
  std::int64_t bytes = 0;
  std::int64_t written = 0;
  std::int64_t flops = 0;
  double flops_per_second = std::numeric_limits<double>::infinity();
};

/// Returns the data sheet's dense matrix peak for operands of a type. fp4 and fp6 double fp8's where there are any.
constexpr double matrix_flops(const ArchFacts& facts, DType type) {
  if (type == DType::fp4_e2m1 || is_fp6(type)) return 2 * facts.fp8_flops;
  return size_of(type) == 1 ? facts.fp8_flops : facts.bf16_flops;
}

}  // namespace tilewave::bench
