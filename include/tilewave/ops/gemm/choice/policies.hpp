// SPDX-License-Identifier: MIT
// A list of policies that entries of a spec are built for.
#pragma once

#include "tilewave/core/value_list.hpp"
#include "tilewave/ops/gemm/policy.hpp"

namespace tilewave {

using GemmPolicies = ValueList<GemmPolicy, 40>;

}  // namespace tilewave
