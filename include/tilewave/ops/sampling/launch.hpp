// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include <cmath>
#include <initializer_list>

#include "tilewave/ops/sampling/kernel.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

namespace detail {

/// Returns the region of a parameter of every row, which is empty if the parameter is not on the device.
template <class T>
Region value_region(const RowValue<T>& v, std::int32_t rows) {
  return Region(v.data, sizeof(T), v.shared ? 1 : rows, {});
}
template <class T>
bool value_aligned(const RowValue<T>& v) {
  return is_aligned(v.data, sizeof(T));
}

inline Status check_sampling_values(const SamplingProblem& p) {
  const auto given = [](const auto& v) { return v.data == nullptr; };
  if (given(p.temperature) && !(p.temperature.value >= 0 && std::isfinite(p.temperature.value))) {
    return {StatusCode::bad_value, "temperature must be finite, and 0 (the largest logit) or positive"};
  }
  if (given(p.top_p) && !(p.top_p.value > 0 && p.top_p.value <= 1)) {
    return {StatusCode::bad_value, "top_p must be positive and at most 1 (off)"};
  }
  if (given(p.min_p) && !(p.min_p.value >= 0 && p.min_p.value <= 1)) {
    return {StatusCode::bad_value, "min_p must be 0 (off) to 1"};
  }
  if (given(p.top_k) && p.top_k.value < -1) {
    return {StatusCode::bad_value, "top_k must be positive, or 0 or -1 (off)"};
  }
  if (!value_aligned(p.temperature)) return {StatusCode::misaligned, "temperatures need 4-byte alignment"};
  if (!value_aligned(p.top_p)) return {StatusCode::misaligned, "values of top_p need 4-byte alignment"};
  if (!value_aligned(p.min_p)) return {StatusCode::misaligned, "values of min_p need 4-byte alignment"};
  if (!value_aligned(p.top_k)) return {StatusCode::misaligned, "values of top_k need 4-byte alignment"};
  if (!value_aligned(p.seed)) return {StatusCode::misaligned, "seeds need 8-byte alignment"};
  if (!value_aligned(p.offset)) return {StatusCode::misaligned, "offsets need 8-byte alignment"};
  return {};
}

/// Checks the workspace, where there is one, whether it is used or not.
inline Status check_sampling_workspace(const SamplingProblem& p, std::initializer_list<Region> others) {
  if (Status s = check_workspace_bytes(p.workspace_bytes); !s.ok()) return s;
  if (Status s = check_workspace_alignment(p.workspace); !s.ok()) return s;
  if (!clear_of(Region(p.workspace, 1, static_cast<std::int64_t>(p.workspace_bytes), {}), others)) {
    return {StatusCode::bad_value, "workspace overlaps a tensor"};
  }
  return {};
}

inline Status check_sampling_regions(const SamplingProblem& p) {
  const Region x = Region(p.x, size_of(p.spec.x), p.columns, {{p.rows, p.row_stride, "row_stride is 0"}});
  const Region tokens = vector_region(p.tokens, DType::f32, p.rows);
  const Region logprobs = vector_region(p.logprobs, DType::f32, p.rows);
  if (Status s = check_read<"x">(x, "row_stride is 0"); !s.ok()) return s;
  for (const Region& written : {tokens, logprobs}) {
    if (!clear_of(written,
                  {x, value_region(p.temperature, p.rows), value_region(p.top_p, p.rows), value_region(p.min_p, p.rows),
                   value_region(p.top_k, p.rows), value_region(p.seed, p.rows), value_region(p.offset, p.rows)})) {
      return {StatusCode::bad_value, "tokens or logprobs overlap what is read"};
    }
  }
  if (!clear_of(tokens, {logprobs})) return {StatusCode::bad_value, "tokens overlap logprobs"};
  return check_sampling_workspace(
      p, {x, tokens, logprobs, value_region(p.temperature, p.rows), value_region(p.top_p, p.rows),
          value_region(p.min_p, p.rows), value_region(p.top_k, p.rows), value_region(p.seed, p.rows),
          value_region(p.offset, p.rows)});
}

}  // namespace detail

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status sampling_check_spec(const SamplingSpec& s, const ArchFacts&) {
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "x must be f32, f16 or bf16"};
  return {};
}

/// Checks every rule that a problem must satisfy. Tensors on the device are not read; SamplingProblem says what any
/// value means.
inline Status sampling_check(const SamplingProblem& p, const ArchFacts& facts) {
  if (Status status = sampling_check_spec(p.spec, facts); !status.ok()) return status;
  if (Status status = check_row_extent(p.rows, p.columns, 1); !status.ok()) return status;
  if (p.columns > max_vocabulary) return {StatusCode::bad_extent, "columns must be at most 262144"};
  if (p.rows > 0 && p.columns == 0) return {StatusCode::bad_extent, "there is no token to choose: columns is 0"};
  if (Status status = detail::check_sampling_values(p); !status.ok()) return status;
  if (p.raw_logprobs && p.logprobs == nullptr && p.rows > 0) {
    return {StatusCode::bad_value, "raw_logprobs is set, but there is no place for logprobs"};
  }
  if (p.rows == 0) return {};  // nothing to read or write
  if (p.x == nullptr) return {StatusCode::null_pointer, "x is null"};
  if (p.tokens == nullptr) return {StatusCode::null_pointer, "tokens is null"};
  if (!element_aligned(p.x, p.spec.x)) return {StatusCode::misaligned, "x is not aligned to its elements"};
  if (!element_aligned(p.tokens, DType::f32)) return {StatusCode::misaligned, "tokens need 4-byte alignment"};
  if (!element_aligned(p.logprobs, DType::f32)) return {StatusCode::misaligned, "logprobs need 4-byte alignment"};
  return detail::check_sampling_regions(p);
}

/// True if the kernels with 16-byte accesses can take the problem.
inline bool sampling_aligned(const SamplingProblem& p) {
  return rows_aligned(p.x, {p.rows > 1 ? p.row_stride : 0, 0}, 1, p.spec.x);
}

/// Returns the power of two of the blocks that share each row with a workspace: as many as the chip has room for at a
/// time. It is 0 where an entry of this policy does not share rows, or where rows are many or short.
constexpr int sampling_part_bits(const SamplingProblem& p, const SamplingPolicy& policy, const ArchFacts& facts) {
  constexpr std::int32_t least_columns = 65536;  // shorter rows take one block no longer
  if (policy.held || facts.max_cluster_blocks > 1 || p.columns < least_columns) return 0;
  int bits = 0;
  while (bits < most_part_bits && align_up(p.rows, sampling_dies) << (bits + 1) <= facts.compute_units) ++bits;
  return bits;
}
/// Returns the bytes of workspace with which rows are shared, and 0 for a chip that has no need of it. They do not
/// depend on the number of rows.
constexpr std::size_t sampling_workspace_size(const SamplingProblem& p, const ArchFacts& facts) {
  const std::int64_t block = sizeof(SamplingFound) + 1024 / facts.wave_lanes * sizeof(SamplingWeighed);
  return facts.max_cluster_blocks > 1 || p.rows == 0 ? 0 : facts.compute_units * block;
}

/// Returns the arguments of the kernels.
inline SamplingArgs sampling_args(const SamplingProblem& p, int part_bits = 0) {
  auto* const weighed = static_cast<SamplingWeighed*>(p.workspace);
  return {.x = p.x,
          .tokens = p.tokens,
          .logprobs = p.logprobs,
          .temperature = SamplingValue<float>::of(p.temperature),
          .top_p = SamplingValue<float>::of(p.top_p),
          .min_p = SamplingValue<float>::of(p.min_p),
          .top_k = SamplingValue<std::int32_t>::of(p.top_k),
          .seed = SamplingValue<std::uint64_t>::of(p.seed),
          .offset = SamplingValue<std::uint64_t>::of(p.offset),
          .row_stride = p.row_stride,
          .rows = p.rows,
          .columns = p.columns,
          .raw_logprobs = p.raw_logprobs,
          .part_bits = part_bits,
          .found = nullptr,
          .weighed = weighed};
}

/// Queues one kernel on the stream, or two where there is a workspace and rows are shared. Nothing is allocated,
/// synchronised or read from the device. Errors: those of sampling_check; no_matching_entry if the entry is of another
/// spec or its policy does not take the rows; workspace_too_small; launch_failed with the runtime's reason.
template <class B, SamplingSpec S, SamplingPolicy P>
Status sampling_launch(const SamplingProblem& p, hipStream_t stream) {
  if (Status s = check_row_launch(S, P, p, B::facts, sampling_check, sampling_aligned); !s.ok()) return s;
  if (p.rows == 0) return {};
  if constexpr (!P.held && B::facts.max_cluster_blocks == 1) {
    const int bits = p.workspace == nullptr ? 0 : sampling_part_bits(p, P, B::facts);
    if (bits > 0) {
      const std::size_t needed = sampling_workspace_size(p, B::facts);
      if (Status s = check_workspace(p.workspace, p.workspace_bytes, needed); !s.ok()) return s;
      using Weigh = Sampling<B, S, P, SamplingLaunch::weigh>;
      SamplingArgs args = sampling_args(p, bits);
      const std::int64_t blocks = std::int64_t{align_up(p.rows, sampling_dies)} << bits;
      args.found =
          reinterpret_cast<SamplingFound*>(args.weighed + (std::int64_t{p.rows} << bits) * Weigh::Exchange::waves);
      if (Status s = B::template launch<Weigh>({blocks, P.block_threads()}, args, stream); !s.ok()) return s;
      return B::template launch<Sampling<B, S, P, SamplingLaunch::draw>>(row_grid(P, p.rows), args, stream);
    }
  }
  return B::template launch<Sampling<B, S, P>>(row_grid(P, p.rows), sampling_args(p), stream);
}

}  // namespace tilewave
