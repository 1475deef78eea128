// SPDX-License-Identifier: MIT
// Tells if the device has room for tensors whose elements lie far apart.
#pragma once

#include "bench/harness/device.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {

/// True if this many bytes are available; if not, the test's output says so. In the emulated rooms memory that is not
/// touched costs nothing.
inline bool has_memory(std::size_t bytes) {
#if TILEWAVE_ON_GPU_COMPILER
  std::size_t free = 0, total = 0;
  bench::check_hip(hipMemGetInfo(&free, &total), "asking for the free memory");
  const bool enough = free > bytes + (std::size_t{1} << 30);
#else
  void* probe = nullptr;
  const bool enough = hipMalloc(&probe, bytes) == hipSuccess;
  (void)hipFree(probe);
#endif
  if (!enough) skip_test("not enough device memory");
  return enough;
}

}  // namespace tilewave::test
