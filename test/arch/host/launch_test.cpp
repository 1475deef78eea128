// SPDX-License-Identifier: MIT
// Launches: geometry, limits, options, errors and what does not depend on the number of threads.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::launches {
namespace {

template <class B, int waves>
struct IdKernel {
  static constexpr int block_threads = waves * B::facts.wave_lanes;
  struct Args {
    int* out;  // [grid, block_threads]
  };
  using Shared = NoShared;
  static void run(const Args& args, Shared&) {
    const int id = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    args.out[B::block_id() * block_threads + id] += 1 + B::block_id() * block_threads + id;
  }
};

template <std::size_t bytes>
struct SharedKernel {
  static constexpr int block_threads = 64;
  struct Args {
    int* out;
  };
  struct Shared {
    std::byte space[bytes];
  };
  static void run(const Args& args, Shared& shared) {
    shared.space[bytes - 1 - Gfx942::lane_id()] = std::byte{1};
    if (Gfx942::lane_id() == 0) *args.out = 1;
  }
};

/// Fails in blocks 3 and above that are multiples of 3.
struct FailingKernel {
  static constexpr int block_threads = 64;
  struct Args {};
  using Shared = NoShared;
  static void run(const Args&, Shared&) {
    const int block = Gfx950::block_id();
    if (block > 0 && block % 3 == 0 && Gfx950::lane_id() == block % 64) return;
    Gfx950::barrier();
  }
};

/// Blocks 3 and 6 fail, 3 not before 6 has begun: so both fail, on two threads.
struct TwoFailuresKernel {
  static constexpr int block_threads = 64;
  struct Args {
    std::atomic<bool>* six_runs;
  };
  using Shared = NoShared;
  static void run(const Args& args, Shared&) {
    const int block = Gfx950::block_id();
    if (block != 3 && block != 6) return;
    if (block == 6) args.six_runs->store(true, std::memory_order_relaxed);
    while (!args.six_runs->load(std::memory_order_relaxed)) std::this_thread::yield();
    (void)Gfx950::shuffle(0, 64);
  }
};

/// Sums over the wave and the block with everything the room offers, in f32 with rounding.
template <class B>
struct SumKernel {
  static constexpr int waves = 4, block_threads = waves * B::facts.wave_lanes;
  struct Args {
    const float* in;  // [grid, block_threads]
    float* out;       // [grid]
  };
  struct Shared {
    float sums[waves];
  };
  static void run(const Args& args, Shared& shared) {
    const int id = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    float sum = B::load(args.in + B::block_id() * block_threads + id);
    for (int mask = B::facts.wave_lanes / 2; mask > 0; mask /= 2) sum += B::shuffle_xor(sum, mask);
    const int wave = B::wave_id();
    if (B::lane_id() == 0) shared.sums[wave] = sum;
    B::barrier();
    if (id == 0) {
      for (int w = 1; w < waves; ++w) sum += shared.sums[w];
      B::store(args.out + B::block_id(), sum);
    }
  }
};

}  // namespace

TEMPLATE_TEST_CASE("every lane of every block runs once", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    for (const int grid : {1, 2, 7, 30}) {
      using K = IdKernel<B, 2>;
      std::vector<int> out(grid * K::block_threads, 0);
      REQUIRE(launch<B, K>(grid, {out.data()}).ok());
      for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == static_cast<int>(i) + 1);
      CHECK(host::last_launch_counters().blocks == grid);
    }
  }
}

TEST_CASE("blocks of one wave up to 1024 lanes, one after the other") {
  const auto check = [](auto kernel) {
    using K = decltype(kernel);
    std::vector<int> out(2 * K::block_threads, 0);
    REQUIRE(launch<Sm90, K>(2, {out.data()}).ok());
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == static_cast<int>(i) + 1);
  };
  check(IdKernel<Sm90, 1>{});
  check(IdKernel<Sm90, 32>{});
  check(IdKernel<Sm90, 3>{});
}

TEST_CASE("bad geometry is named before any work") {
  using K = IdKernel<Gfx950, 2>;
  int untouched = 0;
  const auto code = [&](std::int64_t grid, int block) {
    return Gfx950::launch<K>({grid, block}, {&untouched}, nullptr).code;
  };
  CHECK(code(0, 128) == StatusCode::ok);
  CHECK(host::last_launch_counters() == host::LaunchCounters{});
  CHECK(code(-1, 128) == StatusCode::bad_extent);
  CHECK(code(std::int64_t{1} << 31, 128) == StatusCode::bad_extent);
  CHECK(code(std::int64_t{1} << 25, 128) == StatusCode::bad_extent);  // 2^32 lanes
  CHECK(code(1, 64) == StatusCode::bad_extent);
  CHECK(code(1, 0) == StatusCode::bad_extent);
  using Uneven = IdKernel<Sm90, 1>;  // 32 lanes are half a wave of gfx950
  CHECK(Gfx950::launch<Uneven>({1, 32}, {&untouched}, nullptr).code == StatusCode::bad_extent);
  using Large = IdKernel<Gfx950, 17>;
  CHECK(Gfx950::launch<Large>({1, Large::block_threads}, {&untouched}, nullptr).code == StatusCode::bad_extent);
  CHECK(untouched == 0);
}

TEST_CASE("shared memory is limited to what the chip has") {
  int ran = 0;
  REQUIRE(launch<Gfx942, SharedKernel<64 * 1024>>(1, {&ran}).ok());
  CHECK(ran == 1);
  ran = 0;
  const Status status = launch<Gfx942, SharedKernel<64 * 1024 + 1>>(1, {&ran});
  CHECK(status.code == StatusCode::launch_failed);
  CHECK(contains(status.reason, "shared memory"));
  CHECK(ran == 0);
}

TEMPLATE_TEST_CASE("results do not depend on the number of threads or the schedule", "", Gfx950, Sm90) {
  using B = TestType;
  using K = SumKernel<B>;
  constexpr int grid = 50;
  std::vector<float> in(grid * K::block_threads);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = 1.0f / static_cast<float>(i + 1);
  std::vector<float> expected;
  host::LaunchCounters counters;
  for (const int threads : {1, 2, 3, 8}) {
    for (const host::Schedule schedule : host::all_schedules) {
      const WithOptions with({.threads = threads, .schedule = schedule, .seed = 5});
      std::vector<float> out(grid, -1.0f);
      REQUIRE(launch<B, K>(grid, {in.data(), out.data()}).ok());
      if (expected.empty()) {
        expected = out;
        counters = host::last_launch_counters();
        CHECK(out[0] > out[1]);
      }
      CHECK(out == expected);
      CHECK(host::last_launch_counters() == counters);
    }
  }
}

TEST_CASE("the first failing block in running order is reported on any number of threads") {
  const auto reason = [](int threads, host::Schedule schedule) {
    const WithOptions with({.threads = threads, .schedule = schedule, .seed = 11});
    const Status status = launch<Gfx950, FailingKernel>(40, {});
    CHECK(status.code == StatusCode::launch_failed);
    return std::string(status.reason);
  };
  for (const host::Schedule schedule : host::all_schedules) {
    const std::string alone = reason(1, schedule);
    INFO(alone);
    for (int i = 0; i < 5; ++i) {
      CHECK(reason(2, schedule) == alone);
      CHECK(reason(4, schedule) == alone);
    }
  }
  CHECK(contains(reason(2, host::Schedule::lockstep).c_str(), "block 3 "));
  CHECK(contains(reason(2, host::Schedule::reverse).c_str(), "block 39 "));
}

TEST_CASE("of two failures on two threads the first in running order is reported") {
  const WithOptions with({.threads = 2});
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> six_runs = false;
    const Status status = launch<Gfx950, TwoFailuresKernel>(7, {&six_runs});
    INFO(status.reason);
    CHECK(contains(status.reason, "block 3 "));
    CHECK(six_runs.load());
  }
}

TEST_CASE("an error goes to stderr in one line with schedule and seed") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  std::fflush(stderr);
  const int real = dup(2);
  dup2(ends[1], 2);
  {
    const WithOptions with({.threads = 1, .schedule = host::Schedule::random, .seed = 77});
    CHECK_FALSE(launch<Gfx950, FailingKernel>(10, {}).ok());
  }
  std::fflush(stderr);
  dup2(real, 2);
  close(real);
  close(ends[1]);
  char text[1024] = {};
  const ssize_t length = read(ends[0], text, sizeof(text) - 1);
  close(ends[0]);
  REQUIRE(length > 0);
  INFO(text);
  CHECK(std::string(text).find('\n') == static_cast<std::size_t>(length - 1));
  for (const char* part :
       {"tilewave host room: block ", "wave 0", "lane ", "only 63 of 64", "schedule random, seed 77"}) {
    CHECK(contains(text, part));
  }
}

TEST_CASE("block orders visit every block once") {
  for (const std::int64_t grid : {1, 2, 6, 97, 1000}) {
    for (const host::Schedule schedule : host::all_schedules) {
      for (const std::uint64_t seed : {0ull, 1ull, 12345678901ull, ~0ull}) {
        const host::LaunchRequest request{.kernel = nullptr,
                                          .args = nullptr,
                                          .shared_bytes = 16,
                                          .clusters = grid,
                                          .cluster_blocks = 1,
                                          .block_lanes = 64,
                                          .wave_lanes = 64,
                                          .options = {.threads = 1, .schedule = schedule, .seed = seed}};
        std::set<std::int64_t> visited;
        for (std::int64_t i = 0; i < grid; ++i) visited.insert(request.cluster_at(i));
        CHECK(static_cast<std::int64_t>(visited.size()) == grid);
        CHECK(*visited.begin() == 0);
        CHECK(*visited.rbegin() == grid - 1);
      }
    }
  }
}

TEST_CASE("options are read from words, and nonsense is named") {
  host::Options options;
  REQUIRE(host::parse_options(nullptr, nullptr, nullptr, options).ok());
  CHECK(options == host::Options{});
  REQUIRE(host::parse_options("3", "last_wave_ahead", "18446744073709551615", options).ok());
  CHECK(options == host::Options{3, host::Schedule::last_wave_ahead, ~0ull});
  const host::Options before = options;
  for (const char* bad : {"", "two", "-1", "4097", "1x", " 1"}) {
    CHECK(host::parse_options(bad, nullptr, nullptr, options).code == StatusCode::bad_value);
  }
  for (const char* bad : {"", "Lockstep", "random7"}) {
    CHECK(contains(host::parse_options(nullptr, bad, nullptr, options).reason, "TILEWAVE_HOST_SCHEDULE"));
  }
  CHECK(host::parse_options(nullptr, nullptr, "18446744073709551616", options).code == StatusCode::bad_value);
  CHECK(options == before);
}

TEST_CASE("a bad environment fails every launch until options are set") {
  const char* const threads = std::getenv("TILEWAVE_HOST_THREADS");
  const auto launches = [] {
    std::vector<int> out(IdKernel<Sm90, 1>::block_threads, 0);
    return launch<Sm90, IdKernel<Sm90, 1>>(1, {out.data()});
  };
  if (threads != nullptr && std::string(threads) == "many") {  // the child of the branch below
    const Status status = launches();
    CHECK(status.code == StatusCode::bad_value);
    CHECK(contains(status.reason, "TILEWAVE_HOST_THREADS"));
    host::set_options({});
    CHECK(launches().ok());
    return;
  }
  const pid_t child = fork();  // the environment is read once, so another process has to read it
  REQUIRE(child >= 0);
  if (child == 0) {
    setenv("TILEWAVE_HOST_THREADS", "many", 1);
    execl("/proc/self/exe", "test", "a bad environment fails every launch until options are set", nullptr);
    _exit(99);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace tilewave::test::launches
