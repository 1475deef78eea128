// SPDX-License-Identifier: MIT
// Reads of LDS that turn what they read, in the rooms that have them.
#include <cstdint>
#include <cstring>
#include <vector>

#include "test/arch/tensor_room.hpp"
#include "tilewave/arch/lds.hpp"

namespace tilewave::test {
namespace {

/// Rows of sixteen elements, apart, from which every lane reads a column.
template <class B, class Element>
struct TurnKernel {
  using Room = B;
  static constexpr int block_threads = 64, waves_per_simd = 1, pitch = 24;
  /// Sixteen lanes have a matrix of `rows` rows of sixteen elements, and `row_lanes` of them point at a row.
  static constexpr int rows = 8 / sizeof(Element), row_lanes = 16 / rows, elements = block_threads / row_lanes * pitch;
  using Words = Vec<std::uint32_t, 2>;
  struct Args {
    const Element* in;  // [elements]
    Words* out;         // [lanes]
  };
  struct Shared {
    alignas(16) Element at[elements];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id();
    for (int i = lane; i < elements; i += block_threads) shared.at[i] = B::load(args.in + i);
    B::barrier();
    const Element* const row = shared.at + lane / row_lanes * pitch + rows * (lane % row_lanes);
    B::store(args.out + lane, B::template load_transposed<sizeof(Element)>(row));
  }
};

template <class B, class Element>
void check_transposed() {
  using K = TurnKernel<B, Element>;
  std::vector<Element> in(K::elements);
  for (int i = 0; i < K::elements; ++i) in[i] = static_cast<Element>(i);
  const Device<Element> rows(in);
  const Device<typename K::Words> out(std::vector<typename K::Words>(64));
  launch_kernel<K>(1, 1, typename K::Args{rows.data(), out.data()});
  const auto found = out.values();
  for (int lane = 0; lane < 64; ++lane) {
    Element column[K::rows];
    std::memcpy(column, &found[lane], sizeof(column));
    for (int e = 0; e < K::rows; ++e) {
      CAPTURE(sizeof(Element), lane, e);
      CHECK(column[e] == in[(lane / 16 * K::rows + e) * K::pitch + lane % 16]);
    }
  }
}

struct CheckTransposed {
  template <class B>
  void operator()() const {
    if constexpr (TransposedLdsBackend<B>) {
      check_transposed<B, std::uint16_t>();
      check_transposed<B, std::uint8_t>();
    }
  }
};

}  // namespace

TEST_CASE("a lane gets the column of what sixteen lanes point at") { AllRooms::each(CheckTransposed{}); }

}  // namespace tilewave::test
