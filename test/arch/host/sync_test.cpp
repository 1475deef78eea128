// SPDX-License-Identifier: MIT
// The block barrier: what it orders, under every schedule, and how a block that can never pass one ends.
#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::sync {
namespace {

/// Reverses the block's values through shared memory, several times over, so that a barrier too few breaks it.
template <class B, bool with_barriers>
struct ReversalKernel {
  static constexpr int waves = 3, block_threads = waves * B::facts.wave_lanes;
  struct Args {
    float* values;  // [grid, block_threads], in and out
    int rounds;
  };
  struct Shared {
    float values[block_threads];
  };

  static void run(const Args& args, Shared& shared) {
    const int id = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    float* const mine = args.values + B::block_id() * block_threads + id;
    float v = B::load(mine);
    for (int round = 0; round < args.rounds; ++round) {
      B::store(&shared.values[id], v);
      if constexpr (with_barriers) B::barrier();
      v = B::load(&shared.values[block_threads - 1 - id]) + 1.0f;
      if constexpr (with_barriers) B::barrier();
    }
    B::store(mine, v);
  }
};

template <class B>
std::vector<float> sequence(int grid) {
  std::vector<float> values(grid * ReversalKernel<B, true>::block_threads);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return values;
}

enum class Fault { returns, whole_wave_returns, two_lines, one_more };

template <class B, Fault fault>
struct FaultyKernel {
  static constexpr int block_threads = 2 * B::facts.wave_lanes;
  struct Args {};
  using Shared = NoShared;

  static void run(const Args&, Shared&) {
    const bool odd = B::wave_id() == 1 && B::lane_id() < 3;
    switch (fault) {
      case Fault::returns:
        if (odd) return;
        B::barrier();
        break;
      case Fault::whole_wave_returns:
        if (B::wave_id() == 1) return;
        B::barrier();
        break;
      case Fault::two_lines:
        if (odd) {
          B::barrier();
        } else {
          B::barrier();
        }
        break;
      case Fault::one_more:
        B::barrier();
        if (odd) B::barrier();
        break;
    }
  }
};

/// Each of two blocks posts `posts` values to both and waits for `expected` of them, four times.
template <class B>
struct PostingKernel {
  static constexpr int block_threads = B::facts.wave_lanes, boxes = 2;
  struct Args {
    int posts, expected;
  };
  struct Shared {
    float posted[boxes][2][8];
    Mailbox box[boxes];
  };

  static void run(const Args& args, Shared& shared) {
    B::template open<boxes>(shared.box);
    B::cluster_wait();
    for (int round = 0; round < 4; ++round) {
      Mailbox& box = shared.box[round % boxes];
      for (int i = 0; i < args.posts; ++i) {
        if (B::lane_id() < 2) B::post(box, &shared.posted[round % boxes][B::cluster_rank()][i], B::lane_id(), 1.0f);
      }
      B::collect(box, args.expected, round / boxes);
    }
  }
};

template <class B, Fault fault>
void check_fault(const char* reason) {
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    const Status status = launch<B, FaultyKernel<B, fault>>(3, {});
    INFO(status.reason);
    CHECK(status.code == StatusCode::launch_failed);
    CHECK(contains(status.reason, reason));
    CHECK(contains(status.reason, "sync_test.cpp"));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("a barrier orders shared memory under every schedule", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  using K = ReversalKernel<B, true>;
  constexpr int grid = 5, rounds = 7;
  const std::vector<float> before = sequence<B>(grid);
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<float> values = before;
    REQUIRE(launch<B, K>(grid, {values.data(), rounds}).ok());
    for (int block = 0; block < grid; ++block) {
      for (int id = 0; id < K::block_threads; ++id) {
        // An odd number of reversals.
        CHECK(values[block * K::block_threads + id] == before[(block + 1) * K::block_threads - 1 - id] + rounds);
      }
    }
    CHECK(host::last_launch_counters().barriers == grid * 2 * rounds);
  }
}

namespace {

/// The bits that the kernel without barriers leaves: they depend on the order of the lanes. (NaN differs from itself.)
std::vector<std::uint32_t> racy_result(const host::Options& options) {
  using K = ReversalKernel<Gfx950, false>;
  const WithOptions with(options);
  std::vector<float> values = sequence<Gfx950>(2);
  REQUIRE(launch<Gfx950, K>(2, {values.data(), 1}).ok());
  std::vector<std::uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), bits.size() * sizeof(float));
  return bits;
}

}  // namespace

TEST_CASE("a missing barrier shows, and in another way under another schedule") {
  if (host::under_tsan) return skip_test("ThreadSanitizer would report the race that this test is about");
  std::vector<float> right = sequence<Gfx950>(2);
  REQUIRE(launch<Gfx950, ReversalKernel<Gfx950, true>>(2, {right.data(), 1}).ok());
  std::vector<std::uint32_t> right_bits(right.size());
  std::memcpy(right_bits.data(), right.data(), right.size() * sizeof(float));
  std::vector<std::vector<std::uint32_t>> seen;
  for (const host::Schedule schedule : host::all_schedules) {
    INFO(host::name_of(schedule));
    seen.push_back(racy_result({.threads = 1, .schedule = schedule, .seed = 1}));
    CHECK((seen.back() != right_bits));
  }
  CHECK((seen[0] != seen[1]));  // lockstep, reverse
  CHECK((seen[0] != seen[3]));  // lockstep, last_wave_ahead
  CHECK((seen[0] != seen[4]));  // lockstep, random
}

TEST_CASE("a seed replays on any number of threads, another seed is another order") {
  if (host::under_tsan) return skip_test("ThreadSanitizer would report the race that this test is about");
  using host::Schedule;
  const auto first = racy_result({.threads = 1, .schedule = Schedule::random, .seed = 1});
  CHECK((first == racy_result({.threads = 1, .schedule = Schedule::random, .seed = 1})));
  CHECK((first == racy_result({.threads = 2, .schedule = Schedule::random, .seed = 1})));
  CHECK((first != racy_result({.threads = 1, .schedule = Schedule::random, .seed = 2})));
}

TEST_CASE("a block that would wait for more or fewer posts than come to it is reported") {
  using K = PostingKernel<Sm90>;
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    const auto run = [](int expected) {
      return Sm90::launch<K>({4, K::block_threads, 2}, {.posts = 3, .expected = expected}, nullptr);
    };
    CHECK(run(6).ok());
    for (const int wrong : {5, 7}) {
      const Status status = run(wrong);
      CHECK(status.code == StatusCode::launch_failed);
      CHECK(contains(status.reason, wrong == 5 ? "collect of 5 posts in phase 0" : "collect of 7 posts in phase 0"));
      CHECK(contains(status.reason, "6 came in all"));
    }
  }
}

TEMPLATE_TEST_CASE("barrier divergence is reported with counts", "", Gfx950, Sm90) {
  using B = TestType;
  if (B::facts.wave_lanes == 64) {
    check_fault<B, Fault::returns>("barrier divergence: only 125 of 128 lanes arrived");
    check_fault<B, Fault::whole_wave_returns>("only 64 of 128 lanes arrived");
    check_fault<B, Fault::one_more>("only 3 of 128 lanes arrived");
  } else {
    check_fault<B, Fault::returns>("barrier divergence: only 61 of 64 lanes arrived");
    check_fault<B, Fault::whole_wave_returns>("only 32 of 64 lanes arrived");
    check_fault<B, Fault::one_more>("only 3 of 64 lanes arrived");
  }
  check_fault<B, Fault::two_lines>("barrier divergence: this lane is at the barrier at");
}

}  // namespace tilewave::test::sync
