// SPDX-License-Identifier: MIT
// Sums of 64 bits over a wave, and where a running sum passes a value: every value around every end.
#include "tilewave/tile/wave_integers.hpp"

#include "test/arch/room.hpp"

namespace tilewave::test {
namespace {

constexpr int count = 3;  // items of a lane

struct Answer {
  std::uint64_t sum;
  std::int64_t index;
  std::uint64_t rest, item;

  friend bool operator==(const Answer&, const Answer&) = default;
};

template <class B, class T>
struct FindKernel {
  using Room = B;
  static constexpr int items = count * B::facts.wave_lanes;
  struct Args {
    const std::uint64_t* in;  // a value for each block, behind the items
    Answer* out;              // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    Vec<T, count> own;
    std::uint64_t sum = 0;
    TILEWAVE_UNROLL
    for (int i = 0; i < count; ++i) sum += own[i] = static_cast<T>(args.in[B::lane_id() * count + i]);
    const auto found = WaveIntegers<B>::find(own, args.in[items + B::block_id()]);
    Answer& answer = args.out[B::block_id() * B::facts.wave_lanes + B::lane_id()];
    answer = {WaveIntegers<B>::sum(sum), found.index, found.index < 0 ? 0 : found.rest,
              found.index < 0 ? 0 : found.item};
  }
};

struct CheckFind {
  template <class B>
  void operator()() const {
    check<B, std::uint32_t>(0xffffffffu);
    check<B, std::uint64_t>((std::uint64_t{1} << 43) - 1);
  }
  /// Items up to `most`, many of them 0.
  template <class B, class T>
  static void check(std::uint64_t most) {
    using Kernel = FindKernel<B, T>;
    std::vector<std::uint64_t> in;
    for (int i = 0; i < Kernel::items; ++i) in.push_back(i % 4 == 1 ? 0 : i % 4 == 2 ? most : most / (7 * i + 1));
    std::vector<Answer> wanted;
    std::uint64_t all = 0;
    for (int i = 0; i < Kernel::items; ++i) all += in[i];
    const auto ask = [&](std::uint64_t value) {
      Answer answer{all, -1, 0, 0};
      constexpr int items = Kernel::items;
      std::uint64_t before = 0;
      for (int i = 0; i < items && answer.index == -1; before += in[i++]) {
        if (value < before + in[i]) answer = {all, i, value - before, in[i]};
      }
      in.push_back(value);
      wanted.insert(wanted.end(), B::facts.wave_lanes, answer);
    };
    std::uint64_t end = 0;
    for (int i = 0; i < Kernel::items; ++i) {
      end += in[i];
      for (const std::uint64_t value : {end - 1, end, end + 1}) ask(value);
    }
    CAPTURE(room_name<B>(), sizeof(T));
    const auto blocks = static_cast<int>(in.size()) - Kernel::items;
    CHECK(run_kernel<Kernel>(blocks, in, wanted.size(), Answer{}) == wanted);
  }
};

TEST_CASE("a wave sums whole numbers and finds where their running sum passes a value") { AllRooms::each(CheckFind{}); }

}  // namespace
}  // namespace tilewave::test
