// SPDX-License-Identifier: MIT
// The names of specs and plans in times of sm90's products that are kept: docs/notebook/tuned, recorded_choices.txt.
#pragma once

#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave::bench {

/// Returns the spec that rows call `name`: bf16, w4a16, fp8.block, or fp8.row or fp8.tensor, with `.fast` for fast sums.
inline GemmSpec recorded_spec(const std::string& name) {
  GemmSpec spec;
  if (name == "bf16") return spec;
  if (name == "w4a16") {
    spec.b = DType::i4, spec.scale = Scaling::per_group, spec.scale_k = 128;
    spec.weights = GemmWeights::preshuffled;
    return spec;
  }
  spec.a = spec.b = sm90_facts.fp8;
  spec.scale = name == "fp8.block"              ? Scaling::per_block
               : name.starts_with("fp8.tensor") ? Scaling::per_tensor
                                                : Scaling::per_row;
  if (name.ends_with(".fast")) spec.sums = GemmSums::fast;
  return spec;
}

/// Returns a plan's name as rows have it: without how many blocks may share K, which is no part of what was timed, and
/// without the one that does not share it.
inline std::string recorded_name(std::string name) {
  if (const std::size_t at = name.find(".k"); at != name.npos) name.erase(at, name.find('.', at + 1) - at);
  if (name.ends_with(".by1")) name.erase(name.size() - 4);
  return name;
}

}  // namespace tilewave::bench
