// SPDX-License-Identifier: MIT
// Rings of stages in shared memory, in the rooms that have them: mbarriers, bulk copies, matrix fragments.
#include <cstdint>
#include <vector>

#include "test/arch/room.hpp"

namespace tilewave::test {
namespace {

std::vector<Chunk> numbered(int count) {
  std::vector<Chunk> chunks(count);
  for (int i = 0; i < count; ++i) {
    for (int e = 0; e < 4; ++e) chunks[i][e] = static_cast<std::uint32_t>(4 * i + e) * 2654435761u;
  }
  return chunks;
}

// --- a ring ----------------------------------------------------------------------------------------------------------

/// The last wave fetches stage after stage, in copies of 1, 2, ... chunks by as many lanes; the others hand it on
/// backwards, each wave its part.
template <class B>
struct RingKernel {
  using Room = B;
  static constexpr int lanes = B::facts.wave_lanes, readers = 2, stages = 3, copies = 10;
  static constexpr int stage_chunks = copies * (copies + 1) / 2, steps = 5 * stages + 1;
  static constexpr int block_threads = (readers + 1) * lanes, waves_per_simd = 1;
  static_assert(stage_chunks <= readers * lanes);
  struct Args {
    const Chunk* in;  // [grid, steps, stage_chunks]
    Chunk* out;       // [grid, steps, stage_chunks]
  };
  struct Shared {
    Chunk stage[stages][stage_chunks];
    typename B::Mbarrier full[stages], empty[stages];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), lane = B::lane_id(), first = B::block_id() * steps * stage_chunks;
    if (B::block_lane_id() == 0) {
      for (int s = 0; s < stages; ++s) {
        B::mbarrier_init(&shared.full[s], 1);
        B::mbarrier_init(&shared.empty[s], readers);
      }
      B::mbarrier_ready();
    }
    B::barrier();
    B::launch_next();
    B::wait_for_previous();
    for (int step = 0; step < steps; ++step) {
      const int slot = step % stages, round = step / stages % 2;
      Chunk* const stage = shared.stage[slot];
      if (wave == readers) {
        B::prefetch(args.in + first);
        B::mbarrier_wait(&shared.empty[slot], round ^ 1);
        B::mbarrier_expect(&shared.full[slot], stage_chunks * sizeof(Chunk));
        if (lane < copies) {
          const int at = lane * (lane + 1) / 2;
          B::copy_bulk(stage + at, args.in + first + step * stage_chunks + at,
                       static_cast<std::uint32_t>((lane + 1) * sizeof(Chunk)), &shared.full[slot]);
        }
      } else {
        B::mbarrier_wait(&shared.full[slot], round);
        // The next phase cannot end before this wave has arrived.
        const bool tested =
            B::mbarrier_test(&shared.full[slot], round) && !B::mbarrier_test(&shared.full[slot], round ^ 1);
        const int i = wave * lanes + lane;
        if (tested && i < stage_chunks)
          B::store(args.out + first + step * stage_chunks + i, stage[stage_chunks - 1 - i]);
        B::mbarrier_arrive(&shared.empty[slot]);
      }
    }
  }
};

struct CheckRing {
  template <class B>
  void operator()() const {
    if constexpr (StagedBackend<B>) {
      using K = RingKernel<B>;
      constexpr int blocks = 7, n = K::stage_chunks;
      const std::vector<Chunk> in = numbered(blocks * K::steps * n);
      const auto out = run_kernel<K>(blocks, in, in.size(), Chunk{});
      int wrong = 0;
      for (std::size_t i = 0; i < in.size(); ++i) {
        const std::size_t from = i / n * n + (n - 1 - i % n);
        for (int e = 0; e < 4; ++e) wrong += out[i][e] != in[from][e];
      }
      CHECK(wrong == 0);
    }
  }
};

// --- copies of a lane ------------------------------------------------------------------------------------------------

/// Each wave keeps two batches of its lanes' copies under way, of a chunk and, of half of the lanes, of a word; a lane
/// hands on what another one has copied.
template <class B>
struct LaneCopiesKernel {
  using Room = B;
  static constexpr int lanes = B::facts.wave_lanes, waves = 3, stages = 3, steps = 4 * stages + 1;
  static constexpr int block_threads = waves * lanes, waves_per_simd = 1;
  struct Args {
    const Chunk* in;  // [grid, waves, steps, lanes]
    Chunk* out;       // likewise
  };
  struct Shared {
    Chunk chunk[waves][stages][lanes];
    std::uint32_t word[waves][stages][lanes];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), lane = B::lane_id(), first = (B::block_id() * waves + wave) * steps * lanes;
    const auto copy = [&](int step) {
      const Chunk* const from = args.in + first + step * lanes + lane;
      if (step < steps) {
        B::copy_lane(&shared.chunk[wave][step % stages][lane], from);
        if (lane % 2 == 0)
          B::copy_lane(&shared.word[wave][step % stages][lane], reinterpret_cast<const std::uint32_t*>(from) + 1);
      }
      B::lane_copies_end();
    };
    for (int step = 0; step < stages - 1; ++step) copy(step);
    for (int step = 0; step < steps; ++step) {
      B::template lane_copies_wait<stages - 2>();
      B::wave_barrier();
      Chunk chunk = shared.chunk[wave][step % stages][lane ^ 1];
      if (lane % 2 == 1) chunk[3] = shared.word[wave][step % stages][lane ^ 1];
      B::store(args.out + first + step * lanes + lane, chunk);
      copy(step + stages - 1);
    }
    B::template lane_copies_wait<0>();
  }
};

struct CheckLaneCopies {
  template <class B>
  void operator()() const {
    if constexpr (StagedBackend<B>) {
      using K = LaneCopiesKernel<B>;
      const std::vector<Chunk> in = numbered(5 * K::waves * K::steps * K::lanes);
      const auto out = run_kernel<K>(5, in, in.size(), Chunk{});
      int wrong = 0;
      for (std::size_t i = 0; i < in.size(); ++i) {
        const Chunk& from = in[i ^ 1];
        for (int e = 0; e < 4; ++e) wrong += out[i][e] != from[e == 3 && i % 2 == 1 ? 1 : e];
      }
      CHECK(wrong == 0);
    }
  }
};

/// A wave copies stages for another one, and waits for none of its copies: a barrier tells when they have landed.
template <class B>
struct CountedCopiesKernel {
  using Room = B;
  static constexpr int lanes = B::facts.wave_lanes, stages = 3, steps = 4 * stages + 1;
  static constexpr int block_threads = 2 * lanes, waves_per_simd = 1;
  struct Args {
    const Chunk* in;  // [grid, steps, lanes]
    Chunk* out;       // likewise
  };
  struct Shared {
    Chunk chunk[stages][lanes];
    typename B::Mbarrier full[stages], empty[stages];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), lane = B::lane_id(), first = B::block_id() * steps * lanes;
    if (wave == 0) {
      if (lane < stages) B::mbarrier_init(&shared.full[lane], B::copies_arrivals);
      if (lane < stages) B::mbarrier_init(&shared.empty[lane], 1);
      B::mbarrier_ready();
    }
    B::barrier();
    for (int step = 0; step < steps; ++step) {
      const int slot = step % stages, round = step / stages % 2;
      if (wave == 0) {
        B::mbarrier_wait(&shared.full[slot], round);
        B::store(args.out + first + step * lanes + lane, shared.chunk[slot][lane ^ 1]);
        B::mbarrier_arrive(&shared.empty[slot]);
      } else {
        B::mbarrier_wait(&shared.empty[slot], round ^ 1);
        B::copy_lane(&shared.chunk[slot][lane], args.in + first + step * lanes + lane);
        B::lane_copies_arrive(&shared.full[slot]);
      }
    }
    if (wave == 1) B::template lane_copies_wait<0>();
  }
};

struct CheckCountedCopies {
  template <class B>
  void operator()() const {
    if constexpr (StagedBackend<B>) {
      using K = CountedCopiesKernel<B>;
      const std::vector<Chunk> in = numbered(5 * K::steps * K::lanes);
      const auto out = run_kernel<K>(5, in, in.size(), Chunk{});
      int wrong = 0;
      for (std::size_t i = 0; i < in.size(); ++i)
        for (int e = 0; e < 4; ++e) wrong += out[i][e] != in[i ^ 1][e];
      CHECK(wrong == 0);
    }
  }
};

// --- phases ----------------------------------------------------------------------------------------------------------

/// Waves that meet at an mbarrier, again and again, and each time read what the next wave has written.
template <class B>
struct PhasesKernel {
  using Room = B;
  static constexpr int lanes = B::facts.wave_lanes, waves = 5, rounds = 9;
  static constexpr int block_threads = waves * lanes, waves_per_simd = 2;
  struct Args {
    const std::uint32_t* in;  // [block_threads]
    std::uint32_t* out;       // [block_threads]
  };
  struct Shared {
    std::uint32_t value[2][waves][lanes];
    typename B::Mbarrier met;
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int wave = B::wave_id(), lane = B::lane_id(), id = wave * lanes + lane;
    if (id == 0) {
      B::mbarrier_init(&shared.met, waves);
      B::mbarrier_ready();
    }
    B::barrier();
    B::mbarrier_wait(&shared.met, 1);  // returns at once
    std::uint32_t value = B::load(args.in + id);
    for (int round = 0; round < rounds; ++round) {
      shared.value[round % 2][wave][lane] = 3 * value + static_cast<std::uint32_t>(round);
      B::mbarrier_arrive(&shared.met);
      B::mbarrier_wait(&shared.met, round % 2);
      value = shared.value[round % 2][(wave + 1) % waves][lanes - 1 - lane];
    }
    B::store(args.out + id, value);
  }
};

struct CheckPhases {
  template <class B>
  void operator()() const {
    if constexpr (StagedBackend<B>) {
      using K = PhasesKernel<B>;
      std::vector<std::uint32_t> values(K::block_threads);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(11 * i + 5);
      const auto out = run_kernel<K>(1, values, values.size(), 0u);
      for (int round = 0; round < K::rounds; ++round) {
        const std::vector<std::uint32_t> before = values;
        for (int id = 0; id < K::block_threads; ++id) {
          const int from = (id / K::lanes + 1) % K::waves * K::lanes + K::lanes - 1 - id % K::lanes;
          values[id] = 3 * before[from] + static_cast<std::uint32_t>(round);
        }
      }
      CHECK((out == values));
    }
  }
};

// --- fragments -------------------------------------------------------------------------------------------------------

/// Rows that lie in another order than the lanes point at them.
template <class B, bool turned>
struct MatricesKernel {
  using Room = B;
  static constexpr int lanes = B::facts.wave_lanes, block_threads = lanes, waves_per_simd = 1;
  struct Args {
    const Chunk* in;  // [lanes]
    Chunk* out;       // [lanes]
  };
  struct Shared {
    Chunk row[lanes];
  };

  TILEWAVE_DEVICE static constexpr int row_of(int lane) { return lane * 13 % lanes; }
  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id();
    B::store(&shared.row[lane], B::load(args.in + lane));
    B::barrier();
    const Chunk* const row = &shared.row[row_of(lane)];
    const Chunk words = turned ? B::load_matrices_transposed(row) : B::load_matrices(row);
    B::store(&shared.row[lane], Chunk{});  // after the instruction has read all rows
    B::store(args.out + lane, words);
  }
};

template <bool turned>
struct CheckMatrices {
  template <class B>
  void operator()() const {
    if constexpr (StagedBackend<B>) {
      using K = MatricesKernel<B, turned>;
      const std::vector<Chunk> in = numbered(K::lanes);
      const auto out = run_kernel<K>(1, in, in.size(), Chunk{});
      const auto element = [&](int m, int row, int column) {
        return in[(8 * m + row) * 13 % K::lanes][column / 2] >> 16 * (column % 2) & 0xffffu;
      };
      for (int lane = 0; lane < K::lanes; ++lane) {
        for (int m = 0; m < 4; ++m) {
          CAPTURE(lane, m);
          const int one = lane / 4, two = lane % 4 * 2;
          const std::uint32_t low = turned ? element(m, two, one) : element(m, one, two),
                              high = turned ? element(m, two + 1, one) : element(m, one, two + 1);
          CHECK(out[lane][m] == (low | high << 16));
        }
      }
    }
  }
};

}  // namespace

TEST_CASE("a ring of stages hands on what bulk copies fetch") { AllRooms::each(CheckRing{}); }
TEST_CASE("copies of a lane land in batches, for the wave behind a barrier") { AllRooms::each(CheckLaneCopies{}); }
TEST_CASE("a barrier counts copies of lanes when they land") { AllRooms::each(CheckCountedCopies{}); }
TEST_CASE("waves meet at an mbarrier, phase after phase") { AllRooms::each(CheckPhases{}); }
TEST_CASE("load_matrices deals out four matrices") { AllRooms::each(CheckMatrices<false>{}); }
TEST_CASE("load_matrices_transposed deals out columns of four matrices") { AllRooms::each(CheckMatrices<true>{}); }

}  // namespace tilewave::test
