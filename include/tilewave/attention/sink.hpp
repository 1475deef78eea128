// SPDX-License-Identifier: MIT
// A sink: a logit that joins the softmax of a row when all its tokens are in, and has no value.
#pragma once

#include "tilewave/arch/backend.hpp"

namespace tilewave {

/// A row after its sink joined: what its output is multiplied by, and its lse (natural log).
struct JoinedSink {
  float share;
  float lse;
};

/// Decode with one split and combine both end here, with the same f32 arithmetic. `lse` is that of the row's tokens,
/// -inf for none.
template <class B>
TILEWAVE_DEVICE JoinedSink join_sink(float lse, float sink) {
  constexpr float minus_infinity = -__builtin_inff();
  const float larger = __builtin_fmaxf(lse, sink), reference = larger == minus_infinity ? 0.0f : larger;
  const float tokens = B::exp2((lse - reference) * log2_e), sum = tokens + B::exp2((sink - reference) * log2_e);
  return {sum == 0.0f ? 0.0f : tokens / sum, sum == 0.0f ? minus_infinity : reference + B::log2(sum) * ln_2};
}

}  // namespace tilewave
