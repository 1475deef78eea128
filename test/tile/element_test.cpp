// SPDX-License-Identifier: MIT
// The tests widen every code, and narrow every bf16, every f16 and f32 around every tie, and compare with tables made
// in double.
#include "tilewave/tile/element.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "test/arch/room.hpp"
#include "test/core/fp8_table.hpp"

namespace tilewave::test {
namespace {

template <class B, DType T, int n>
struct NarrowKernel {
  using Room = B;
  struct Args {
    const Vec<float, n>* in;  // [grid, wave_lanes]
    Packed<T, n>* out;        // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = narrow<B, T, n>(args.in[i]);
  }
};

template <class B, DType T, int n>
struct WidenKernel {
  using Room = B;
  struct Args {
    const Packed<T, n>* in;  // [grid, wave_lanes]
    Vec<float, n>* out;      // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = widen<B, T, n>(args.in[i]);
  }
};

/// A float format by its definition: sign, exponent bits, mantissa bits; all exponent bits set is infinity or NaN.
double ieee_value(std::uint32_t code, int exponent_bits, int mantissa_bits) {
  const int exponent = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = static_cast<int>(code) & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                   : std::ldexp(1.0 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
  if (exponent == (1 << exponent_bits) - 1) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  }
  return code >> (exponent_bits + mantissa_bits) ? -magnitude : magnitude;
}
double value_of(DType type, std::uint32_t code) {
  switch (type) {
    case DType::bf16: return ieee_value(code, 8, 7);
    case DType::f16: return ieee_value(code, 5, 10);
    case DType::i8: return code < 128 ? static_cast<double>(code) : static_cast<double>(code) - 256.0;
    default: return by_definition(type, static_cast<int>(code));
  }
}

/// The code that quantisation must give.
int quantised(DType type, float value) {
  if (type == DType::i8) {
    return std::isnan(value) ? 0 : static_cast<int>(std::trunc(std::fmin(std::fmax(value, -127.0), 127.0))) & 0xff;
  }
  return std::isnan(value) ? (type == DType::fp8_e4m3fnuz ? 0x80 : 0x7f) : nearest_code(type, value);
}

/// 2^18 of them, neighbours in memory far apart, so that a swap shows.
std::vector<float> narrow_inputs() {
  std::vector<float> in;
  for (const DType type : {DType::bf16, DType::f16})
    for (std::uint32_t code = 0; code < 0x10000; ++code) in.push_back(static_cast<float>(value_of(type, code)));
  const auto around = [&in](double value) {
    const auto x = static_cast<float>(value);
    for (const float near : {std::nextafter(x, -INFINITY), x, std::nextafter(x, INFINITY)}) {
      in.push_back(near);
      in.push_back(-near);
    }
  };
  for (const DType type : {DType::fp8_e4m3fn, DType::fp8_e4m3fnuz})
    for (int code = 0; code < 0x7f; ++code) {
      const double low = by_definition(type, code), high = by_definition(type, code + 1);
      around(low);
      if (!std::isnan(high)) around((low + high) / 2);  // exact in f32
    }
  for (const int last : {448, 240}) {  // and halfway to the code that would be next
    around(last);
    around(last + (last == 448 ? 16 : 8));
  }
  for (int i = 0; i <= 130; ++i) {
    around(i);
    around(i + 0.5);
  }
  in.insert(in.end(), {3e9f, -3e9f, std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
                       std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffffffffu)});
  std::vector<float> mixed(1 << 18);
  for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] = in[i * 40503 % mixed.size() % in.size()];
  return mixed;
}

/// The first that came out wrong; empty if none did.
template <class B, DType T, int n>
std::string narrow_error(const std::vector<float>& in, const std::vector<int>& expected) {
  std::vector<Vec<float, n>> packs(in.size() / n);
  for (std::size_t i = 0; i < in.size(); ++i) packs[i / n][static_cast<int>(i % n)] = in[i];
  const auto out = run_kernel<NarrowKernel<B, T, n>>(static_cast<int>(packs.size()) / B::facts.wave_lanes, packs,
                                                     packs.size(), Packed<T, n>{});
  for (std::size_t i = 0; i < in.size(); ++i) {
    const int got = reinterpret_cast<const Storage<T>*>(out.data())[i];
    if (got != expected[i]) {
      return room_name<B>() + " " + std::string(name_of(T)) + " of " + std::to_string(in[i]) + " (bits " +
             std::to_string(std::bit_cast<std::uint32_t>(in[i])) + "), " + std::to_string(n) +
             " at a time: " + std::to_string(got) + ", not " + std::to_string(expected[i]) + "\n";
    }
  }
  return "";
}

template <class B, DType T, int n>
std::string widen_error() {
  constexpr std::uint32_t codes = 1u << 8 * size_of(T);
  const std::size_t count = std::max<std::size_t>(codes, 64 * n);
  std::vector<Packed<T, n>> packs(count / n);
  const auto code = [](std::size_t i) { return static_cast<std::uint32_t>(i * 40503 % codes); };
  auto* const elements = reinterpret_cast<Storage<T>*>(packs.data());
  for (std::size_t i = 0; i < count; ++i) elements[i] = static_cast<Storage<T>>(code(i));
  const auto out = run_kernel<WidenKernel<B, T, n>>(static_cast<int>(packs.size()) / B::facts.wave_lanes, packs,
                                                    packs.size(), Vec<float, n>{});
  for (std::size_t i = 0; i < count; ++i) {
    const float got = out[i / n][static_cast<int>(i % n)];
    const double wanted = value_of(T, code(i));
    const bool right =
        std::isnan(wanted) ? std::isnan(got) : got == wanted && std::signbit(got) == std::signbit(wanted);
    if (!right) {
      return room_name<B>() + " " + std::string(name_of(T)) + " code " + std::to_string(code(i)) + ", " +
             std::to_string(n) + " at a time: " + std::to_string(got) + ", not " + std::to_string(wanted) + "\n";
    }
  }
  return "";
}

template <class B, DType T>
std::string narrow_errors(const std::vector<float>& in) {
  std::vector<int> expected(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) expected[i] = quantised(T, in[i]);
  return narrow_error<B, T, 1>(in, expected) + narrow_error<B, T, 4>(in, expected) +
         narrow_error<B, T, 8>(in, expected) + narrow_error<B, T, 16>(in, expected);
}

struct NarrowErrors {
  std::string* found;
  const std::vector<float>* in;
  template <class B>
  void operator()() const {
    *found += narrow_errors<B, B::facts.fp8>(*in) + narrow_errors<B, DType::i8>(*in);
  }
};

struct WidenErrors {
  std::string* found;
  template <class B>
  void operator()() const {
    *found += widen_error<B, B::facts.fp8, 1>() + widen_error<B, B::facts.fp8, 4>() +
              widen_error<B, B::facts.fp8, 16>() + widen_error<B, DType::i8, 1>() + widen_error<B, DType::i8, 4>() +
              widen_error<B, DType::i8, 16>() + widen_error<B, DType::bf16, 1>() + widen_error<B, DType::bf16, 8>() +
              widen_error<B, DType::f16, 1>() + widen_error<B, DType::f16, 8>();
  }
};

}  // namespace

TEST_CASE("every bf16, every f16 and f32 around every tie become the codes of the tables, fp8 and i8") {
  const std::vector<float> in = narrow_inputs();
  std::string found;
  AllRooms::each(NarrowErrors{&found, &in});
  CHECK(found == "");
}

TEST_CASE("every code of fp8, i8, bf16 and f16 widens exactly") {
  std::string found;
  AllRooms::each(WidenErrors{&found});
  CHECK(found == "");
}

}  // namespace tilewave::test
