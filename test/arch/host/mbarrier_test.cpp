// SPDX-License-Identifier: MIT
// The times at which bulk copies land, and the phase that a wait at an mbarrier sees, under every schedule.
// room_staged_test.cpp tests what all rooms promise, and mbarrier_faults_test.cpp what this room reports.
#include <cstring>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::mbarrier {
namespace {

constexpr int lanes = Sm90::facts.wave_lanes;

std::vector<Chunk> numbered(int count) {
  std::vector<Chunk> chunks(count);
  for (int i = 0; i < count; ++i) chunks[i] = {{1u + i, 2u + i, 3u + i, 4u + i}};
  return chunks;
}
bool same(const Chunk& a, const Chunk& b) { return std::memcmp(&a, &b, sizeof(Chunk)) == 0; }
bool all_poison(const Chunk& c) { return c[0] == ~0u && c[1] == ~0u && c[2] == ~0u && c[3] == ~0u; }

/// One wave fetches a chunk a lane and looks at it before and after the wait.
struct LateKernel {
  static constexpr int block_threads = 2 * lanes;
  struct Args {
    const Chunk* in;  // [grid, lanes]
    Chunk* out;       // [grid, 2, lanes]
  };
  struct Shared {
    Chunk chunk[lanes];
    Sm90::Mbarrier full;
  };

  static void run(const Args& args, Shared& shared) {
    using B = Sm90;
    const int lane = B::lane_id(), block = B::block_id();
    if (B::block_lane_id() == 0) B::mbarrier_init(&shared.full, 1);
    B::barrier();
    if (B::wave_id() == 1) {
      B::mbarrier_wait(&shared.full, 0);
      B::store(args.out + (2 * block + 1) * lanes + lane, shared.chunk[lane]);
      return;
    }
    B::copy_bulk(&shared.chunk[lane], args.in + block * lanes + lane, sizeof(Chunk), &shared.full);
    (void)B::any(true);
    B::store(args.out + 2 * block * lanes + lane, shared.chunk[lane]);
    B::mbarrier_expect(&shared.full, lanes * sizeof(Chunk));
  }
};

/// Two waves arrive in each phase; the third counts how many phases each wait has let it pass.
struct ParityKernel {
  static constexpr int phases = 6, block_threads = 3 * lanes;
  struct Args {
    int* seen;  // [grid, phases]
  };
  struct Shared {
    int ended[2];
    Sm90::Mbarrier arrived, seen;
  };

  static void run(const Args& args, Shared& shared) {
    using B = Sm90;
    const int wave = B::wave_id();
    if (B::block_lane_id() == 0) {
      B::mbarrier_init(&shared.arrived, 2);
      B::mbarrier_init(&shared.seen, 1);
    }
    B::barrier();
    for (int phase = 0; phase < phases; ++phase) {
      if (wave < 2) {
        B::mbarrier_wait(&shared.seen, phase % 2 ^ 1);  // the first returns at once
        if (B::lane_id() == 0) B::store(&shared.ended[wave], phase);
        B::mbarrier_arrive(&shared.arrived);
      } else {
        B::mbarrier_wait(&shared.arrived, phase % 2);
        if (B::lane_id() == 0) {
          B::store(args.seen + B::block_id() * phases + phase, B::load(&shared.ended[0]) + B::load(&shared.ended[1]));
        }
        B::mbarrier_arrive(&shared.seen);
      }
    }
  }
};

/// 16 blocks of it are 144 waves.
struct TooManyWavesKernel {
  static constexpr int block_threads = 9 * lanes;
  struct Args {};
  using Shared = NoShared;
  static void run(const Args&, Shared&) {}
};

/// The largest cluster: every lane tells one of the next block, and the waves of a block meet at an mbarrier.
struct LargestClusterKernel {
  static constexpr int blocks = 16, waves = 5, block_threads = waves * lanes;
  struct Args {
    int* out;  // [grid, block_threads]
  };
  struct Shared {
    int told[block_threads];
    Sm90::Mbarrier met;
  };

  static void run(const Args& args, Shared& shared) {
    using B = Sm90;
    const int id = B::block_lane_id(), rank = B::cluster_rank();
    if (id == 0) B::mbarrier_init(&shared.met, waves);
    B::cluster_arrive();
    B::cluster_wait();
    *B::remote(&shared.told[id], (rank + 1) % blocks) = 1000 * B::block_id() + id;
    B::cluster_arrive();
    B::cluster_wait();
    B::mbarrier_arrive(&shared.met);
    B::mbarrier_wait(&shared.met, 0);
    B::store(args.out + B::block_id() * block_threads + id, shared.told[block_threads - 1 - id]);
  }
};

}  // namespace

TEST_CASE("bulk copies land when they are waited for") {
  if (host::under_tsan) return skip_test("ThreadSanitizer would report the race that this test is about");
  constexpr int grid = 3;
  const std::vector<Chunk> in = numbered(grid * lanes);
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<Chunk> out(2 * in.size());
    REQUIRE(launch<Sm90, LateKernel>(grid, {in.data(), out.data()}).ok());
    CHECK(host::last_launch_counters().bulk_bytes == grid * lanes * 16);
    for (int i = 0; i < grid * lanes; ++i) {
      const Chunk &early = out[2 * (i / lanes) * lanes + i % lanes],
                  &late = out[(2 * (i / lanes) + 1) * lanes + i % lanes];
      // These let copies land at any time, or when another wave waits for them.
      const bool at_times =
          options.schedule == host::Schedule::random || options.schedule == host::Schedule::one_wave_behind;
      CHECK((all_poison(early) || (at_times && same(early, in[i]))));
      CHECK(same(late, in[i]));
    }
  }
}

TEST_CASE("a random schedule lets some bulk copies land early") {
  if (host::under_tsan) return skip_test("ThreadSanitizer would report the race that this test is about");
  const std::vector<Chunk> in = numbered(lanes);
  int early = 0, late = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const WithOptions with({.threads = 1, .schedule = host::Schedule::random, .seed = seed});
    std::vector<Chunk> out(2 * in.size());
    REQUIRE(launch<Sm90, LateKernel>(1, {in.data(), out.data()}).ok());
    for (int i = 0; i < lanes; ++i) ++(all_poison(out[i]) ? late : early);
  }
  CHECK(early > 0);
  CHECK(late > 0);
}

TEST_CASE("a wait sees the phase of its parity end") {
  constexpr int grid = 3;
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<int> seen(grid * ParityKernel::phases, -1);
    REQUIRE(launch<Sm90, ParityKernel>(grid, {seen.data()}).ok());
    for (int i = 0; i < grid * ParityKernel::phases; ++i) CHECK(seen[i] == 2 * (i % ParityKernel::phases));
  }
}

TEST_CASE("the largest cluster has 16 blocks") {
  using K = LargestClusterKernel;
  constexpr int grid = 2 * K::blocks;
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<int> out(grid * K::block_threads, -1);
    REQUIRE(Sm90::launch<K>({grid, K::block_threads, K::blocks}, {out.data()}, nullptr).ok());
    int wrong = 0;
    for (int block = 0; block < grid; ++block) {
      const int teller = block / K::blocks * K::blocks + (block + K::blocks - 1) % K::blocks;
      for (int id = 0; id < K::block_threads; ++id) {
        wrong += out[block * K::block_threads + id] != 1000 * teller + K::block_threads - 1 - id;
      }
    }
    CHECK(wrong == 0);
  }
  CHECK(Sm90::launch<K>({64, K::block_threads, 32}, {nullptr}, nullptr).code == StatusCode::bad_extent);
  const Status status = Sm90::launch<TooManyWavesKernel>({16, TooManyWavesKernel::block_threads, 16}, {}, nullptr);
  CHECK(status.code == StatusCode::bad_extent);
  CHECK(contains(status.reason, "at most 128 waves"));
}

}  // namespace tilewave::test::mbarrier
