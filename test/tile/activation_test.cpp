// SPDX-License-Identifier: MIT
// The tests compare every activation of every bf16 and f16 value, and of f32 values between, with double: tails, zeros,
// infinities and NaN among them.
#include "tilewave/tile/activation.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "test/arch/room.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/vec.hpp"
#include "tilewave/reference/activation.hpp"

namespace tilewave::test {
namespace {

constexpr int kinds = 6;  // of one value
constexpr float alpha = 1.702f, limit = 7.0f;

template <class B>
struct ActivationKernel {
  using Room = B;
  struct Args {
    const Vec<float, 2>* in;     // [grid, wave_lanes]
    Vec<float, kinds + 1>* out;  // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    using F = ActivationOf<B>;
    const float x = args.in[i][0];
    Vec<float, kinds + 1> all;
    all[0] = F::template apply<ActivationKind::none>(x);
    all[1] = F::template apply<ActivationKind::relu>(x);
    all[2] = F::template apply<ActivationKind::silu>(x);
    all[3] = F::template apply<ActivationKind::gelu>(x);
    all[4] = F::template apply<ActivationKind::gelu_tanh>(x);
    all[5] = F::template apply<ActivationKind::relu2>(x);
    all[6] = F::swigluoai(x, args.in[i][1], alpha, limit);
    args.out[i] = all;
  }
};

bool near(ActivationKind kind, double x, double got, double wanted) {
  if (std::isnan(wanted)) return std::isnan(got);
  if (std::abs(wanted) > 3.4e38 && std::isinf(got)) return (got > 0) == (wanted > 0);
  // Nothing below the normal numbers, of what the argument and swigluoai's other factor then make larger.
  const double smallest = 1e-36 * (kind == ActivationKind::swigluoai ? limit + 1 : 1);
  return std::abs(got - wanted) <= reference::activation_error(kind, x) * std::abs(wanted) + smallest;
}

TEST_CASE("activations of every bf16 and f16 value and of f32 values between, tails included") {
  constexpr std::uint32_t count = 1 << 16;
  std::vector<Vec<float, 2>> in(3 * count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t other = i * 40503 % count;  // every value once as well
    in[i] = {{bf16_to_f32(static_cast<std::uint16_t>(i)), bf16_to_f32(static_cast<std::uint16_t>(other))}};
    in[count + i] = {{f16_to_f32(static_cast<std::uint16_t>(i)), f16_to_f32(static_cast<std::uint16_t>(other))}};
    in[2 * count + i] = {{__builtin_bit_cast(float, i << 16 | other), 1.0f}};
  }
  AllRooms::each([&]<class B>() {
    const auto out = run_kernel<ActivationKernel<B>>(static_cast<int>(in.size()) / B::facts.wave_lanes, in, in.size(),
                                                     Vec<float, kinds + 1>{});
    std::string wrong;
    for (std::size_t i = 0; i < in.size() && wrong.empty(); ++i)
      for (int k = 0; k <= kinds; ++k) {
        const auto kind = static_cast<ActivationKind>(k);
        const double x = in[i][0], up = in[i][1], got = out[i][k];
        const double wanted = k < kinds ? reference::activated(kind, x) : reference::gated(kind, x, up, alpha, limit);
        if (near(kind, std::min(x, 2.0 * limit), got, wanted)) continue;
        wrong = room_name<B>() + " " + name_of(kind) + " of " + std::to_string(x) + ", " + std::to_string(up) + ": " +
                std::to_string(got) + ", not " + std::to_string(wanted);
      }
    CHECK(wrong == "");
  });
}

TEST_CASE("activations of minus infinity have their limit, which is 0") {
  constexpr float inf = std::numeric_limits<float>::infinity(), largest = std::numeric_limits<float>::max();
  const std::vector<Vec<float, 2>> in(64, Vec<float, 2>{{-inf, 0.5f}});
  const std::vector<Vec<float, 2>> finite(64, Vec<float, 2>{{-largest, -inf}});
  AllRooms::each([&]<class B>() {
    for (const auto& values : {in, finite}) {
      const auto out = run_kernel<ActivationKernel<B>>(1, values, values.size(), Vec<float, kinds + 1>{});
      for (int k = 1; k <= kinds; ++k) {
        const auto kind = static_cast<ActivationKind>(k);
        INFO(room_name<B>() << " " << name_of(kind) << " of " << values[0][0]);
        CHECK(out[0][k] == 0.0f);
        const double x = values[0][0], up = values[0][1];
        CHECK((k < kinds ? reference::activated(kind, x) : reference::gated(kind, x, up, alpha, limit)) == 0.0);
      }
      CHECK(out[0][0] == values[0][0]);
    }
  });
}

}  // namespace
}  // namespace tilewave::test
