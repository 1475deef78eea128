// SPDX-License-Identifier: MIT
// Rules that every row operation checks on the host, and the choice among entries that hold a row differently.
#pragma once

#include <limits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/core/value_list.hpp"
#include "tilewave/tile/row_tensors.hpp"

namespace tilewave {

/// True if every row of a tensor starts at a multiple of 16 bytes. A null tensor is aligned.
inline bool rows_aligned(const void* data, const RowStrides& s, std::int32_t inner_rows, DType type) {
  const std::int64_t unit = elements_of_unit(type);
  return is_aligned(data, 16) && (data == nullptr || (s.outer % unit == 0 && (inner_rows == 1 || s.inner % unit == 0)));
}
inline bool element_aligned(const void* data, DType type) { return is_fp6(type) || is_aligned(data, size_of(type)); }

inline Status check_row_extent(std::int32_t rows, std::int32_t columns, std::int32_t inner_rows) {
  constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
  if (rows < 0) return {StatusCode::bad_extent, "rows is negative"};
  if (columns < 0) return {StatusCode::bad_extent, "columns is negative"};
  // A block's tile of columns may run past the end before column numbers are compared, so they need this room.
  if (columns > int_max - (1 << 20)) return {StatusCode::bad_extent, "columns must stay below 2^31 - 2^20"};
  if (rows > int_max - 65536) return {StatusCode::bad_extent, "rows must stay below 2^31 - 65536"};
  if (inner_rows < 1) return {StatusCode::bad_extent, "inner_rows must be positive"};
  return {};
}

/// True if the kernels compute on rows of this type.
constexpr bool is_row_type(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

/// Checks the type and the scaling of an output. check_row_output_tensors checks that its tensors are there and
/// aligned to their elements.
constexpr Status check_row_output(DType x, DType out, Scaling mode, const ArchFacts& facts) {
  if (!is_output_scaling(mode))
    return {StatusCode::unsupported_scaling, "scale must be none, per_tensor, per_token, per_group or mx"};
  if (mode == Scaling::none) {
    if (out != x) return {StatusCode::unsupported_dtype, "an output without a scale is of the input's type"};
  } else if (mode == Scaling::mx) {
    if (!facts.mx) return {StatusCode::unsupported_scaling, "mx scales are for gfx950 only"};
    if (out != DType::fp4_e2m1 && !is_fp6(out) && out != facts.fp8) {
      return {StatusCode::unsupported_dtype, "an output with mx scales is fp4, fp6 or e4m3"};
    }
  } else if (out == DType::fp4_e2m1 || is_fp6(out)) {
    return {StatusCode::unsupported_scaling, "an output of fp4 or fp6 has mx scales"};
  } else if (out != DType::i8 && !is_fp8(out)) {
    return {StatusCode::unsupported_dtype, "an output with a scale is i8 or fp8"};
  } else if (is_fp8(out) && out != facts.fp8) {
    return {StatusCode::unsupported_dtype, "fp8 flavour of the output is not this architecture's"};
  }
  return {};
}
inline Status check_row_output_tensors(const void* out, const void* scale, DType type, Scaling mode) {
  if (out == nullptr) return {StatusCode::null_pointer, "out is null"};
  if (!element_aligned(out, type)) return {StatusCode::misaligned, "out is not aligned to its elements"};
  if (mode != Scaling::none && scale == nullptr) return {StatusCode::null_pointer, "scale is null"};
  if (mode == Scaling::none && scale != nullptr) {
    return {StatusCode::bad_value, "scale is given, but the output has none"};
  }
  if (mode != Scaling::mx && !element_aligned(scale, DType::f32)) {
    return {StatusCode::misaligned, "scale needs 4-byte alignment"};
  }
  return {};
}
/// Checks the layout of scales. Rows with mx scales have whole groups, and only wide accesses take them, which
/// `aligned` confirms for the problem.
template <class Problem>
Status check_scale_layout(const Problem& p, bool aligned) {
  if (p.scale_layout != ScaleLayout::rows && p.scale_layout != ScaleLayout::shuffled) {
    return {StatusCode::bad_value, "scale_layout is none of ScaleLayout"};
  }
  if (!is_mx_rounding(p.mx_rounding)) return {StatusCode::bad_value, "mx_rounding is none of MxRounding"};
  if (p.spec.scale != Scaling::per_group && p.scale_group_stride != 1) {
    return {StatusCode::bad_stride, "scale_group_stride is of scales per_group"};
  }
  if (p.spec.scale != Scaling::mx) {
    if (p.scale_layout != ScaleLayout::rows) return {StatusCode::bad_value, "shuffled scales are mx scales"};
    if (p.mx_rounding != MxRounding::up) return {StatusCode::bad_value, "mx_rounding is of mx scales"};
    return {};
  }
  if (p.columns % mx_group != 0) return {StatusCode::bad_extent, "columns with mx scales are a multiple of 32"};
  if (!aligned) return {StatusCode::misaligned, "rows with mx scales need 16-byte bases and strides of whole 16 bytes"};
  if (p.scale_layout == ScaleLayout::shuffled && p.scale_stride != 0) {
    return {StatusCode::bad_stride, "shuffled scales have no stride"};
  }
  return {};
}

/// Returns the launch that covers all rows.
inline LaunchShape row_grid(const RowPolicy& p, std::int32_t rows) {
  return {std::int64_t{ceil_div(rows, p.rows)} * p.blocks, p.block_threads(), p.blocks};
}

/// The rows and columns as a kernel sees them. A problem that names them otherwise overloads both functions.
template <class Problem>
constexpr std::int32_t rows_of(const Problem& p) {
  return p.rows;
}
template <class Problem>
constexpr std::int32_t columns_of(const Problem& p) {
  return p.columns;
}

/// True if an entry of this policy takes rows of this many columns and this alignment.
constexpr bool policy_takes(const RowPolicy& p, DType x, std::int32_t columns, bool aligned) {
  return (!p.wide(x) || (aligned && columns % (16 / size_of(x)) == 0)) && (!p.held || columns <= p.columns(x));
}

/// True if policy a is better than b for rows that both take. The criteria are, in this order: wide accesses; rows
/// held; few idle columns of the tile; few lanes where rows fill the chip, and many where they do not.
constexpr bool better_policy(const RowPolicy& a, const RowPolicy& b, DType x, std::int32_t rows,
                             const ArchFacts& facts) {
  if (a.vec != b.vec) return a.vec > b.vec;
  if (a.held != b.held) return a.held;
  if (a.columns(x) != b.columns(x)) return a.columns(x) < b.columns(x);
  const std::int64_t slots = std::int64_t{facts.compute_units} * facts.simds_per_cu * facts.wave_lanes;
  const bool fills = std::int64_t{rows} * min_of(a.lanes, b.lanes) > 4 * slots;
  return fills ? a.lanes < b.lanes : a.lanes > b.lanes;
}

/// The part of a Registry (registry.hpp) that row operations have in common. `aligned` is true if wide accesses can
/// take the rows.
template <class SpecOf, class ProblemOf, bool (*aligned)(const ProblemOf&)>
struct RowRegistry {
  using Spec = SpecOf;
  using Problem = ProblemOf;
  using Policy = RowPolicy;

  static Status takes(const RowPolicy& policy, const Problem& p, const ArchFacts& facts) {
    if (policy.wide(p.spec.x) && !(aligned(p) && columns_of(p) % (16 / size_of(p.spec.x)) == 0)) {
      return {StatusCode::no_matching_entry, "16-byte accesses need rows that begin and end at multiples of 16 bytes"};
    }
    if (!policy_takes(policy, p.spec.x, columns_of(p), aligned(p))) {
      return {StatusCode::no_matching_entry, "the row is longer than its lanes hold"};
    }
    if (!check_launch(row_grid(policy, rows_of(p)), facts).ok()) {
      return {StatusCode::bad_extent, "too many rows for one launch: 2^31 blocks or 2^32 lanes"};
    }
    return {};
  }
  static bool better(const RowPolicy& a, const RowPolicy& b, const Problem& p, const ArchFacts& facts) {
    return better_policy(a, b, p.spec.x, rows_of(p), facts);
  }
};

/// Checks what must hold before an entry of this spec and policy is launched: the rules of `check`, and that the entry
/// takes the rows.
template <class Spec, class Problem>
Status check_row_launch(const Spec& spec, const RowPolicy& policy, const Problem& p, const ArchFacts& facts,
                        Status (*check)(const Problem&, const ArchFacts&), bool (*aligned)(const Problem&)) {
  if (!(p.spec == spec)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = check(p, facts); !s.ok()) return s;
  if (!policy_takes(policy, spec.x, columns_of(p), aligned(p))) {
    return {StatusCode::no_matching_entry, "the entry's policy does not take these rows, see policy_takes"};
  }
  return {};
}

/// A list of row policies.
using RowPolicies = ValueList<RowPolicy, 20>;

/// Returns the neighbouring chunks of a lane. CDNA needs 16 bytes for every access, outputs included, while a Hopper
/// lane stores 8 bytes as fast. fp6 makes codes of 32 values at once.
constexpr int output_span(ArchId arch, DType x, DType out) {
  if (is_fp6(out)) return mx_group * size_of(x) / 16;
  return facts_of(arch).family == Family::cdna ? max_of(1, size_of(x) * packing_of(out) / size_of(out)) : 1;
}

/// Returns the policies that entries are built for, by rising columns. `chunks` is how many a lane holds for rows of
/// middle length on sm90.
constexpr RowPolicies row_policies(ArchId arch, DType x, DType out, Scaling mode, int chunks) {
  const ArchFacts& facts = facts_of(arch);
  RowPolicies all;
  const auto add = [&](RowPolicy p) {
    if (!row_policy_status(facts, x, p).ok() || !row_output_status(facts, x, mode, p).ok()) return;
    for (const RowPolicy& other : all)
      if (other == p) return;
    all.add(p);
  };
  const int element = size_of(x), span = output_span(arch, x, out);
  const auto vectors = [&](int lanes, int rows, int of_lane, int waves, int blocks = 1) {
    of_lane = max_of(of_lane, span);
    add({.lanes = lanes, .rows = rows, .chunks = of_lane, .span = span, .blocks = blocks, .waves_per_simd = waves});
  };
  if (facts.family == Family::hopper) {
    // On an H200 two to four chunks a lane, with as many blocks as that leaves room for, reach the copy ceiling. Blocks
    // of 1024 lanes wait too long for each other, but finish a few rows soonest. See docs/notebook/2026-11-21-rows.md.
    vectors(16, 16, 1, 16);
    vectors(64, 4, 1, 16);
    vectors(128 / chunks, chunks, chunks, chunks == 2 ? 12 : 8);
    for (const int row_chunks : {256, 512, 1024}) vectors(row_chunks / chunks, 1, chunks, chunks == 2 ? 12 : 8);
    vectors(256, 1, 1, 16);
    vectors(1024, 1, 1, 16);
    vectors(512, 1, 4, 8);
    // These rows are longer than a block can hold without spilling.
    const bool softmax = chunks == 2;
    for (const int blocks : {2, 4, 8}) {
      if (softmax) {
        vectors(256, 1, 8, 6, blocks);
      } else {
        vectors(512, 1, 4, 8, blocks);
      }
    }
    if (softmax) {
      vectors(256, 1, 16, 4, 8);
    } else {
      vectors(512, 1, 8, 4, 8);
    }
  } else {
    vectors(16, 16, 1, 8);
    vectors(64, 4, 1, 8);
    vectors(64, 4, 2, 8);
    vectors(256, 1, 1, 8);
    vectors(256, 1, 2, 8);
    vectors(512, 1, 1, 8);
    vectors(256, 1, 4, 4);
    vectors(1024, 1, 1, 8);
    vectors(512, 1, 4, 4);
    vectors(512, 1, 8, 4);  // two blocks a CU: one computes while the other loads
    vectors(1024, 1, 8, 4);
    // The row takes half of a CU's registers. A scaled output needs the rest for its columns.
    if (mode == Scaling::none) vectors(1024, 1, 16, 4);
  }
  const int waves = per_arch(arch, 4, 4, 8);
  add({.lanes = 256, .chunks = 4, .span = span, .held = false, .waves_per_simd = waves});
  // These take rows that are not aligned to 16 bytes: one element an access, eight neighbours a lane.
  add({.lanes = 64, .rows = 4, .chunks = 16, .vec = element, .span = 8, .waves_per_simd = waves});
  add({.lanes = 256, .chunks = 32, .vec = element, .span = 8, .waves_per_simd = waves / 2});
  add({.lanes = 256, .chunks = 32, .vec = element, .span = 8, .held = false, .waves_per_simd = waves / 2});
  return all;
}

}  // namespace tilewave
