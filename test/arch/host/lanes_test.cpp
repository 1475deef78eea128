// SPDX-License-Identifier: MIT
// Exchanges within a wave, and the errors of lanes that do not take part alike.
#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::lanes {
namespace {

template <class B>
struct ExchangeKernel {
  static constexpr int waves = 2, block_threads = waves * B::facts.wave_lanes;
  struct Results {
    float rotated, swapped, first_of_group, sum_of_8;
    int any_lane_5, any_none, uniform, integer;
  };
  struct Args {
    Results* out;  // [grid, block_threads]
  };
  using Shared = NoShared;

  static void run(const Args& args, Shared&) {
    const int lane = B::lane_id(), lanes = B::facts.wave_lanes;
    const int wave = B::wave_id(), id = wave * lanes + lane;
    const float mine = static_cast<float>(1000 * B::block_id() + id);
    Results& out = args.out[B::block_id() * block_threads + id];
    out.rotated = B::shuffle(mine, (lane + 3) % lanes);
    out.swapped = B::shuffle_xor(mine, 17);
    out.first_of_group = B::template group_broadcast<3>(mine);
    out.sum_of_8 = B::template reduce<8>(mine, Sum{});
    out.any_lane_5 = B::any(lane == 5 && wave == 1);
    out.any_none = B::any(false) + B::any(false);
    out.uniform = B::uniform(7 + wave);
    out.integer = B::shuffle(-lane, lane ^ 1);
  }
};

enum class Fault {
  none,
  two_kinds,
  two_masks,
  two_lines,
  two_sizes,
  returns,
  at_barrier,
  after_barrier,
  no_lane,
  uniform,
  wave_id,
  window_base,
  window_bytes
};

template <class B>
using WindowOf = typename B::template Window<true>;

template <class B, Fault fault>
struct FaultyKernel {
  static constexpr int block_threads = 2 * B::facts.wave_lanes;
  struct Args {
    float* out;
  };
  using Shared = NoShared;

  static void run(const Args& args, Shared&) {
    const int lane = B::lane_id(), wave = B::wave_id();
    const bool odd = lane == 0 && wave == 1;  // the first of its wave in lockstep, the last in reverse
    float v = static_cast<float>(lane);
    switch (fault) {
      case Fault::none: v = B::shuffle_xor(v, 1); break;
      case Fault::two_kinds:
        if (odd) {
          v = B::any(true);
        } else {
          v = B::shuffle_xor(v, 1);
        }
        break;
      case Fault::two_masks: v = B::shuffle_xor(v, odd ? 2 : 1); break;
      case Fault::two_lines:
        if (odd) {
          v = B::shuffle_xor(v, 1);
        } else {
          v = B::shuffle_xor(v, 1);
        }
        break;
      case Fault::two_sizes: v = odd ? B::template reduce<2>(v, Max{}) : B::template reduce<4>(v, Max{}); break;
      case Fault::returns:
        if (odd) return;
        v = B::shuffle_xor(v, 1);
        break;
      case Fault::at_barrier:
        if (!odd) v = B::shuffle_xor(v, 1);
        B::barrier();
        break;
      case Fault::after_barrier:
        B::barrier();
        if (odd) B::barrier();
        v = B::shuffle_xor(v, 1);
        break;
      case Fault::no_lane: v = B::shuffle(v, odd ? B::facts.wave_lanes : 0); break;
      case Fault::uniform: v = static_cast<float>(B::uniform(odd ? 1 : 0)); break;
      case Fault::wave_id:  // told from what the others say next
        if (odd) v = static_cast<float>(B::wave_id());
        v += static_cast<float>(B::uniform(0));
        break;
      case Fault::window_base: v = WindowOf<B>{args.out + odd, 4}.template load<float>(4); break;
      case Fault::window_bytes: v = WindowOf<B>{args.out, odd ? 8u : 4u}.template load<float>(8); break;
    }
    if (lane == 0 && wave == 0) args.out[B::block_id()] = v;
  }
};

}  // namespace

TEMPLATE_TEST_CASE("shuffles and votes", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  using K = ExchangeKernel<B>;
  constexpr int grid = 3, lanes = B::facts.wave_lanes;
  constexpr AtomFacts a = B::atom;
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<typename K::Results> out(grid * K::block_threads);
    REQUIRE(launch<B, K>(grid, {out.data()}).ok());
    for (int block = 0; block < grid; ++block) {
      for (int id = 0; id < K::block_threads; ++id) {
        const int wave = id / lanes, lane = id % lanes;
        const auto value_of = [&](int other) { return static_cast<float>(1000 * block + wave * lanes + other); };
        const auto& got = out[block * K::block_threads + id];
        CHECK(got.rotated == value_of((lane + 3) % lanes));
        CHECK(got.swapped == value_of(lane ^ 17));
        CHECK(got.first_of_group == value_of(a.lane_of(3, a.group(lane))));
        CHECK(got.sum_of_8 == 8 * value_of(lane / 8 * 8) + 28);
        CHECK(got.any_lane_5 == (wave == 1));
        CHECK(got.any_none == 0);
        CHECK(got.uniform == 7 + wave);
        CHECK(got.integer == -(lane ^ 1));
      }
    }
    CHECK(host::last_launch_counters().shuffles == grid * K::waves * (4 + 3));
    CHECK(host::last_launch_counters().votes == grid * K::waves * 3);
  }
}

namespace {

template <class B, Fault fault>
void check_fault(const char* reason) {
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<float> out(2, -1.0f);
    const Status status = launch<B, FaultyKernel<B, fault>>(2, {out.data()});
    INFO(status.reason);
    CHECK(status.code == StatusCode::launch_failed);
    CHECK(contains(status.reason, reason));
    CHECK(contains(status.reason, "wave 1"));
    // The room is fit for the next launch.
    REQUIRE(launch<B, FaultyKernel<B, Fault::none>>(2, {out.data()}).ok());
    CHECK(out[1] == 1.0f);
  }
}

}  // namespace

TEMPLATE_TEST_CASE("lanes that diverge in a collective are reported", "", Gfx950, Sm90) {
  using B = TestType;
  SECTION("different collectives") { check_fault<B, Fault::two_kinds>("wave divergence"); }
  SECTION("different immediates") { check_fault<B, Fault::two_masks>("wave divergence"); }
  SECTION("different lines") { check_fault<B, Fault::two_lines>("lanes_test.cpp"); }
  SECTION("reductions over different groups") { check_fault<B, Fault::two_sizes>("reduce"); }
  SECTION("a lane returned") { check_fault<B, Fault::returns>("wave divergence"); }
  SECTION("a lane went to the barrier") { check_fault<B, Fault::at_barrier>("wave divergence"); }
  SECTION("a lane is one barrier too far") { check_fault<B, Fault::after_barrier>("wave divergence"); }
  SECTION("a shuffle from nowhere") { check_fault<B, Fault::no_lane>("reads lane"); }
  SECTION("a value that is not uniform") { check_fault<B, Fault::uniform>("uniform"); }
  if constexpr (B::facts.id == ArchId::sm90) {  // asks the wave's first lane
    SECTION("a wave's number asked by a lane") { check_fault<B, Fault::wave_id>("wave_id"); }
  }
  SECTION("a uniform window of two bases") { check_fault<B, Fault::window_base>("base of a window"); }
  SECTION("a uniform window of two ends") { check_fault<B, Fault::window_bytes>("bytes of a window"); }
}

}  // namespace tilewave::test::lanes
