// SPDX-License-Identifier: MIT
// The launch of a GEMM: checks, kernel arguments, workspace, and the kernels on a stream.
#pragma once

#include "tilewave/ops/gemm/check.hpp"
#include "tilewave/ops/gemm/few_rows/strides.hpp"
#include "tilewave/ops/gemm/kernel.hpp"
#include "tilewave/ops/gemm/launch_cdna.hpp"

namespace tilewave {

namespace detail {

/// Returns how many blocks of a policy sm90 runs at a time.
constexpr int gemm_tensor_blocks(const GemmPolicy& p) { return sm90_facts.compute_units * p.waves_per_simd; }
inline GemmStream gemm_stream(const GemmProblem& p, const GemmPolicy& policy, std::int64_t tiles) {
  const std::int32_t tiles_m = ceil_div(p.m, policy.rows), band = gemm_band(p, policy);
  return GemmStream::of(tiles, gemm_tensor_blocks(policy), ceil_div(p.k, policy.depth_bytes / size_of(p.spec.a)),
                        tiles_m <= band ? tiles_m : std::gcd(band, tiles_m));
}
inline std::size_t gemm_stream_bytes(const GemmPolicy& policy, const GemmStream& stream) {
  return stream.partial_count() * policy.rows * policy.columns * sizeof(float);
}

/// Checks what a policy's kernel can address. An op that launches products behind other work asks this first. Errors:
/// bad_stride.
inline Status check_gemm_addresses(const GemmProblem& p, const GemmPolicy& policy, const ArchFacts& facts) {
  if (facts.matrix == Matrix::mfma) return check_gemm_reach(p, policy);
  if (p.spec.gathered && p.tokens * p.a_stride * size_of(p.spec.a) / 16 > 0xffffff00)
    return {StatusCode::bad_stride, "rows that are gathered span 64 GiB or more"};
  return {};
}

/// Says whether blocks of a product of a chain are spread over SMs. Fewer rows have entries that share SMs with the
/// products before and behind, and lose by it (docs/notebook/2026-11-28-step-placement.md). Other types were not timed.
constexpr bool gemm_spreads(const GemmProblem& p) {
  return p.b_ready && gemm_spec_takes_norm(p.spec) && p.m > 8 && p.m <= 64;
}

/// Completes the arguments of GemmTensorKernel. `args` has those of all kernels and the epilogue. `tiles`: of the grid.
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
Status gemm_tensor_args(const GemmProblem& p, std::int64_t tiles,
                        typename GemmTensorKernel<B, S, P, Epilogue>::Args& args,
                        typename GemmTensorKernel<B, S, P, Epilogue>::Maps& maps) {
  using L = GemmTensorLayout<B, S, P, Epilogue>;
  args.k_steps = L::plain ? max_of(1, ceil_div(p.k, L::depth_k)) : ceil_div(p.k, L::depth_k);
  args.split_steps = args.k_steps / args.gemm.splits;
  args.longer_splits = args.k_steps % args.gemm.splits;
  const int splits = args.gemm.splits;
  const std::int64_t clusters = gemm_tensor_blocks(P) / (P.sharers() * splits);
  // Blocks that share K have one tile each, and others stay for tile after tile.
  const bool one_tile = splits > 1 || P.waves_k > 1;
  args.blocks = static_cast<std::int32_t>((one_tile ? tiles : min_of(tiles, clusters)) * P.sharers() * splits);
  args.cluster = FastDiv::by(P.sharers() * splits);
  if constexpr (P.stream) {
    args.stream = gemm_stream(p, P, tiles);
    if (args.stream.whole == 0) args.blocks = args.stream.blocks();
    const std::size_t needed = gemm_stream_bytes(P, args.stream);
    if (Status s = check_workspace(p.workspace, p.workspace_bytes, needed); !s.ok()) return s;
    args.partial = static_cast<decltype(args.partial)>(p.workspace);
  }
  args.clusters = args.blocks / args.cluster.divisor;
  const std::int64_t layers = gemm_layers(p), a_layers = gemm_a_layers(p);
  // Weights stream by once under few rows. Lines of L2 fetched in pairs then cost 2 to 3 % (an H200). So does A of 8
  // bits above 128 columns with a long K: 1 to 3 % (docs/notebook/2026-11-28-gemm-scales-ahead.md).
  const bool once = S.groups == GemmGroups::one && (p.m <= 64 || (size_of(S.a) == 1 && p.n <= 128 && p.k >= 4096));
  const auto shape = [&](const void* data, DType type, std::int64_t columns, std::int64_t rows, std::int64_t of_layers,
                         std::int64_t stride, std::int64_t layer_stride, int box_rows) {
    const std::int64_t size = size_of(type),
                       row = rows > 1 ? stride * size : align_up<std::int64_t>(columns * size, 16);
    return TensorShape{.data = data,
                       .type = type,
                       .columns = columns,
                       .rows = rows,
                       .layers = of_layers,
                       .row_stride = row,
                       .layer_stride = of_layers > 1 ? layer_stride * size : row,
                       .box_rows = box_rows,
                       .once = once};
  };
  if (Status s = check_gemm_addresses(p, P, B::facts); !s.ok()) return s;
  // A box ends with A, because rows beyond it cost the copy engine more than others. Rows of a stage that no box writes
  // hold what was there before, and what becomes of them is dropped.
  const bool whole_boxes = transposed_a(S.layout) || P.cluster_columns > 1;
  const int a_box_rows = L::gathered ? 0 : whole_boxes ? P.rows / P.cluster_columns : min_of(P.rows, p.m);
  args.a_box_bytes = a_box_rows * P.cluster_columns * P.depth_bytes;
  args.b_once = L::streams_b && p.b_ready && p.m <= P.rows;
  args.normalises = p.rms_norm, args.norm_eps = p.norm_eps;
  args.a_squares = p.a_squares, args.out_squares = p.out_squares;
  if constexpr (L::writes_cache) args.cache = gemm_cache_args(p);
  args.inverse_k = p.k > 0 ? 1.0f / static_cast<float>(p.k) : 0.0f;
  if (p.k > 0 && !L::gathered) {
    const TensorShape a = transposed_a(S.layout)
                              ? shape(p.a, S.a, p.m, p.k, a_layers, p.a_stride, p.a_batch_stride, L::depth_k)
                              : shape(p.a, S.a, p.k, p.m, a_layers, p.a_stride, p.a_batch_stride, a_box_rows);
    if (Status s = B::make_tensor_map(a, maps.a); !s.ok()) return s;
  }
  if (p.k > 0) {
    if constexpr (L::packed) {
      const std::int64_t strips = (layers - 1) * args.gemm.b_layer_strips + p.n / 16;
      if (Status s = B::make_tensor_map(L::Codes::shape(p.b, p.k, strips), maps.b[0]); !s.ok()) return s;
    }
    if constexpr (L::shuffled) {
      const std::int64_t strips = (layers - 1) * args.gemm.b_layer_strips + p.n / 16;
      const TensorShape b = L::shuffled_shape(p.b, std::int64_t{p.k} * size_of(S.b), strips);
      if (Status s = B::make_tensor_map(b, maps.b[0]); !s.ok()) return s;
    }
    for (int half = 0; half < L::halves && !L::packed && !L::shuffled; ++half) {
      const auto* const first =
          static_cast<const char*>(p.b) + gemm_row_of_b<S>(args.gemm, 0, half) * p.b_stride * size_of(S.b);
      const std::int64_t stride = S.gated ? args.gemm.gate_stride * p.b_stride : p.b_stride;
      const TensorShape b = transposed_b(S.layout)
                                ? shape(first, S.b, p.n, p.k, layers, stride, p.b_batch_stride, L::depth_k)
                                : shape(first, S.b, p.k, args.gemm.n, layers, stride, p.b_batch_stride, L::b_box);
      if (Status s = B::make_tensor_map(b, maps.b[half]); !s.ok()) return s;
    }
  }
  const std::int64_t unit = 16 / size_of(S.out);
  args.wide_stores = is_aligned(p.out, 16) && (gemm_out_rows(p) == 1 || p.out_stride % unit == 0) &&
                     (a_layers == 1 || p.out_batch_stride % unit == 0);
  if (args.wide_stores && L::out_in_boxes && !S.scattered) {
    const TensorShape out =
        shape(p.out, S.out, args.gemm.n, p.m, a_layers, p.out_stride, p.out_batch_stride, L::out_rows);
    if (Status s = B::make_tensor_map(out, maps.out); !s.ok()) return s;
  }
  return {};
}

/// Fills the arguments that both kernels of few rows have, and launches one.
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
Status gemm_launch_blocks_of_strips(typename GemmKernel<B, S, P, Epilogue>::Args args, const Epilogue& epilogue,
                                    const GemmProblem& p, const GemmFewRowsStrides& strides,
                                    std::int32_t blocks_of_tile, hipStream_t stream) {
  using Kernel = GemmKernel<B, S, P, Epilogue>;
  const std::int32_t row_tiles = ceil_div(p.m, P.rows);
  const std::uintptr_t pair = 2 * size_of(S.out);
  args.a = static_cast<const char*>(p.a), args.out = p.out;
  args.bias = p.bias, args.residual = p.residual, args.out_scale = p.out_scale;
  args.m = p.m, args.n = gemm_out_columns(p);
  args.blocks = FastDiv::by(blocks_of_tile), args.row_tiles = FastDiv::by(row_tiles);
  args.alpha = p.alpha, args.swiglu_alpha = p.swiglu_alpha, args.swiglu_limit = p.swiglu_limit;
  args.wide =
      is_aligned(p.out, pair) && (p.m == 1 || p.out_stride % 2 == 0) && (p.batch == 1 || p.out_batch_stride % 2 == 0);
  args.b_ready = p.b_ready;
  const auto narrow = [](std::int64_t stride) { return static_cast<std::int32_t>(stride); };
  args.a_stride = narrow(strides.a), args.a_layer = narrow(strides.a_layer);
  args.out_stride = narrow(strides.out), args.out_layer = narrow(strides.out_layer);
  args.residual_stride = narrow(strides.residual), args.residual_layer = narrow(strides.residual_layer);
  args.bias_layer = narrow(strides.bias_layer), args.a_scale_layer = narrow(strides.a_scale_layer);
  args.epilogue = epilogue;
  const std::int64_t blocks = std::int64_t{blocks_of_tile} * row_tiles * gemm_layers(p);
  if (blocks > 0x7fffffff) return {StatusCode::bad_extent, "more than 2^31 blocks"};
  return B::template launch<Kernel>({blocks, Kernel::block_threads}, args, stream);
}

/// Launches GemmFewRowsKernel.
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
Status gemm_launch_few_rows(const Epilogue& epilogue, const GemmProblem& p, hipStream_t stream) {
  using Kernel = GemmKernel<B, S, P, Epilogue>;
  const GemmFewRowsStrides strides(p);
  if (Status s = strides.check(); !s.ok()) return s;
  // The number of blocks that strips are dealt to does not follow from M, since a row's bits must not depend on M.
  const std::int32_t strips = gemm_out_columns(p) / 16,
                     layer_blocks = max_of(1, gemm_tensor_blocks(P) / max_of(1, gemm_layers(p)));
  const std::int32_t blocks_of_tile = ceil_div(strips, ceil_div(strips, layer_blocks));
  const std::int32_t passes = strips / (blocks_of_tile * Kernel::L::out_strips);
  const std::int32_t rest = strips - passes * blocks_of_tile * Kernel::L::out_strips;
  typename Kernel::Args args{};
  args.codes = static_cast<const char*>(p.b), args.scales = static_cast<const char*>(p.b_group_scale);
  args.a_scale_or_zeros = S.zero_points ? static_cast<const void*>(p.b_zero) : p.a_scale;
  args.stages = p.k / Kernel::stage_k;
  args.full_passes = passes;
  args.strips_per_block = rest / blocks_of_tile, args.blocks_with_one_more = rest % blocks_of_tile;
  args.code_layer = static_cast<std::int32_t>(strides.code_layer);
  args.scale_stride = static_cast<std::int32_t>(strides.scale);
  args.scale_layer = static_cast<std::int32_t>(strides.scale_layer);
  return gemm_launch_blocks_of_strips<B, S, P>(args, epilogue, p, strides, blocks_of_tile, stream);
}

/// Launches GemmDenseFewRowsKernel.
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
Status gemm_launch_dense_few_rows(const Epilogue& epilogue, const GemmProblem& p, hipStream_t stream) {
  using Kernel = GemmKernel<B, S, P, Epilogue>;
  const GemmFewRowsStrides strides(p);
  if (Status s = strides.check(); !s.ok()) return s;
  typename Kernel::Args args{};
  args.b = static_cast<const char*>(p.b);
  args.a_scale = p.a_scale, args.b_scale = p.b_scale;
  args.k = p.k;
  args.b_stride = static_cast<std::int32_t>(strides.b), args.b_layer = static_cast<std::int32_t>(strides.b_layer);
  args.b_scale_layer = static_cast<std::int32_t>(strides.scale_layer);
  args.gate_stride = p.interleaved ? 2 : 1, args.up_row = p.interleaved ? 1 : p.n / 2;
  const std::int32_t blocks_of_tile = ceil_div(gemm_out_columns(p), 16 * Kernel::group_strips);
  return gemm_launch_blocks_of_strips<B, S, P>(args, epilogue, p, strides, blocks_of_tile, stream);
}

/// Launches any other kernel.
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
Status gemm_launch_tiles(const Epilogue& epilogue, const GemmProblem& p, int splits, hipStream_t stream) {
  using Kernel = GemmKernel<B, S, P, Epilogue>;
  typename Kernel::Args args{};
  if constexpr (P.path == GemmPath::tensor)  // no block is left without a step of K
    splits = min_of(splits, max_of(1, ceil_div(p.k, P.depth_bytes / size_of(S.a))));
  args.gemm = gemm_args(p, P, splits);
  args.epilogue = epilogue;
  const std::int64_t tiles = gemm_tiles(S, args.gemm, P);
  if (tiles * P.sharers() * splits > 0x7fffffff) return {StatusCode::bad_extent, "more than 2^31 blocks"};
  if constexpr (P.path == GemmPath::tensor) {
    typename Kernel::Maps maps{};
    if (Status s = gemm_tensor_args<B, S, P, Epilogue>(p, tiles, args, maps); !s.ok()) return s;
    const LaunchShape shape{args.blocks, Kernel::block_threads, P.sharers() * splits, gemm_spreads(p)};
    Status s = B::template launch<Kernel>(shape, args, maps, stream);
    if constexpr (P.stream) {
      using Combine = GemmTensorCombineKernel<B, S, P, Epilogue>;
      if (!s.ok() || args.stream.tail == 0) return s;
      s = B::template launch<Combine>({args.stream.tail * Combine::blocks, Combine::block_threads}, args, stream);
    }
    return s;
  } else {
    args.tiles = tiles;
    return gemm_launch_lds<B, S, P, Epilogue>(p, args, stream);
  }
}

}  // namespace detail

/// Returns the spec whose kernel computes `s`. Where the matrix unit keeps f32 sums, fast sums are the promoted ones.
constexpr GemmSpec gemm_built_spec(ArchId arch, GemmSpec s) {
  if (facts_of(arch).f32_sums) s.sums = GemmSums::promoted;
  return s;
}

/// Queues the kernel on the stream, with an epilogue of the user's own (see GemmIdentity). `splits`: blocks that share
/// the K of a tile, from 1 to P.splits. Nothing is allocated, synchronised or read from the device.
/// Errors: those of gemm_check; no_matching_entry if the entry is for another spec; bad_value for splits; launch_failed
/// with the runtime's reason.
template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
Status gemm_launch_with(const Epilogue& epilogue, const GemmProblem& p, int splits, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = gemm_check(p, B::facts); !s.ok()) return s;
  if (splits < 1 || splits > P.splits) return {StatusCode::bad_value, "splits is not from 1 to the policy's"};
  if (p.batch_invariant && splits > 1) return {StatusCode::bad_value, "a batch-invariant product does not split K"};
  if (constexpr Status kept = detail::gemm_batch_invariance(S, P); p.batch_invariant && !kept.ok()) return kept;
  if (const Status s = detail::gemm_norm_status(p, S, P); !s.ok()) return s;
  if (p.m == 0 || p.n == 0 || (S.groups != GemmGroups::one && p.groups == 0)) return {};
  constexpr GemmSpec built = gemm_built_spec(B::facts.id, S);
  if constexpr (B::facts.matrix == Matrix::mma && P.path == GemmPath::weights_in_registers) {
    if constexpr (S.four_bit()) {
      return detail::gemm_launch_few_rows<B, built, P, Epilogue>(epilogue, p, stream);
    } else {
      return detail::gemm_launch_dense_few_rows<B, built, P, Epilogue>(epilogue, p, stream);
    }
  } else {
    return detail::gemm_launch_tiles<B, built, P, Epilogue>(epilogue, p, splits, stream);
  }
}
/// The same without an epilogue of the user's own.
template <class B, GemmSpec S, GemmPolicy P>
Status gemm_launch(const GemmProblem& p, int splits, hipStream_t stream) {
  return gemm_launch_with<B, S, P>(GemmIdentity{}, p, splits, stream);
}

/// Returns the bytes of workspace that a launch of the policy with so many splits needs. Most launches need none.
inline std::size_t gemm_workspace_size(const GemmProblem& p, const GemmPolicy& policy, int splits) {
  const std::int64_t tiles = gemm_tiles(p.spec, gemm_args(p, policy, splits), policy);
  if (policy.stream) return detail::gemm_stream_bytes(policy, detail::gemm_stream(p, policy, tiles));
  if (policy.path == GemmPath::tensor) return 0;  // a cluster merges sums in shared memory
  return detail::gemm_partial_bytes(policy, tiles, splits);
}

}  // namespace tilewave
