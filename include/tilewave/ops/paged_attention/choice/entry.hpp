// SPDX-License-Identifier: MIT
// A compiled decode kernel, as the choice among entries sees it.
#pragma once

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/paged_attention/policy.hpp"
#include "tilewave/ops/paged_attention/problem.hpp"

namespace tilewave {

/// A compiled kernel: what it computes, how, and how to start it.
struct PagedAttentionEntry {
  ArchId arch;
  bool emulated;
  PagedAttentionSpec spec;
  PagedAttentionPolicy policy;
  Status (*launch)(const PagedAttentionProblem&, int num_splits, hipStream_t);
  int lds_bytes;  // of one decode block
};

}  // namespace tilewave
