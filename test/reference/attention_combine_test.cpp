// SPDX-License-Identifier: MIT
// The reference of combine: the softmax over two sets of keys follows from the softmaxes over each.
#include "tilewave/reference/attention_combine.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave {
namespace {

TEST_CASE("combined partials are the attention over all their keys") {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> scores{0.5, -1, 3, 2, 0.25}, values{1, -2, 4, 8, 3};
  // The partials are of keys 0 and 1, of none, and of keys 2 to 4. There is one row, and the second of two heads.
  std::vector<float> x(6, nan), lse(6, -inf);
  double sum = 0, product = 0;
  for (const auto& [partial, first, end] : {std::tuple{0, 0, 2}, {2, 2, 5}}) {
    double part = 0, part_product = 0;
    for (int i = first; i < end; ++i) {
      part += std::exp(scores[i]);
      part_product += std::exp(scores[i]) * values[i];
    }
    x[2 * partial + 1] = static_cast<float>(part_product / part);
    lse[2 * partial + 1] = static_cast<float>(std::log(part));
    sum += part;
    product += part_product;
  }
  AttentionCombineProblem p;
  p.spec = {DType::f32, DType::f32};
  p.x = x.data();
  p.x_lse = lse.data();
  p.partials = 3;
  p.rows = 1;
  p.heads = 2;
  p.head_size = 1;
  p.x_strides = p.x_lse_strides = {2, 2, 1};
  const reference::CombinedRow combined = reference::combined_row(p, 0, 1);
  CHECK(combined.values[0] == test::Approx(product / sum).epsilon(1e-6));
  CHECK(combined.lse == test::Approx(std::log(sum)).epsilon(1e-6));
  const reference::CombinedRow none = reference::combined_row(p, 0, 0);
  CHECK(none.values[0] == 0);
  CHECK(none.lse == -inf);
}

}  // namespace
}  // namespace tilewave
