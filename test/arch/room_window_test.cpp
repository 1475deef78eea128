// SPDX-License-Identifier: MIT
// Windows of memory in every room.
#include <cstdint>
#include <vector>

#include "test/arch/room.hpp"

namespace tilewave::test {
namespace {

/// Copies through windows that end inside what the lanes ask for: plain and streamed, shared and of each lane.
template <class B>
struct WindowKernel {
  using Room = B;
  struct Args {
    const std::uint8_t* in;  // [wave_lanes, 16]
    std::uint8_t* out;       // [ways, wave_lanes, 16]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;
  static constexpr int bytes = 16 * B::facts.wave_lanes, ways = 12, cut = 16 * 13;

  template <class T, bool uniform, bool streamed>
  TILEWAVE_DEVICE static void copy(const Args& args, int way) {
    const typename B::template Window<uniform> in{args.in, cut}, out{args.out + way * bytes, cut};
    for (int i = 0; i < 16; i += sizeof(T)) {
      const std::uint32_t at = 16 * B::lane_id() + i;
      const T value = streamed ? in.template load_stream<T>(at) : in.template load<T>(at);
      if (streamed) {
        out.store_stream(at, value);
      } else {
        out.store(at, value);
      }
    }
  }
  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    copy<std::uint8_t, true, false>(args, 0);
    copy<std::uint16_t, true, false>(args, 1);
    copy<std::uint32_t, true, false>(args, 2);
    copy<std::uint64_t, true, false>(args, 3);
    copy<Chunk, true, false>(args, 4);
    copy<Chunk, true, true>(args, 5);
    copy<std::uint8_t, false, false>(args, 6);
    copy<std::uint32_t, false, true>(args, 7);
    copy<Chunk, false, true>(args, 8);
    // Each lane's own: lane l may touch its first l bytes.
    const std::uint8_t* mine = args.in + 16 * B::lane_id();
    const typename B::template Window<false> own{mine, static_cast<std::uint32_t>(B::lane_id() % 17)};
    const typename B::template Window<false> all{args.out + 9 * bytes + 16 * B::lane_id(), 16};
    for (int i = 0; i < 16; ++i) all.store(i, own.template load<std::uint8_t>(i));
    const typename B::template Window<true> whole{args.out + 10 * bytes, static_cast<std::uint32_t>(bytes)};
    const typename B::template Window<true> in{args.in, cut};
    whole.store(16 * B::lane_id(), in.template load<Chunk>(16 * B::lane_id()));  // zeros beyond
    const typename B::template Window<true> none{args.out + 11 * bytes, 0};
    none.store(16 * B::lane_id(), in.template load<Chunk>(0));
  }
};

struct CheckWindow {
  template <class B>
  void operator()() const {
    using K = WindowKernel<B>;
    constexpr std::uint8_t poison = 0xee;
    std::vector<std::uint8_t> in(K::bytes);
    for (int i = 0; i < K::bytes; ++i) in[i] = static_cast<std::uint8_t>(1 + i % 200);
    const auto out = run_kernel<K>(1, in, std::size_t{K::ways} * K::bytes, poison);
    for (int i = 0; i < K::bytes; ++i) {
      CAPTURE(room_name<B>(), i);
      const auto got = [&](int way) { return int{out[way * K::bytes + i]}; };
      const bool inside = i < K::cut;
      for (int way = 0; way < 9; ++way) CHECK(got(way) == (inside ? in[i] : poison));
      CHECK(got(9) == (i % 16 < i / 16 % 17 ? in[i] : 0));
      CHECK(got(10) == (inside ? in[i] : 0));
      CHECK(got(11) == poison);
    }
  }
};

}  // namespace

TEST_CASE("beyond a window reads give 0 and writes nothing") { AllRooms::each(CheckWindow{}); }

}  // namespace tilewave::test
