// SPDX-License-Identifier: MIT
// The entries that time_choice times: all policies of the specs whose choice is fitted.
#pragma once

#include <vector>

#include "bench/ops/gemm/recorded_names.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::bench {

/// Adds the entries of a part of the policies of recorded_specs[spec].
template <class B, std::size_t spec, EntryPart part>
void add_choice_entries(std::vector<const GemmEntry*>& all) {
  for (const GemmEntry& entry : gemm_entries<B, recorded_specs[spec].spec, part>) all.push_back(&entry);
}

/// All of them.
std::vector<const GemmEntry*> choice_entries();

}  // namespace tilewave::bench
