// SPDX-License-Identifier: MIT
// Arguments, workspace and launches of CDNA's GEMM kernels.
#pragma once

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/gemm/check.hpp"
#include "tilewave/ops/gemm/kernel.hpp"

namespace tilewave::detail {

/// Offsets in a tile of rows have 31 bits.
inline Status check_gemm_reach(const GemmProblem& p, const GemmPolicy& policy) {
  const auto reach = [&](std::int64_t stride, std::int32_t rows, DType type) {
    return (stride * (rows - 1) + p.k) * size_of(type);
  };
  const std::int64_t b_stride = p.spec.weights == GemmWeights::preshuffled ? p.k : p.b_stride;
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 4096;
  const int step = policy.depth_bytes / size_of(p.spec.a);  // k of a [K, M] or [K, N] at a time
  const bool of_a = transposed_a(p.spec.layout), of_b = transposed_b(p.spec.layout);
  const std::int32_t a_rows = of_a ? min_of(step, p.k) : min_of(policy.rows, p.m);
  const std::int32_t columns = min_of(gemm_tile_columns(p.spec, policy), gemm_out_columns(p));
  const std::int32_t b_rows = of_b                             ? min_of(step, p.k)
                              : p.spec.gated && !p.interleaved ? p.n / 2 + columns
                                                               : min_of(policy.columns, p.n);
  if ((a_rows > 1 && reach(p.a_stride, a_rows, p.spec.a) > most) ||
      (b_rows > 1 && reach(b_stride, b_rows, p.spec.b) > most)) {
    return {StatusCode::bad_stride, "the rows of one tile of a or b span 2 GiB or more"};
  }
  return {};
}

/// Whether there is a workspace of so many bytes.
inline Status check_gemm_workspace(const GemmProblem& p, std::size_t needed) {
  if (needed == 0) return {};
  if (p.workspace == nullptr) return {StatusCode::null_pointer, "workspace is null"};
  if (p.workspace_bytes < needed) return {StatusCode::workspace_too_small, "see gemm_workspace_size"};
  if (reinterpret_cast<std::uintptr_t>(p.workspace) % 16 != 0)
    return {StatusCode::misaligned, "workspace needs 16-byte alignment"};
  return {};
}

/// What blocks that share K need: their sums in f32.
inline std::size_t gemm_partial_bytes(const GemmPolicy& p, std::int64_t tiles, int splits) {
  return splits > 1 ? tiles * splits * p.rows * p.columns * std::int64_t{sizeof(float)} : 0;
}

/// `args` has those of all kernels, the epilogue and the tiles.
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
Status gemm_launch_lds(const GemmProblem& p, typename GemmKernel<B, S, P, Epilogue>::Args& args, hipStream_t stream) {
  using Kernel = GemmKernel<B, S, P, Epilogue>;
  if (Status s = check_gemm_reach(p, P); !s.ok()) return s;
  const int splits = args.gemm.splits;
  args.k_steps = ceil_div(bytes_of(S.a, p.k), P.depth_bytes);
  const auto four = [](std::int64_t elements) { return elements % 4 == 0; };
  args.wide_rows = reinterpret_cast<std::uintptr_t>(p.out) % (4 * size_of(S.out)) == 0 &&
                   (p.m == 1 || four(p.out_stride)) && (gemm_a_layers(p) == 1 || four(p.out_batch_stride));
  const std::size_t needed = gemm_partial_bytes(P, args.tiles, splits);
  if (Status s = check_gemm_workspace(p, needed); !s.ok()) return s;
  args.partial = static_cast<float*>(p.workspace);
  if (Status s = B::template launch<Kernel>({args.tiles * splits, Kernel::block_threads}, args, stream);
      !s.ok() || splits == 1) {
    return s;
  }
  if constexpr (P.splits == 1) {
    return {};
  } else {
    using Combine = GemmCombineKernel<B, S, P, Epilogue>;
    return B::template launch<Combine>({args.tiles * Combine::blocks, Combine::block_threads}, args, stream);
  }
}

}  // namespace tilewave::detail
