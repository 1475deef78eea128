// SPDX-License-Identifier: MIT
// The names of specs and plans in times of sm90's products that are kept: docs/notebook/tuned, recorded_choices.txt.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave::bench {

struct RecordedSpec {
  std::string_view name;
  GemmSpec spec;
};
/// The specs of recorded times. Names of fp8 end in `.fast` for fast sums.
inline constexpr std::array<RecordedSpec, 6> recorded_specs = [] {
  constexpr DType fp8 = sm90_facts.fp8;
  constexpr GemmSums fast = GemmSums::fast;
  return std::array<RecordedSpec, 6>{
      {{"bf16", {}},
       {"fp8.tensor.fast", {.a = fp8, .b = fp8, .scale = Scaling::per_tensor, .sums = fast}},
       {"fp8.row.fast", {.a = fp8, .b = fp8, .scale = Scaling::per_row, .sums = fast}},
       {"fp8.block", {.a = fp8, .b = fp8, .scale = Scaling::per_block}},
       {"fp8.row", {.a = fp8, .b = fp8, .scale = Scaling::per_row}},
       {"w4a16", {.b = DType::i4, .scale = Scaling::per_group, .weights = GemmWeights::preshuffled, .scale_k = 128}}}};
}();

/// Returns the spec that rows call `name`. Throws if none has that name.
inline const GemmSpec& recorded_spec(std::string_view name) {
  for (const RecordedSpec& s : recorded_specs)
    if (s.name == name) return s.spec;
  throw std::invalid_argument("no spec of recorded times is called " + std::string(name));
}

/// Returns a plan's name as rows have it: without how many blocks may share K, which is no part of what was timed, and
/// without the one that does not share it.
inline std::string recorded_name(std::string name) {
  if (const std::size_t at = name.find(".k"); at != name.npos) name.erase(at, name.find('.', at + 1) - at);
  if (name.ends_with(".by1")) name.erase(name.size() - 4);
  return name;
}

}  // namespace tilewave::bench
