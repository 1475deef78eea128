// SPDX-License-Identifier: MIT
// The entries of all lists of a build.
#pragma once

#include <vector>

#include "entries/gemm.hpp"

namespace tilewave::test {

/// Returns the first entry of each spec on each architecture.
inline std::vector<const GemmEntry*> first_entries() {
  std::vector<const GemmEntry*> first;
  for (const auto entries : {all_gemm_entries(), all_gemm_feature_entries(), all_gemm_grouped_entries(),
                             all_gemm_gated_entries(), all_gemm_int4_entries()}) {
    for (const GemmEntry* e : entries)
      if (first.empty() || first.back()->arch != e->arch || !(first.back()->spec == e->spec)) first.push_back(e);
  }
  return first;
}

}  // namespace tilewave::test
