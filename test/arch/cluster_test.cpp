// SPDX-License-Identifier: MIT
// Blocks of a cluster and each other's shared memory; where the chip has no clusters, one block.
#include <cstdint>
#include <vector>

#include "test/arch/room.hpp"

namespace tilewave::test {
namespace {

template <class B>
inline constexpr int cluster_blocks = B::facts.max_cluster_blocks < 4 ? B::facts.max_cluster_blocks : 4;

/// Several times: every block tells all blocks of its cluster its number, and says what it was told. With barriers
/// first, then through mailboxes, two in turn, so that no barrier lies between two rounds.
template <class B>
struct ClusterKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [grid]
    std::uint32_t* out;       // [grid, rounds, blocks]
  };
  static constexpr int blocks = cluster_blocks<B>, barriers = 2, posts = 6, rounds = barriers + posts, waves = 2;
  struct Shared {
    std::uint32_t told[barriers][blocks];
    float posted[2][waves][blocks];
    Mailbox box[2];
  };
  static constexpr int block_threads = waves * B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int rank = B::cluster_rank(), block = B::block_id(), lane = B::block_lane_id();
    const auto say = [&](int round, std::uint32_t told) {
      if (lane < blocks) B::store(args.out + (block * rounds + round) * blocks + lane, told);
    };
    B::template open<2>(shared.box);
    const std::uint32_t mine = B::load(args.in + block);
    B::cluster_wait();
    for (int round = 0; round < barriers; ++round) {
      if (lane < blocks) *B::remote(&shared.told[round][rank], lane) = mine + static_cast<std::uint32_t>(1000 * round);
      B::cluster_arrive();
      B::cluster_wait();
      say(round, shared.told[round][lane % blocks]);
    }
    const int wave = B::wave_id();
    for (int round = barriers; round < rounds; ++round) {
      Mailbox& box = shared.box[round % 2];
      auto& posted = shared.posted[round % 2];
      if (B::lane_id() < blocks) {
        B::post(box, &posted[wave][rank], B::lane_id(),
                0.5f * static_cast<float>(mine) + 500.0f * static_cast<float>(round));
      }
      B::collect(box, waves * blocks, (round - barriers) / 2);
      float told = 0.0f;
      for (int w = 0; w < waves; ++w) told += posted[w][lane % blocks];
      say(round, static_cast<std::uint32_t>(told));  // each wave told half
    }
  }
};

struct CheckCluster {
  template <class B>
  void operator()() const {
    using K = ClusterKernel<B>;
    constexpr int grid = 5 * K::blocks, results = grid * K::rounds * K::blocks;
    std::vector<std::uint32_t> in(grid), out(results, ~0u);
    for (int i = 0; i < grid; ++i) in[i] = static_cast<std::uint32_t>(7 * i + 1);
    bench::DeviceBuffer input(in.size() * 4), output(out.size() * 4);
    REQUIRE(hipMemcpy(input.data(), in.data(), input.bytes(), hipMemcpyHostToDevice) == hipSuccess);
    const typename K::Args args{static_cast<const std::uint32_t*>(input.data()),
                                static_cast<std::uint32_t*>(output.data())};
    const Status status = B::template launch<K>({grid, K::block_threads, K::blocks}, args, nullptr);
    INFO(status.reason);
    REQUIRE(status.ok());
    REQUIRE(hipDeviceSynchronize() == hipSuccess);
    REQUIRE(hipMemcpy(out.data(), output.data(), output.bytes(), hipMemcpyDeviceToHost) == hipSuccess);
    int wrong = 0;
    for (int i = 0; i < results; ++i) {
      const int teller = i % K::blocks, round = i / K::blocks % K::rounds, block = i / K::blocks / K::rounds;
      const std::uint32_t told = in[block / K::blocks * K::blocks + teller] + static_cast<std::uint32_t>(1000 * round);
      wrong += out[i] != told;
    }
    CAPTURE(room_name<B>());
    CHECK(wrong == 0);
  }
};

struct CheckClusterShapes {
  template <class B>
  void operator()() const {
    using K = ClusterKernel<B>;
    CAPTURE(room_name<B>());
    const int most = B::facts.max_cluster_blocks;
    for (const LaunchShape bad :
         {LaunchShape{2 * most, K::block_threads, 0}, LaunchShape{2 * most, K::block_threads, -1},
          LaunchShape{4 * most, K::block_threads, 2 * most},
          LaunchShape{2 * most + 1, K::block_threads, most > 1 ? most : 3}}) {
      CHECK(B::template launch<K>(bad, {}, nullptr).code == StatusCode::bad_extent);
    }
    CHECK(B::template launch<K>({0, K::block_threads, most}, {}, nullptr).ok());
  }
};

}  // namespace

TEST_CASE("blocks of a cluster reach each other's shared memory") { AllRooms::each(CheckCluster{}); }
TEST_CASE("a cluster that the chip does not have is named") { AllRooms::each(CheckClusterShapes{}); }

}  // namespace tilewave::test
