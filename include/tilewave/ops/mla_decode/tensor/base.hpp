// SPDX-License-Identifier: MIT
// What all kernels of path tensor say of themselves.
#pragma once

#include "tilewave/ops/mla_decode/tensor/inputs.hpp"
#include "tilewave/ops/mla_decode/work.hpp"

namespace tilewave {

template <class B, class Layout>
struct MlaDecodeTensorBase {
  using Room = B;
  using L = Layout;
  using Inputs = MlaDecodeInputs<B, L>;
  using Args = typename L::Args;
  using Shared = typename L::Shared;
  using Item = PagedAttentionWorkItem;
  static constexpr int block_threads = L::policy.block_waves() * L::lanes;
  static constexpr int waves_per_simd = L::policy.waves_per_simd;

  static Status prepare(const MlaDecodeProblem& p, Args& args) { return Inputs::prepare(p, args); }
};

}  // namespace tilewave
