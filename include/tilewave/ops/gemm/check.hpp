// SPDX-License-Identifier: MIT
// The rules that every GEMM problem must satisfy, whatever the entry. gemm_check applies them all.
#pragma once

#include <cmath>
#include <limits>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/cache_status.hpp"
#include "tilewave/ops/gemm/check_spec.hpp"
#include "tilewave/ops/gemm/norm_status.hpp"
#include "tilewave/ops/gemm/problem.hpp"
#include "tilewave/tile/row_tensors.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

namespace detail {

/// Checks what a spec whose rows have ids takes.
inline Status check_gemm_id_extents(const GemmProblem& p) {
  const GemmSpec& s = p.spec;
  if (p.tokens < 0 || p.topk < 0) return {StatusCode::bad_extent, "tokens or topk is negative"};
  if (!s.has_ids() && (p.tokens != 0 || p.topk != 0 || p.row_ids != nullptr || p.row_weights != nullptr))
    return {StatusCode::bad_value, "row_ids, row_weights, tokens and topk are for gathered and scattered specs"};
  if (s.has_ids() && p.tokens == 0 && p.m > 0)
    return {StatusCode::bad_extent, "rows have ids, but there are no tokens"};
  if (p.tokens > 1 << gemm_token_bits) return {StatusCode::bad_extent, "an id holds tokens up to 2^24"};
  if (s.scattered ? (p.topk < 1 && p.m > 0) || p.topk > 255 : p.topk != 0)
    return {StatusCode::bad_extent, "topk is 1 to 255 for scattered specs, else 0"};
  if (s.scattered && std::int64_t{p.tokens} * p.topk > std::numeric_limits<std::int32_t>::max() - 65536)
    return {StatusCode::bad_extent, "tokens times topk must stay below 2^31 - 65536"};
  if (s.gathered && bytes_of(s.a, p.k) % 16 != 0)
    return {StatusCode::bad_extent, "k of gathered rows is whole 16 bytes"};
  return {};
}

/// Checks extents, batch and groups.
inline Status check_gemm_extents(const GemmProblem& p) {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max() - 65536;  // tiles run past the end
  if (p.m < 0 || p.n < 0 || p.k < 0) return {StatusCode::bad_extent, "m, n or k is negative"};
  if (p.m > most || p.n > most || p.k > most / size_of(p.spec.a))
    return {StatusCode::bad_extent, "m, n and the bytes of k must stay below 2^31 - 65536"};
  if (p.spec.a == DType::i8 && p.k > 131071)  // 2^31 / 128^2 - 1
    return {StatusCode::bad_extent, "k of i8 must stay below 131072, that no sum leaves 32 bits"};
  if (p.spec.groups == GemmGroups::one) {
    if (p.batch < 1) return {StatusCode::bad_extent, "batch must be positive"};
    if (p.groups != 0) return {StatusCode::bad_value, "groups is for specs with groups"};
  } else {
    if (p.groups < 0) return {StatusCode::bad_extent, "groups is negative"};
    if (p.batch != 1) return {StatusCode::bad_value, "batch is for specs without groups"};
  }
  if (p.shared_a && (p.a_batch_stride != 0 || p.spec.groups == GemmGroups::contiguous ||
                     (p.spec.scale != Scaling::none && p.spec.scale != Scaling::per_tensor)))
    return {StatusCode::bad_value, "a shared a has no a_batch_stride, no contiguous groups and no scales but one"};
  if (const Status status = check_gemm_id_extents(p); !status.ok()) return status;
  if (p.expected_group_rows < 0 || (p.expected_group_rows > 0 && p.spec.groups != GemmGroups::masked))
    return {StatusCode::bad_value, "expected_group_rows is for masked groups, and not negative"};
  if (p.spec.gated && p.n % 2 != 0) return {StatusCode::bad_extent, "n of a gated product must be even"};
  if (p.spec.gated && !p.interleaved && p.spec.scale == Scaling::per_block && p.n % gemm_scale_block != 0)
    return {StatusCode::bad_extent, "block scales of gates and ups in halves need n a multiple of 128"};
  if (p.spec.in_strips() && (p.n % 16 != 0 || p.k % 32 != 0))
    return {StatusCode::bad_extent, "preshuffled weights need n a multiple of 16 and k of 32"};
  if (p.spec.mx() && p.k % mx_group != 0) return {StatusCode::bad_extent, "k with mx scales is a multiple of 32"};
  if (p.spec.mx() && p.spec.gated && p.n % 64 != 0)
    return {StatusCode::bad_extent, "gates with mx scales are whole 32 rows"};
  if (p.spec.four_bit() && p.k % p.spec.scale_k != 0)
    return {StatusCode::bad_extent, "k must be a multiple of the group of a scale"};
  return {};
}

/// The memory regions of the tensors of a call. A tensor that the spec does not have has an empty region.
struct GemmRegions {
  Region a, b, out, residual, bias, a_scale, b_scale, b_zero, out_scale, table, workspace;  // table: of groups
  Region ids, row_weights, a_squares, out_squares;
  Region k_cache, v_cache, slots, positions, cos, sin;  // of cache_write

  explicit GemmRegions(const GemmProblem& p) {
    const GemmSpec& s = p.spec;
    const std::int64_t layers = gemm_layers(p), a_layers = gemm_a_layers(p), columns = gemm_out_columns(p);
    const Dimension a_batches{p.shared_a ? 1 : a_layers, p.a_batch_stride, "a_batch_stride is 0"};
    const Dimension b_batches{layers, p.b_batch_stride, "b_batch_stride is 0"};
    a = operand(p, p.a, s.a, transposed_a(s.layout), {gemm_a_rows(p), p.a_stride, "a_stride is 0"}, a_batches);
    b = s.in_strips() ? Region(p.b, size_of(s.b), std::int64_t{p.n} * p.k / packing_of(s.b), {b_batches})
                      : operand(p, p.b, s.b, transposed_b(s.layout), {p.n, p.b_stride, "b_stride is 0"}, b_batches);
    out = Region(
        p.out, size_of(s.out), columns,
        {{gemm_out_rows(p), p.out_stride, "out_stride is 0"}, {a_layers, p.out_batch_stride, "out_batch_stride is 0"}});
    const int extra = size_of(s.extra());
    residual = Region(p.residual, extra, columns,
                      {{p.m, p.residual_stride, "residual_stride is 0"},
                       {a_layers, p.residual_batch_stride, "residual_batch_stride is 0"}});
    bias = Region(p.bias, extra, p.n, {{layers, p.bias_batch_stride, "bias_batch_stride is 0"}});
    set_scales(p, {a_layers, p.a_scale_batch_stride, "a_scale_batch_stride is 0"},
               {layers, p.b_scale_batch_stride, "b_scale_batch_stride is 0"});
    if (s.out_scale == Scaling::per_tensor) {
      out_scale = vector_region(p.out_scale, DType::f32, 1);
    } else if (s.out_scale == Scaling::per_group) {
      out_scale = Region(p.out_scale, sizeof(float), ceil_div(columns, std::int64_t{scale_group}),
                         {{p.m, p.out_scale_stride, "out_scale_stride is 0"},
                          {a_layers, p.out_scale_batch_stride, "out_scale_batch_stride is 0"}});
    }
    table = Region(s.groups == GemmGroups::masked ? p.group_rows : p.group_offsets, sizeof(std::int32_t),
                   p.shared_a ? 1 : std::int64_t{p.groups} + (s.groups == GemmGroups::contiguous), {});
    ids = Region(p.row_ids, sizeof(std::int32_t), p.m, {});
    row_weights = Region(p.row_weights, sizeof(float), p.m, {});
    a_squares = Region(p.a_squares, sizeof(float), std::int64_t{p.m} * (p.k / gemm_squares_columns), {});
    out_squares = Region(p.out_squares, sizeof(float), std::int64_t{p.m} * (p.n / gemm_squares_columns), {});
    if (p.cache_write != nullptr) {
      const KvCacheWriteProblem& w = *p.cache_write;
      const PagedAttentionRegions cache = cache_regions(w);
      k_cache = cache.k, v_cache = cache.v;
      slots = index_region(w.slots, w.slot_type, w.tokens);
      positions = index_region(w.positions, w.position_type, w.tokens);
      cos = Region(w.cos, sizeof(float), w.rotary / 2, {{w.table_rows, w.table_stride}});
      sin = Region(w.sin, sizeof(float), w.rotary / 2, {{w.table_rows, w.table_stride}});
    }
    workspace = Region(p.workspace, 1, static_cast<std::int64_t>(p.workspace_bytes), {});
  }

 private:
  using Dimension = Region::Dimension;

  static Region operand(const GemmProblem& p, const void* data, DType type, bool transposed, Dimension rows,
                        const Dimension& layers) {
    const std::int64_t columns = transposed ? rows.count : p.k / packing_of(type);
    if (transposed) rows.count = p.k;
    return Region(data, size_of(type), columns, {rows, layers});
  }

  /// Sets a_scale and b_scale. The dimensions are the layers that scales of rows, blocks, groups and MX have.
  void set_scales(const GemmProblem& p, const Dimension& a_layers, const Dimension& b_layers) {
    const GemmSpec& s = p.spec;
    const std::int64_t k_blocks = ceil_div(p.k, gemm_scale_block), n_blocks = ceil_div(p.n, gemm_scale_block);
    const auto mx_scales = [&](const void* codes, std::int32_t rows, const Dimension& layers) {
      const std::int64_t row = align_up(p.k / mx_group, 8);
      return Region(codes, 1, align_up<std::int64_t>(rows, 32) * row, {layers});
    };
    switch (s.scale) {
      case Scaling::none:
      case Scaling::per_token:         // Operands do not take per_token,
      case Scaling::per_head: return;  // nor per_head.
      case Scaling::per_tensor:
        a_scale = vector_region(p.a_scale, DType::f32, 1);
        b_scale = vector_region(p.b_scale, DType::f32, 1);
        return;
      case Scaling::per_row:
        a_scale = Region(p.a_scale, sizeof(float), gemm_a_rows(p), {a_layers});
        b_scale = Region(p.b_scale, sizeof(float), p.n, {b_layers});
        return;
      case Scaling::per_block:
        a_scale = Region(p.a_scale, sizeof(float), 1,
                         {{gemm_a_rows(p), p.a_scale_stride, "a_scale_stride is 0"},
                          {k_blocks, p.a_scale_k_stride, "a_scale_k_stride is 0"},
                          a_layers});
        b_scale = Region(p.b_scale, sizeof(float), 1,
                         {{n_blocks, p.b_scale_stride, "b_scale_stride is 0"},
                          {k_blocks, p.b_scale_k_stride, "b_scale_k_stride is 0"},
                          b_layers});
        return;
      case Scaling::per_group:
        if (is_fp8(s.a)) a_scale = Region(p.a_scale, sizeof(float), gemm_a_rows(p), {a_layers});
        b_scale = Region(p.b_group_scale, size_of(s.group_scale()), p.n,
                         {{p.k / s.scale_k, p.b_scale_k_stride, "b_scale_k_stride is 0"}, b_layers});
        if (s.zero_points)
          b_zero = Region(p.b_zero, 1, p.n, {{p.k / s.scale_k, p.b_scale_k_stride, "b_scale_k_stride is 0"}, b_layers});
        return;
      case Scaling::mx:
        a_scale = mx_scales(p.a_mx_scale, gemm_a_rows(p), a_layers);
        b_scale = mx_scales(p.b_mx_scale, p.n, b_layers);
        return;
    }
  }
};

/// Checks the tables of groups.
inline Status check_gemm_tables(const GemmProblem& p) {
  const bool contiguous = p.spec.groups == GemmGroups::contiguous, masked = p.spec.groups == GemmGroups::masked;
  if ((contiguous && p.group_offsets == nullptr) || (masked && p.group_rows == nullptr))
    return {StatusCode::null_pointer, "group_offsets or group_rows is null"};
  if (!is_aligned(p.group_offsets, 4) || !is_aligned(p.group_rows, 4))
    return {StatusCode::misaligned, "tables of groups need 4-byte alignment"};
  if (p.spec.has_ids() && p.row_ids == nullptr) return {StatusCode::null_pointer, "row_ids is null"};
  if (!is_aligned(p.row_ids, 4) || !is_aligned(p.row_weights, 4))
    return {StatusCode::misaligned, "row_ids and row_weights need 4-byte alignment"};
  return {};
}

/// Checks the operands, out, residual and bias.
inline Status check_gemm_tensors(const GemmProblem& p) {
  const int extra = size_of(p.spec.extra());
  if (p.k > 0 && (p.a == nullptr || p.b == nullptr)) return {StatusCode::null_pointer, "a or b is null"};
  if (p.k > 0 && (!is_aligned(p.a, 16) || !is_aligned(p.b, 16)))
    return {StatusCode::misaligned, "a and b need 16-byte alignment"};
  if (p.out == nullptr) return {StatusCode::null_pointer, "out is null"};
  if (!is_aligned(p.out, size_of(p.spec.out)) || !is_aligned(p.residual, extra) || !is_aligned(p.bias, extra))
    return {StatusCode::misaligned, "out, residual or bias is not aligned to its elements"};
  return {};
}

/// Checks the scales of out, and MX scales.
inline Status check_gemm_out_and_mx_scales(const GemmProblem& p) {
  const GemmSpec& s = p.spec;
  if (s.out_scale == Scaling::none) {
    if (p.out_scale != nullptr) return {StatusCode::bad_value, "this spec has no scales of out"};
  } else if (p.out_scale == nullptr) {
    return {StatusCode::null_pointer, "out_scale is null"};
  }
  if (!is_aligned(p.out_scale, 4)) return {StatusCode::misaligned, "scales need 4-byte alignment"};
  if (!s.mx()) {
    if (p.a_mx_scale != nullptr || p.b_mx_scale != nullptr)
      return {StatusCode::bad_value, "a_mx_scale and b_mx_scale are for mx scales"};
  } else if (p.k > 0 && (p.a_mx_scale == nullptr || p.b_mx_scale == nullptr)) {
    return {StatusCode::null_pointer, "a_mx_scale or b_mx_scale is null"};
  }
  if (!is_aligned(p.a_mx_scale, 16) || !is_aligned(p.b_mx_scale, 16))
    return {StatusCode::misaligned, "mx scales need 16-byte alignment"};
  return {};
}

/// Checks all other scales of operands.
inline Status check_gemm_operand_scales(const GemmProblem& p) {
  const GemmSpec& s = p.spec;
  if (s.scale == Scaling::none || s.mx()) {
    if (p.a_scale != nullptr || p.b_scale != nullptr) return {StatusCode::bad_value, "this spec has no scales of f32"};
  } else if (s.scale == Scaling::per_group) {
    if (p.b_scale != nullptr || (p.a_scale != nullptr && !is_fp8(s.a)))
      return {StatusCode::bad_value, "scales of groups are b_group_scale, and only rows of fp8 have others"};
    if ((p.k > 0 && p.b_group_scale == nullptr) || (p.a_scale == nullptr && is_fp8(s.a)))
      return {StatusCode::null_pointer, "b_group_scale or a_scale is null"};
  } else if (p.a_scale == nullptr || p.b_scale == nullptr) {
    return {StatusCode::null_pointer, "a_scale or b_scale is null"};
  }
  if (p.b_group_scale != nullptr && s.scale != Scaling::per_group)
    return {StatusCode::bad_value, "b_group_scale is for weights of four bits"};
  if (s.zero_points ? p.k > 0 && p.b_zero == nullptr : p.b_zero != nullptr)
    return {s.zero_points ? StatusCode::null_pointer : StatusCode::bad_value,
            "b_zero is for specs with zero points, and needed there"};
  if (!is_aligned(p.a_scale, 4) || !is_aligned(p.b_scale, 4))
    return {StatusCode::misaligned, "scales need 4-byte alignment"};
  if (!is_aligned(p.b_group_scale, 8) || !is_aligned(p.b_zero, 8))
    return {StatusCode::misaligned, "scales of groups and zero points need 8-byte alignment"};
  return {};
}

/// Checks which pointers are given, and how they are aligned.
inline Status check_gemm_pointers(const GemmProblem& p) {
  if (p.group_offsets != nullptr && p.spec.groups != GemmGroups::contiguous)
    return {StatusCode::bad_value, "group_offsets is for contiguous groups"};
  if (p.group_rows != nullptr && p.spec.groups != GemmGroups::masked)
    return {StatusCode::bad_value, "group_rows is for masked groups"};
  if (p.m == 0 || p.n == 0 || gemm_layers(p) == 0) return {};  // Nothing is written, so nothing has to be there.
  for (const auto rule :
       {check_gemm_tables, check_gemm_tensors, check_gemm_out_and_mx_scales, check_gemm_operand_scales}) {
    if (const Status status = rule(p); !status.ok()) return status;
  }
  return check_workspace_bytes(p.workspace_bytes);
}

/// Checks that strides of scales, residual, bias and out_scale are given only where the spec has them.
inline Status check_gemm_absent_strides(const GemmProblem& p) {
  const GemmSpec& s = p.spec;
  const bool int4 = s.scale == Scaling::per_group;
  if (s.scale != Scaling::per_block && (p.a_scale_stride != 0 || p.a_scale_k_stride != 0 || p.b_scale_stride != 0 ||
                                        (p.b_scale_k_stride != 0 && !int4))) {
    return {StatusCode::bad_value, "strides of scales within a product are for scales of blocks or groups"};
  }
  const bool batches_of_b = s.scale != Scaling::none && s.scale != Scaling::per_tensor;
  const bool batches_of_a = batches_of_b && (!int4 || is_fp8(s.a));
  if ((!batches_of_a && p.a_scale_batch_stride != 0) || (!batches_of_b && p.b_scale_batch_stride != 0))
    return {StatusCode::bad_value, "a batch stride of scales is given, but of that operand each product has none"};
  if (p.m > 0 && p.n > 0 && gemm_layers(p) > 0) {
    for (const Status& status : {check_absent<"residual">(p.residual, {p.residual_stride, p.residual_batch_stride}),
                                 check_absent<"bias">(p.bias, {p.bias_batch_stride})}) {
      if (!status.ok()) return status;
    }
  }
  if (s.out_scale != Scaling::per_group && (p.out_scale_stride != 0 || p.out_scale_batch_stride != 0))
    return {StatusCode::bad_value, "strides of out_scale are for scales per group"};
  return {};
}

/// Checks strides that count more than one row or layer. Those of a and b must suit tensor copies and 16-byte loads.
inline Status check_gemm_strides(const GemmProblem& p, const GemmRegions& r) {
  const GemmSpec& s = p.spec;
  const std::int64_t layers = gemm_layers(p), a_layers = gemm_a_layers(p);
  if (s.in_strips() && p.b_stride != 0) return {StatusCode::bad_value, "preshuffled weights have no b_stride"};
  if (const Status status = check_gemm_absent_strides(p); !status.ok()) return status;
  const auto bad = [](std::int64_t count, std::int64_t stride, int unit) {
    return count > 1 && (stride < 0 || stride % unit != 0);
  };
  const int unit = elements_of_unit(s.a), unit_b = elements_of_unit(s.b);
  if (p.k > 0 &&
      (bad(transposed_a(s.layout) ? p.k : gemm_a_rows(p), p.a_stride, unit) || bad(a_layers, p.a_batch_stride, unit) ||
       bad(transposed_b(s.layout) ? p.k : p.n, p.b_stride, unit_b) || bad(layers, p.b_batch_stride, unit_b))) {
    return {StatusCode::bad_stride, "strides of a and b are multiples of 16 bytes, not negative"};
  }
  if (s.scale == Scaling::per_group &&
      (bad(p.k / s.scale_k, p.b_scale_k_stride, 4) || bad(layers, p.b_scale_batch_stride, 4)))
    return {StatusCode::bad_stride, "strides of scales of groups are multiples of 4, not negative"};
  if (s.mx() && (bad(a_layers, p.a_scale_batch_stride, 16) || bad(layers, p.b_scale_batch_stride, 16)))
    return {StatusCode::bad_stride, "strides of mx scales are multiples of 16, not negative"};
  if (bad(gemm_out_rows(p), p.out_stride, 1) || bad(a_layers, p.out_batch_stride, 1))
    return {StatusCode::bad_stride, "a stride of out is negative"};
  for (const Status& status :
       {check_written<"a">(r.a, "rows or batches of a overlap"),
        check_written<"b">(r.b, "rows or batches of b overlap"),
        check_written<"out">(r.out, "rows or batches of out overlap"),
        check_written<"residual">(r.residual, "rows or batches of residual overlap"),
        check_written<"bias">(r.bias, "batches of bias overlap"),
        check_written<"a_scale">(r.a_scale, "scales of a overlap: their strides must be given"),
        check_written<"b_scale">(r.b_scale, "scales of b overlap: their strides must be given"),
        check_written<"out_scale">(r.out_scale, "scales of out overlap: their strides must be given")}) {
    if (!status.ok()) return status;
  }
  return {};
}

/// Checks preshuffled weights that are read as whole strips of sixteen rows: those of four bits, and all of them where
/// a tensor copy reads them.
inline Status check_gemm_strips(const GemmProblem& p, const ArchFacts& facts) {
  const GemmSpec& s = p.spec;
  if (!s.in_strips() || (!s.four_bit() && !facts.tensor_copies)) return {};
  if (p.interleaved)
    return {StatusCode::unsupported_layout,
            "gates and ups of weights of four bits, and on sm90 of preshuffled ones, lie in halves"};
  if (s.gated && p.n % 32 != 0)
    return {StatusCode::bad_extent, "gates of preshuffled weights are whole strips of 16 rows"};
  if (p.k > 0 && gemm_layers(p) > 1 && p.b_batch_stride % gemm_strip_elements(p) != 0)
    return {StatusCode::bad_stride, "products of preshuffled weights are whole strips of sixteen rows apart"};
  return {};
}

/// Checks that no written tensor shares a byte with another tensor. Only residual may be out itself.
inline Status check_gemm_overlap(const GemmProblem& p, const GemmRegions& r) {
  if (p.spec.scattered && p.residual != nullptr) return {StatusCode::bad_value, "scattered rows take no residual"};
  if (!clear_of(r.out, {r.a, r.b, r.bias, r.a_scale, r.b_scale, r.b_zero, r.out_scale, r.table, r.ids, r.row_weights}))
    return {StatusCode::bad_value, "out overlaps an input or out_scale"};
  if (p.spec.out_scale == Scaling::per_group &&
      !clear_of(r.out_scale, {r.a, r.b, r.residual, r.bias, r.a_scale, r.b_scale, r.table, r.ids, r.row_weights})) {
    return {StatusCode::bad_value, "out_scale overlaps an input"};
  }
  if (!clear_of(r.out, {r.a_squares}) ||
      !clear_of(r.out_squares, {r.a, r.b, r.out, r.residual, r.bias, r.a_squares, r.workspace}))
    return {StatusCode::bad_value, "squares overlap another tensor"};
  if (!clear_of(r.k_cache, {r.a, r.b, r.bias, r.a_squares}) || !clear_of(r.v_cache, {r.a, r.b, r.bias, r.a_squares}))
    return {StatusCode::bad_value, "a cache overlaps an input"};
  if (!clear_of(r.out, {r.slots, r.positions, r.cos, r.sin}))  // the cache write itself only reads k and v
    return {StatusCode::bad_value, "out overlaps a table of cache_write"};
  if (!in_place_or_clear(r.out, r.residual))
    return {StatusCode::bad_value, "out overlaps residual, but is not the same tensor"};
  if (!clear_of(r.workspace,
                {r.a, r.b, r.out, r.residual, r.bias, r.a_scale, r.b_scale, r.b_zero, r.out_scale, r.table, r.ids,
                 r.row_weights, r.a_squares, r.k_cache, r.v_cache, r.slots, r.positions, r.cos, r.sin}))
    return {StatusCode::bad_value, "workspace overlaps another tensor"};
  return {};
}

}  // namespace detail

/// Checks a problem against all rules. The tables of groups are on the device and are not read.
/// Errors: a code and a reason for the first rule that is broken; docs/reference/gemm.md lists them.
inline Status gemm_check(const GemmProblem& p, const ArchFacts& facts) {
  if (Status status = gemm_check_spec(p.spec, facts); !status.ok()) return status;
  if (Status status = detail::check_gemm_extents(p); !status.ok()) return status;
  if (!std::isfinite(p.alpha)) return {StatusCode::bad_value, "alpha must be finite"};
  if (Status status = detail::check_gemm_norm(p); !status.ok()) return status;
  if (p.interleaved && !p.spec.gated) return {StatusCode::bad_value, "interleaved is for gated products"};
  if (p.interleaved && p.spec.mx())
    return {StatusCode::unsupported_layout, "gates and ups with mx scales lie in halves"};
  if (Status status = detail::check_gemm_strips(p, facts); !status.ok()) return status;
  if (p.spec.activation == ActivationKind::swigluoai) {
    if (!std::isfinite(p.swiglu_alpha)) return {StatusCode::bad_value, "swiglu_alpha must be finite"};
    if (!(p.swiglu_limit > 0)) return {StatusCode::bad_value, "swiglu_limit must be positive"};
  } else if (p.swiglu_alpha != GemmProblem{}.swiglu_alpha || p.swiglu_limit != GemmProblem{}.swiglu_limit) {
    return {StatusCode::bad_value, "swiglu_alpha and swiglu_limit are for swigluoai"};
  }
  if (Status status = detail::check_gemm_pointers(p); !status.ok()) return status;
  if (Status status = detail::check_gemm_cache_write(p, facts); !status.ok()) return status;
  const detail::GemmRegions regions(p);
  if (Status status = detail::check_gemm_strides(p, regions); !status.ok()) return status;
  return detail::check_gemm_overlap(p, regions);
}

}  // namespace tilewave
