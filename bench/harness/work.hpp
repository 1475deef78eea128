// SPDX-License-Identifier: MIT
// What a call cannot avoid: the numbers behind a row's gbps, tflops and roof.
#pragma once

#include <cstdint>
#include <limits>

#include "tilewave/arch/facts.hpp"

namespace tilewave::bench {

/// bytes: every input and output byte the call needs, once; written: those of them that it writes, 0 where the roof is
/// that of reading alone. flops: operations on values, as each op counts them; flops_per_second: what limits them, which
/// leaves the roof to memory where nothing is said.
struct Work {
  std::int64_t bytes = 0;
  std::int64_t written = 0;
  std::int64_t flops = 0;
  double flops_per_second = std::numeric_limits<double>::infinity();
};

/// The data sheet's dense matrix peak of operands of a type; fp4 and fp6 double fp8's where there are any.
constexpr double matrix_flops(const ArchFacts& facts, DType type) {
  if (type == DType::fp4_e2m1 || is_fp6(type)) return 2 * facts.fp8_flops;
  return size_of(type) == 1 ? facts.fp8_flops : facts.bf16_flops;
}

}  // namespace tilewave::bench
