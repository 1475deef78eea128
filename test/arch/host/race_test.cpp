// SPDX-License-Identifier: MIT
// With -fsanitize=thread, races between lanes are reported, and only races. Each kernel has a right form and one with a
// single synchronisation missing.
#include "test/arch/host/races.hpp"

#if defined(TILEWAVE_HOST_TSAN)
// Instrumented, it would ask for a lock that the report holds.
extern "C" __attribute__((no_sanitize("thread"))) void __tsan_on_report(void*) { ++tilewave::test::race_reports; }
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

/// A ring of one stage: one wave fetches, the other reads.
enum class RingFault { none, reads_before_waiting, reads_after_arriving, fetcher_does_not_wait };

template <RingFault fault>
struct RingKernel {
  using B = Sm90;
  static constexpr int lanes = B::facts.wave_lanes, block_threads = 2 * lanes, rounds = 4;
  struct Args {
    float* values;  // [grid, 4 * lanes]
  };
  struct Shared {
    Vec<float, 4> stage[2];  // both filled by each copy
    B::Mbarrier full, empty;
  };
  static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id();
    const float* const in = args.values + B::block_id() * 4 * lanes;  // read by copies, written by nobody
    float* const mine = args.values + B::block_id() * 4 * lanes + lanes + lane;
    if (B::block_lane_id() == 0) {
      B::mbarrier_init(&shared.full, 1);
      B::mbarrier_init(&shared.empty, 1);
    }
    B::barrier();
    for (int round = 0; round < rounds; ++round) {
      if (B::wave_id() == 0) {
        if (fault != RingFault::fetcher_does_not_wait) B::mbarrier_wait(&shared.empty, round % 2 ^ 1);
        if (lane == 3) B::copy_bulk(shared.stage, in, sizeof(shared.stage), &shared.full);
        B::mbarrier_expect(&shared.full, sizeof(shared.stage));
        if (fault == RingFault::fetcher_does_not_wait) B::mbarrier_wait(&shared.full, round % 2);
      } else {
        if (fault == RingFault::reads_before_waiting) *mine = shared.stage[lane % 2][0];
        B::mbarrier_wait(&shared.full, round % 2);
        if (fault == RingFault::none || fault == RingFault::fetcher_does_not_wait) *mine = shared.stage[lane % 2][0];
        B::mbarrier_arrive(&shared.empty);
        if (fault == RingFault::reads_after_arriving) *mine = shared.stage[lane % 2][0];
      }
    }
  }
};

template <class, bool right>
using WaitsThenReads = RingKernel<right ? RingFault::none : RingFault::reads_before_waiting>;
template <class, bool right>
using FetcherWaits = RingKernel<right ? RingFault::none : RingFault::fetcher_does_not_wait>;
template <class, bool right>
using ReadsThenArrives = RingKernel<right ? RingFault::none : RingFault::reads_after_arriving>;

/// Phases without copies: what a wave wrote before it arrives is read by who waits, and by nobody else.
template <class B, bool right>
struct PhaseKernel {
  static constexpr int lanes = B::facts.wave_lanes, block_threads = 2 * lanes;
  struct Args {
    float* values;
  };
  struct Shared {
    float values[lanes];
    typename B::Mbarrier written;
  };
  static void run(const Args& args, Shared& shared) {
    if (B::block_lane_id() == 0) B::mbarrier_init(&shared.written, 1);
    B::barrier();
    if (B::wave_id() == 0) {
      shared.values[B::lane_id()] = 1.0f;
      // As on the chip, the arrival of `expect` is lane 0's alone.
      if (right) {
        B::mbarrier_arrive(&shared.written);
      } else {
        B::mbarrier_expect(&shared.written, 0);
      }
    } else {
      B::mbarrier_wait(&shared.written, 0);
      args.values[B::block_id() * lanes + B::lane_id()] = shared.values[lanes - 1 - B::lane_id()];
    }
  }
};

/// An initialisation is for the other waves to see, too.
template <class B, bool right>
struct InitKernel {
  static constexpr int lanes = B::facts.wave_lanes, block_threads = 2 * lanes;
  struct Args {
    float* values;
  };
  struct Shared {
    typename B::Mbarrier met;
  };
  static void run(const Args&, Shared& shared) {
    if (B::block_lane_id() == 0) B::mbarrier_init(&shared.met, 2);
    (void)B::any(true);
    if (right) B::barrier();
    B::mbarrier_arrive(&shared.met);
    B::mbarrier_wait(&shared.met, 0);
  }
};

/// A group's product: who stores its operands, who overwrites them, and what a wait for it does not order.
enum class GroupFault {
  none,
  multiplies_before_stored,
  overwrites_before_wait,
  overwrites_shared,
  reads_behind_wait,
  reads_other_waves
};

template <GroupFault fault>
struct GroupKernel {
  using B = Sm90;
  static constexpr int block_threads = host::group_lanes;
  struct Args {
    float* values;  // [grid, block_threads]
  };
  struct Shared {
    Chunk a[128], b[16], row[4][16];
    float values[block_threads];
  };
  static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id(), wave = B::wave_id(), other = (id<B>() + 77) % block_threads;
    shared.a[other] = {};
    if (id<B>() < 16) shared.b[id<B>()] = {};
    if (fault != GroupFault::multiplies_before_stored) B::group_barrier();
    Vec<float, 4> acc{};
    B::group_mma_begin();
    B::group_mma<DType::bf16, 8>({shared.a, 256, 128}, {shared.b, 0, 128}, acc);
    B::group_mma_end();
    if (fault == GroupFault::overwrites_before_wait) shared.a[other] = {};
    shared.values[id<B>()] = 1;
    B::group_mma_wait<0>();
    if (fault == GroupFault::overwrites_shared && id<B>() < 16) shared.b[id<B>()] = {};  // which all waves read
    if (fault == GroupFault::reads_behind_wait) acc[0] += shared.values[other];
    B::store_matrices<2>(&shared.row[wave][lane % 16], {{1, 1}});
    if (fault != GroupFault::reads_other_waves) B::group_barrier();
    acc[0] += static_cast<float>(shared.row[(wave + 1) % 4][lane % 16][0]);
    args.values[B::block_id() * block_threads + id<B>()] = acc[0];
  }
};

template <class, bool right>
using StoresThenMultiplies = GroupKernel<right ? GroupFault::none : GroupFault::multiplies_before_stored>;
template <class, bool right>
using WaitsThenOverwrites = GroupKernel<right ? GroupFault::none : GroupFault::overwrites_before_wait>;
template <class, bool right>
using WaitIsForTheWave = GroupKernel<right ? GroupFault::none : GroupFault::overwrites_shared>;
template <class, bool right>
using WaitIsNoBarrier = GroupKernel<right ? GroupFault::none : GroupFault::reads_behind_wait>;
template <class, bool right>
using StoresMatrices = GroupKernel<right ? GroupFault::none : GroupFault::reads_other_waves>;

template <class B, template <class, bool> class K>
void check() {
  check_races<B, K>("/race_test.cpp");
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
}

TEST_CASE("ThreadSanitizer reports races around mbarriers, and nothing else") {
  if (!host::under_tsan) return skip_test("needs -fsanitize=thread");
  SECTION("a stage read before it is full") { check<Sm90, WaitsThenReads>(); }
  SECTION("a stage fetched before it is empty") { check<Sm90, FetcherWaits>(); }
  SECTION("a stage said to be empty before it is read") { check<Sm90, ReadsThenArrives>(); }
  SECTION("written before the wave arrives") { check<Sm90, PhaseKernel>(); }
  SECTION("initialised for the block") { check<Sm90, InitKernel>(); }
}

TEST_CASE("ThreadSanitizer reports races around group products, and nothing else") {
  if (!host::under_tsan) return skip_test("needs -fsanitize=thread");
  SECTION("operands without a barrier before the product") { check<Sm90, StoresThenMultiplies>(); }
  SECTION("operands overwritten before the wait") { check<Sm90, WaitsThenOverwrites>(); }
  SECTION("shared operands overwritten after the wait of one wave") { check<Sm90, WaitIsForTheWave>(); }
  SECTION("the wait taken for a barrier") { check<Sm90, WaitIsNoBarrier>(); }
  SECTION("stored matrices") { check<Sm90, StoresMatrices>(); }
}

}  // namespace tilewave::test
