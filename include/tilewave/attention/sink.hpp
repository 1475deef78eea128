// SPDX-License-Identifier: MIT
// A sink is a logit of a head without a value row. It joins the softmax of a row after all tokens have been summed, so
// it changes the row's divisor and its lse, and adds nothing to the output.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/math.hpp"

namespace tilewave {

/// A row after its sink has joined.
struct JoinedSink {
  float out_scale;  // multiplies the output that the tokens alone gave, at most 1
  float lse;        // natural log, the sink included
};

/// Adds a sink to the softmax of a row. `lse` is the natural log of the sum over the row's tokens, -inf if it has none;
/// a sink of -inf changes nothing. Decode with one split and every combine end here, so both round alike in f32.
template <class B>
TILEWAVE_DEVICE JoinedSink join_sink(float lse, float sink) {
  constexpr float minus_infinity = -__builtin_inff();
  const float larger = Max{}(lse, sink), reference = larger == minus_infinity ? 0.0f : larger;
  const float tokens = B::exp2((lse - reference) * log2_e), sum = tokens + B::exp2((sink - reference) * log2_e);
  return {sum == 0.0f ? 0.0f : tokens / sum, sum == 0.0f ? minus_infinity : reference + B::log2(sum) * ln_2};
}

}  // namespace tilewave
