// SPDX-License-Identifier: MIT
// One token with nearly all the weight and a value of 0, like the first tokens of language models, and many far below
// it.
#pragma once

#include <cmath>
#include <vector>

#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test {

/// Outputs of a case of one sequence of 700 tokens, one query row, that are more than 2 % off with the others 5, 14 and
/// 17 nats below the first: e^-17 is 2^-24.5, below the least that f16 holds.
inline int lost_shares(const PagedAttentionEntry& e, PagedAttentionCase c) {
  const std::vector<std::int32_t> lengths{700};
  c.num_q_heads = c.num_kv_heads = c.mtp = 1;
  Call call(c, lengths);
  call.set_q([](int, int, int d) { return d == 0 ? 1.0f : 0.0f; });
  call.set_k([](int, int, int t, int d) { return t == 0 && d == 0 ? 16.0f : 0.0f; });
  call.set_v([](int, int, int t, int d) { return t == 0 ? 0.0f : static_cast<float>(1 + d % 3); });
  int lost = 0;
  for (const float below : {5.0f, 14.0f, 17.0f}) {
    call.p.softmax_scale = below / 16;
    const Answer answer = call.run(e, 1);
    const double others = 699 * std::exp(-double{below}), share = others / (1 + others);
    for (int d = 0; d < e.spec.head_size; ++d)
      lost += !(std::abs(answer.at(0, 0, d) / (share * (1 + d % 3)) - 1) < 0.02);
  }
  return lost;
}

}  // namespace tilewave::test
