// SPDX-License-Identifier: MIT
// What a call cannot avoid: the numbers behind a row's gbps, tflops and roof.
#pragma once

namespace tilewave::bench {

/// bytes: every input and output byte the call needs, once. flops: operations on values, as each op counts them.
struct Work {
  double bytes = 0;
  double flops = 0;
};

}  // namespace tilewave::bench
