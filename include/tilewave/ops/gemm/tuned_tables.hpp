// SPDX-License-Identifier: MIT
// Written by `tilewave tune write`: the tables of include/tilewave/tuned that gemm_select looks into.
#pragma once

#include <span>

#include "tilewave/ops/gemm/tuned.hpp"
#include "tilewave/tuned/gemm_gfx950.hpp"
#include "tilewave/tuned/gemm_sm90.hpp"

namespace tilewave {

constexpr std::span<const TunedGemm> tuned_gemm(ArchId arch) {
  if (arch == ArchId::gfx950) return tuned_gemm_gfx950;
  if (arch == ArchId::sm90) return tuned_gemm_sm90;
  return {};
}

}  // namespace tilewave
