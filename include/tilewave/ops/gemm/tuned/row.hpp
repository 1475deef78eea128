// SPDX-License-Identifier: MIT
// A row of a tuned table, which `tilewave tune write` makes. It says which policy is fastest, and overrules the cost
// model.
#pragma once

#include "tilewave/ops/gemm/policy.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave {

/// The policy and the splits for problems of a spec with these extents, where m is from m_from to m_to.
struct TunedGemm {
  GemmSpec spec;
  std::int32_t m_from, m_to, n, k, batch, groups;
  GemmPolicy policy;
  int splits;

  /// Says whether the row applies to a problem. A batch-invariant call is never looked up, since the row depends on m.
  constexpr bool serves(const GemmProblem& p) const {
    return !p.batch_invariant && spec == p.spec && m_from <= p.m && p.m <= m_to && n == p.n && k == p.k &&
           batch == p.batch && groups == p.groups;
  }
};

}  // namespace tilewave
