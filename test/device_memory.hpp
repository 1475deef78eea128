// SPDX-License-Identifier: MIT
// Whether the device has room for tensors whose elements lie far apart.
#pragma once

#include "bench/harness/device.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {

/// Whether so many bytes can be had; if not, says so in the test's output. In the emulated rooms memory that is not
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
