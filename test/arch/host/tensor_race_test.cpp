// SPDX-License-Identifier: MIT
// Race tests like those of race_test.cpp, for tensor copies and stores and for arrivals in other blocks.
#include "test/arch/host/races.hpp"

namespace tilewave::test::tensor_race {
namespace {

struct TensorArgs {
  host::TensorMap map;  // of 8 rows of 128 bytes for each block
  float* values;
};
TensorArgs args_of(float* values) {
  TensorArgs args{{}, values};
  REQUIRE(Sm90::make_tensor_map({values, DType::f32, 32, 8, 2, 128, 1024, 8}, args.map).ok());
  return args;
}

enum class StoreFault { none, stores_unwritten, overwrites_unread };

/// The block writes a box, which a lane stores, and overwrites it.
template <StoreFault fault>
struct StoreKernel {
  using B = Sm90;
  static constexpr int block_threads = 64, cluster = 1;
  using Args = TensorArgs;
  struct Shared {
    alignas(1024) Chunk box[64];
  };
  static Args args_of(float* values) { return tensor_race::args_of(values); }
  static void run(const Args& args, Shared& shared) {
    const int id = B::block_lane_id();
    const auto write = [&] { B::store(&shared.box[63 - id], Chunk{}); };
    write();
    B::shared_written();
    if (fault != StoreFault::stores_unwritten) B::barrier();
    if (id == 0) {
      B::store_tensor(args.map, 0, 0, B::block_id(), shared.box);
      B::stores_end();
      if (fault != StoreFault::overwrites_unread) B::stores_read<0>();
    }
    B::barrier();
    write();
    if (id == 0) B::stores_read<0>();
  }
};
template <class, bool right>
using WritesThenStores = StoreKernel<right ? StoreFault::none : StoreFault::stores_unwritten>;
template <class, bool right>
using ReadsThenOverwrites = StoreKernel<right ? StoreFault::none : StoreFault::overwrites_unread>;

enum class PairFault { none, reads_early, says_read_early };

/// Two blocks fetch half of a stage each for both, twice; the reader of either tells both.
template <PairFault fault>
struct PairKernel {
  using B = Sm90;
  static constexpr int block_threads = 64, cluster = 2;
  using Args = TensorArgs;
  struct Shared {
    alignas(1024) Chunk stage[128];
    B::Mbarrier full, empty;
  };
  static Args args_of(float* values) { return tensor_race::args_of(values); }
  static void run(const Args& args, Shared& shared) {
    const int rank = B::cluster_rank(), lane = B::lane_id();
    if (B::block_lane_id() == 0) {
      B::mbarrier_init(&shared.full, 1);
      B::mbarrier_init(&shared.empty, cluster);
      B::mbarrier_ready();
    }
    B::cluster_arrive();
    B::cluster_wait();
    for (int round = 0; round < 2; ++round) {
      if (B::wave_id() == 0) {
        B::mbarrier_wait(&shared.empty, round ^ 1);
        B::mbarrier_expect(&shared.full, 2048);
        if (lane == 0) B::copy_tensor(shared.stage + 64 * rank, args.map, 0, 0, rank, &shared.full, 3u);
      } else {
        const auto read = [&] {
          std::uint32_t sum = 0;
          for (int i = lane; i < 128; i += 32) sum += B::load(&shared.stage[i])[0];
          args.values[512 + 32 * rank + lane] = static_cast<float>(sum);  // beyond the tensor
        };
        const auto tell = [&] {
          for (int to = 0; to < cluster; ++to) B::mbarrier_arrive(&shared.empty, to);
        };
        if (fault == PairFault::reads_early) read();
        B::mbarrier_wait(&shared.full, round);
        if (fault == PairFault::says_read_early) tell();
        read();
        if (fault != PairFault::says_read_early) tell();
      }
    }
    B::cluster_arrive();
    B::cluster_wait();
  }
};
template <class, bool right>
using CopiesThenReads = PairKernel<right ? PairFault::none : PairFault::reads_early>;
template <class, bool right>
using ReadsThenTells = PairKernel<right ? PairFault::none : PairFault::says_read_early>;

}  // namespace

TEST_CASE("ThreadSanitizer reports races around tensor copies and stores, and nothing else") {
  if (!host::under_tsan) return skip_test("needs -fsanitize=thread");
  SECTION("a box stored before it is written") { check_races<Sm90, WritesThenStores>("tensor_race_test.cpp"); }
  SECTION("a box overwritten before it is read") { check_races<Sm90, ReadsThenOverwrites>("tensor_race_test.cpp"); }
  SECTION("a stage read before it is full") { check_races<Sm90, CopiesThenReads>("tensor_race_test.cpp"); }
  SECTION("a stage said in two blocks to be empty before it is read") {
    check_races<Sm90, ReadsThenTells>("tensor_race_test.cpp");
  }
}

}  // namespace tilewave::test::tensor_race
