// SPDX-License-Identifier: MIT
// GemmCall makes a GEMM on the device of a few numbers, runs it and says what is wrong with its output.
#pragma once

#include "test/ops/gemm/operands.hpp"
#include "tilewave/ops/gemm/registry.hpp"
#include "tilewave/reference/gemm.hpp"

namespace tilewave::test {

/// The numbers of a call.
struct GemmShape {
  std::int32_t m = 1, n = 1, k = 64;
  std::int32_t batch = 1;
  /// Rows of each group. Contiguous groups have m rows in all, masked ones have room for m rows each.
  std::vector<std::int32_t> rows = {};
  int gap = 0;  // elements between rows, for a and b rounded up to 16 bytes
  bool bias = false, residual = false, transposed_scales = false, batch_invariant = false;
  bool interleaved = false, rms_norm = false;
  bool a_squares = false, out_squares = false;  // GemmProblem's
  float alpha = 1;
  int splits = 1;
  bool heads = false;  // Rows of a, out and residual of all batches lie side by side.
  /// The table of groups says so many rows too many, where a group has all rows or is the last.
  std::int32_t beyond = 0;
};

inline std::string name_of(const GemmShape& s) {
  std::string name = std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
  if (s.batch > 1) name += " batch " + std::to_string(s.batch);
  for (const std::int32_t r : s.rows) name += " g" + std::to_string(r);
  if (s.interleaved) name += " interleaved";
  if (s.rms_norm) name += s.a_squares ? " normed by squares" : " normed";
  if (s.out_squares) name += " squared";
  if (s.splits > 1) name += " splits " + std::to_string(s.splits);
  return name;
}

/// Returns a value of a, b, bias, residual or scales. An MX scale is a power of two for 32 k.
using GemmValues = float (*)(char tensor, std::int64_t row, std::int64_t column);
inline float gemm_random(char tensor, std::int64_t row, std::int64_t column) {
  const float v = drawn(tensor, row, column);
  if (tensor == 'x' || tensor == 'y') return std::ldexp(1.0f, static_cast<int>(std::floor(2 * v)));
  return tensor == 's' || tensor == 't' ? 0.5f + 0.125f * v : v;
}

/// The tensors of a call. Memory that belongs to no operand is poison.
class GemmCall {
 public:
  GemmCall(const GemmSpec& spec, const GemmShape& s, GemmValues values = gemm_random)
      : spec_(spec),
        s_(s),
        columns_(spec.gated ? s.n / 2 : s.n),
        layers_(spec.groups == GemmGroups::one ? s.batch : static_cast<std::int32_t>(s.rows.size())),
        a_layers_(spec.groups == GemmGroups::contiguous ? 1 : layers_),
        a_rows_(transposed_a(spec.layout) ? s.k : s.m),
        a_columns_(transposed_a(spec.layout) ? s.m : s.k / packing_of(spec.a) * stored_size(spec.a)),
        b_rows_(preshuffled()               ? 1
                : transposed_b(spec.layout) ? s.k
                                            : s.n),
        b_columns_(preshuffled()               ? s.n * s.k / packing_of(spec.b)
                   : transposed_b(spec.layout) ? s.n
                                               : s.k / packing_of(spec.b) * stored_size(spec.b)),
        operand_(strides(a_columns_, a_rows_, spec.a)),
        weights_(preshuffled() ? RowStrides{b_columns_, 0} : strides(b_columns_, b_rows_, spec.b)),
        output_(strides(columns_, s.m, DType::f32)),
        added_(strides(columns_ + (s.gap > 0 ? 8 : 0), s.m, DType::f32)),
        a_(stored(spec.a), a_layers_ * a_rows_, whole(a_columns_, spec.a), a_rows_, operand_),
        b_(stored(spec.b), layers_ * b_rows_, whole(b_columns_, spec.b), b_rows_, weights_),
        out_(spec.out, a_layers_ * s.m, columns_, s.m, output_),
        residual_(spec.extra(), a_layers_ * s.m, columns_, s.m, added_),
        bias_(spec.extra(), layers_, s.n, 1, {s.n + s.gap, 0}),
        a_scale_(DType::f32, a_layers_, a_scales(), 1, {a_scales(), 0}),
        b_scale_(DType::f32, layers_, b_scales(), 1, {b_scales(), 0}),
        a_mx_(DType::i8, a_layers_, mx_scales(s.m), 1, {mx_stride(s.m), 0}),
        b_mx_(DType::i8, layers_, mx_scales(s.n), 1, {mx_stride(s.n), 0}),
        group_scale_(stored(spec.group_scale()), layers_ * k_groups(), s.n, k_groups(), group_strides()),
        zero_(DType::i8, layers_ * k_groups(), s.n, k_groups(), group_strides()),
        a_squares_(DType::f32, s.a_squares ? s.m : 1, squares(s.k), 1, {squares(s.k), 0}),
        out_squares_(DType::f32, s.out_squares ? s.m : 1, squares(s.n), 1, {squares(s.n), 0}),
        out_scale_(DType::f32, per_group() ? a_layers_ * s.m : 1, out_scales(), 1, {out_scales() + s.gap, 0}) {
    if (spec.out_scale == Scaling::per_tensor) out_scale_.set(1, 1, [](int, int) { return given_scale; });
    a_.set(a_layers_ * a_rows_, a_columns_, [&](int r, int c) {
      const bool transposed = transposed_a(spec.layout);
      return operand(spec.a, transposed ? r % s.k : c,
                     [&](std::int64_t k) { return values('a', transposed ? std::int64_t{r} / s.k * s.m + c : r, k); });
    });
    if (spec.four_bit()) {
      std::vector<std::vector<std::uint8_t>> bytes;
      for (std::int32_t layer = 0; layer < layers_; ++layer) {
        bytes.push_back(four_bit_weights(spec.b, spec.weights, s.n, s.k, [&](std::int64_t r, std::int64_t c) {
          return values('b', std::int64_t{layer} * s.n + r, c);
        }));
      }
      b_.set(layers_, b_columns_, [&](int layer, int at) { return static_cast<std::int8_t>(bytes[layer][at]); });
      group_scale_.set(layers_ * k_groups(), s.n, [&](int r, int c) {
        const float scale = values('t', r, c);  // of mxfp4 the power of two below
        return spec.mxfp4() ? static_cast<float>(static_cast<std::int8_t>(127 + std::ilogb(scale))) : scale;
      });
      zero_.set(layers_ * k_groups(), s.n,
                [&](int r, int c) { return std::max(-8.0f, std::floor(8 * values('z', r, c))); });
    } else if (preshuffled()) {
      b_.set(layers_, b_columns_, [&](int layer, int at) {
        return preshuffled_byte(spec.b, at, b_columns_ / s.n, [&](std::int64_t row, std::int64_t k) {
          return values('b', std::int64_t{layer} * s.n + row, k);
        });
      });
    } else {
      b_.set(layers_ * b_rows_, b_columns_, [&](int r, int c) {
        const bool transposed = transposed_b(spec.layout);
        return operand(spec.b, transposed ? r % s.k : c, [&](std::int64_t k) {
          return values('b', transposed ? std::int64_t{r} / s.k * s.n + c : r, k);
        });
      });
    }
    if (spec.mx()) {
      const auto of = [&](char name) {
        return [&, name](std::int64_t row, int group) { return values(name, row, group); };
      };
      set_mx_scales(a_mx_, a_layers_, s.m, s.k, of('x'));
      set_mx_scales(b_mx_, layers_, s.n, s.k, of('y'));
    }
    if (s.a_squares)
      a_squares_.set(s.m, s.k / gemm_squares_columns, [&](int r, int c) { return sum_of_squares(a_, r, c); });
    residual_.set(a_layers_ * s.m, columns_, [&](int r, int c) { return values('r', r, c); });
    bias_.set(layers_, s.n, [&](int r, int c) { return values('i', r, c); });
    a_scale_.set(a_layers_, a_scales(), [&](int r, int c) { return values('s', r, c); });
    b_scale_.set(layers_, b_scales(), [&](int r, int c) { return values('t', r, c); });
    std::int32_t row = 0;
    for (const std::int32_t r : s.rows) {
      table_.push_back(spec.groups == GemmGroups::contiguous ? row : r);
      row += r;
    }
    if (spec.groups == GemmGroups::contiguous) table_.push_back(row);
    std::vector<std::int32_t> given = table_;  // to the device
    for (std::int32_t& value : given)
      if (value == s.m) value += s.beyond;
    table_on_device_ = bench::DeviceBuffer(table_.size() * sizeof(table_[0]));
    if (!table_.empty()) {
      bench::check_hip(
          hipMemcpy(table_on_device_.data(), given.data(), table_on_device_.bytes(), hipMemcpyHostToDevice),
          "copying the table of groups");
    }
  }

  GemmProblem on_device() const {
    GemmProblem p = problem([](const Tensor& t) -> const void* { return t.device(); });
    const auto* const table = static_cast<const std::int32_t*>(table_on_device_.data());
    (spec_.groups == GemmGroups::contiguous ? p.group_offsets : p.group_rows) = table;
    if (spec_.groups == GemmGroups::one) p.group_rows = nullptr;
    return p;
  }

  /// Runs the entry, and returns what is wrong with its output. `change` changes the problem, but not its answer.
  std::string run(const GemmEntry& entry, void (*change)(GemmProblem&) = nullptr) {
    GemmProblem p = on_device();
    if (change != nullptr) change(p);
    const std::size_t bytes = gemm_workspace_size(p, entry.policy, s_.splits);
    const bench::DeviceBuffer workspace(static_cast<std::size_t>(bytes));
    workspace.fill(unread_byte);
    p.workspace = workspace.data();
    p.workspace_bytes = bytes;
    const Status status = entry.launch(p, s_.splits, {});
    if (!status.ok()) return std::string(tilewave::name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    out_.download();
    if (per_group()) out_scale_.download();
    if (s_.out_squares) out_squares_.download();
    return wrong(facts_of(entry.arch), entry.emulated);
  }

  Tensor& out() { return out_; }
  /// Returns the largest error of the first matrix of out after a run, relative to its values.
  double largest_error() const {
    const GemmProblem p = on_host();
    const reference::Gemm wanted(p);
    double largest = 0;
    for (std::int32_t row = 0; row < s_.m; ++row) {
      for (std::int32_t column = 0; column < columns_; ++column) {
        const double value = wanted.at(0, row, column).value;
        largest = std::max(largest, std::abs(out_.at(row, column) - value) / std::abs(value));
      }
    }
    return largest;
  }

 private:
  static constexpr float given_scale = 0.0625f;  // of out, per_tensor

  static std::int32_t squares(std::int32_t columns) { return std::max(1, columns / gemm_squares_columns); }
  static float sum_of_squares(const Tensor& rows, int row, int number) {
    float sum = 0;
    for (int c = number * gemm_squares_columns; c < (number + 1) * gemm_squares_columns; ++c)
      sum += static_cast<float>(rows.at(row, c) * rows.at(row, c));
    return sum;
  }

  bool preshuffled() const { return spec_.in_strips(); }
  bool block() const { return spec_.scale == Scaling::per_block; }
  bool per_group() const { return spec_.out_scale == Scaling::per_group; }
  std::int32_t out_scales() const { return per_group() ? std::max(1, ceil_div(columns_, scale_group)) : 1; }
  std::int32_t k_blocks() const { return std::max(1, ceil_div(s_.k, gemm_scale_block)); }
  bool row_scales_of_a() const { return spec_.scale == Scaling::per_row || (spec_.four_bit() && is_fp8(spec_.a)); }
  std::int32_t a_scales() const { return block() ? s_.m * k_blocks() : row_scales_of_a() ? std::max(s_.m, 1) : 1; }
  std::int32_t k_groups() const { return spec_.four_bit() ? s_.k / spec_.scale_k : 0; }
  RowStrides group_strides() const {
    const std::int64_t row = align_up(s_.n + s_.gap, 4);
    return {std::max(k_groups(), 1) * row + 4 * (s_.gap > 0), row};
  }
  /// Return the bytes of the shuffled scales of so many rows, and those from a layer to the next.
  std::int32_t mx_scales(std::int32_t rows) const { return spec_.mx() ? mx_scale_bytes(rows, s_.k) : 0; }
  std::int64_t mx_stride(std::int32_t rows) const { return mx_scales(rows) + 16 * (s_.gap > 0); }
  std::int32_t b_scales() const {
    return block()                           ? ceil_div(s_.n, gemm_scale_block) * k_blocks()
           : spec_.scale == Scaling::per_row ? std::max(s_.n, 1)
                                             : 1;
  }
  /// Returns the elements of a row that is whole 16 bytes.
  static std::int32_t whole(std::int32_t k, DType type) { return align_up(k, 16 / size_of(stored(type))); }
  /// Returns the strides of rows, and of layers with a gap of their own.
  RowStrides strides(std::int64_t columns, std::int64_t rows, DType type) const {
    const std::int64_t unit = type == DType::f32 ? 1 : elements_of_unit(type) * stored_size(type);
    const std::int64_t row = align_up(columns + s_.gap, unit);
    if (s_.heads) return {row, layers_ * row};
    return {rows * row + unit * (s_.gap > 0), row};
  }

  template <class Data>
  GemmProblem problem(const Data& data) const {
    const bool scales = spec_.scale != Scaling::none && !spec_.mx();
    GemmProblem p;
    p.spec = spec_;
    p.a = data(a_);
    p.b = data(b_);
    p.out = const_cast<void*>(data(out_));
    if (spec_.four_bit()) {
      if (row_scales_of_a()) p.a_scale = static_cast<const float*>(data(a_scale_));
      p.b_group_scale = data(group_scale_);
      if (spec_.zero_points) p.b_zero = static_cast<const std::int8_t*>(data(zero_));
      p.b_scale_k_stride = group_strides().inner;
    } else if (scales) {
      p.a_scale = static_cast<const float*>(data(a_scale_));
      p.b_scale = static_cast<const float*>(data(b_scale_));
    }
    if (spec_.mx()) {
      p.a_mx_scale = static_cast<const std::uint8_t*>(data(a_mx_));
      p.b_mx_scale = static_cast<const std::uint8_t*>(data(b_mx_));
      p.a_scale_batch_stride = mx_stride(s_.m), p.b_scale_batch_stride = mx_stride(s_.n);
    }
    if (spec_.out_scale != Scaling::none)
      p.out_scale = static_cast<float*>(const_cast<void*>(static_cast<const void*>(data(out_scale_))));
    if (per_group()) {
      p.out_scale_stride = out_scales() + s_.gap;
      p.out_scale_batch_stride = s_.m * p.out_scale_stride;
    }
    if (s_.bias) p.bias = data(bias_), p.bias_batch_stride = s_.n + s_.gap;
    if (s_.residual) {
      p.residual = data(residual_);
      p.residual_stride = added_.inner, p.residual_batch_stride = added_.outer;
    }
    p.alpha = s_.alpha;
    p.b_ready = s_.m % 2 == 1;  // true of all, and said of half of them
    p.interleaved = s_.interleaved;
    if (s_.rms_norm) p.rms_norm = true, p.norm_eps = 1e-3f;
    if (s_.a_squares) p.a_squares = static_cast<const float*>(data(a_squares_));
    if (s_.out_squares) p.out_squares = static_cast<float*>(const_cast<void*>(data(out_squares_)));
    p.m = s_.m, p.n = s_.n, p.k = s_.k;
    p.batch = spec_.groups == GemmGroups::one ? s_.batch : 1;
    p.groups = spec_.groups == GemmGroups::one ? 0 : layers_;
    const int of_a = stored_size(spec_.a), of_b = stored_size(spec_.b);
    p.a_stride = operand_.inner / of_a, p.a_batch_stride = operand_.outer / of_a;
    p.b_stride = weights_.inner / of_b, p.b_batch_stride = weights_.outer / of_b;
    p.out_stride = output_.inner, p.out_batch_stride = output_.outer;
    if (block()) {
      p.a_scale_stride = s_.transposed_scales ? 1 : k_blocks();
      p.a_scale_k_stride = s_.transposed_scales ? s_.m : 1;
      p.b_scale_stride = k_blocks(), p.b_scale_k_stride = 1;
    }
    if (row_scales_of_a() || block()) p.a_scale_batch_stride = a_scales();
    if (spec_.scale == Scaling::per_row || block()) p.b_scale_batch_stride = b_scales();
    if (spec_.four_bit()) p.b_scale_batch_stride = group_strides().outer;
    p.batch_invariant = s_.batch_invariant;
    return p;
  }

  /// Returns the scale of an element of out.
  double unit_of(std::int32_t row, std::int32_t column) const {
    return per_group() ? out_scale_.at(row, column / scale_group) : spec_.out_scale == Scaling::none ? 1 : given_scale;
  }
  double largest() const {
    return spec_.out_scale == Scaling::none ? std::numeric_limits<double>::infinity() : largest_code(spec_.out);
  }
  /// Returns the right scale of 128 columns of a row, and by how much a kernel's may differ.
  std::pair<double, double> right_scale(const std::vector<reference::GemmValue>& values, std::int32_t first,
                                        double sums) const {
    double amax = 0, magnitude = 0, lost = 0;
    for (std::int32_t c = first; c < std::min(first + scale_group, columns_); ++c) {
      amax = std::max(amax, std::abs(values[c].value));
      magnitude = std::max(magnitude, values[c].magnitude);
      lost = std::max(lost, values[c].lost);
    }
    return {reference::scale_of(amax, spec_.out), 1e-6 * amax + 1.2 * sums * magnitude + lost};
  }

  GemmProblem on_host() const {
    GemmProblem p = problem([](const Tensor& t) { return t.host(); });
    const auto set_strides = [](const Tensor& t, DType type, std::int64_t& inner, std::int64_t& outer) {
      inner = t.host_strides().inner / stored_size(type), outer = t.host_strides().outer / stored_size(type);
    };
    set_strides(a_, spec_.a, p.a_stride, p.a_batch_stride);
    set_strides(b_, spec_.b, p.b_stride, p.b_batch_stride);
    if (s_.residual) set_strides(residual_, spec_.out, p.residual_stride, p.residual_batch_stride);
    p.group_offsets = p.group_rows = table_.data();
    return p;
  }

  std::string wrong(const ArchFacts& facts, bool emulated) const {
    const GemmProblem p = on_host();
    if (!out_.gaps_kept(a_layers_ * s_.m, columns_)) return "wrote between rows";
    const reference::Gemm wanted(p, reference::gemm_unit(facts.id, emulated, spec_));
    std::vector<bool> written(static_cast<std::size_t>(a_layers_) * s_.m);
    // Every addition rounds once, but none of i8. The reference says how much a matrix unit cuts off besides.
    const double sums = spec_.a == DType::i8 ? 8 * 0x1p-24 : (s_.k + 32) * 0x1p-24;
    for (std::int32_t layer = 0; layer < wanted.layers(); ++layer) {
      for (std::int32_t row = wanted.first_row(layer); row < wanted.end_row(layer); ++row) {
        const std::int32_t out_row = wanted.a_layer(layer) * s_.m + row;
        written[out_row] = true;
        std::vector<reference::GemmValue> values;
        for (std::int32_t column = 0; column < columns_; ++column) values.push_back(wanted.at(layer, row, column));
        for (std::int32_t column = 0; column < columns_; ++column) {
          const auto where = [&] {
            return "layer " + std::to_string(layer) + " row " + std::to_string(row) + " column " +
                   std::to_string(column) + ": ";
          };
          const double unit = unit_of(out_row, column);
          if (per_group() && column % scale_group == 0) {
            const auto [right, slack] = right_scale(values, column, sums);
            if (!(std::abs(unit - right) <= slack))
              return where() + "scale " + std::to_string(unit) + ", not " + std::to_string(right);
          }
          const double code = std::clamp(values[column].value / unit, -largest(), largest());
          const double got = out_.at(out_row, column),
                       slack = (1.2 * sums * values[column].magnitude + values[column].lost) / unit;
          const double step = spec_.out == DType::i8 ? 1.0 : half_step(spec_.out, code);
          if (!(std::abs(got - code) <= slack + 1.01 * step))
            return where() + std::to_string(got) + ", not " + std::to_string(code);
        }
      }
    }
    for (std::int32_t row = 0; row < s_.m && s_.out_squares; ++row) {
      for (std::int32_t number = 0; number < columns_ / gemm_squares_columns; ++number) {
        const double got = out_squares_.at(row, number), right = sum_of_squares(out_, row, number);
        if (!(std::abs(got - right) <= 1e-5 * right))
          return "squares of row " + std::to_string(row) + ": " + std::to_string(got) + ", not " +
                 std::to_string(right);
      }
    }
    for (std::size_t row = 0; row < written.size(); ++row) {
      for (std::int32_t column = 0; column < columns_ && !written[row]; ++column)
        if (!out_.untouched(static_cast<std::int32_t>(row), column))
          return "wrote row " + std::to_string(row) + " of no group";
    }
    return "";
  }

  GemmSpec spec_;
  GemmShape s_;
  std::int32_t columns_;  // of out
  std::int32_t layers_, a_layers_;
  std::int32_t a_rows_, a_columns_, b_rows_, b_columns_;  // of a matrix as it lies in memory
  RowStrides operand_, weights_, output_, added_;         // added_: of residual; differs from out's if there are gaps
  Tensor a_, b_, out_, residual_, bias_, a_scale_, b_scale_, a_mx_, b_mx_, group_scale_, zero_, a_squares_,
      out_squares_, out_scale_;
  std::vector<std::int32_t> table_;
  bench::DeviceBuffer table_on_device_;
};

}  // namespace tilewave::test
