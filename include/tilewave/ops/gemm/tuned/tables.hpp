// SPDX-License-Identifier: MIT
// Written by `tilewave tune write`: the tables of this folder that gemm_select looks into.
#pragma once

#include <span>

#include "tilewave/ops/gemm/tuned/gfx950.hpp"
#include "tilewave/ops/gemm/tuned/row.hpp"
#include "tilewave/ops/gemm/tuned/sm90.hpp"

namespace tilewave {

constexpr std::span<const TunedGemm> tuned_gemm(ArchId arch) {
  if (arch == ArchId::gfx950) return tuned_gemm_gfx950;
  if (arch == ArchId::sm90) return tuned_gemm_sm90;
  return {};
}

}  // namespace tilewave
