// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tools/tilewave/gpu/devices.hpp"

namespace tilewave::tool {

struct GpuWait {
  double retry_s = 600, limit_s = 3600, gap_s = 1;  // between tries, in all, between the two looks of a try
};

/// A GPU that nobody uses, and a lock so that two who wait do not take the same one.
struct BoundGpu {
  Gpu gpu;
  std::string tool, variable, value;  // of the variable
  int lock = -1;                      // descriptor; inherited by what is started, and with it the lock
};

/// Tries until the limit, then throws Exit::no_gpu with what each GPU was busy with.
BoundGpu wait_for_gpu(const GpuWait& wait);

}  // namespace tilewave::tool
