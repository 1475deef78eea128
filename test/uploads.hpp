// SPDX-License-Identifier: MIT
// Tensors of a test's call on the device.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/harness/device.hpp"

namespace tilewave::test {

/// Copies host values to device memory that lives as long as this object. What is empty has an address as well.
struct Uploads {
  std::vector<bench::DeviceBuffer> buffers;

  template <class T>
  void* operator()(const std::vector<T>& from) {
    bench::DeviceBuffer& to = buffers.emplace_back(std::max<std::size_t>(16, from.size() * sizeof(T)));
    if (!from.empty())
      bench::check_hip(hipMemcpy(to.data(), from.data(), from.size() * sizeof(T), hipMemcpyHostToDevice),
                       "copying over");
    return to.data();
  }
};

}  // namespace tilewave::test
