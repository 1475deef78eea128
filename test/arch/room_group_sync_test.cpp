// SPDX-License-Identifier: MIT
// Barriers and votes of wave groups, and the fragments their waves store, in the rooms that have them.
#include <cstdint>
#include <vector>

#include "test/arch/group_room.hpp"

namespace tilewave::test {
namespace {

// --- fragments -------------------------------------------------------------------------------------------------------

/// Two waves store matrices with rows in an order of their own.
template <class B, int matrices>
struct StoreMatricesKernel {
  using Room = B;
  static constexpr int count = matrices, lanes = 32, waves = 2, block_threads = waves * lanes, waves_per_simd = 1;
  struct Args {
    const std::uint32_t* in;  // [waves, count, lanes]
    Chunk* out;               // [waves, 8 count]
  };
  struct Shared {
    Chunk row[waves][8 * count];
  };

  TILEWAVE_HOST_DEVICE static constexpr int row_of(int lane) { return lane * 5 % (8 * count); }
  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id(), wave = B::wave_id();
    Vec<std::uint32_t, count> words;
    TILEWAVE_UNROLL
    for (int m = 0; m < count; ++m) words[m] = B::load(args.in + (wave * count + m) * lanes + lane);
    Chunk* const row = lane < 8 * count ? &shared.row[wave][row_of(lane)] : nullptr;
    B::template store_matrices<count>(row, words);
    B::barrier();
    if (lane < 8 * count) B::store(args.out + wave * 8 * count + lane, B::load(&shared.row[wave][lane]));
  }
};

template <class K>
int wrong_stores() {
  std::vector<std::uint32_t> in(K::waves * K::count * K::lanes);  // all halves differ
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>((2 * i + 1) << 16 | 2 * i);
  const auto out = run_kernel<K>(1, in, K::waves * 8 * K::count, Chunk{});
  int wrong = 0;
  for (int w = 0; w < K::waves; ++w) {
    for (int m = 0; m < K::count; ++m) {
      for (int lane = 0; lane < K::lanes; ++lane) {
        for (int e = 0; e < 2; ++e) {
          const Chunk& row = out[w * 8 * K::count + K::row_of(8 * m + 2 * (lane % 4) + e)];
          const std::uint32_t half = row[lane / 4 / 2] >> 16 * (lane / 4 % 2) & 0xffffu;
          wrong += half != (in[(w * K::count + m) * K::lanes + lane] >> 16 * e & 0xffffu);
        }
      }
    }
  }
  return wrong;
}

struct CheckStoreMatrices {
  template <class B>
  void operator()() const {
    if constexpr (GroupBackend<B>) {
      CHECK(wrong_stores<StoreMatricesKernel<B, 1>>() == 0);
      CHECK(wrong_stores<StoreMatricesKernel<B, 2>>() == 0);
      CHECK(wrong_stores<StoreMatricesKernel<B, 4>>() == 0);
    }
  }
};

// --- barriers and votes ----------------------------------------------------------------------------------------------

/// In block i, lane i of the first group votes yes. The other group votes meanwhile with inverted values, behind
/// barriers of its own, and more often than the first.
template <class B>
struct VoteKernel {
  using Room = B;
  static constexpr int block_threads = 2 * group_lanes, waves_per_simd = 2, rounds = 5;
  struct Args {
    const std::uint32_t* in;  // not read
    std::uint32_t* out;       // [grid, 2, group_lanes]
  };
  struct Shared {
    std::uint32_t value[2][group_lanes];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    std::uint32_t* const out = args.out + (B::block_id() * 2 + me.group) * group_lanes + me.id;
    if (me.group == 0) {
      const bool before = B::group_any(false), mine = B::group_any(me.id == B::block_id()), after = B::group_any(false);
      B::store(out, static_cast<std::uint32_t>(before + 2 * mine + 4 * after));
    } else {
      auto value = static_cast<std::uint32_t>(me.id);
      for (int round = 0; round < rounds; ++round) {
        shared.value[round % 2][me.id] = value;
        B::group_barrier();
        value = shared.value[round % 2][(me.id + 37) % group_lanes] + 1;
      }
      B::store(out, value);
    }
  }
};

struct CheckVotes {
  template <class B>
  void operator()() const {
    if constexpr (GroupBackend<B>) {
      using K = VoteKernel<B>;
      constexpr int blocks = group_lanes + 1;  // the last without a yes
      const auto out = run_kernel<K>(blocks, std::vector<std::uint32_t>(1), blocks * 2 * group_lanes, ~0u);
      int wrong = 0;
      for (int i = 0; i < blocks * 2 * group_lanes; ++i) {
        const int block = i / (2 * group_lanes), lane = i % group_lanes;
        const int rotated = (lane + 37 * K::rounds) % group_lanes + K::rounds;
        const int expected = i / group_lanes % 2 == 1 ? rotated : block < group_lanes ? 2 : 0;
        wrong += out[i] != static_cast<std::uint32_t>(expected);
      }
      CHECK(wrong == 0);
    }
  }
};

// --- turns -----------------------------------------------------------------------------------------------------------

/// Three groups write their numbers in turn, in more rounds than turns have parities.
template <class B>
struct TurnKernel {
  using Room = B;
  static constexpr int groups = 3, block_threads = groups * group_lanes, waves_per_simd = groups, rounds = 5;
  struct Args {
    const std::uint32_t* in;  // not read
    std::uint32_t* out;       // [groups * rounds]
  };
  struct Shared {
    typename B::Mbarrier turn[groups];
    std::uint32_t number[groups * rounds];
    int count;
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    if (B::block_lane_id() == 0) {
      for (int i = 0; i < groups; ++i) B::mbarrier_init(&shared.turn[i], 4);
      shared.count = 0;
      B::mbarrier_ready();
    }
    B::barrier();
    const int next = (me.group + 1) % groups;
    if (me.group == groups - 1) B::pass_turn(&shared.turn[0], 0);
    for (int round = 0; round < rounds; ++round) {
      B::await_turn(&shared.turn[me.group], me.group, round % 2);
      if (me.id == 0) shared.number[shared.count++] = static_cast<std::uint32_t>(me.group);
      B::pass_turn(&shared.turn[next], next);
    }
    B::barrier();
    const int i = B::block_lane_id();
    if (i < groups * rounds) B::store(args.out + i, shared.number[i]);
  }
};

struct CheckTurns {
  template <class B>
  void operator()() const {
    if constexpr (GroupBackend<B>) {
      using K = TurnKernel<B>;
      const auto out = run_kernel<K>(1, std::vector<std::uint32_t>(1), K::groups * K::rounds, ~0u);
      for (int i = 0; i < K::groups * K::rounds; ++i) CHECK(out[i] == static_cast<std::uint32_t>(i % K::groups));
    }
  }
};

}  // namespace

TEST_CASE("store_matrices stores the transposes") { AllRooms::each(CheckStoreMatrices{}); }
TEST_CASE("a group meets and votes apart from the other") { AllRooms::each(CheckVotes{}); }
TEST_CASE("groups take turns, and see what was written in the turn before") { AllRooms::each(CheckTurns{}); }

}  // namespace tilewave::test
