// SPDX-License-Identifier: MIT
// No row overrules the cost model on sm90: it was fitted to all that is measured there.
// source: docs/notebook/tuned/gemm_dense_sm90.csv.gz
// device: NVIDIA H200, 2026-11-27
// commit: 763c6d3
#pragma once

#include <array>

#include "tilewave/ops/gemm/tuned/row.hpp"

namespace tilewave {

inline constexpr std::array<TunedGemm, 0> tuned_gemm_sm90{};

}  // namespace tilewave
