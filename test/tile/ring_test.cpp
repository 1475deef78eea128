// SPDX-License-Identifier: MIT
// Rings of stages: where a wave stands, and waves that fetch for others, in the rooms that have them.
#include "tilewave/tile/ring.hpp"

#include <cstdint>
#include <vector>

#include "test/arch/tensor_room.hpp"

namespace tilewave::test {
namespace {

template <int stages>
void check_places() {
  RingSlot<stages> one_by_one;
  for (int step = 0; step < 5 * stages; ++step, one_by_one.advance()) {
    CAPTURE(stages, step);
    CHECK(one_by_one.slot == step % stages);
    CHECK(one_by_one.round == step / stages % 2);
    for (int count = 0; count <= stages; ++count) {
      RingSlot<stages> there = one_by_one;
      there.advance(count);
      CHECK(there.slot == (step + count) % stages);
      CHECK(there.round == (step + count) / stages % 2);
    }
  }
}

// --- waves in turn ---------------------------------------------------------------------------------------------------

/// The last wave fetches stage after stage, of which the others take turns: each is one wave's.
template <class B>
struct TurnsKernel {
  using Room = B;
  static constexpr int lanes = B::facts.wave_lanes, readers = 2, stages = 4, steps = 5 * stages + 1;
  static constexpr int block_threads = (readers + 1) * lanes, waves_per_simd = 1;
  struct Args {
    const Chunk* in;  // [grid, steps, lanes]
    Chunk* out;       // the same
  };
  struct Shared {
    Chunk stage[stages][lanes];
    RingBarriers<B, stages> ring;
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), first = B::block_id() * steps * lanes;
    if (wave == readers) shared.ring.begin(1, 1);
    B::barrier();
    RingSlot<stages> at;
    if (wave == readers) {
      for (int step = 0; step < steps; ++step, at.advance()) {
        shared.ring.wait_free(at);
        B::mbarrier_expect(&shared.ring.full[at.slot], sizeof(shared.stage[0]));
        if (B::lane_id() == 0) {
          B::copy_bulk(shared.stage[at.slot], args.in + first + step * lanes, sizeof(shared.stage[0]),
                       &shared.ring.full[at.slot]);
        }
      }
    } else {
      at.advance(wave);
      for (int step = wave; step < steps; step += readers, at.advance(readers)) {
        shared.ring.wait_full(at);
        B::store(args.out + first + step * lanes + B::lane_id(), shared.stage[at.slot][B::lane_id()]);
        shared.ring.release(at.slot);
      }
    }
  }
};

struct CheckTurns {
  template <class B>
  void operator()() const {
    if constexpr (StagedBackend<B>) {
      using K = TurnsKernel<B>;
      constexpr int grid = 7;
      const Bytes numbers = numbered_bytes(grid * K::steps * K::lanes * sizeof(Chunk));
      std::vector<Chunk> chunks(numbers.size() / sizeof(Chunk));
      std::memcpy(chunks.data(), numbers.data(), numbers.size());
      const Device<Chunk> in(chunks);
      Device<Chunk> out(std::vector<Chunk>(chunks.size()));
      launch_kernel<K>(grid, 1, {in.data(), out.data()});
      CHECK((bytes_of(out.values()) == numbers));
    }
  }
};

// --- a ring of two blocks --------------------------------------------------------------------------------------------

/// The last wave of either block fetches half of each stage for both; a stage is empty when the readers of both blocks
/// have told so in both.
template <class B>
struct PairKernel {
  using Room = B;
  static constexpr int blocks = 2, readers = 2, stages = 3, steps = 4 * stages + 1, units = 2 * 64;
  static constexpr int lanes = B::facts.wave_lanes, block_threads = (readers + 1) * lanes, waves_per_simd = 1;
  struct Args {
    typename B::TensorMap map;  // rows: 16 for each step of each cluster
    Chunk* out;                 // [grid, steps, units]
  };
  struct Shared {
    alignas(1024) Chunk stage[stages][units];
    RingBarriers<B, stages, blocks> ring;
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), rank = B::cluster_rank(), block = B::block_id();
    if (wave == 0) shared.ring.begin(1, readers);
    B::cluster_arrive();
    B::cluster_wait();
    RingSlot<stages> at;
    for (int step = 0; step < steps; ++step, at.advance()) {
      Chunk* const stage = shared.stage[at.slot];
      auto* const full = &shared.ring.full[at.slot];
      if (wave == readers) {
        shared.ring.wait_free(at);
        B::mbarrier_expect(full, 2048);
        if (B::lane_id() == 0) {
          const int row = 16 * (block / blocks * steps + step) + 8 * rank;
          B::copy_tensor(stage + 64 * rank, args.map, 0, row, 0, full, 3u);
        }
      } else {
        shared.ring.wait_full(at);
        for (int i = wave * lanes + B::lane_id(); i < units; i += readers * lanes) {
          B::store(args.out + (block * steps + step) * units + i, B::load(stage + i));
        }
        shared.ring.release(at.slot);
      }
    }
    B::cluster_arrive();
    B::cluster_wait();
  }
};

struct CheckPair {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      using K = PairKernel<B>;
      constexpr int clusters = 5, grid = clusters * K::blocks, rows_in_all = clusters * K::steps * 16;
      const Bytes tensor = numbered_bytes(rows_in_all * 128);
      const Device<unsigned char> in(tensor);
      Device<Chunk> out(std::vector<Chunk>(grid * K::steps * K::units));
      const TensorShape shape{in.data(), DType::bf16, 64, rows_in_all, 1, 128, rows_in_all * 128, 8};
      typename K::Args args{{}, out.data()};
      REQUIRE(B::make_tensor_map(shape, args.map).ok());
      launch_kernel<K>(grid, K::blocks, args);
      Bytes expected;
      for (int b = 0; b < grid; ++b) {
        for (int half = 0; half < 2 * K::steps; ++half) {
          append_box(expected, shape, tensor, 0, 16 * (b / K::blocks * K::steps) + 8 * half, 0);
        }
      }
      CHECK((bytes_of(out.values()) == expected));
    }
  }
};

}  // namespace

TEST_CASE("a place in a ring tells slot and round of every stage") {
  check_places<1>();
  check_places<2>();
  check_places<3>();
  check_places<10>();
}
TEST_CASE("waves that take turns at a ring get every stage once") { AllRooms::each(CheckTurns{}); }
TEST_CASE("two blocks fill and empty their rings together") { AllRooms::each(CheckPair{}); }

}  // namespace tilewave::test
