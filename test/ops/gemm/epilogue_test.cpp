// SPDX-License-Identifier: MIT
// Tests of a user's own epilogue, with the first and the last policy of a spec.
#include <cmath>
#include <vector>

#include ROOM_HEADER

#include "test/ops/gemm/call.hpp"

namespace tilewave::test {
namespace {

/// An epilogue that doubles a value and adds the weight of its element.
struct Weighed {
  const float* weights;  // [batch, M, N]
  std::int32_t m, n;

  TILEWAVE_DEVICE float operator()(float value, GemmElement at) const {
    return 2 * value + weights[(std::int64_t{at.layer} * m + at.row) * n + at.column];
  }
};

constexpr GemmSpec spec{.out = DType::f32};
template <class B>
inline constexpr GemmPolicies policies = gemm_policies(B::facts.id, spec);
template <class B>
inline constexpr GemmPolicy first = policies<B>[0];
template <class B>
inline constexpr GemmPolicy last = policies<B>.back();

std::vector<double> values_of(GemmCall& call, int rows, int columns, const Status& launched) {
  REQUIRE(launched.ok());
  REQUIRE(hipDeviceSynchronize() == hipSuccess);
  call.out().download();
  std::vector<double> values;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) values.push_back(call.out().at(row, column));
  return values;
}

template <class B, GemmPolicy policy>
void check_weighed() {
  INFO(name_of(B::facts.id) << " " << name_of(policy));
  constexpr std::int32_t m = 37, n = 52, batch = 2;
  GemmCall call(spec, {.m = m, .n = n, .k = 96, .batch = batch});
  Tensor weights(DType::f32, batch * m, n, 1, {n, 0});
  weights.set(batch * m, n, [](int row, int column) { return static_cast<float>(row * n + column); });
  const Weighed epilogue{static_cast<const float*>(weights.device()), m, n};
  const auto plain = values_of(call, batch * m, n, gemm_launch<B, spec, policy>(call.on_device(), 1, {}));
  const auto weighed =
      values_of(call, batch * m, n, gemm_launch_with<B, spec, policy>(epilogue, call.on_device(), 1, {}));
  for (std::size_t i = 0; i < plain.size(); ++i)
    if (std::abs(weighed[i] - (2 * plain[i] + static_cast<double>(i))) > 1e-3) FAIL("element " << i);
}

template <class... Backends>
void check_each() {
  (check_weighed<Backends, first<Backends>>(), ...);
  (check_weighed<Backends, last<Backends>>(), ...);
}

TEST_CASE("an epilogue of the user's own sees every element where it is, and has the last word") {
  check_each<ROOM_BACKENDS>();
}

}  // namespace
}  // namespace tilewave::test
