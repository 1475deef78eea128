// SPDX-License-Identifier: MIT
// A list of policies that entries of a spec are built for.
#pragma once

#include <array>

#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

struct GemmPolicies {
  std::array<GemmPolicy, 28> list{};
  int count = 0;
  constexpr void add(const GemmPolicy& p) { list[count++] = p; }
};

}  // namespace tilewave
