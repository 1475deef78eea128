// SPDX-License-Identifier: MIT
// The bits that products of wave groups keep of their sums. The tolerances of GEMM depend on them
// (docs/reference/numerics.md).
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "test/arch/group_room.hpp"

namespace tilewave::test::truncation {
namespace {

/// A chain of products, each added to what is there: out has the sums after each.
template <class B, DType element>
struct ChainKernel {
  using Room = B;
  static constexpr DType type = element;
  static constexpr int columns = 16, k = 32 / size_of(type), steps = 6;
  static constexpr int block_threads = group_lanes, waves_per_simd = 1;
  static constexpr int a_words = rows * 8, b_words = columns * 8, step_words = a_words + b_words;
  struct Args {
    const std::uint32_t* in;  // [grid, steps, step_words]: a, b
    float* out;               // [grid, steps, rows, columns]
  };
  struct Shared {
    Chunk a[2 * rows], b[2 * columns];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    const GroupOperand a{shared.a, 256, 128, 0}, b{shared.b, 256, 128, 0};
    Vec<float, columns / 2> acc{};
    for (int step = 0; step < steps; ++step) {
      const int at = B::block_id() * steps + step;
      place_operand<B>(a, args.in + at * step_words, rows, me.id);
      place_operand<B>(b, args.in + at * step_words + a_words, columns, me.id);
      B::shared_written();
      B::group_barrier();
      B::group_mma_fence(acc);
      B::group_mma_begin();
      B::template group_mma<type, columns>(a, b, acc);
      B::group_mma_end();
      B::template group_mma_wait<0>();
      TILEWAVE_UNROLL
      for (int i = 0; i < columns / 2; ++i)
        B::store(args.out + (at * rows + me.row(i)) * columns + me.column(i), acc[i]);
      B::group_barrier();
    }
  }
};

/// The exponents of products are those of their factors together, of which that of a subnormal is the least.
int exponent_of(double value, int least) { return value == 0 ? -10000 : std::max(std::ilogb(value), least); }

/// The products of one step and the sum so far, all cut off `bits` below the leading bit of the largest, and their sum
/// cut off `of_sum` below its own.
double truncated(const float* a, const float* b, int k, double sum, int least, int bits, int of_sum) {
  int most = exponent_of(sum, -10000);
  for (int i = 0; i < k; ++i) most = std::max(most, exponent_of(a[i], least) + exponent_of(b[i], least));
  if (most <= -10000) return 0;
  double units = std::trunc(std::ldexp(sum, bits - most));
  for (int i = 0; i < k; ++i) units += std::trunc(std::ldexp(double{a[i]} * b[i], bits - most));
  if (units == 0) return 0;
  const int beyond = std::max(std::ilogb(units) - of_sum, 0);
  return std::ldexp(std::trunc(std::ldexp(units, -beyond)), beyond + most - bits);
}

/// Values of a step: of all magnitudes, of one sign and magnitude, or of both signs and one magnitude.
Matrix values(DType type, int count, int kind, std::mt19937& random) {
  Matrix all(count);
  for (float& v : all) {
    const float mantissa = 1.0f + static_cast<float>(random() % 8) / 8;
    const int exponent = kind == 0 ? static_cast<int>(random() % 17) - 9 : 0;
    const float sign = kind != 1 && random() % 2 == 0 ? -1.0f : 1.0f;
    v = sign * std::ldexp(mantissa, exponent);
    if (type == DType::fp8_e4m3fn) v = fp8_to_f32(type, f32_to_fp8(type, v));
    if (type == DType::f16 || type == DType::bf16) v += sign * static_cast<float>(random() % 16) / 128;
    if (type == DType::f16) v = f16_to_f32(f32_to_f16(v));
    if (type == DType::bf16) v = bf16_to_f32(f32_to_bf16(v));
  }
  return all;
}

/// Returns how many of the sums differ from the model's.
template <class B, DType type>
int others(int bits, int of_sum) {
  using K = ChainKernel<B, type>;
  constexpr int blocks = 12, least = type == DType::fp8_e4m3fn ? -6 : type == DType::f16 ? -14 : -126;
  std::mt19937 random(7);
  std::vector<std::uint32_t> in;
  Matrix expected;
  for (int block = 0; block < blocks; ++block) {
    std::vector<double> sums(rows * K::columns);
    for (int step = 0; step < K::steps; ++step) {
      const Matrix a = values(type, rows * K::k, block % 3, random),
                   b = values(type, K::columns * K::k, block % 3, random);
      append(in, type, a);
      append(in, type, b);
      for (int i = 0; i < rows * K::columns; ++i) {
        sums[i] = truncated(a.data() + i / K::columns * K::k, b.data() + i % K::columns * K::k, K::k, sums[i], least,
                            bits, of_sum);
        expected.push_back(static_cast<float>(sums[i]));
      }
    }
  }
  const Matrix got = run_kernel<K>(blocks, in, expected.size(), -1.0f);
  int differ = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) differ += got[i] != expected[i];
  return differ;
}

TEST_CASE("sums of fp8 keep 13 bits below the largest product or sum, and are cut off") {
  AllRooms::each([]<class B>() {
    if constexpr (GroupBackend<B>) CHECK(others<B, B::facts.fp8>(13, 13) == 0);
  });
}

TEST_CASE("sums of 16-bit types keep 25 bits, and are cut off as f32") {
#if TILEWAVE_ON_GPU_COMPILER  // the emulated device has f32 sums of them
  AllRooms::each([]<class B>() {
    if constexpr (GroupBackend<B>) {
      CHECK(others<B, DType::f16>(25, 23) == 0);
      CHECK(others<B, DType::bf16>(25, 23) == 0);
    }
  });
#else
  skip_test("the emulated device has f32 sums of 16-bit types");
#endif
}

}  // namespace
}  // namespace tilewave::test::truncation
