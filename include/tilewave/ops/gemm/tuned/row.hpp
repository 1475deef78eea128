// SPDX-License-Identifier: MIT
// What was measured to be fastest, ahead of the cost model: rows of a table that `tilewave tune write` makes.
#pragma once

#include "tilewave/ops/gemm/policy.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave {

/// Problems of a spec with these extents, m from m_from to m_to, and how they are computed.
struct TunedGemm {
  GemmSpec spec;
  std::int32_t m_from, m_to, n, k, batch, groups;
  GemmPolicy policy;
  int splits;

  /// A call that has to be the same in any batch is not looked up by m.
  constexpr bool serves(const GemmProblem& p) const {
    return !p.batch_invariant && spec == p.spec && m_from <= p.m && p.m <= m_to && n == p.n && k == p.k &&
           batch == p.batch && groups == p.groups;
  }
};

}  // namespace tilewave
