// SPDX-License-Identifier: MIT
// Written by `tilewave tune write`: the tables of include/tilewave/tuned that gemm_select looks into.
#pragma once

#include <span>

#include "tilewave/ops/gemm/tuned.hpp"

namespace tilewave {

constexpr std::span<const TunedGemm> tuned_gemm(ArchId) { return {}; }

}  // namespace tilewave
