// SPDX-License-Identifier: MIT
// Answers known without computing attention.
#include "test/ops/paged_attention/counting.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("q = 0 gives the mean of V over exactly the visible tokens of each row") {
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = boundary_lengths(e);
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 3;
    c.num_q_heads = 2;
    Call call(c, lengths);
    set_counting(call);
    for (const int splits : {1, 3}) {
      CAPTURE(splits);
      CHECK(wrong_counts(call, call.run(e, splits)) == 0);
    }
  });
}

TEST_CASE("a one-hot K picks its row of V exactly") {
  each_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> lengths{2, tile, 2 * tile + 3};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    c.num_q_heads = 6;
    c.num_kv_heads = 2;
    c.trans_v = e.policy.bulk();  // all that those take
    Call call(c, lengths);
    // Heads pick the row's own token, the first one, and one at the edge of a tile.
    const auto target = [&](int row, int head) {
      const int own = call.position(row), wanted[] = {own, 0, std::min(own, tile - 1)};
      return wanted[head % 3];
    };
    const Signature signature(call);
    signature.set_kv(call);
    Signature::set_q(call, target);
    for (const int splits : {1, 2}) CHECK(signature.wrong(call, call.run(e, splits), target) == 0);
  });
}

TEST_CASE("constant V gives the constant, whatever Q and K are") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{1, 17, tile_of(e) + 1, 300};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    Call call(c, lengths);
    call.fill();
    call.set_v([](int, int, int, int d) { return static_cast<float>(d % 8) - 3.5f; });
    const Answer answer = call.run(e, 2);
    int wrong = 0;
    for (int row = 0; row < call.rows(); ++row)
      for (int head = 0; head < c.num_q_heads; ++head)
        for (int d = 0; d < c.head_size; ++d) {
          const float wanted = call.position(row) < 0 ? 0 : static_cast<float>(d % 8) - 3.5f;
          wrong += !(std::abs(answer.at(row, head, d) - wanted) <= std::abs(wanted) * bf16_step);
        }
    CHECK(wrong == 0);
  });
}

/// With `step` 2 it takes every other length, those of odd and of even positions by turns. Each window then meets
/// lengths around every boundary.
void check_windows(int step) {
  each_entry([&](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> all = boundary_lengths(e);
    const int longest = *std::max_element(all.begin(), all.end());
    int turn = 0;
    for (const int window : {1, e.spec.unit() - 1, tile - 1, tile, tile + 1, longest, 2147483647}) {
      std::vector<std::int32_t> lengths;
      for (std::size_t i = turn % step; i < all.size(); i += step) lengths.push_back(all[i]);
      PagedAttentionCase c = case_for(e, lengths);
      c.sliding_window = window;
      c.mtp = 1 + turn % 4;
      c.num_q_heads = 2;
      Call call(c, lengths);
      set_counting(call);
      // Tokens before the window of every row may be gone: their values are NaN, and their pages are not in the table.
      const auto first_seen = [&](int b) { return std::int64_t{lengths[b]} - c.mtp - window; };
      call.poison_tokens([&](int b, int t) { return t < first_seen(b); });
      for (int b = 0; b < c.batch; ++b)
        for (int column = 0; (column + 1) * c.block_size <= first_seen(b); ++column)
          call.table[b * call.p.table_row_stride + column] = -7;
      const int splits = 1 + turn++ % 3;
      CAPTURE(window, c.mtp, splits);
      CHECK(wrong_counts(call, call.run(e, splits)) == 0);
    }
  });
}
TEST_CASE("a sliding window of W shows the row's own token and W before it") { check_windows(2); }
TEST_CASE("a sliding window of W shows the row's own token and W before it, at every length", "[full]") {
  check_windows(1);
}

TEST_CASE("lse is the natural log of the softmax sum, for any number of splits, and may be left out") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{1, 2, tile_of(e) + 3, 400};
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 4;
    c.mtp = 2;
    Call call(c, lengths);
    call.p.softmax_scale = 0.25f;
    call.set_q([](int, int head, int d) { return d == 3 ? static_cast<float>(head - 2) : 0.0f; });
    call.set_k([](int, int, int, int) { return 2.0f; });
    call.set_k_scale([](int, int, int) { return 4.0f; });
    call.set_v([](int, int, int, int) { return 1.0f; });
    const float k = c.quant == Scaling::none ? 2 : 8;
    for (const int splits : {1, 2, 7}) {
      CAPTURE(splits);
      const Answer answer = call.run(e, splits);
      int wrong = 0;
      for (int row = 0; row < call.rows(); ++row)
        for (int head = 0; head < 4; ++head) {
          const int n = call.position(row) + 1;
          const float wanted = n <= 0 ? minus_inf : 0.25f * (head - 2) * k + std::log(static_cast<float>(n));
          wrong += !(answer.lse_at(row, head) == wanted || std::abs(answer.lse_at(row, head) - wanted) < 1e-5f);
        }
      CHECK(wrong == 0);

      Prepared without = call.prepare(e, splits_for(e, splits));
      without.p.lse = nullptr;
      CHECK(e.launch(without.p, splits_for(e, splits), {}).ok());
      const Answer same = call.collect(without);
      CHECK(same.out == answer.out);
      CHECK(std::all_of(same.lse.begin(), same.lse.end(),
                        [](float x) { return std::bit_cast<std::int32_t>(x) == unwritten_word; }));
    }
  });
}

}  // namespace
}  // namespace tilewave::test
