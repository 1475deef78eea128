// SPDX-License-Identifier: MIT
// A shape that time_choice times, and operands that all of its shapes have in common.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "bench/harness/device.hpp"
#include "bench/harness/element.hpp"
#include "bench/harness/random.hpp"
#include "bench/ops/gemm/recorded_names.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/gemm/problem.hpp"

namespace tilewave::bench {

inline constexpr std::int64_t choice_period = std::int64_t{32} << 20;  // bytes after which operands repeat
inline constexpr std::int32_t rotated_rows = 384;
inline constexpr int rotated_copies = emulated_device ? 1 : 8;

struct ChoiceShape {
  std::string run, spec;
  std::int32_t m, n, k;
  int samples;
  bool peer;

  std::int64_t copies() const { return m <= rotated_rows ? rotated_copies : 1; }
  std::int64_t weight_bytes(const GemmSpec& s) const { return std::int64_t{n} * k * size_of(s.b) / packing_of(s.b); }
  /// From one copy of the weights to the next, which has the same values.
  std::int64_t weight_stride(const GemmSpec& s) const { return align_up(weight_bytes(s), choice_period); }
};

/// The most bytes that a shape wants of each tensor.
struct ChoiceSizes {
  std::int64_t a = choice_period, b = choice_period, out = 256, scales = 256;

  void add(const ChoiceShape& shape) {
    const GemmSpec& s = recorded_spec(shape.spec);
    const std::int64_t m = shape.m, n = shape.n, k = shape.k;
    a = std::max(a, align_up(m * k * size_of(s.a), choice_period));
    b = std::max(b, shape.copies() * shape.weight_stride(s));
    out = std::max(out, align_up(m * n * size_of(s.out), std::int64_t{256}));
    const std::int64_t of_k = ceil_div(k, std::int64_t{gemm_scale_block});
    scales = std::max(scales, align_up(4 * std::max(m, n) * of_k, std::int64_t{256}));
  }
};

/// Operands that all shapes have in common: values repeat after choice_period bytes.
class ChoiceOperands {
 public:
  explicit ChoiceOperands(const ChoiceSizes& sizes)
      : a_(sizes.a), b_(sizes.b), out_(sizes.out), a_scale_(sizes.scales), b_scale_(sizes.scales) {}

  void fill(const GemmSpec& s) {
    if (filled_ && s == spec_) return;
    fill(a_, s.a, deviation(s.a), 1);
    fill(b_, s.b, deviation(s.b), 2);
    if (s.scale != Scaling::none) {
      const bool groups = s.scale == Scaling::per_group;
      fill_scales(a_scale_, groups ? s.group_scale() : DType::f32, 1 / deviation(s.a));
      fill_scales(b_scale_, groups ? s.group_scale() : DType::f32, 1 / deviation(s.b));
    }
    spec_ = s, filled_ = true;
  }

  GemmProblem problem(const ChoiceShape& shape) const {
    GemmProblem p;
    p.spec = spec_;
    p.a = a_.data(), p.b = b_.data(), p.out = out_.data();
    p.m = shape.m, p.n = shape.n, p.k = shape.k;
    p.a_stride = p.b_stride = p.k, p.out_stride = p.n;
    if (spec_.four_bit()) {
      p.b_stride = 0, p.b_group_scale = b_scale_.data(), p.b_scale_k_stride = p.n;
      return p;
    }
    if (spec_.scale == Scaling::none) return p;
    p.a_scale = static_cast<const float*>(a_scale_.data()), p.b_scale = static_cast<const float*>(b_scale_.data());
    if (spec_.scale == Scaling::per_block) {
      p.a_scale_stride = 1, p.a_scale_k_stride = p.m;
      p.b_scale_stride = ceil_div(p.k, gemm_scale_block), p.b_scale_k_stride = 1;
    }
    return p;
  }
  const DeviceBuffer& out() const { return out_; }
  const void* weights(const ChoiceShape& shape, std::int64_t copy) const {
    return static_cast<const char*>(b_.data()) + copy % shape.copies() * shape.weight_stride(spec_);
  }

 private:
  DeviceBuffer a_, b_, out_, a_scale_, b_scale_;
  GemmSpec spec_{};
  bool filled_ = false;

  static float deviation(DType type) { return is_fp8(type) ? 48.0f : type == DType::i4 ? 4.6f : 1.0f; }

  static void upload(const DeviceBuffer& to, const std::vector<std::byte>& bytes) {
    auto* const data = static_cast<std::byte*>(to.data());
    std::size_t done = std::min(bytes.size(), to.bytes());
    check_hip(hipMemcpy(data, bytes.data(), done, hipMemcpyHostToDevice), "filling operands");
    while (done < to.bytes()) {
      const std::size_t more = std::min(done, to.bytes() - done);
      check_hip(hipMemcpy(data + done, data, more, hipMemcpyDeviceToDevice), "filling operands");
      done += more;
    }
  }
  /// Nearly normal numbers, each the sum of four random bytes; of weights of four bits all codes alike. Rows of A and B with
  /// the same values would have a product as large as K, whose fast sums are off by more than others' values.
  static void fill(const DeviceBuffer& to, DType type, float deviation, std::uint64_t seed) {
    std::vector<std::byte> bytes(choice_period);
    const std::size_t size = packing_of(type) > 1 ? 8 : size_of(type);
    std::vector<std::byte> value(1021 * 8);
    const float unit = deviation / std::sqrt((256.0f * 256 - 1) / 3);
    for (int sum = 0; sum < 1021 && size < 8; ++sum) set_element(type, value.data() + 8 * sum, 0, unit * (sum - 510));
    for (std::size_t at = 0; at < bytes.size(); at += size) {
      const std::uint64_t bits = mix64(at * 0x9e3779b97f4a7c15ull + seed);
      const std::uint64_t sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24 & 255);
      if (size < 8) {
        std::memcpy(&bytes[at], &value[8 * sum], size);
      } else {
        std::memcpy(&bytes[at], &bits, 8);
      }
    }
    upload(to, bytes);
  }
  /// They differ within a factor of 3.
  static void fill_scales(const DeviceBuffer& to, DType type, float usual) {
    std::vector<std::byte> bytes(to.bytes());
    for (std::size_t i = 0; i < bytes.size() / size_of(type); ++i)
      set_element(type, bytes.data(), static_cast<std::int64_t>(i), usual * (1 + 0.5f * random_uniform(3, i)));
    upload(to, bytes);
  }
};

}  // namespace tilewave::bench
