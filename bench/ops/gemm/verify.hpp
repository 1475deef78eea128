// SPDX-License-Identifier: MIT
// Verifies out: all columns of sampled rows are compared with the reference in double precision. Of the other rows it
// checks that they were written.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/harness/model_time.hpp"
#include "bench/ops/gemm/case.hpp"
#include "tilewave/reference/gemm.hpp"
#include "tilewave/reference/parallel.hpp"

namespace tilewave::bench {

/// Rows of one layer and their expected values.
struct GemmWanted {
  std::int32_t layer = 0, a_layer = 0;
  std::vector<std::int32_t> rows;
  std::vector<std::vector<reference::GemmValue>> values;  // [row][column]
};

/// docs/reference/numerics.md, "GEMM": an element may be off by `sums` times the sum of its products' magnitudes, and a
/// row by `row` times its l2 norm. Both may also be off by what the matrix unit loses (GemmValue::lost).
struct GemmTolerance {
  double sums, row;
};
/// Returns the matrix unit of the chip that runs the config.
inline reference::GemmUnit matrix_unit_of(const GemmCase& c) {
  return reference::gemm_unit(c.arch, emulated_device, c.spec);
}
inline GemmTolerance tolerance_of(const GemmCase& c) {
  if (c.spec.out_scale != Scaling::none) {  // A code of 3 bits is off by up to half a step.
    GemmCase plain = c;
    plain.spec.out_scale = Scaling::none;
    return {tolerance_of(plain).sums, 0x1p-4};
  }
  if (c.spec.a == DType::i8) return {8 * 0x1p-24, 0x1p-8};  // Sums are exact.
  return {(4 * std::sqrt(double(c.k)) + 4) * 0x1p-24, 0x1p-8};
}

/// The rows [first, end) of A and out that a layer has.
struct GemmRows {
  std::int32_t first, end;
};
inline GemmRows rows_of(const GemmProblem& p, std::int32_t layer) {
  if (p.spec.groups == GemmGroups::contiguous) return {p.group_offsets[layer], p.group_offsets[layer + 1]};
  return {0, p.spec.groups == GemmGroups::masked ? p.group_rows[layer] : p.m};
}
inline std::int32_t layers_of(const GemmProblem& p) { return p.spec.groups == GemmGroups::one ? p.batch : p.groups; }

/// Returns how many products are verified. The emulated device takes one row in three of the largest configs, since the
/// reference would take longer than the kernels. Of their 272 rows that meets each row of a fragment of 16.
inline std::int64_t verified_products() { return std::int64_t{1} << (cuts_configs() ? 25 : 28); }

/// Returns the rows to verify, spread evenly from the first to the last. There are as many as take
/// verified_products(), but at least eight.
inline std::vector<GemmWanted> sampled_rows(const GemmProblem& p) {
  std::int64_t all = 0;
  for (std::int32_t layer = 0; layer < layers_of(p); ++layer) all += rows_of(p, layer).end - rows_of(p, layer).first;
  const std::int64_t affordable = verified_products() / (std::int64_t{p.n} * std::max(p.k, 1));
  const std::int64_t count = std::min(all, std::max<std::int64_t>(8, affordable));
  std::vector<GemmWanted> wanted;
  std::int64_t before = 0, taken = 0;
  for (std::int32_t layer = 0; layer < layers_of(p); ++layer) {
    const GemmRows rows = rows_of(p, layer);
    GemmWanted layer_rows{layer, p.spec.groups == GemmGroups::contiguous ? 0 : layer, {}, {}};
    const auto next = [&] { return count == 1 ? 0 : taken * (all - 1) / (count - 1); };
    for (; taken < count && next() < before + rows.end - rows.first; ++taken)
      layer_rows.rows.push_back(rows.first + static_cast<std::int32_t>(next() - before));
    before += rows.end - rows.first;
    if (!layer_rows.rows.empty()) wanted.push_back(std::move(layer_rows));
  }
  return wanted;
}

/// A problem of its own with some rows of a layer, for the reference.
class GemmPart {
 public:
  /// Makes the problem. The tensors of `p` are on the host.
  GemmPart(const GemmProblem& p, const GemmWanted& wanted) : part_(p) {
    const GemmSpec& s = p.spec;
    part_.spec.groups = GemmGroups::one;
    part_.group_offsets = part_.group_rows = nullptr;
    part_.batch = 1, part_.groups = 0;
    part_.m = static_cast<std::int32_t>(wanted.rows.size());
    const std::int64_t row_bytes = bytes_of(s.a, p.k), k_blocks = ceil_div(p.k, gemm_scale_block);
    for (const std::int32_t row : wanted.rows) {
      const auto* const layer_base =
          static_cast<const std::byte*>(p.a) + wanted.a_layer * p.a_batch_stride * size_of(s.a);
      if (transposed_a(s.layout)) {
        for (std::int64_t k = 0; k < p.k; ++k) {
          const std::byte* const from = layer_base + (k * p.a_stride + row) * size_of(s.a);
          a_.insert(a_.end(), from, from + size_of(s.a));
        }
      } else {
        const std::byte* const from = layer_base + row * p.a_stride * size_of(s.a);
        a_.insert(a_.end(), from, from + row_bytes);
      }
      const float* const scale = p.a_scale + wanted.a_layer * p.a_scale_batch_stride;
      if (s.scale == Scaling::per_row || (s.four_bit() && is_fp8(s.a))) a_scale_.push_back(scale[row]);
      for (std::int64_t block = 0; block < k_blocks && s.scale == Scaling::per_block; ++block)
        a_scale_.push_back(scale[row * p.a_scale_stride + block * p.a_scale_k_stride]);
    }
    part_.spec.layout = transposed_b(s.layout) ? GemmLayout::nn : GemmLayout::nt;
    part_.a = a_.data(), part_.a_stride = p.k / packing_of(s.a);
    if (s.mx()) {
      const int row_scales = p.k / mx_group, eights = ceil_div(row_scales, 8);
      a_mx_scale_.resize(align_up(wanted.rows.size(), std::size_t{32}) * eights * 8);
      for (std::size_t i = 0; i < wanted.rows.size(); ++i) {
        const std::uint8_t* const from = p.a_mx_scale + wanted.a_layer * p.a_scale_batch_stride;
        for (int g = 0; g < row_scales; ++g)
          a_mx_scale_[shuffled_scale(i, g, eights)] = from[shuffled_scale(wanted.rows[i], g, eights)];
      }
      part_.a_mx_scale = a_mx_scale_.data();
      part_.b_mx_scale += wanted.layer * p.b_scale_batch_stride;
    }
    if (!a_scale_.empty()) part_.a_scale = a_scale_.data();
    if (s.scale == Scaling::per_block) part_.a_scale_stride = k_blocks, part_.a_scale_k_stride = 1;
    part_.b = static_cast<const std::byte*>(p.b) + wanted.layer * p.b_batch_stride * size_of(s.b);
    if (s.scale == Scaling::per_row || s.scale == Scaling::per_block)
      part_.b_scale += wanted.layer * p.b_scale_batch_stride;
    if (s.scale == Scaling::per_group) {
      part_.b_group_scale = static_cast<const std::byte*>(p.b_group_scale) +
                            wanted.layer * p.b_scale_batch_stride * size_of(s.group_scale());
      if (s.zero_points) part_.b_zero += wanted.layer * p.b_scale_batch_stride;
    }
    if (p.bias != nullptr) {
      part_.bias = static_cast<const std::byte*>(p.bias) + wanted.layer * p.bias_batch_stride * size_of(s.extra());
    }
  }
  GemmPart(const GemmPart&) = delete;

  const GemmProblem& problem() const { return part_; }

 private:
  GemmProblem part_;
  std::vector<std::byte> a_;
  std::vector<float> a_scale_;
  std::vector<std::uint8_t> a_mx_scale_;
};

/// Returns sampled rows of a problem on the host with their expected values. Weights are decoded once for all of them,
/// rows of A once for each block of columns.
inline std::vector<GemmWanted> wanted_rows(const GemmProblem& p, const reference::GemmUnit& unit, int threads) {
  std::vector<GemmWanted> wanted = sampled_rows(p);
  const std::int32_t n = gemm_out_columns(p);
  for (GemmWanted& layer : wanted) layer.values.assign(layer.rows.size(), std::vector<reference::GemmValue>(n));
  std::vector<std::unique_ptr<const GemmPart>> layer_parts;
  for (const GemmWanted& layer : wanted) layer_parts.push_back(std::make_unique<const GemmPart>(p, layer));
  const std::int32_t columns = std::clamp(ceil_div(n, 2 * reference::cores(threads)), 32, 128);
  const std::int64_t parts = ceil_div(n, columns);
  reference::parallel_for(std::ssize(wanted) * parts, threads, [&](std::int64_t task) {
    GemmWanted& layer = wanted[task / parts];
    const auto first = static_cast<std::int32_t>(task % parts) * columns;
    const std::int32_t end = std::min(first + columns, n);
    const GemmPart& part = *layer_parts[task / parts];
    const reference::Gemm gemm(part.problem(), first, end, unit);
    for (std::int32_t row = 0; row < part.problem().m; ++row)
      for (std::int32_t column = first; column < end; ++column) layer.values[row][column] = gemm.at(0, row, column);
  });
  return wanted;
}

/// Returns what is wrong with out: one RowErrors for each sampled row, then one for each row of out.
inline std::vector<RowErrors> verify(const GemmProblem& p, const std::vector<GemmWanted>& wanted,
                                     const GemmTolerance& tolerance, int threads) {
  const bool scaled = p.spec.out_scale != Scaling::none, per_group = p.spec.out_scale == Scaling::per_group;
  const auto unit_of = [&](std::int32_t a_layer, std::int32_t row, std::int32_t column) -> double {
    if (!scaled) return 1;
    return p.out_scale[per_group ? a_layer * p.out_scale_batch_stride + row * p.out_scale_stride + column / scale_group
                                 : 0];
  };
  const auto out = [&](std::int32_t a_layer, std::int32_t row, std::int32_t column) {
    return unit_of(a_layer, row, column) *
           reference::element(p.spec.out, p.out, a_layer * p.out_batch_stride + row * p.out_stride + column);
  };
  std::vector<std::pair<const GemmWanted*, std::size_t>> sampled;
  for (const GemmWanted& layer : wanted)
    for (std::size_t i = 0; i < layer.rows.size(); ++i) sampled.emplace_back(&layer, i);
  const std::int32_t a_layers = p.spec.groups == GemmGroups::contiguous ? 1 : layers_of(p), n = gemm_out_columns(p);
  std::vector<RowErrors> found(sampled.size() + static_cast<std::size_t>(a_layers) * p.m);

  reference::parallel_for(std::ssize(sampled), threads, [&](std::int64_t i) {
    const auto& [layer, in_layer] = sampled[i];
    const std::int32_t row = layer->rows[in_layer];
    const std::int64_t out_row = std::int64_t{layer->a_layer} * p.m + row;
    double lost = 0, all = 0;  // sums of squares
    for (std::int32_t column = 0; column < n; ++column) {
      const reference::GemmValue& want = layer->values[in_layer][column];
      const double got = out(layer->a_layer, row, column), unit = unit_of(layer->a_layer, row, column);
      const double most = scaled ? unit * largest_code(p.spec.out) : std::abs(want.value);
      const double value = std::clamp(want.value, -most, most);
      const double slack =
          1.01 * unit * half_step(p.spec.out, value / unit) + 1.2 * tolerance.sums * want.magnitude + want.lost;
      lost += want.lost * want.lost;
      all += value * value;
      found[i].out(std::abs(got - value) <= slack, out_row, column, got, value);
      if (per_group && column % scale_group == 0) {
        double amax = 0, amax_lost = 0;
        for (std::int32_t c = column; c < std::min(column + scale_group, n); ++c) {
          amax = std::max(amax, std::abs(layer->values[in_layer][c].value));
          amax_lost = std::max(amax_lost, layer->values[in_layer][c].lost);
        }
        const double right = reference::scale_of(amax, p.spec.out);
        found[i].expect(std::abs(unit - right) <= 0.01 * right + amax_lost / largest_code(p.spec.out), "a scale",
                        out_row, column, unit, right);
      }
    }
    const double error = found[i].relative(), most = tolerance.row + (all > 0 ? std::sqrt(lost / all) : 0);
    found[i].expect(error <= most, "the error of the row", out_row, 0, error, most);
  });
  reference::parallel_for(std::int64_t{a_layers} * p.m, threads, [&](std::int64_t out_row) {
    const auto a_layer = static_cast<std::int32_t>(out_row / p.m), row = static_cast<std::int32_t>(out_row % p.m);
    const bool counts = p.spec.groups != GemmGroups::masked || row < p.group_rows[a_layer];
    RowErrors& errors = found[sampled.size() + out_row];
    for (std::int32_t column = 0; column < n; ++column) {
      const double got = out(a_layer, row, column);
      errors.expect(std::isnan(got) != counts, counts ? "what was not written" : "what was not to be written", out_row,
                    column, got, std::nan(""));
    }
  });
  return found;
}

}  // namespace tilewave::bench
