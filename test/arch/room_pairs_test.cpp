// SPDX-License-Identifier: MIT
// Two numbers at a time, and words over a wave: every room gives the bits of plain C++.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "test/arch/room.hpp"
#include "tilewave/arch/pairs.hpp"

namespace tilewave::test {
namespace {

template <class B>
struct WordsKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [wave_lanes]
    std::uint32_t* out;       // [wave_lanes, 2]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int lane = B::lane_id();
    args.out[2 * lane] = B::total(args.in[lane]);
    args.out[2 * lane + 1] = B::highest(args.in[lane]);
  }
};

struct CheckWords {
  template <class B>
  void operator()() const {
    constexpr int lanes = B::facts.wave_lanes;
    for (int turn = 0; turn < lanes; ++turn) {
      std::vector<std::uint32_t> in(lanes);
      for (int i = 0; i < lanes; ++i)
        in[i] = 0x9e3779b9u * static_cast<std::uint32_t>(i + 1) >> turn % 9;  // sums go round
      in[turn] = turn % 2 == 0 ? 0xfffffffeu : in[turn];
      const std::uint32_t total = std::accumulate(in.begin(), in.end(), 0u),
                          high = *std::max_element(in.begin(), in.end());
      const auto out = run_kernel<WordsKernel<B>>(1, in, std::size_t{2} * lanes, 7u);
      CAPTURE(room_name<B>(), turn);
      for (int lane = 0; lane < lanes; ++lane) {
        REQUIRE(out[2 * lane] == total);
        REQUIRE(out[2 * lane + 1] == high);
      }
    }
  }
};

template <class B>
struct FusedKernel {
  using Room = B;
  struct Args {
    const Vec<float, 2>* in;  // [wave_lanes, 3]
    Vec<float, 2>* out;       // [wave_lanes, 3]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int lane = B::lane_id();
    const Vec<float, 2> a = args.in[3 * lane], b = args.in[3 * lane + 1], c = args.in[3 * lane + 2];
    args.out[3 * lane] = B::fused(a, b, c);
    // The product is rounded before: never one operation with the difference.
    args.out[3 * lane + 1] = B::subtract({{a[0] * b[0], a[1] * b[1]}}, c);
    args.out[3 * lane + 2] = B::canonical(a);
  }
};

struct CheckFused {
  template <class B>
  void operator()() const {
    constexpr int lanes = B::facts.wave_lanes;
    std::vector<Vec<float, 2>> in(3 * lanes);
    for (int i = 0; i < 3 * lanes; ++i) {
      for (int j = 0; j < 2; ++j) in[i][j] = std::ldexp(1.0f + 0.000123f * static_cast<float>(i * 7 + j), i % 5 - 2);
      if (i % 3 == 2)
        in[i] = {{-in[i - 1][0] * in[i - 2][0], in[i][1]}};  // what is left of the product is its rounding
    }
    in[0][1] = std::bit_cast<float>(0x7fa00000u);  // signals
    const auto out = run_kernel<FusedKernel<B>>(1, in, std::size_t{3} * lanes, Vec<float, 2>{});
    CHECK(std::isnan(out[2][1]));
    in[0][1] = 1;
    CAPTURE(room_name<B>());
    for (int lane = 0; lane < lanes; ++lane) {
      for (int j = 0; j < 2; ++j) {
        const float a = in[3 * lane][j], b = in[3 * lane + 1][j], c = in[3 * lane + 2][j];
        volatile float product = a * b;
        if (lane == 0 && j == 1) continue;
        CHECK(out[3 * lane][j] == std::fma(a, b, c));
        CHECK(out[3 * lane + 1][j] == product - c);
        CHECK(out[3 * lane + 2][j] == a);
      }
    }
  }
};

template <class B, DType type>
struct LargerKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [grid, wave_lanes, 2]
    std::uint32_t* out;       // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = B::template larger_pair<type>(args.in[2 * i], args.in[2 * i + 1]);
  }
};

/// Every code against a few: numbers, both zeros, infinities, NaN.
struct CheckLarger {
  template <class B>
  void operator()() const {
    if constexpr (PairBackend<B>) {
      check<B, DType::bf16>(bf16_to_f32, {0u, 0x8000u, 0x3f80u, 0xc0a0u, 0x7f80u, 0xff80u, 0x7fc1u, 0x0001u});
      check<B, DType::f16>(f16_to_f32, {0u, 0x8000u, 0x3c00u, 0xc500u, 0x7c00u, 0xfc00u, 0x7e01u, 0x0001u});
    }
  }
  template <class B, DType type>
  static void check(float (*value)(std::uint16_t), const std::vector<std::uint32_t>& few) {
    std::vector<std::uint32_t> in;
    for (const std::uint32_t other : few) {
      for (std::uint32_t code = 0; code < 0x10000; code += 2) {
        in.push_back((code + 1) << 16 | code);
        in.push_back(other << 16 | other);
      }
    }
    const auto out =
        run_kernel<LargerKernel<B, type>>(static_cast<int>(in.size()) / 2 / B::facts.wave_lanes, in, in.size() / 2, 0u);
    CAPTURE(room_name<B>(), name_of(type));
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (const int half : {0, 16}) {
        const float a = value(static_cast<std::uint16_t>(in[2 * i] >> half));
        const float b = value(static_cast<std::uint16_t>(in[2 * i + 1] >> half));
        const float got = value(static_cast<std::uint16_t>(out[i] >> half));
        const float wanted = std::isnan(a) ? b : std::isnan(b) ? a : std::max(a, b);
        if (std::isnan(wanted) ? std::isnan(got) : got == wanted) continue;
        CAPTURE(a, b, got);
        CHECK(got == wanted);
      }
    }
  }
};

}  // namespace

TEST_CASE("words are summed over a wave, and the largest is found") { AllRooms::each(CheckWords{}); }
TEST_CASE("two products are fused, or not, to the bit") { AllRooms::each(CheckFused{}); }
TEST_CASE("of two 16-bit floats the larger is found, a number before NaN") { AllRooms::each(CheckLarger{}); }

}  // namespace tilewave::test
