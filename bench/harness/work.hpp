// SPDX-License-Identifier: MIT
// What a call cannot avoid: the numbers behind a row's gbps, tflops and roof.
#pragma once

#include <cstdint>

namespace tilewave::bench {

/// bytes: every input and output byte the call needs, once; written: those of them that it writes, 0 where the roof is
/// that of reading alone. flops: operations on values, as each op counts them.
struct Work {
  std::int64_t bytes = 0;
  std::int64_t written = 0;
  std::int64_t flops = 0;
};

}  // namespace tilewave::bench
