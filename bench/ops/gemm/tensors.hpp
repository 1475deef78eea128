// SPDX-License-Identifier: MIT
// The tensors of a config of bench_gemm, and how they are filled.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "bench/ops/gemm/case.hpp"

namespace tilewave::bench {

/// Nearly normal numbers of a type. Each is the sum of four random bytes, and a hash gives two of them.
class NormalElements {
 public:
  NormalElements(DType type, float deviation) : size_(size_of(type)) {
    const float unit = deviation / std::sqrt((256.0f * 256 - 1) / 3);
    for (int sum = 0; sum < sums; ++sum)
      set_element(type, elements_.data() + sum * size_, 0, unit * static_cast<float>(sum - sums / 2));
  }
  void fill(std::byte* to, std::int64_t count, std::uint64_t key) const {
    for (std::int64_t i = 0; i < count; i += 2) {
      const std::uint64_t bits = mix64(key + static_cast<std::uint64_t>(i + 2) * 0x9e3779b97f4a7c15ull);
      constexpr std::uint64_t low_bytes = 0x00ff00ff00ff00ffull;
      const std::uint64_t pairs = (bits & low_bytes) + (bits >> 8 & low_bytes), fours = pairs + (pairs >> 16);
      store(to + i * size_, fours & 0xffff);
      if (i + 1 < count) store(to + (i + 1) * size_, fours >> 32 & 0xffff);
    }
  }

 private:
  static constexpr int sums = 4 * 255 + 1;

  void store(std::byte* to, std::uint64_t sum) const {
    if (size_ == 1) {
      *to = elements_[sum];
    } else {
      std::memcpy(to, elements_.data() + 2 * sum, 2);
    }
  }

  int size_;
  std::array<std::byte, 2 * sums> elements_{};
};

/// The tensors of a config, each on the host and on the device.
struct GemmTensors {
  TwinBuffer a, b, out, a_scale, b_scale, b_zero, out_scale, bias, table;
};

/// Returns the standard deviation of an operand's elements: 1, or that of codes where a row's largest becomes a large
/// code.
inline float deviation_of(DType type) {
  return is_fp8(type)              ? 48.0f
         : type == DType::i8       ? 36.0f
         : type == DType::i4       ? 4.6f
         : type == DType::fp4_e2m1 ? 2.5f
         : type == DType::fp6_e2m3 ? 3.3f
         : type == DType::fp6_e3m2 ? 9.2f
                                   : 1.0f;
}

/// Fills rows with codes of four or six bits. All codes are equally likely, so it does not matter how they are
/// shuffled.
inline TwinBuffer filled_codes(const GemmCase& c, DType type, char name, std::int64_t rows, int threads) {
  const std::int64_t row_bytes = GemmCase::operand_stride(type, c.k) * size_of(type);
  TwinBuffer buffer(static_cast<std::size_t>(rows * row_bytes));
  if (!fills(buffer.bytes())) return buffer;
  reference::parallel_for(rows, threads, [&](std::int64_t r) {
    const std::uint64_t key = random_bits({c.seed, static_cast<std::uint64_t>(name), static_cast<std::uint64_t>(r)});
    for (std::int64_t at = 0; at < row_bytes; at += 8) {  // A row has at least 32 codes.
      const std::uint64_t bits = mix64(key + static_cast<std::uint64_t>(at + 8) * 0x9e3779b97f4a7c15ull);
      std::memcpy(buffer.host() + r * row_bytes + at, &bits, 8);
    }
  });
  buffer.upload();
  return buffer;
}

/// Fills rows of `columns` elements, in rows or preshuffled. What lies between rows is poison.
inline TwinBuffer filled_operand(const GemmCase& c, DType type, char name, std::int64_t rows, std::int32_t columns,
                                 bool preshuffled, int threads) {
  if (packing_of(type) > 1) return filled_codes(c, type, name, rows, threads);
  const int size = size_of(type);
  const std::int64_t row_bytes = (preshuffled ? columns : GemmCase::operand_stride(type, columns)) * size;
  const NormalElements normal(type, deviation_of(type));
  TwinBuffer buffer(static_cast<std::size_t>(rows * row_bytes));
  if (!fills(buffer.bytes())) return buffer;
  reference::parallel_for(rows, threads, [&](std::int64_t r) {
    std::vector<std::byte> row(static_cast<std::size_t>(row_bytes), static_cast<std::byte>(poison_byte(type)));
    normal.fill(row.data(), columns,
                random_bits({c.seed, static_cast<std::uint64_t>(name), static_cast<std::uint64_t>(r)}));
    if (!preshuffled) {
      std::memcpy(buffer.host() + r * row_bytes, row.data(), row.size());
      return;
    }
    constexpr int unit = 16;  // bytes of a row, and rows that follow each other
    for (std::int64_t at = 0; at < row_bytes; at += unit)
      std::memcpy(buffer.host() + r / unit * unit * row_bytes + at * unit + r % unit * unit, row.data() + at, unit);
  });
  buffer.upload();
  return buffer;
}

/// Fills scales. They differ within a factor of 3, so that a scale at the wrong element shows.
inline TwinBuffer filled_scales(const GemmCase& c, char name, std::int64_t rows, std::int64_t columns, int threads) {
  const float usual = 1 / deviation_of(c.spec.a);
  return filled(
      DType::f32, static_cast<std::int32_t>(rows), static_cast<std::int32_t>(columns), threads,
      [&](std::int64_t r, std::int64_t column) { return usual * (1 + 0.5f * drawn(c.seed, name, r, column)); });
}

/// Fills shuffled e8m0 codes, each one of four powers of two. The padding is NaN.
inline TwinBuffer filled_mx_scales(const GemmCase& c, char name, std::int64_t layers, std::int64_t rows, int threads) {
  const std::int64_t layer_bytes = c.mx_scales(rows), row_scales = c.k / mx_group;
  const auto eights = static_cast<int>(ceil_div<std::int64_t>(row_scales, 8));
  TwinBuffer buffer(static_cast<std::size_t>(layers * layer_bytes));
  if (!fills(buffer.bytes())) return buffer;
  std::memset(buffer.host(), 0xff, buffer.bytes());
  const int usual = 127 - std::ilogb(deviation_of(c.spec.a));
  reference::parallel_for(layers * rows, threads, [&](std::int64_t r) {
    const std::uint64_t key = random_bits({c.seed, static_cast<std::uint64_t>(name), static_cast<std::uint64_t>(r)});
    std::byte* const layer = buffer.host() + r / rows * layer_bytes;
    for (int i = 0; i < row_scales; ++i) {
      const auto code = usual - 2 + static_cast<int>(mix64(key + static_cast<std::uint64_t>(i)) % 4);
      layer[shuffled_scale(r % rows, i, eights)] = static_cast<std::byte>(code);
    }
  });
  buffer.upload();
  return buffer;
}

/// Fills all tensors of a config.
inline GemmTensors fill(const GemmCase& c, int threads) {
  GemmTensors t;
  const std::int64_t a_rows = std::int64_t{c.a_layers()} * c.m, b_rows = std::int64_t{c.layers()} * c.n;
  t.a = filled_operand(c, c.spec.a, 'a', c.a_layers() * c.rows_of_a(), transposed_a(c.spec.layout) ? c.m : c.k, false,
                       threads);
  t.b = filled_operand(c, c.spec.b, 'b', c.layers() * c.rows_of_b(), transposed_b(c.spec.layout) ? c.n : c.k,
                       c.preshuffled(), threads);
  t.out = TwinBuffer(static_cast<std::size_t>(a_rows * c.out_columns() * size_of(c.spec.out)), name_of(c.spec.out));
  if (c.has(Scaling::per_tensor)) {
    t.a_scale = filled_scales(c, 's', 1, 1, threads);
    t.b_scale = filled_scales(c, 't', 1, 1, threads);
  } else if (c.has(Scaling::per_row)) {
    t.a_scale = filled_scales(c, 's', a_rows, 1, threads);
    t.b_scale = filled_scales(c, 't', b_rows, 1, threads);
  } else if (c.has(Scaling::per_block)) {
    t.a_scale = filled_scales(c, 's', std::int64_t{c.a_layers()} * c.k_blocks(), c.m, threads);
    t.b_scale =
        filled_scales(c, 't', std::int64_t{c.layers()} * ceil_div(c.n, gemm_scale_block), c.k_blocks(), threads);
  } else if (c.spec.mx()) {
    t.a_scale = filled_mx_scales(c, 's', c.a_layers(), c.m, threads);
    t.b_scale = filled_mx_scales(c, 't', c.layers(), c.n, threads);
  } else if (c.has(Scaling::per_group)) {
    if (c.row_scales_of_a()) t.a_scale = filled_scales(c, 's', a_rows, 1, threads);
    const std::int32_t rows = c.layers() * (c.k / c.spec.scale_k);
    if (c.spec.mxfp4()) {  // one of four powers of two
      t.b_scale = filled(DType::i8, rows, c.n, threads, [&](std::int64_t r, std::int64_t column) {
        return 125 + std::floor(2 * drawn(c.seed, 't', r, column));
      });
    } else {
      t.b_scale = filled(c.spec.group_scale(), rows, c.n, threads, [&](std::int64_t r, std::int64_t column) {
        return (1 + 0.5f * drawn(c.seed, 't', r, column)) / deviation_of(c.spec.b);
      });
    }
    if (c.spec.zero_points) {
      t.b_zero = filled(DType::i8, rows, c.n, threads, [&](std::int64_t r, std::int64_t column) {
        return std::floor(8 * drawn(c.seed, 'z', r, column));
      });
    }
  }
  if (c.spec.out_scale == Scaling::per_tensor) {  // Values of gate x up are of the order of k.
    t.out_scale = filled(DType::f32, 1, 1, threads, [&](std::int64_t, std::int64_t) { return c.k / 16.0f; });
  } else if (c.out_scales() > 0) {
    t.out_scale = TwinBuffer(static_cast<std::size_t>(a_rows * c.out_scales() * 4), name_of(DType::f32));
  }
  if (c.bias) {
    const float large = std::sqrt(static_cast<float>(c.k));
    t.bias = filled(c.spec.extra(), c.layers(), c.n, threads,
                    [&](std::int64_t r, std::int64_t column) { return large * drawn(c.seed, 'i', r, column); });
  }
  const std::vector<std::int32_t> table = group_table(c);
  t.table = TwinBuffer(table.size() * sizeof(std::int32_t));
  if (!table.empty()) std::memcpy(t.table.host(), table.data(), t.table.bytes());
  t.table.upload();
  return t;
}
/// Fills out and the scales that a product finds with poison, so that what is not written shows.
inline void poison_output(const GemmCase& c, const GemmTensors& t) {
  if (t.out.bytes() > 0 && fills(t.out.bytes())) std::memset(t.out.host(), poison_byte(c.spec.out), t.out.bytes());
  t.out.upload();
  if (c.out_scales() == 0) return;
  if (t.out_scale.bytes() > 0 && fills(t.out_scale.bytes()))
    std::memset(t.out_scale.host(), poison_byte(DType::f32), t.out_scale.bytes());
  t.out_scale.upload();
}

/// Returns the problem of a config. address(buffer) gives a tensor's address on the device or on the host. Block scales
/// of A lie as [K / 128, M].
template <class Address>
GemmProblem problem_of(const GemmCase& c, const GemmTensors& t, const Address& address) {
  const std::int64_t m = c.m, n = c.n, k_blocks = c.k_blocks();
  GemmProblem p;
  p.spec = c.spec;
  p.a = address(t.a);
  p.b = address(t.b);
  p.out = address(t.out);
  if (c.has(Scaling::per_group)) {
    if (c.row_scales_of_a()) p.a_scale = static_cast<const float*>(address(t.a_scale));
    p.b_group_scale = address(t.b_scale);
    if (c.spec.zero_points) p.b_zero = static_cast<const std::int8_t*>(address(t.b_zero));
    p.b_scale_k_stride = n, p.b_scale_batch_stride = n * (c.k / c.spec.scale_k);
  } else if (c.spec.mx()) {
    p.a_mx_scale = static_cast<const std::uint8_t*>(address(t.a_scale));
    p.b_mx_scale = static_cast<const std::uint8_t*>(address(t.b_scale));
    p.a_scale_batch_stride = c.mx_scales(m), p.b_scale_batch_stride = c.mx_scales(n);
  } else if (c.spec.scale != Scaling::none) {
    p.a_scale = static_cast<const float*>(address(t.a_scale));
    p.b_scale = static_cast<const float*>(address(t.b_scale));
  }
  if (c.spec.out_scale != Scaling::none) p.out_scale = static_cast<float*>(address(t.out_scale));
  if (c.out_scales() > 0) p.out_scale_stride = c.out_scales(), p.out_scale_batch_stride = c.out_scales() * c.m;
  if (c.bias) p.bias = address(t.bias), p.bias_batch_stride = n;
  const auto* const table = static_cast<const std::int32_t*>(address(t.table));
  if (c.grouped()) (c.contiguous() ? p.group_offsets : p.group_rows) = table;
  p.m = c.m, p.n = c.n, p.k = c.k;
  p.batch = c.batch, p.groups = c.groups;
  if (c.grouped() && !c.contiguous()) p.expected_group_rows = c.group_rows;
  p.a_stride = c.a_stride();
  p.b_stride = c.preshuffled() ? 0 : c.b_stride();
  p.out_stride = c.out_columns();
  p.a_batch_stride = c.rows_of_a() * p.a_stride;
  p.b_batch_stride = c.weight_bytes() / size_of(c.spec.b);
  p.out_batch_stride = m * p.out_stride;
  if (c.row_scales_of_a()) p.a_scale_batch_stride = m;
  if (c.has(Scaling::per_row)) {
    p.b_scale_batch_stride = n;
  } else if (c.has(Scaling::per_block)) {
    const std::int64_t rows = ceil_div(c.n, gemm_scale_block);
    p.a_scale_stride = 1, p.a_scale_k_stride = m, p.a_scale_batch_stride = m * k_blocks;
    p.b_scale_stride = k_blocks, p.b_scale_k_stride = 1, p.b_scale_batch_stride = rows * k_blocks;
  }
  return p;
}

}  // namespace tilewave::bench
