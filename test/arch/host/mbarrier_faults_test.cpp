// SPDX-License-Identifier: MIT
// Every misuse of mbarriers, bulk copies and matrix fragments ends the launch, under every schedule, and says where.
#include <cstring>

#include "test/arch/host/faults.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::mbarrier_faults {
namespace {

constexpr int lanes = Sm90::facts.wave_lanes;

enum class Fault {
  arrive_uninitialised,
  wait_overwritten,
  copy_uninitialised,
  global_barrier,
  null_barrier,
  misaligned_barrier,
  init_no_waves,
  init_too_many,
  init_twice,
  one_arrival_more,
  expect_too_much,
  copy_not_expected,
  copy_more_than_expected,
  copy_after_its_phase,
  arrive_on_two_lines,
  arrive_at_two_barriers,
  expect_two_sizes,
  wait_for_two_parities,
  wait_for_parity_2,
  lane_skips_wait,
  lane_returns,
  arrival_missing,
  bytes_missing,
  nobody_waits,
  copy_overwrites_its_barrier,
  copy_misaligned_target,
  copy_misaligned_source,
  copy_null_source,
  copy_no_bytes,
  copy_24_bytes,
  copy_into_global,
  copy_beyond_shared,
  too_many_copies,
  matrices_misaligned,
  matrices_global,
  matrices_on_two_lines,
  prefetch_null,
};

struct FaultyShared {
  Sm90::Mbarrier full, other;  // of 2 arrivals each
  Sm90::Mbarrier fresh[2];
  Chunk chunk[64];
};

template <Fault fault>
struct FaultyKernel {
  static constexpr int block_threads = 2 * lanes;
  struct Args {
    Chunk* in;  // [64]
  };
  using Shared = FaultyShared;
  using B = Sm90;

  static void run(const Args& args, Shared& s) {
    const int wave = B::wave_id(), lane = B::lane_id();
    if (B::block_lane_id() == 0) {
      B::mbarrier_init(&s.full, 2);
      B::mbarrier_init(&s.other, 2);
    }
    B::barrier();
    if (wave == 1) {
      second_wave(args, s, lane);
      return;
    }
    if (fault == Fault::bytes_missing || fault == Fault::nobody_waits) B::mbarrier_arrive(&s.full);
    if (fault == Fault::one_arrival_more) {
      B::mbarrier_expect(&s.full, 16);
      B::mbarrier_expect(&s.full, 16);
    }
  }

  static void second_wave(const Args& args, Shared& s, int lane) {
    const bool odd = lane == 5;
    switch (fault) {
      case Fault::arrive_uninitialised: B::mbarrier_arrive(&s.fresh[0]); break;
      case Fault::wait_overwritten:
        if (odd) std::memset(&s.full, 0, sizeof(s.full));
        (void)B::any(true);
        B::mbarrier_wait(&s.full, 1);
        break;
      case Fault::copy_uninitialised: B::copy_bulk(s.chunk, args.in, 16, &s.fresh[0]); break;
      case Fault::global_barrier: B::mbarrier_wait(reinterpret_cast<B::Mbarrier*>(args.in), 1); break;
      case Fault::null_barrier: B::mbarrier_arrive(nullptr); break;
      case Fault::misaligned_barrier:
        B::mbarrier_arrive(reinterpret_cast<B::Mbarrier*>(reinterpret_cast<char*>(&s.full) + 4));
        break;
      case Fault::init_no_waves: B::mbarrier_init(&s.fresh[0], 0); break;
      case Fault::init_too_many: B::mbarrier_init(&s.fresh[0], 256); break;
      case Fault::init_twice: B::mbarrier_init(&s.full, 2); break;
      case Fault::one_arrival_more:
        B::mbarrier_arrive(&s.other);
        B::mbarrier_expect(&s.full, 16);
        break;
      case Fault::expect_too_much: B::mbarrier_expect(&s.full, 1 << 20); break;
      case Fault::copy_not_expected:
        if (odd) B::copy_bulk(s.chunk, args.in, 32, &s.full);
        B::mbarrier_arrive(&s.full);
        B::mbarrier_arrive(&s.full);
        break;
      case Fault::copy_more_than_expected:
        B::mbarrier_arrive(&s.full);
        B::mbarrier_expect(&s.full, 32);
        if (lane < 3) B::copy_bulk(&s.chunk[lane], args.in, 16, &s.full);
        B::mbarrier_wait(&s.full, 0);
        break;
      case Fault::copy_after_its_phase:
        B::mbarrier_arrive(&s.full);
        B::mbarrier_arrive(&s.full);
        if (odd) B::copy_bulk(s.chunk, args.in, 32, &s.full);
        B::mbarrier_wait(&s.full, 0);
        break;
      case Fault::arrive_on_two_lines:
        if (odd) {
          B::mbarrier_arrive(&s.full);
        } else {
          B::mbarrier_arrive(&s.full);
        }
        break;
      case Fault::arrive_at_two_barriers: B::mbarrier_arrive(odd ? &s.other : &s.full); break;
      case Fault::expect_two_sizes: B::mbarrier_expect(&s.full, odd ? 16 : 32); break;
      case Fault::wait_for_two_parities: B::mbarrier_wait(&s.full, odd ? 0 : 1); break;
      case Fault::wait_for_parity_2: B::mbarrier_wait(&s.full, 2); break;
      case Fault::lane_skips_wait:
        if (!odd) B::mbarrier_wait(&s.full, 1);
        (void)B::any(true);
        break;
      case Fault::lane_returns:
        if (!odd) B::mbarrier_wait(&s.full, 1);
        break;
      case Fault::arrival_missing:
        B::mbarrier_arrive(&s.full);
        B::mbarrier_wait(&s.full, 0);
        break;
      case Fault::bytes_missing:
        B::mbarrier_expect(&s.full, 64);
        if (odd) B::copy_bulk(s.chunk, args.in, 48, &s.full);
        B::mbarrier_wait(&s.full, 0);
        break;
      case Fault::nobody_waits:
        B::mbarrier_expect(&s.full, 48);
        if (odd) B::copy_bulk(s.chunk, args.in, 48, &s.full);
        break;
      case Fault::copy_overwrites_its_barrier:
        B::mbarrier_arrive(&s.full);
        B::mbarrier_expect(&s.full, 16);
        if (odd) B::copy_bulk(&s.full, args.in, 16, &s.full);
        B::mbarrier_wait(&s.full, 0);
        break;
      case Fault::copy_misaligned_target: B::copy_bulk(&s.other, args.in, 16, &s.full); break;
      case Fault::copy_misaligned_source: B::copy_bulk(s.chunk, &args.in[0][1], 16, &s.full); break;
      case Fault::copy_null_source: B::copy_bulk(s.chunk, nullptr, 16, &s.full); break;
      case Fault::copy_no_bytes: B::copy_bulk(s.chunk, args.in, 0, &s.full); break;
      case Fault::copy_24_bytes: B::copy_bulk(s.chunk, args.in, 24, &s.full); break;
      case Fault::copy_into_global: B::copy_bulk(args.in + 1, args.in, 16, &s.full); break;
      case Fault::copy_beyond_shared: B::copy_bulk(&s.chunk[62], args.in, 48, &s.full); break;
      case Fault::too_many_copies:
        for (int i = 0; i <= host::max_bulk_copies / lanes; ++i) B::copy_bulk(s.chunk, args.in, 16, &s.full);
        break;
      case Fault::matrices_misaligned:
        (void)B::load_matrices(reinterpret_cast<const Chunk*>(&s.chunk[0][odd ? 1 : 0]));
        break;
      case Fault::matrices_global: (void)B::load_matrices(odd ? args.in : s.chunk); break;
      case Fault::matrices_on_two_lines:
        if (odd) {
          (void)B::load_matrices(s.chunk);
        } else {
          (void)B::load_matrices(s.chunk);
        }
        break;
      case Fault::prefetch_null: B::prefetch(nullptr); break;
    }
  }
};

template <Fault fault>
void check(std::initializer_list<const char*> parts) {
  check_fault<FaultyKernel<fault>>("mbarrier_faults_test.cpp", parts);
}

}  // namespace

TEST_CASE("barriers that are none are reported") {
  check<Fault::arrive_uninitialised>({"wave 1", "mbarrier_arrive at", "byte 16 was never initialised"});
  check<Fault::wait_overwritten>({"mbarrier_wait at", "byte 0 was never initialised, or was overwritten"});
  check<Fault::copy_uninitialised>({"copy_bulk at", "byte 16 was never initialised"});
  check<Fault::global_barrier>({"mbarrier_wait at", "no mbarrier can be at"});
  check<Fault::null_barrier>({"mbarrier_arrive at", "no mbarrier can be at"});
  check<Fault::misaligned_barrier>({"no mbarrier can be at"});
  check<Fault::init_no_waves>({"for 0 waves, outside [1, 255]"});
  check<Fault::init_too_many>({"for 256 waves, outside [1, 255]"});
  check<Fault::init_twice>({"byte 0 is initialised already"});
}

TEST_CASE("arrivals and bytes beyond a phase are reported") {
  check<Fault::one_arrival_more>({"mbarrier_expect at", "more than the 2 arrivals of a phase"});
  check<Fault::expect_too_much>({"cannot expect 2^20 bytes"});
  check<Fault::copy_not_expected>({"mbarrier_arrive at", "with 32 bytes more than expected"});
  check<Fault::copy_more_than_expected>({"copy_bulk at", "with 16 bytes more than expected"});
  check<Fault::copy_after_its_phase>({"the block ends with 1 bulk copies", "of 32 bytes"});
}

TEST_CASE("lanes that disagree about a barrier are reported") {
  check<Fault::arrive_on_two_lines>({"wave divergence: this lane says mbarrier_arrive 0 at"});
  check<Fault::arrive_at_two_barriers>({"wave divergence: this lane says mbarrier_arrive"});
  check<Fault::expect_two_sizes>({"wave divergence: this lane calls mbarrier_expect"});
  check<Fault::wait_for_two_parities>({"wave divergence: this lane calls mbarrier_wait"});
  check<Fault::wait_for_parity_2>({"for parity 2, neither 0 nor 1"});
  check<Fault::lane_skips_wait>({"wave divergence: this lane calls"});
  check<Fault::lane_returns>({"wave divergence: this lane", "mbarrier_wait"});
}

TEST_CASE("waits without an end say what is missing") {
  check<Fault::arrival_missing>({"nobody can go on: block ", "wave 1 waits at",
                                 "for parity 0 of the mbarrier at byte 0, which lacks 1 of 2 arrivals and 0 bytes"});
  check<Fault::bytes_missing>({"which lacks 0 of 2 arrivals and 16 bytes"});
}

TEST_CASE("bulk copies that hardware cannot do are reported") {
  check<Fault::nobody_waits>({"the block ends with 1 bulk copies in flight that nobody waited for", "of 48 bytes"});
  check<Fault::copy_overwrites_its_barrier>({"overwritten"});
  check<Fault::copy_misaligned_target>({"misaligned access of 16 bytes"});
  check<Fault::copy_misaligned_source>({"misaligned access of 16 bytes"});
  check<Fault::copy_null_source>({"null access of 16 bytes"});
  check<Fault::copy_no_bytes>({"of 0 bytes, no positive multiple of 16"});
  check<Fault::copy_24_bytes>({"of 24 bytes, no positive multiple of 16"});
  check<Fault::copy_into_global>({"the target of copy_bulk is not in shared memory"});
  check<Fault::copy_beyond_shared>({"the target of copy_bulk is not in shared memory"});
  check<Fault::too_many_copies>({"more than 32768 bulk copies that nobody has waited for"});
}

TEST_CASE("fragments and prefetches that hardware cannot do are reported") {
  check<Fault::matrices_misaligned>({"lane 5: ", "misaligned access of 16 bytes"});
  check<Fault::matrices_global>({"lane 5: ", "a row of load_matrices is not in shared memory"});
  check<Fault::matrices_on_two_lines>({"wave divergence: this lane calls load_matrices"});
  check<Fault::prefetch_null>({"null access"});
}

}  // namespace tilewave::test::mbarrier_faults
