// SPDX-License-Identifier: MIT
// The launch of CDNA's GEMM kernels: their limits on strides, the workspace, and the second launch that combines
// partials.
#pragma once

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/gemm/check.hpp"
#include "tilewave/ops/gemm/choice/tile_count.hpp"
#include "tilewave/ops/gemm/kernel.hpp"

namespace tilewave::detail {

/// Checks that offsets in the rows of a tile fit 31 bits. Errors: bad_stride.
inline Status check_gemm_reach(const GemmProblem& p, const GemmPolicy& policy) {
  const auto reach = [&](std::int64_t stride, std::int32_t rows, DType type) {
    return (stride * (rows - 1) + p.k) * size_of(type);
  };
  const std::int64_t b_stride = p.spec.weights == GemmWeights::preshuffled ? p.k : p.b_stride;
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 4096;
  const int step_k = policy.depth_bytes / size_of(p.spec.a);  // rows of a transposed operand at a time
  const std::int32_t a_rows = transposed_a(p.spec.layout) ? min_of(step_k, p.k)
                              : p.spec.gathered           ? p.tokens
                                                          : min_of(policy.rows, p.m);
  const std::int32_t columns = min_of(gemm_tile_columns(p.spec, policy), gemm_out_columns(p));
  const std::int32_t b_rows = transposed_b(p.spec.layout)      ? min_of(step_k, p.k)
                              : p.spec.gated && !p.interleaved ? p.n / 2 + columns
                                                               : min_of(policy.columns, p.n);
  if ((a_rows > 1 && reach(p.a_stride, a_rows, p.spec.a) > most) ||
      (b_rows > 1 && reach(b_stride, b_rows, p.spec.b) > most)) {
    return {StatusCode::bad_stride,
            "the rows of one tile of a or b, or all that are gathered from, span 2 GiB or more"};
  }
  if (p.spec.mxfp4() && p.k > p.spec.scale_k && p.b_scale_k_stride > most)  // a load has scales of two groups
    return {StatusCode::bad_stride, "the scales of one group of k and of the next lie 2 GiB or more apart"};
  return {};
}

/// Returns the bytes of workspace for blocks that share K: their sums in f32.
inline std::size_t gemm_partial_bytes(const GemmPolicy& p, std::int64_t tiles, int splits) {
  return splits > 1 ? static_cast<std::size_t>(tiles) * splits * p.rows * p.columns * sizeof(float) : 0;
}

/// Completes the arguments, which have those of all kernels, the epilogue and the tiles, and launches the kernel. If
/// blocks share K, it launches GemmCombineKernel behind it.
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
Status gemm_launch_lds(const GemmProblem& p, typename GemmKernel<B, S, P, Epilogue>::Args& args, hipStream_t stream) {
  using Kernel = GemmKernel<B, S, P, Epilogue>;
  if (Status s = check_gemm_reach(p, P); !s.ok()) return s;
  const int splits = args.gemm.splits;
  args.k_steps = ceil_div(bytes_of(S.a, p.k), P.depth_bytes);
  const auto in_fours = [](std::int64_t elements) { return elements % 4 == 0; };
  args.wide_rows = is_aligned(p.out, 4 * size_of(S.out)) && (gemm_out_rows(p) == 1 || in_fours(p.out_stride)) &&
                   (gemm_a_layers(p) == 1 || in_fours(p.out_batch_stride));
  if constexpr (Kernel::W::walks) {
    args.walk = static_cast<std::uint8_t>(args.wide_rows ? gemm_walk(p, p.m, P, B::facts) : 1);
    args.tiles = gemm_tiles(S, args.gemm, P, args.walk);
  }
  const std::size_t needed = gemm_partial_bytes(P, args.tiles, splits);
  if (Status s = check_workspace(p.workspace, p.workspace_bytes, needed); !s.ok()) return s;
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
