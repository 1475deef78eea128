// SPDX-License-Identifier: MIT
// A room's conversions and elementary functions as its device executes them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "test/arch/room.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/static_for.hpp"

namespace tilewave::test {
namespace {

struct Widened {
  Vec<std::uint32_t, 2> bf16, f16;
};

template <class B>
struct WidenKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [wave_lanes]: four fp8 codes each
    Widened* out;             // [wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = 64, waves_per_simd = 1;  // 64 words hold all 256 codes

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = {B::widen_fp8(args.in[i]), B::widen_fp8_to_f16(args.in[i])};
  }
};

struct CheckWiden {
  template <class B>
  void operator()() const {
    std::vector<std::uint32_t> words(64);
    for (std::uint32_t code = 0; code < 256; ++code) words[code / 4] |= code << (8 * (code % 4));
    const auto out = run_kernel<WidenKernel<B>>(1, words, words.size(), Widened{});
    for (int code = 0; code < 256; ++code) {
      const auto of = [code](const Vec<std::uint32_t, 2>& pairs) {
        return static_cast<std::uint16_t>(pairs[code % 4 / 2] >> 16 * (code % 2));
      };
      const float got = bf16_to_f32(of(out[code / 4].bf16)), got_f16 = f16_to_f32(of(out[code / 4].f16));
      const float expected = fp8_to_f32(B::facts.fp8, static_cast<std::uint8_t>(code));
      CAPTURE(room_name<B>(), code, got, got_f16, expected);
      if (std::isnan(expected)) {
        CHECK(std::isnan(got));
        CHECK(std::isnan(got_f16));
      } else {
        CHECK(got == expected);
        CHECK(got_f16 == expected);
      }
    }
  }
};

template <class B>
struct PickKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;     // [2, wave_lanes]
    Vec<std::uint32_t, 4>* out;  // [wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::lane_id();
    const std::uint32_t low = args.in[i], high = args.in[B::facts.wave_lanes + i];
    args.out[i] = {{B::template pick_bytes<0, 1, 4, 5>(low, high), B::template pick_bytes<2, 3, 6, 7>(low, high),
                    B::template pick_bytes<7, 0, 3, 3>(low, high), B::template pick_bytes<5, 6, 2, 1>(low, high)}};
  }
};

struct CheckPick {
  template <class B>
  void operator()() const {
    constexpr int lanes = B::facts.wave_lanes;
    constexpr int picked[4][4] = {{0, 1, 4, 5}, {2, 3, 6, 7}, {7, 0, 3, 3}, {5, 6, 2, 1}};
    std::vector<std::uint32_t> in(2 * lanes);
    for (int i = 0; i < 2 * lanes; ++i) in[i] = 0x9e3779b9u * static_cast<std::uint32_t>(i + 1);
    const auto out = run_kernel<PickKernel<B>>(1, in, lanes, Vec<std::uint32_t, 4>{});
    for (int i = 0; i < lanes; ++i) {
      const std::uint64_t all = std::uint64_t{in[lanes + i]} << 32 | in[i];
      for (int n = 0; n < 4; ++n) {
        std::uint32_t expected = 0;
        for (int b = 0; b < 4; ++b) expected |= static_cast<std::uint32_t>(all >> 8 * picked[n][b] & 0xffu) << 8 * b;
        CAPTURE(room_name<B>(), i, n);
        CHECK(out[i][n] == expected);
      }
    }
  }
};

struct NumberResults {
  float exp2, log2;
  float left;            // of x * 3 after its rounding: what subtract leaves of it
  std::uint32_t packed;  // (x, -x)
};

template <class B>
struct NumbersKernel {
  using Room = B;
  struct Args {
    const float* in;     // [grid, wave_lanes]
    NumberResults* out;  // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    const float x = args.in[i];
    const float rounded = B::subtract(x * 3.0f, 0.0f);
    args.out[i] = {B::exp2(x), B::log2(x), B::subtract(x * 3.0f, rounded), B::pack_bf16(x, -x)};
  }
};

bool rounds_to(float value, std::uint16_t code) {
  const std::uint16_t even = f32_to_bf16(value);
  const bool tie = (std::bit_cast<std::uint32_t>(value) & 0xffffu) == 0x8000u;
  return code == even || (tie && code == even + 1);  // a tie may round away from zero
}

struct CheckNumbers {
  template <class B>
  void operator()() const {
    std::vector<float> in{0.0f, -0.0f, 1.0f, 2.0f, 0.5f, -std::numeric_limits<float>::infinity(), -1000.0f};
    for (int i = 0; i < 4096; ++i) in.push_back(-120.0f + 0.0585f * static_cast<float>(i));
    for (std::uint32_t i = 0; i < 64; ++i)
      in.push_back(std::bit_cast<float>(0x3f800000u + (i << 14)));  // ties among them
    while (in.size() % 64 != 0) in.push_back(1.0f);
    const auto out =
        run_kernel<NumbersKernel<B>>(static_cast<int>(in.size()) / B::facts.wave_lanes, in, in.size(), NumberResults{});
    for (std::size_t i = 0; i < in.size(); ++i) {
      CAPTURE(room_name<B>(), in[i], out[i].exp2, out[i].log2, out[i].packed);
      const float exact = static_cast<float>(std::exp2(static_cast<double>(in[i])));
      CHECK(std::fabs(out[i].exp2 - exact) <= 1e-6f * exact);
      if (in[i] > 0) CHECK(std::fabs(out[i].log2 - std::log2(static_cast<double>(in[i]))) <= 2e-6);
      if (std::isinf(in[i])) continue;
      CHECK(out[i].left == 0);
      CHECK(rounds_to(in[i], static_cast<std::uint16_t>(out[i].packed)));
      CHECK(rounds_to(-in[i], static_cast<std::uint16_t>(out[i].packed >> 16)));
    }
  }
};

struct Packed {
  std::uint32_t bf16[2], f16[2], fp8, i8;
  float rsqrt, reciprocal;  // of the first value
};
using Four = Vec<float, 4>;

template <class B>
struct PackKernel {
  using Room = B;
  struct Args {
    const Four* in;  // [grid, wave_lanes]
    Packed* out;     // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    const Four x = args.in[i];
    args.out[i] = {{B::round_bf16(x[0], x[1]), B::round_bf16(x[2], x[3])},
                   {B::pack_f16(x[0], x[1]), B::pack_f16(x[2], x[3])},
                   B::pack_fp8(x[0], x[1], x[2], x[3]),
                   B::pack_i8(x[0], x[1], x[2], x[3]),
                   B::rsqrt(x[0]),
                   B::reciprocal(x[0])};
  }
};

/// Every bf16, which has all ties of fp8, all exponents, infinities and NaN; every f16 tie and every bf16 tie from 1 to 2
/// with its neighbours; signalling NaN; random bits. Neighbours in memory differ much, so that a swap shows.
std::vector<float> conversion_inputs() {
  std::vector<float> in{std::bit_cast<float>(0x7f800001u),
                        std::bit_cast<float>(0xff800001u),
                        std::bit_cast<float>(0xffffffffu),
                        126.99999f,
                        127.99999f,
                        -127.99999f,
                        -0.99999f,
                        3e9f};
  const auto around = [&in](float value) {
    for (const int step : {-1, 0, 1}) {
      const float x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + static_cast<std::uint32_t>(step));
      in.push_back(x);
      in.push_back(-x);
    }
  };
  for (std::uint32_t code = 0; code < 0x10000; ++code)
    in.push_back(bf16_to_f32(static_cast<std::uint16_t>(code * 4099)));
  for (std::uint32_t code = 0; code < 0x7c00; ++code) {
    const auto f16 = static_cast<std::uint16_t>(code * 4099 % 0x7c00);
    const float next = f16 == 0x7bff ? 65536.0f : f16_to_f32(static_cast<std::uint16_t>(f16 + 1));
    around(0.5f * (f16_to_f32(f16) + next));
  }
  for (std::uint32_t i = 0; i < 0x80; ++i) around(std::bit_cast<float>(0x3f808000u + (i << 16)));
  std::uint64_t state = 1;
  for (int i = 0; i < 8192 || in.size() % (4 * 64) != 0; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth, TAOCP 3.3.4
    in.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(state >> 32)));
  }
  return in;
}

int i8_of(float x) {
  if (std::isnan(x)) return 0;
  return static_cast<int>(x > 127.0f ? 127.0f : x < -127.0f ? -127.0f : x);
}

bool is_normal(double x) { return std::fabs(x) >= 0x1p-126 && std::fabs(x) < 0x1p128; }

/// Within 2 ulp, where argument and result are normal.
bool near(float x, float got, double exact) {
  if (!is_normal(x) || !is_normal(exact)) return true;
  return std::fabs(got - exact) <= 2 * std::ldexp(1.0, std::ilogb(exact) - 23);
}

struct CheckPack {
  template <class B>
  void operator()() const {
    const std::vector<float> in = conversion_inputs();
    std::vector<Four> fours(in.size() / 4);
    for (std::size_t i = 0; i < in.size(); ++i) fours[i / 4][static_cast<int>(i % 4)] = in[i];
    const auto out =
        run_kernel<PackKernel<B>>(static_cast<int>(fours.size()) / B::facts.wave_lanes, fours, fours.size(), Packed{});
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Packed& got = out[i / 4];
      const auto place = static_cast<int>(i % 4);
      const auto bf16 = static_cast<std::uint16_t>(got.bf16[place / 2] >> 16 * (place % 2));
      const auto f16 = static_cast<std::uint16_t>(got.f16[place / 2] >> 16 * (place % 2));
      const auto fp8 = static_cast<std::uint8_t>(got.fp8 >> 8 * place);
      const int i8 = static_cast<std::int8_t>(got.i8 >> 8 * place);
      const float x = in[i];
      const bool nan = std::isnan(x);
      const bool right_bf16 = nan ? std::isnan(bf16_to_f32(bf16)) : bf16 == f32_to_bf16(x);
      const bool right_f16 = nan ? std::isnan(f16_to_f32(f16)) : f16 == f32_to_f16(x);
      const bool right_fp8 = fp8 == f32_to_fp8(B::facts.fp8, x), right_i8 = i8 == i8_of(x);
      const double exact = x;
      const bool right_functions =
          place != 0 || (near(x, got.reciprocal, 1 / exact) && (!(x > 0) || near(x, got.rsqrt, 1 / std::sqrt(exact))));
      if (right_bf16 && right_f16 && right_fp8 && right_i8 && right_functions) continue;
      CAPTURE(room_name<B>(), i, x, std::bit_cast<std::uint32_t>(x), bf16, f16, fp8, i8, got.rsqrt, got.reciprocal);
      CHECK(right_bf16);
      CHECK(right_f16);
      CHECK(right_fp8);
      CHECK(right_i8);
      CHECK(right_functions);
    }
    CHECK(out.size() * 4 == in.size());
  }
};

template <class B>
struct WidenHalvesKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [grid, wave_lanes]: two codes each
    Vec<float, 2>* out;       // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = B::widen_f16(args.in[i]);
  }
};

struct CheckWidenHalves {
  template <class B>
  void operator()() const {
    std::vector<std::uint32_t> words(0x8000);
    for (std::uint32_t code = 0; code < 0x10000; ++code) words[code / 2] |= code << 16 * (code % 2);
    const auto out = run_kernel<WidenHalvesKernel<B>>(static_cast<int>(words.size()) / B::facts.wave_lanes, words,
                                                      words.size(), Vec<float, 2>{});
    for (std::uint32_t code = 0; code < 0x10000; ++code) {
      const float got = out[code / 2][static_cast<int>(code % 2)];
      const float expected = f16_to_f32(static_cast<std::uint16_t>(code));
      const bool right = std::isnan(expected)
                             ? std::isnan(got)
                             : std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(expected);
      if (right) continue;
      CAPTURE(room_name<B>(), code, got, expected);
      CHECK(right);
    }
    CHECK(out[1][1] == 3 * 0x1p-24f);
  }
};

template <class B>
struct KeysKernel {
  using Room = B;
  struct Args {
    const std::uint64_t* in;  // [wave_lanes, 2]
    std::uint64_t* out;       // [wave_lanes, 9]: order's two, larger, other_half<1> to <32>
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int lane = B::lane_id();
    std::uint64_t* out = args.out + lane * 9;
    out[0] = args.in[2 * lane];
    out[1] = args.in[2 * lane + 1];
    out[2] = B::larger(out[0], out[1]);
    B::order(out[0], out[1]);
    static_for<6>([&](auto i) {
      constexpr int m = 1 << i;
      if constexpr (m < B::facts.wave_lanes) out[3 + i] = B::template other_half<m>(lane / m);
    });
  }
};

template <class B>
struct PeersKernel {
  using Room = B;
  struct Args {
    const int* in;
    int* out;  // [wave_lanes, 3]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int lane = B::lane_id();
    const Peers peers = B::template peers<11>(static_cast<std::uint32_t>(args.in[lane]));
    args.out[3 * lane] = peers.before;
    args.out[3 * lane + 1] = peers.count;
    args.out[3 * lane + 2] = B::sum_up_to(args.in[lane] - 700);
  }
};

struct CheckPeers {
  template <class B>
  void operator()() const {
    constexpr int lanes = B::facts.wave_lanes;
    for (const int keys : {1, 2, 5, 2000}) {
      std::vector<int> in(lanes);
      for (int i = 0; i < lanes; ++i) in[i] = keys == 1 ? 1024 : i * i * 37 % keys;
      const auto out = run_kernel<PeersKernel<B>>(1, in, std::size_t{3} * lanes, -1);
      for (int lane = 0, sum = 0; lane < lanes; ++lane) {
        CAPTURE(room_name<B>(), keys, lane);
        sum += in[lane] - 700;
        CHECK(out[3 * lane] == std::count(in.begin(), in.begin() + lane, in[lane]));
        CHECK(out[3 * lane + 1] == std::count(in.begin(), in.end(), in[lane]));
        CHECK(out[3 * lane + 2] == sum);
      }
    }
  }
};

struct CheckKeys {
  template <class B>
  void operator()() const {
    constexpr int lanes = B::facts.wave_lanes;
    std::vector<std::uint64_t> in(2 * lanes);  // 0, subnormal as doubles, all below 2^62
    for (int i = 0; i < 2 * lanes; ++i) {
      in[i] = i == 0 ? 0 : (std::uint64_t{1} << i % 62) + (i % 62 > 20 ? 7u * (i % 5) : 0u);
    }
    const auto out = run_kernel<KeysKernel<B>>(1, in, std::size_t{9} * lanes, std::uint64_t{0});
    for (int lane = 0; lane < lanes; ++lane) {
      CAPTURE(room_name<B>(), lane);
      const std::uint64_t a = in[2 * lane], b = in[2 * lane + 1], *got = &out[9 * lane];
      CHECK(got[0] == std::max(a, b));
      CHECK(got[1] == std::min(a, b));
      CHECK(got[2] == std::max(a, b));
      for (int i = 0, m = 1; m < lanes; ++i, m *= 2) {
        if (m < 16 || (lane & m) != 0) CHECK(got[3 + i] == static_cast<std::uint64_t>((lane / m) ^ 1));
      }
    }
  }
};

}  // namespace

TEST_CASE("lanes count who has their key and sum over those before") { AllRooms::each(CheckPeers{}); }
TEST_CASE("keys are ordered, and go from one half of a group to the other") { AllRooms::each(CheckKeys{}); }
TEST_CASE("all fp8 codes widen to the bf16 and the f16 of the same value") { AllRooms::each(CheckWiden{}); }
TEST_CASE("bytes are picked from either word") { AllRooms::each(CheckPick{}); }
TEST_CASE("exp2, log2 and bf16 pairs are as near as promised") { AllRooms::each(CheckNumbers{}); }
TEST_CASE("conversions round as core/dtype.hpp, reciprocals are within 2 ulp") { AllRooms::each(CheckPack{}); }
TEST_CASE("all f16 codes widen exactly") { AllRooms::each(CheckWidenHalves{}); }

}  // namespace tilewave::test
