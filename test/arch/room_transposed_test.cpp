// SPDX-License-Identifier: MIT
// Reads of LDS that turn what they read, in the rooms that have them.
#include <cstdint>
#include <vector>

#include "test/arch/tensor_room.hpp"
#include "tilewave/arch/lds.hpp"

namespace tilewave::test {
namespace {

/// Sixteen rows of sixteen elements, apart, of which sixteen lanes read four.
template <class B>
struct TurnKernel {
  using Room = B;
  static constexpr int block_threads = 64, waves_per_simd = 1, pitch = 24, elements = 16 * pitch;
  using Words = Vec<std::uint32_t, 2>;
  struct Args {
    const std::uint16_t* in;  // [elements]
    Words* out;               // [lanes]
  };
  struct Shared {
    alignas(16) std::uint16_t rows[elements];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id();
    for (int i = lane; i < elements; i += block_threads) shared.rows[i] = B::load(args.in + i);
    B::barrier();
    B::store(args.out + lane, B::template load_transposed<2>(shared.rows + (lane / 4) * pitch + 4 * (lane % 4)));
  }
};

struct CheckTransposed {
  template <class B>
  void operator()() const {
    if constexpr (TransposedLdsBackend<B>) {
      using K = TurnKernel<B>;
      std::vector<std::uint16_t> in(K::elements);
      for (int i = 0; i < K::elements; ++i) in[i] = static_cast<std::uint16_t>(i);
      const Device<std::uint16_t> rows(in);
      const Device<typename K::Words> out(std::vector<typename K::Words>(64));
      launch_kernel<K>(1, 1, typename K::Args{rows.data(), out.data()});
      const auto found = out.values();
      for (int lane = 0; lane < 64; ++lane) {
        for (int e = 0; e < 4; ++e) {
          const int row = lane / 16 * 4 + e, column = lane % 16;
          CAPTURE(lane, e);
          CHECK((found[lane][e / 2] >> 16 * (e % 2) & 0xffff) == static_cast<std::uint32_t>(row * K::pitch + column));
        }
      }
    }
  }
};

}  // namespace

TEST_CASE("a lane gets the column of what sixteen lanes point at") { AllRooms::each(CheckTransposed{}); }

}  // namespace tilewave::test
