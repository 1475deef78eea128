// SPDX-License-Identifier: MIT
// Conversions to OCP MX's formats, in the rooms that have them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "test/arch/room.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave::test {
namespace {

template <class B>
struct PackFp4Kernel {
  using Room = B;
  struct Args {
    const Vec<float, 8>* in;  // [grid, wave_lanes]
    std::uint32_t* out;       // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = B::pack_fp4(args.in[i]);
  }
};

template <class B, DType type>
struct PackFp6Kernel {
  using Room = B;
  struct Args {
    const Vec<float, 32>* in;    // [grid, wave_lanes]
    Vec<std::uint32_t, 6>* out;  // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = type == DType::fp6_e2m3 ? B::pack_e2m3(args.in[i]) : B::pack_e3m2(args.in[i]);
  }
};

template <class B>
struct WidenScaledFp4Kernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [grid, wave_lanes]: eight codes each
    Chunk* out;               // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = B::widen_fp4_scaled(args.in[i], 2 + i % 251);
  }
};

/// Every bf16, which has all ties, and its neighbours in f32, n to a vector; what is next to each other differs much. No
/// NaN.
template <int n>
std::vector<Vec<float, n>> all_values() {
  std::vector<Vec<float, n>> in(3 * 0x10000 / n);
  for (std::uint32_t i = 0; i < 3 * 0x10000; ++i) {
    const float x = std::bit_cast<float>((i * 4099u % 0x10000u << 16) + i % 3 - 1);
    in[i / n][static_cast<int>(i % n)] = std::isnan(x) ? 1.75f : x;
  }
  return in;
}

template <class B, DType type>
void check_fp6() {
  const std::vector<Vec<float, 32>> in = all_values<32>();
  const auto out = run_kernel<PackFp6Kernel<B, type>>(static_cast<int>(in.size()) / B::facts.wave_lanes, in, in.size(),
                                                      Vec<std::uint32_t, 6>{});
  for (std::uint32_t i = 0; i < 3 * 0x10000; ++i) {
    const float x = in[i / 32][static_cast<int>(i % 32)];
    const int bit = 6 * static_cast<int>(i % 32);
    const Vec<std::uint32_t, 6>& words = out[i / 32];
    const std::uint64_t both = words[bit / 32] | (bit % 32 > 26 ? std::uint64_t{words[bit / 32 + 1]} << 32 : 0);
    const auto got = static_cast<int>(both >> bit % 32 & 63u);
    if (got == int{f32_to_fp6(type, x)}) continue;
    CAPTURE(room_name<B>(), i, x, got);
    CHECK(got == int{f32_to_fp6(type, x)});
  }
}

struct CheckPackFp6 {
  template <class B>
  void operator()() const {
    if constexpr (MxBackend<B>) {
      check_fp6<B, DType::fp6_e2m3>();
      check_fp6<B, DType::fp6_e3m2>();
    } else {
      CHECK_FALSE(B::facts.mx);
    }
  }
};

struct CheckPackFp4 {
  template <class B>
  void operator()() const {
    if constexpr (MxBackend<B>) {
      const std::vector<Vec<float, 8>> in = all_values<8>();
      const auto out =
          run_kernel<PackFp4Kernel<B>>(static_cast<int>(in.size()) / B::facts.wave_lanes, in, in.size(), 0u);
      for (std::uint32_t i = 0; i < 3 * 0x10000; ++i) {
        const float x = in[i / 8][static_cast<int>(i % 8)];
        const auto got = static_cast<int>(out[i / 8] >> 4 * (i % 8) & 15u);
        if (got == int{f32_to_fp4(x)}) continue;
        CAPTURE(room_name<B>(), i, x, got);
        CHECK(got == int{f32_to_fp4(x)});
      }
    } else {
      CHECK_FALSE(B::facts.mx);
    }
  }
};

/// All codes in all places under all scales whose products are normal numbers of bf16.
struct CheckWidenScaledFp4 {
  template <class B>
  void operator()() const {
    constexpr int lanes = B::facts.wave_lanes, blocks = 251;
    std::vector<std::uint32_t> words(static_cast<std::size_t>(lanes) * blocks);  // each scale meets each lane's word
    for (std::uint32_t i = 0; i < words.size(); ++i)
      for (std::uint32_t place = 0; place < 8; ++place)
        words[i] |= ((i / 251 + i % 251 + 5 * place) & 15u) << 4 * place;
    const auto out = run_kernel<WidenScaledFp4Kernel<B>>(blocks, words, words.size(), Chunk{});
    for (std::uint32_t i = 0; i < words.size(); ++i) {
      for (int value = 0; value < 8; ++value) {
        const int place = value < 4 ? 2 * value : 2 * (value - 4) + 1;
        const auto code = static_cast<std::uint8_t>(words[i] >> 4 * place & 15u);
        const float got = bf16_to_f32(static_cast<std::uint16_t>(out[i][value / 2] >> 16 * (value % 2)));
        const double right = std::ldexp(double{fp4_to_f32(code)}, 2 + static_cast<int>(i % 251) - 127);
        if (double{got} == right) continue;
        CAPTURE(room_name<B>(), i, value, code, got);
        CHECK(double{got} == right);
      }
    }
  }
};

}  // namespace

TEST_CASE("fp4 codes times a power of two, where a room has them, are exact in bf16") {
  AllRooms::each(CheckWidenScaledFp4{});
}
TEST_CASE("fp4 codes, where a room has them, are those of core/dtype.hpp") { AllRooms::each(CheckPackFp4{}); }
TEST_CASE("fp6 codes, where a room has them, are those of core/dtype.hpp") { AllRooms::each(CheckPackFp6{}); }

}  // namespace tilewave::test
