// SPDX-License-Identifier: MIT
// Reads of LDS that turn what they read, in the rooms that have them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "test/arch/tensor_room.hpp"
#include "tilewave/arch/lds.hpp"

namespace tilewave::test {
namespace {

/// Rows of sixteen elements, apart, of which sixteen lanes read eight bytes each.
template <class B, class Element>
struct TransposeKernel {
  using Room = B;
  static constexpr int block_threads = 64, waves_per_simd = 1, in_lane = 8 / sizeof(Element), row_lanes = 16 / in_lane;
  static constexpr int rows = 64 / row_lanes, pitch = 24, elements = rows * pitch;
  using Words = Vec<std::uint32_t, 2>;
  struct Args {
    const Element* in;  // [elements]
    Words* out;         // [lanes]
  };
  struct Shared {
    alignas(16) Element rows[elements];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id();
    for (int i = lane; i < elements; i += block_threads) shared.rows[i] = B::load(args.in + i);
    B::barrier();
    const Element* const row = shared.rows + (lane / row_lanes) * pitch + in_lane * (lane % row_lanes);
    B::store(args.out + lane, B::template load_transposed<sizeof(Element)>(row));
  }
};

struct CheckTransposed {
  template <class B>
  void operator()() const {
    if constexpr (TransposedLdsBackend<B>) {
      check<TransposeKernel<B, std::uint16_t>>(std::uint16_t{});
      check<TransposeKernel<B, std::uint8_t>>(std::uint8_t{});
    }
  }
  template <class K, class Element>
  void check(Element) const {
    std::vector<Element> in(K::elements);
    for (int i = 0; i < K::elements; ++i) in[i] = static_cast<Element>(i * 5);  // no two alike in a column
    const Device<Element> rows(in);
    const Device<typename K::Words> out(std::vector<typename K::Words>(64));
    launch_kernel<K>(1, 1, typename K::Args{rows.data(), out.data()});
    const auto found = out.values();
    for (int lane = 0; lane < 64; ++lane) {
      for (int e = 0; e < K::in_lane; ++e) {
        const int row = lane / 16 * K::in_lane + e, column = lane % 16, at = e * static_cast<int>(sizeof(Element));
        CAPTURE(lane, e, sizeof(Element));
        CHECK(static_cast<Element>(found[lane][at / 4] >> 8 * (at % 4)) == in[row * K::pitch + column]);
      }
    }
  }
};

/// Packs values within fp8's range, and reads a word of a buffer, or 0 behind its end.
template <class B>
struct PackKernel {
  using Room = B;
  static constexpr int block_threads = 64, waves_per_simd = 1;
  struct Args {
    const float* in;  // [lanes, 4]
    Vec<std::uint32_t, 2>* out;
  };
  struct Shared {};
  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int lane = B::lane_id();
    const auto x = B::load(reinterpret_cast<const Vec<float, 4>*>(args.in) + lane);
    const typename B::Source source{args.in, 100 * sizeof(float)};
    B::store(args.out + lane,
             Vec<std::uint32_t, 2>{{B::pack_fp8_within(x[0], x[1], x[2], x[3]), source.load_word(4 * lane, 256)}});
  }
};
struct CheckPack {
  template <class B>
  void operator()() const {
    if constexpr (LdsBackend<B>) {
      constexpr DType fp8 = B::facts.fp8;
      std::vector<float> in(256);
      for (int i = 0; i < 256; ++i) in[i] = fp8_max(fp8) * std::exp2(-i / 12.0f) * (i % 3 == 0 ? -1.0f : 1.0f);
      const Device<float> values(in);
      const Device<Vec<std::uint32_t, 2>> out(std::vector<Vec<std::uint32_t, 2>>(64));
      launch_kernel<PackKernel<B>>(1, 1, typename PackKernel<B>::Args{values.data(), out.data()});
      const auto found = out.values();
      for (int lane = 0; lane < 64; ++lane) {
        for (int e = 0; e < 4; ++e) {
          CAPTURE(lane, e);
          CHECK((found[lane][0] >> 8 * e & 0xff) == f32_to_fp8(fp8, in[4 * lane + e]));
        }
        const int word = 64 + lane;
        CHECK(found[lane][1] == (word < 100 ? std::bit_cast<std::uint32_t>(in[word]) : 0u));
      }
    }
  }
};

}  // namespace

TEST_CASE("a lane gets the column of what sixteen lanes point at") { AllRooms::each(CheckTransposed{}); }

TEST_CASE("fp8 of values within its range, and words of a buffer") { AllRooms::each(CheckPack{}); }

}  // namespace tilewave::test
