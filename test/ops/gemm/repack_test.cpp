// SPDX-License-Identifier: MIT
// Tests of the repack of weights of four bits: each kind of checkpoint against what its format says, and refusals.
#include "bench/harness/random.hpp"
#include "test/arch/room.hpp"
#include "tilewave/ops/gemm/repack/launch.hpp"
#include "tilewave/reference/gemm.hpp"

namespace tilewave::test::repack {
namespace {

using P = GemmRepackProblem;

/// Host bytes beside the same on the device.
struct Twin {
  std::vector<std::uint8_t> host;
  bench::DeviceBuffer device;

  explicit Twin(std::size_t bytes, int seed = -1) : host(bytes, 0xa5), device(bytes) {
    for (std::size_t i = 0; i < bytes && seed >= 0; ++i)
      host[i] = static_cast<std::uint8_t>(bench::mix64(static_cast<std::uint64_t>(seed) * 0x9e3779b97f4a7c15ull + i));
    if (bytes > 0) bench::check_hip(hipMemcpy(device.data(), host.data(), bytes, hipMemcpyHostToDevice), "uploading");
  }
  void download() {
    if (!host.empty())
      bench::check_hip(hipMemcpy(host.data(), device.data(), host.size(), hipMemcpyDeviceToHost), "downloading");
  }
  template <class T>
  T at(std::int64_t i) const {
    T value;
    std::memcpy(&value, host.data() + i * sizeof(T), sizeof(T));
    return value;
  }
};

struct Shape {
  GemmShipped shipped = GemmShipped::mxfp4;
  std::int32_t layers = 2, n = 64, k = 96;
  int scale_k = 32;
  DType scale = DType::f16, out_scale = DType::f16;
  int zero_offset = 0;
  bool zeros = true, interleaved = false;
  GemmWeights weights = GemmWeights::preshuffled;
};

/// Returns the nibble of column n in a word of eight columns, as AWQ packs them.
int awq_place(int n) {
  constexpr int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
  return static_cast<int>(std::find(std::begin(order), std::end(order), n % 8) - std::begin(order));
}

template <class B>
void check(const Shape& s) {
  const bool mxfp4 = s.shipped == GemmShipped::mxfp4, awq = s.shipped == GemmShipped::awq;
  const std::int64_t rows = std::int64_t{s.layers} * s.n, groups = s.k / s.scale_k, scale_size = mxfp4 ? 1 : 2;
  Twin codes(rows * s.k / 2, 1), scales(rows * groups * scale_size, 2), zeros(rows * groups / 2, 3), bias(rows * 2, 4);
  Twin out_codes(rows * s.k / 2), out_scales(rows * groups * scale_size), out_zeros(rows * groups), out_bias(rows * 2);
  P p{.shipped = s.shipped, .codes = codes.device.data(), .scales = scales.device.data(), .bias = bias.device.data()};
  p.out_codes = out_codes.device.data(), p.out_scales = out_scales.device.data(), p.out_bias = out_bias.device.data();
  const bool has_zeros = s.zeros && !mxfp4;
  if (has_zeros) p.zeros = zeros.device.data(), p.out_zeros = out_zeros.device.data();
  p.layers = s.layers, p.n = s.n, p.k = s.k, p.scale_k = s.scale_k;
  p.scale = mxfp4 ? DType::e8m0 : s.scale, p.out_scale = mxfp4 ? DType::e8m0 : s.out_scale;
  p.zero_offset = s.zero_offset, p.interleaved = s.interleaved, p.weights = s.weights;
  const Status status = gemm_repack<B>(p, nullptr);
  INFO(status.reason);
  REQUIRE(status.ok());
  REQUIRE(hipDeviceSynchronize() == hipSuccess);
  for (Twin* t : {&out_codes, &out_scales, &out_zeros, &out_bias}) t->download();

  const auto nibble = [](std::uint32_t word, int place) { return static_cast<int>(word >> 4 * place & 15u); };
  int wrong = 0;
  for (std::int32_t layer = 0; layer < s.layers; ++layer) {
    const std::uint8_t* const packed = out_codes.host.data() + std::int64_t{layer} * s.n * s.k / 2;
    for (std::int32_t to = 0; to < s.n; ++to) {
      const std::int32_t row = !s.interleaved ? to : to < s.n / 2 ? 2 * to : 2 * (to - s.n / 2) + 1;
      for (std::int32_t k = 0; k < s.k; ++k) {
        const std::int64_t first = std::int64_t{layer} * s.n * s.k / 8;  // words
        const int code =
            mxfp4 ? codes.at<std::uint8_t>((std::int64_t{layer} * s.n + row) * s.k / 2 + k / 2) >> k % 2 * 4 & 15
            : awq ? nibble(codes.at<std::uint32_t>(first + k * (s.n / 8) + row / 8), awq_place(row))
                  : nibble(codes.at<std::uint32_t>(first + k / 8 * s.n + row), k % 8);
        const double right = mxfp4 ? fp4_to_f32(static_cast<std::uint8_t>(code)) : code - 8;
        const double value = s.weights == GemmWeights::fragments
                                 ? reference::fragment_value(packed, to, k, s.k)
                                 : reference::four_bit_value(mxfp4 ? DType::fp4_e2m1 : DType::i4, packed, to, k, s.k);
        wrong += value != right;
      }
      for (std::int32_t g = 0; g < groups; ++g) {
        const std::int64_t out = (layer * groups + g) * s.n + to, in = (layer * groups + g) * s.n + row;
        if (mxfp4) {
          wrong += out_scales.host[out] != scales.host[(std::int64_t{layer} * s.n + row) * groups + g];
          continue;
        }
        const std::uint16_t scale = scales.at<std::uint16_t>(in);
        const std::uint16_t right = s.scale == s.out_scale       ? scale
                                    : s.out_scale == DType::bf16 ? f32_to_bf16(f16_to_f32(scale))
                                                                 : f32_to_f16(bf16_to_f32(scale));
        wrong += out_scales.at<std::uint16_t>(out) != right;
        const int zero = nibble(zeros.at<std::uint32_t>(in / 8), awq ? awq_place(row) : row % 8) + s.zero_offset - 8;
        if (has_zeros) wrong += out_zeros.at<std::int8_t>(out) != zero;
      }
      wrong += out_bias.at<std::uint16_t>(std::int64_t{layer} * s.n + to) !=
               bias.at<std::uint16_t>(std::int64_t{layer} * s.n + row);
    }
  }
  CHECK(wrong == 0);
}

struct CheckShipped {
  template <class B>
  void operator()() const {
    INFO(room_name<B>());
    check<B>({});
    check<B>({.layers = 1, .n = 96, .k = 2880, .interleaved = true});
    check<B>({.layers = 3, .n = 48, .k = 96, .weights = GemmWeights::fragments});
    check<B>({.layers = 1, .n = 96, .k = 2880, .interleaved = true, .weights = GemmWeights::fragments});
    for (const GemmShipped shipped : {GemmShipped::gptq, GemmShipped::awq}) {
      INFO(name_of(shipped));
      check<B>({.shipped = shipped, .k = 256, .scale_k = 128});
      check<B>({.shipped = shipped, .layers = 1, .n = 48, .k = 96, .out_scale = DType::bf16});
      check<B>({.shipped = shipped, .k = 128, .scale_k = 64, .scale = DType::bf16, .zeros = false});
      check<B>(
          {.shipped = shipped, .n = 96, .k = 64, .scale = DType::bf16, .out_scale = DType::bf16, .interleaved = true});
    }
    check<B>({.shipped = GemmShipped::gptq, .k = 64, .zero_offset = 1});
  }
};
TEST_CASE("weights of each kind of checkpoint lie in strips after a repack") { AllRooms::each(CheckShipped{}); }

/// Weights that are not quantised yet get the scale and the codes that a loop in double finds.
struct CheckQuantised {
  template <class B>
  void operator()() const {
    INFO(room_name<B>());
    for (const Shape& s : {Shape{.k = 256, .scale_k = 128, .out_scale = DType::bf16},
                           Shape{.layers = 1, .n = 96, .k = 192, .scale_k = 64, .interleaved = true}}) {
      const std::int64_t rows = std::int64_t{s.layers} * s.n, groups = s.k / s.scale_k;
      Twin values(rows * s.k * 2), out_codes(rows * s.k / 2), out_scales(rows * groups * 2);
      for (std::int64_t i = 0; i < rows * s.k; ++i) {
        const bool zeros = i % s.k < s.scale_k && i / s.k == 5;  // the first group of a row
        const float size = std::ldexp(1.0f, static_cast<int>(i / s.scale_k % 21) - 10);
        const auto bits = f32_to_bf16(zeros ? 0.0f : size * (bench::mix64(i) % 2001 / 1000.0f - 1.0f));
        std::memcpy(values.host.data() + 2 * i, &bits, 2);
      }
      bench::check_hip(hipMemcpy(values.device.data(), values.host.data(), values.host.size(), hipMemcpyHostToDevice),
                       "uploading");
      P p{.shipped = GemmShipped::bf16, .codes = values.device.data()};
      p.out_codes = out_codes.device.data(), p.out_scales = out_scales.device.data();
      p.layers = s.layers, p.n = s.n, p.k = s.k, p.scale_k = s.scale_k;
      p.out_scale = s.out_scale, p.interleaved = s.interleaved;
      const Status status = gemm_repack<B>(p, nullptr);
      INFO(status.reason);
      REQUIRE(status.ok());
      REQUIRE(hipDeviceSynchronize() == hipSuccess);
      out_codes.download(), out_scales.download();
      int wrong = 0;
      for (std::int64_t to = 0; to < rows; ++to) {
        const std::int64_t layer = to / s.n, in_layer = to % s.n,
                           half = in_layer < s.n / 2 ? 2 * in_layer : 2 * (in_layer - s.n / 2) + 1,
                           row = layer * s.n + (s.interleaved ? half : in_layer);
        for (std::int64_t g = 0; g < groups; ++g) {
          const auto value = [&](int i) {
            return static_cast<double>(bf16_to_f32(values.at<std::uint16_t>(row * s.k + g * s.scale_k + i)));
          };
          double largest = 0;
          for (int i = 0; i < s.scale_k; ++i) largest = std::max(largest, std::fabs(value(i)));
          const auto exact = static_cast<float>(largest > 0 ? largest / 7 : 1);
          const bool bf16 = s.out_scale == DType::bf16;
          const std::uint16_t bits = bf16 ? f32_to_bf16(exact) : f32_to_f16(exact);
          wrong += out_scales.at<std::uint16_t>((layer * groups + g) * s.n + in_layer) != bits;
          const double scale = bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
          for (int i = 0; i < s.scale_k; ++i) {
            const double code =
                std::clamp(std::round(static_cast<double>(static_cast<float>(value(i) / scale))), -8.0, 7.0);
            const std::uint8_t* const packed = out_codes.host.data() + layer * s.n * s.k / 2;
            wrong += reference::four_bit_value(DType::i4, packed, static_cast<int>(in_layer),
                                               static_cast<int>(g * s.scale_k + i), s.k) != code;
          }
        }
      }
      CHECK(wrong == 0);
    }
  }
};
TEST_CASE("weights of bf16 are quantised to int4 by a repack") { AllRooms::each(CheckQuantised{}); }

struct CheckRefused {
  template <class B>
  void operator()() const {
    Twin codes(64 * 64, 1), scales(64 * 64, 2), zeros(64 * 64, 3), out_codes(64 * 64), out_scales(64 * 64),
        more(64 * 64);
    P good{.shipped = GemmShipped::gptq, .codes = codes.device.data(), .scales = scales.device.data()};
    good.zeros = zeros.device.data(), good.out_zeros = more.device.data();
    good.out_codes = out_codes.device.data(), good.out_scales = out_scales.device.data();
    good.n = 32, good.k = 128, good.scale_k = 64;
    good.scale = good.out_scale = DType::bf16;
    const auto code_of = [&](void (*change)(P&)) {
      P p = good;
      change(p);
      return gemm_repack<B>(p, nullptr).code;
    };
    using C = StatusCode;
    CHECK(code_of([](P&) {}) == C::ok);
    CHECK(code_of([](P& p) { p.n = 0; }) == C::ok);
    CHECK(code_of([](P& p) { p.shipped = static_cast<GemmShipped>(4); }) == C::bad_value);
    CHECK(code_of([](P& p) { p.scale = DType::f32; }) == C::unsupported_dtype);
    CHECK(code_of([](P& p) { p.bias_type = DType::i8; }) == C::unsupported_dtype);
    CHECK(code_of([](P& p) { p.group_index = static_cast<const std::int32_t*>(p.codes); }) == C::unsupported_layout);
    CHECK(code_of([](P& p) { p.scale_k = 48; }) == C::bad_value);
    CHECK(code_of([](P& p) { p.layers = -1; }) == C::bad_extent);
    CHECK(code_of([](P& p) { p.n = 40; }) == C::bad_extent);
    CHECK(code_of([](P& p) { p.k = 96; }) == C::bad_extent);
    CHECK(code_of([](P& p) { p.n = 16, p.interleaved = true; }) == C::bad_extent);
    CHECK(code_of([](P& p) { p.zero_offset = 2; }) == C::bad_value);
    CHECK(code_of([](P& p) { p.shipped = GemmShipped::awq, p.zero_offset = 1; }) == C::bad_value);
    CHECK(code_of([](P& p) { p.shipped = GemmShipped::mxfp4, p.scale = p.out_scale = DType::e8m0, p.scale_k = 32; }) ==
          C::bad_value);  // which has no zero points
    CHECK(code_of([](P& p) { p.shipped = GemmShipped::bf16, p.zeros = p.out_zeros = nullptr; }) ==
          C::bad_value);                                                                              // scales
    CHECK(code_of([](P& p) { p.shipped = GemmShipped::bf16, p.scales = nullptr; }) == C::bad_value);  // zero points
    CHECK(code_of([](P& p) { p.weights = GemmWeights::fragments; }) == C::unsupported_layout);        // of mxfp4 alone
    CHECK(code_of([](P& p) { p.weights = GemmWeights::row_major; }) == C::unsupported_layout);
    CHECK(code_of([](P& p) { p.codes = nullptr; }) == C::null_pointer);
    CHECK(code_of([](P& p) { p.out_zeros = nullptr; }) == C::null_pointer);
    CHECK(code_of([](P& p) { p.bias = p.scales; }) == C::null_pointer);
    CHECK(code_of([](P& p) { p.out_codes = static_cast<char*>(p.out_codes) + 8; }) == C::misaligned);
    CHECK(code_of([](P& p) { p.out_codes = const_cast<void*>(p.codes); }) == C::bad_value);
    CHECK(code_of([](P& p) { p.out_zeros = p.out_codes; }) == C::bad_value);
  }
};
TEST_CASE("a wrong repack gets a named status") { AllRooms::each(CheckRefused{}); }

}  // namespace
}  // namespace tilewave::test::repack
