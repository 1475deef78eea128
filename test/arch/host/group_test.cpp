// SPDX-License-Identifier: MIT
// The times at which the products of a wave group are performed, under every schedule. room_group_test.cpp tests what
// all rooms promise, and group_faults_test.cpp what this room reports.
#include <cmath>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::group {
namespace {

constexpr int lanes = host::group_lanes;

/// Operands of ones, so that a sum is k = 16 for each product. What the lanes see of theirs:
struct Sums {
  float begun, one_left, ended;  // before the wait; both accumulators where one batch may be left; at the end
  float second_left, second_ended;
};

/// Two batches to two accumulators. `overwrites`: twos instead of ones, before anybody has waited.
template <bool overwrites>
struct LateKernel {
  static constexpr int block_threads = lanes;
  struct Args {
    Sums* out;  // [grid, lanes]
  };
  struct Shared {
    Chunk a[128], b[16];
  };
  using B = Sm90;

  static Chunk all(float value) {
    const std::uint32_t word = B::pack_bf16(value, value);
    return {{word, word, word, word}};
  }

  static void run(const Args& args, Shared& shared) {
    const int id = B::block_lane_id();
    shared.a[id] = all(1);
    if (id < 16) shared.b[id] = all(1);
    B::shared_written();
    B::group_barrier();
    Vec<float, 4> x{}, y{};
    Sums seen;
    B::group_mma_begin();
    B::group_mma<DType::bf16, 8>({shared.a, 256, 128}, {shared.b, 0, 128}, x);
    B::group_mma_end();
    B::group_mma_begin();
    B::group_mma<DType::bf16, 8>({shared.a, 256, 128}, {shared.b, 0, 128}, y);
    B::group_mma_end();
    seen.begun = x[3];
    B::group_barrier();
    if (overwrites) shared.a[id] = all(2);
    B::group_barrier();
    B::group_mma_wait<1>();
    seen.one_left = x[3];
    seen.second_left = y[3];
    B::group_mma_wait<0>();
    seen.ended = x[3];
    seen.second_ended = y[3];
    args.out[B::block_id() * lanes + id] = seen;
  }
};

}  // namespace

TEST_CASE("accumulators hold NaN until their batch is waited for") {
  constexpr int grid = 3;
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<Sums> out(grid * lanes);
    REQUIRE(launch<Sm90, LateKernel<false>>(grid, {out.data()}).ok());
    int wrong = 0, early = 0;
    for (const Sums& s : out) {
      wrong += s.one_left != 16 || s.ended != 16 || s.second_ended != 16;
      early += !std::isnan(s.begun) + !std::isnan(s.second_left);
    }
    CHECK(wrong == 0);
    if (options.schedule != host::Schedule::random) CHECK(early == 0);
    CHECK(host::last_launch_counters().group_mma == 2 * grid);
    CHECK(host::last_launch_counters().lds_loads_bytes == 2 * grid * (128 + 16) * 16);
  }
}

TEST_CASE("products read shared memory as late as their wait, at random earlier") {
  if (host::under_tsan) return skip_test("ThreadSanitizer would report the race that this test is about");
  int early = 0, late = 0;
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<Sums> out(lanes);
    REQUIRE(launch<Sm90, LateKernel<true>>(1, {out.data()}).ok());
    const bool is_late = out[0].ended == 32, is_early = out[0].ended == 16;
    CHECK((is_late || is_early));
    for (const Sums& s : out) CHECK(s.ended == out[0].ended);
    if (options.schedule != host::Schedule::random) {
      CHECK(is_late);
    } else {
      early += is_early;
      late += is_late;
    }
  }
  CHECK(early > 0);
  CHECK(late > 0);
}

TEST_CASE("products of groups and of single waves sum in different orders, as on silicon") {
  constexpr int k = 16, columns = 8, rows = host::group_rows;
  constexpr float big = 1 << 24;  // from here on f32 has no odd numbers
  alignas(64) float left[rows * k], right[k * columns], of_group[rows * columns], of_wave[rows * columns];
  for (int i = 0; i < rows * k; ++i) left[i] = i % k == 0 ? big : i % k == 1 ? -big : 0.0f;
  for (float& v : right) v = 1.0f;
  for (int i = 0; i < rows * columns; ++i) of_group[i] = of_wave[i] = 1.0f;
  const host::GroupCall call{.kind = host::GroupCall::Kind::mma, .type = DType::bf16, .columns = columns};
  host::detail::multiply_panels<columns>(call, left, right, of_group);
  host::detail::multiply_dense<rows, columns, k>(left, right, of_wave);
  for (int i = 0; i < rows * columns; ++i) {
    CHECK(of_group[i] == 1.0f);
    CHECK(of_wave[i] == 0.0f);
  }
}

TEST_CASE("widening is exact for every code") {
  for (const DType type : {DType::bf16, DType::f16, DType::fp8_e4m3fn, DType::fp8_e4m3fnuz}) {
    const int count = 16 / size_of(type), codes = 1 << 8 * size_of(type);
    int wrong = 0;
    for (int first = 0; first < codes; first += count) {
      std::uint8_t bytes[16];
      float wide[16];
      for (int i = 0; i < 16; ++i) {
        bytes[i] = static_cast<std::uint8_t>((first + i / size_of(type)) >> 8 * (i % size_of(type)));
      }
      wrong += host::detail::widen(type, bytes, wide) != count;
      for (int i = 0; i < count; ++i) {
        const auto code = static_cast<std::uint16_t>(first + i);
        const float value = type == DType::bf16  ? bf16_to_f32(code)
                            : type == DType::f16 ? f16_to_f32(code)
                                                 : fp8_to_f32(type, static_cast<std::uint8_t>(code));
        wrong += __builtin_bit_cast(std::uint32_t, value) != __builtin_bit_cast(std::uint32_t, wide[i]);
      }
    }
    CAPTURE(name_of(type));
    CHECK(wrong == 0);
  }
}

}  // namespace tilewave::test::group
