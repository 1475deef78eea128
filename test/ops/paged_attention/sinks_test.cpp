// SPDX-License-Identifier: MIT
// Attention sinks: one more logit in the softmax of each head, without a value.
#include "test/ops/paged_attention/counting.hpp"

namespace tilewave::test {
namespace {

/// Sinks of every size, beside logits of a few units. One of them is no sink, -inf.
std::vector<float> some_sinks(int heads) {
  constexpr float sizes[] = {0.5f, -3.0f, 4.0f, minus_inf, 9.0f, 0.0f, 60.0f, -1e30f};
  std::vector<float> sinks;
  for (int h = 0; h < heads; ++h) sinks.push_back(sizes[h % std::size(sizes)]);
  return sinks;
}

TEST_CASE("sinks: every entry is right, with windows, empty sequences and any number of splits") {
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{0, 1, 20, tile_of(e) + 3, -7, 400};
    int turn = 0;
    for (const int window : {0, 37}) {
      PagedAttentionCase c = case_for(e, lengths);
      c.mtp = 2;
      c.num_q_heads = 8;
      c.num_kv_heads = 2;
      c.sliding_window = window;
      Call call(c, lengths);
      call.sinks = some_sinks(c.num_q_heads);
      call.fill();
      const reference::PagedAttentionResult expected = call.expected();
      for (const int splits : {1, 2 + 5 * (turn++ % 2)}) {
        const bench::Verdict verdict = call.verify(call.run(e, splits), expected);
        INFO("window " << window << ", splits " << splits << ": " << verdict.reason);
        CHECK(verdict.pass);
      }
    }
  });
}

TEST_CASE("bugclass 25: a sink counts once, unscaled, however many splits see it") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{0, 1, 2, tile_of(e), tile_of(e) + 1, 521};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 3;
    c.num_q_heads = 4;
    Call call(c, lengths);
    set_counting(call);
    call.p.softmax_scale = 0.25f;
    call.sinks = {0.0f, std::log(8.0f), -2.0f, 5.0f};
    for (const int splits : {1, 2, 3, 7, max_splits}) {
      const Answer answer = call.run(e, splits);
      int wrong = 0;
      for (int row = 0; row < call.rows(); ++row) {
        const int n = std::max(0, call.position(row) + 1);
        for (int head = 0; head < c.num_q_heads; ++head) {
          const double sum = n + std::exp(double{call.sinks[head]});
          wrong += !(std::abs(answer.lse_at(row, head) - std::log(sum)) < 1e-5);
          for (int d = 0; d < c.head_size; ++d) {
            const int count = n / c.head_size + (d < n % c.head_size);
            wrong += !(std::abs(answer.at(row, head, d) * sum - count) <= count * bf16_step);
          }
        }
      }
      CAPTURE(splits);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("a sink of -inf is none, to the last bit, and a length beyond the table stays NaN with a sink") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{0, 19, tile_of(e) + 5};
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 3;
    Call call(c, lengths);
    call.fill();
    for (const int splits : {1, 3}) {
      CAPTURE(splits);
      call.lengths[1] = 19;
      call.sinks.clear();
      const Answer without = call.run(e, splits);
      call.sinks.assign(3, minus_inf);
      CHECK(same_bits(call.run(e, splits), without));
      call.lengths[1] = 1 << 20;
      call.sinks.assign(3, 2.0f);
      const Answer beyond = call.run(e, splits);
      CHECK(std::isnan(beyond.at(1, 1, 5)));
      CHECK(std::isnan(beyond.lse_at(1, 1)));
      CHECK(beyond.lse_at(0, 1) == 2.0f);
    }
  });
}

}  // namespace
}  // namespace tilewave::test
