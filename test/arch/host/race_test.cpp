// SPDX-License-Identifier: MIT
// With -fsanitize=thread, races between lanes are reported, and only races. Each kernel has a right form and one with a
// single synchronisation missing; both run in a child process that counts ThreadSanitizer's reports.
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

#if defined(TILEWAVE_HOST_TSAN)
namespace {
int reports = 0;
}
// Instrumented, it would ask for a lock that the report holds.
extern "C" __attribute__((no_sanitize("thread"))) void __tsan_on_report(void*) { ++reports; }
#endif

namespace tilewave::test {
namespace {

template <class B>
int id() {
  return B::wave_id() * B::facts.wave_lanes + B::lane_id();
}

/// The block reverses values through shared memory twice.
template <class B, bool right>
struct ReversalKernel {
  static constexpr int block_threads = 2 * B::facts.wave_lanes;
  struct Args {
    float* values;  // [grid, block_threads]
  };
  struct Shared {
    float values[block_threads];
  };
  static void run(const Args& args, Shared& shared) {
    float* const mine = args.values + B::block_id() * block_threads + id<B>();
    for (int round = 0; round < 2; ++round) {
      shared.values[id<B>()] = B::load(mine);
      B::barrier();
      B::store(mine, shared.values[block_threads - 1 - id<B>()]);
      if (right) B::barrier();  // or the next round overwrites what others still read
    }
  }
};

/// A wave passes values through its own part of shared memory; any collective orders that.
template <class B, bool right>
struct WaveKernel {
  static constexpr int lanes = B::facts.wave_lanes, block_threads = lanes;
  struct Args {
    float* values;  // [grid, lanes]
  };
  struct Shared {
    float values[lanes];
  };
  static void run(const Args& args, Shared& shared) {
    float* const mine = args.values + B::block_id() * lanes + B::lane_id();
    shared.values[B::lane_id()] = B::load(mine);
    if (right) (void)B::any(true);
    B::store(mine, shared.values[B::lane_id() ^ 1]);
  }
};

/// A collective of one wave orders nothing in the other.
template <class B, bool right>
struct TwoWavesKernel {
  static constexpr int block_threads = 2 * B::facts.wave_lanes;
  struct Args {
    float* values;
  };
  struct Shared {
    float value;
  };
  static void run(const Args& args, Shared& shared) {
    if (id<B>() == 0) shared.value = 1.0f;
    (void)B::any(true);
    if (right) B::barrier();
    args.values[B::block_id() * block_threads + id<B>()] = shared.value;
  }
};

/// Between two barriers, and between two collectives, lanes are not ordered, although one may reach the second while
/// another has yet to leave the first.
template <class B, bool right>
struct BetweenBarriersKernel {
  static constexpr int block_threads = 2 * B::facts.wave_lanes;
  struct Args {
    float* values;
  };
  struct Shared {
    float values[block_threads];
  };
  static void run(const Args&, Shared& shared) {
    B::barrier();
    shared.values[right ? id<B>() : 0] = 1.0f;
    B::barrier();
  }
};
template <class B, bool right>
struct BetweenCollectivesKernel {
  static constexpr int block_threads = B::facts.wave_lanes;
  struct Args {
    float* values;
  };
  struct Shared {
    float values[block_threads];
  };
  static void run(const Args&, Shared& shared) {
    (void)B::any(true);
    shared.values[right ? id<B>() : 0] = 1.0f;
    (void)B::any(true);
  }
};

/// Blocks are never ordered: all writing one word is a race, however they share a thread.
template <class B, bool right>
struct BlocksKernel {
  static constexpr int block_threads = B::facts.wave_lanes;
  struct Args {
    float* values;
  };
  using Shared = NoShared;
  static void run(const Args& args, Shared&) {
    if (B::lane_id() == 5) args.values[right ? B::block_id() : 0] = 1.0f;
  }
};

/// An async copy is this lane's own: others read it only after a barrier.
template <class B, bool right>
struct AsyncKernel {
  static constexpr int lanes = B::facts.wave_lanes, block_threads = lanes;
  struct Args {
    float* values;  // [grid, 4 * lanes]
  };
  struct Shared {
    Chunk chunks[lanes];
  };
  static void run(const Args& args, Shared& shared) {
    auto* const mine = reinterpret_cast<Chunk*>(args.values) + B::block_id() * lanes + B::lane_id();
    B::copy_async(&shared.chunks[B::lane_id()], mine);
    B::commit();
    B::template wait<0>();
    if (right) B::barrier();
    B::store(mine, shared.chunks[lanes - 1 - B::lane_id()]);
  }
};

struct Seen {
  int reports = 0;
  std::string text;
};

/// What ThreadSanitizer says about a launch of two blocks.
template <class B, class K>
Seen run(int threads) {
  Seen seen;
#if defined(TILEWAVE_HOST_TSAN)
  host::WorkerPool::instance().clear();  // ThreadSanitizer follows a fork only from a process without other threads
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], 2);
    close(ends[0]);
    reports = 0;
    host::set_options({.threads = threads});
    alignas(16) static float values[4 * 4 * 64];
    const Status first = launch<B, K>(2, {values});
    const Status second = launch<B, K>(2, {values});  // fibers and shared memory are used again
    // Not _exit, which ThreadSanitizer makes wait a second for late threads.
    syscall(SYS_exit_group, first.ok() && second.ok() ? std::min(reports, 100) : 101);
  }
  close(ends[1]);
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) seen.text.append(buffer, n);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  seen.reports = WEXITSTATUS(status);
  REQUIRE(seen.reports <= 100);
#else
  (void)threads;
#endif
  return seen;
}

template <class B, template <class, bool> class K>
void check() {
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    const Seen right = run<B, K<B, true>>(threads), wrong = run<B, K<B, false>>(threads);
    INFO(right.text);
    CHECK(right.reports == 0);
    CHECK(wrong.reports > 0);
    CHECK(contains(wrong.text.c_str(), "data race"));
    CHECK(contains(wrong.text.c_str(), "race_test.cpp"));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("ThreadSanitizer reports races between lanes, and nothing else", "", Gfx950, Sm90) {
  using B = TestType;
  if (!host::under_tsan) return skip_test("needs -fsanitize=thread");
  SECTION("shared memory reused without a barrier") { check<B, ReversalKernel>(); }
  SECTION("within a wave") { check<B, WaveKernel>(); }
  SECTION("between waves") { check<B, TwoWavesKernel>(); }
  SECTION("between barriers") { check<B, BetweenBarriersKernel>(); }
  SECTION("between collectives") { check<B, BetweenCollectivesKernel>(); }
  SECTION("between blocks") { check<B, BlocksKernel>(); }
  SECTION("async copies") { check<B, AsyncKernel>(); }
}

}  // namespace tilewave::test
