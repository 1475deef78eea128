// SPDX-License-Identifier: MIT
// Codes of four bits as a room's device widens them.
#include <cmath>
#include <cstdint>
#include <vector>

#include "test/arch/room.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave::test {
namespace {

struct WidenedInt4 {
  Chunk bf16, f16, fp4_bf16, fp4_f16;
  Vec<std::uint32_t, 2> fp8;  // of rooms whose products of fp8 take their codes from LDS
};

template <class B>
struct WidenInt4Kernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [64]: eight codes each
    WidenedInt4* out;         // [64]
  };
  using Shared = NoShared;
  static constexpr int block_threads = 64, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = {B::widen_i4(args.in[i]),
                   B::widen_i4_to_f16(args.in[i]),
                   B::widen_fp4(args.in[i]),
                   B::widen_fp4_to_f16(args.in[i]),
                   {}};
    if constexpr (LdsBackend<B>) args.out[i].fp8 = B::widen_i4_to_fp8(args.in[i]);
  }
};

struct CheckWidenInt4 {
  template <class B>
  void operator()() const {
    std::vector<std::uint32_t> words(64);  // each code in each place, beside others that differ
    for (std::uint32_t i = 0; i < 64; ++i)
      for (std::uint32_t place = 0; place < 8; ++place) words[i] |= ((3 * i + 5 * place + i / 16) & 15u) << 4 * place;
    const auto out = run_kernel<WidenInt4Kernel<B>>(1, words, words.size(), WidenedInt4{});
    constexpr float unit = B::i4_unit;
    for (int i = 0; i < 64; ++i) {
      for (int value = 0; value < 8; ++value) {
        const int place = value < 4 ? 2 * value : 2 * (value - 4) + 1;
        const int code = static_cast<int>(words[i] >> 4 * place & 15u), expected = code < 8 ? code : code - 16;
        const auto of = [value](const Chunk& pairs) {
          return static_cast<std::uint16_t>(pairs[value / 2] >> 16 * (value % 2));
        };
        CAPTURE(room_name<B>(), i, value, code);
        CHECK(bf16_to_f32(of(out[i].bf16)) == unit * static_cast<float>(expected));
        CHECK(f16_to_f32(of(out[i].f16)) == static_cast<float>(expected));
        CHECK(bf16_to_f32(of(out[i].fp4_bf16)) == fp4_to_f32(static_cast<std::uint8_t>(code)));
        CHECK(f16_to_f32(of(out[i].fp4_f16)) == fp4_to_f32(static_cast<std::uint8_t>(code)));
        if constexpr (LdsBackend<B>) {
          const auto fp8 = static_cast<std::uint8_t>(out[i].fp8[value / 4] >> 8 * (value % 4));
          CHECK(fp8_to_f32(B::facts.fp8, fp8) == static_cast<float>(expected));
        }
      }
    }
  }
};

/// Two or four of the eight, another pair in each lane; the rooms that multiply them.
struct SomeInt4 {
  Vec<std::uint32_t, 2> bf16, f16, fp4_bf16, fp4_f16;  // of a word and of the next
  std::uint32_t fp8, fp4_fp8;
  Chunk counts, bf16_biased, f16_biased;
  Vec<std::uint32_t, 2> bf16_times, f16_times;  // less zero_of(lane), times 2^power_of(lane)
};
TILEWAVE_HOST_DEVICE constexpr int zero_of(int lane) { return lane % 17 - 8; }
/// The least and the largest power that a type takes, and some between.
TILEWAVE_HOST_DEVICE constexpr int power_of(DType type, int lane) {
  const int least = type == DType::bf16 ? -133 : -24, most = type == DType::bf16 ? 120 : 5;
  return lane % 3 == 0 ? least : lane % 3 == 1 ? most : lane % 9 - 4;
}
/// A power of two as a pair of type T.
template <DType T>
TILEWAVE_HOST_DEVICE constexpr std::uint32_t power_pair(int power) {
  constexpr int mantissa = T == DType::bf16 ? 7 : 10, bias = T == DType::bf16 ? 127 : 15;
  const int field = power + bias;
  return (field > 0 ? static_cast<std::uint32_t>(field) << mantissa : (1u << mantissa) >> (1 - field)) * 0x10001u;
}

template <class B>
struct WidenSomeInt4Kernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [64]
    SomeInt4* out;            // [64]
  };
  using Shared = NoShared;
  static constexpr int block_threads = 64, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    const Vec<std::uint32_t, 2> words{{args.in[i], args.in[(i + 1) % 64]}};
    args.out[i] = {B::template widen_i4_pairs<DType::bf16>(words, i % 4),
                   B::template widen_i4_pairs<DType::f16>(words, i % 4),
                   B::template widen_fp4_pairs<DType::bf16>(words, i % 4),
                   B::template widen_fp4_pairs<DType::f16>(words, i % 4),
                   B::widen_i4_quad(words[0], i % 2),
                   B::widen_fp4_quad(words[0], i % 2),
                   B::widen_i4_counts(words[0]),
                   B::template widen_i4_biased<DType::bf16>(words[0]),
                   B::template widen_i4_biased<DType::f16>(words[0]),
                   times<DType::bf16>(words, i),
                   times<DType::f16>(words, i)};
  }
  template <DType T>
  TILEWAVE_DEVICE static Vec<std::uint32_t, 2> times(const Vec<std::uint32_t, 2>& words, int i) {
    const std::uint32_t powers = power_pair<T>(power_of(T, i));
    return B::template widen_i4_pairs_times<T>(words, i % 4, powers,
                                               B::template i4_offsets<T>(B::template i4_zeros<T>(zero_of(i)), powers));
  }
};

struct CheckWidenSomeInt4 {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      std::vector<std::uint32_t> words(64);
      for (std::uint32_t i = 0; i < 64; ++i)
        for (std::uint32_t place = 0; place < 8; ++place) words[i] |= ((3 * i + 5 * place + i / 16) & 15u) << 4 * place;
      const auto code_of = [&](int word, int value) {
        const int place = value < 4 ? 2 * value : 2 * (value - 4) + 1;
        return static_cast<int>(words[word % 64] >> 4 * place & 15u);
      };
      const auto value_of = [&](int word, int value) {
        const int code = code_of(word, value);
        return static_cast<float>(code < 8 ? code : code - 16);
      };
      const auto fp4_of = [&](int word, int value) {
        return fp4_to_f32(static_cast<std::uint8_t>(code_of(word, value)));
      };
      const auto out = run_kernel<WidenSomeInt4Kernel<B>>(1, words, words.size(), SomeInt4{});
      for (int i = 0; i < 64; ++i) {
        CAPTURE(room_name<B>(), i, words[i]);
        for (int word = 0; word < 2; ++word) {
          for (int e = 0; e < 2; ++e) {
            const float expected = value_of(i + word, 2 * (i % 4) + e);
            CHECK(bf16_to_f32(static_cast<std::uint16_t>(out[i].bf16[word] >> 16 * e)) == expected);
            CHECK(f16_to_f32(static_cast<std::uint16_t>(out[i].f16[word] >> 16 * e)) == expected);
            const float whole = expected - static_cast<float>(zero_of(i));
            CHECK(bf16_to_f32(static_cast<std::uint16_t>(out[i].bf16_times[word] >> 16 * e)) ==
                  std::ldexp(whole, power_of(DType::bf16, i)));
            CHECK(f16_to_f32(static_cast<std::uint16_t>(out[i].f16_times[word] >> 16 * e)) ==
                  std::ldexp(whole, power_of(DType::f16, i)));
            const float fp4 = fp4_of(i + word, 2 * (i % 4) + e);
            CHECK(bf16_to_f32(static_cast<std::uint16_t>(out[i].fp4_bf16[word] >> 16 * e)) == fp4);
            CHECK(f16_to_f32(static_cast<std::uint16_t>(out[i].fp4_f16[word] >> 16 * e)) == fp4);
          }
        }
        const auto half = [](std::uint32_t word, int e) { return static_cast<std::uint16_t>(word >> 16 * e); };
        for (int e = 0; e < 8; ++e) {
          const float expected = value_of(i, e / 4 * 4 + e / 2 % 2 + 2 * (e % 2));
          const float count = e < 4 ? expected + 8 : 16 * (expected + 8);
          CHECK(bf16_to_f32(half(out[i].counts[e / 2], e % 2)) == std::ldexp(count, -133));
          CHECK(f16_to_f32(half(out[i].counts[e / 2], e % 2)) == std::ldexp(count, -24));
          CHECK(bf16_to_f32(half(out[i].bf16_biased[e / 2], e % 2)) +
                    bf16_to_f32(half(B::template i4_negative_biases<DType::bf16>, e % 2)) ==
                expected);
          CHECK(f16_to_f32(half(out[i].f16_biased[e / 2], e % 2)) +
                    f16_to_f32(half(B::template i4_negative_biases<DType::f16>, e % 2)) ==
                expected);
        }
        for (int e = 0; e < 4; ++e) {
          const auto code = static_cast<std::uint8_t>(out[i].fp8 >> 8 * e);
          CHECK(fp8_to_f32(B::facts.fp8, code) == B::i4_fp8_unit * value_of(i, 4 * (i % 2) + e));
          const auto fp4 = static_cast<std::uint8_t>(out[i].fp4_fp8 >> 8 * e);
          CHECK(fp8_to_f32(B::facts.fp8, fp4) == B::fp4_fp8_unit * fp4_of(i, 4 * (i % 2) + e));
        }
      }
    }
  }
};

TEST_CASE("two or four of eight codes widen to their values, or all to as much more as is said") {
  AllRooms::each(CheckWidenSomeInt4{});
}

TEST_CASE("codes of four bits widen to their values") { AllRooms::each(CheckWidenInt4{}); }

}  // namespace
}  // namespace tilewave::test
