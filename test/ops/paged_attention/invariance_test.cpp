// SPDX-License-Identifier: MIT
// Changes to a call that must not change its answer.
#include <numeric>

#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test {
namespace {

float drawn(std::uint64_t tensor, int a, int b, int c, int d) { return drawn_of_row(tensor, a, b, c, d); }

/// Random K and V that follow from the logical token, not from the page that holds it. If `distinct` is below the
/// number of KV heads, neighbouring heads hold the same.
void fill_by_token(Call& call, int distinct, float k0_shift = 0) {
  const auto head = [&](int h) { return h * distinct / call.p.num_kv_heads; };
  call.set_q([](int row, int h, int d) { return d == 0 ? 1.0f : drawn('q', row, h, 0, d); });
  call.set_k([&](int b, int h, int t, int d) { return d == 0 ? k0_shift : drawn('k', b, head(h), t, d); });
  call.set_v([&](int b, int h, int t, int d) { return drawn('v', b, head(h), t, d); });
  call.set_v_scale([&](int b, int h, int t) { return 1.25f - 0.01f * static_cast<float>((2 * b + head(h) + t) % 50); });
}

std::vector<std::int32_t> some_lengths(const PagedAttentionEntry& e) {
  return {1, 37, tile_of(e), tile_of(e) + 1, 521};
}

TEST_CASE("any number of splits gives the same answer") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = some_lengths(e);
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 4;
    Call call(c, lengths);
    fill_by_token(call, c.num_kv_heads);
    const Answer whole = call.run(e, 1);
    for (const int splits : {2, 3, 7, 16, max_splits}) {
      CAPTURE(splits);
      const Difference d = difference(call.run(e, splits), whole);
      CHECK(d.out < 1.0 / 64);  // two steps of bf16: probabilities are rounded relative to another maximum
      CHECK(d.lse < 1e-5);
    }
  });
}

TEST_CASE("which page holds which tokens does not matter, to the last bit") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = some_lengths(e);
    PagedAttentionCase c = case_for(e, lengths);
    c.num_kv_heads = 2;
    std::vector<Answer> answers;
    for (const int order : {0, 1, 2}) {  // drawn, ascending, descending
      Call call(c, lengths);
      for (int b = 0; b < c.batch && order > 0; ++b)
        for (int column = 0; column < c.table_columns(); ++column) {
          const int page = b * c.table_columns() + column;
          call.table[b * call.p.table_row_stride + column] =
              order == 1 ? page : static_cast<int>(c.num_pages()) - 1 - page;
        }
      fill_by_token(call, 2);
      answers.push_back(call.run(e, 2));
    }
    CHECK(same_bits(answers[0], answers[1]));
    CHECK(same_bits(answers[0], answers[2]));
  });
}

TEST_CASE("the layout of V does not matter, to the last bit") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = some_lengths(e);
    PagedAttentionCase c = case_for(e, lengths);
    c.block_size = 48;
    std::vector<Answer> answers;
    for (const bool trans_v : {true, false}) {
      c.trans_v = trans_v;
      Call call(c, lengths);
      fill_by_token(call, c.num_kv_heads);
      if (takes(e, call.p)) answers.push_back(call.run(e, 3));
    }
    CHECK(answers.size() == (e.policy.bulk() ? 1 : 2));  // a stage holds shuffled V
    CHECK(same_bits(answers.front(), answers.back()));
  });
}

TEST_CASE("adding a constant to all logits moves lse by it and nothing else") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = some_lengths(e);
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    std::vector<Answer> answers;
    for (const float shift : {0.0f, 192.0f, -192.0f}) {
      Call call(c, lengths);
      call.p.softmax_scale = 0.5f;
      fill_by_token(call, c.num_kv_heads, shift);
      answers.push_back(call.run(e, 2));
      if (shift == 0) continue;
      for (std::size_t i = 0; i < answers.back().lse.size(); ++i) answers.back().lse[i] -= 0.5f * shift;
      CAPTURE(shift);
      const Difference d = difference(answers.back(), answers.front());
      CHECK(d.out < 1.0 / 64);
      CHECK(d.lse < 1e-3);  // f32 keeps 2^-17 at 192, of up to 64 products
    }
  });
}

TEST_CASE("grouped heads equal their own copies of K and V") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = some_lengths(e);
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 3;
    c.num_q_heads = 10;
    std::vector<Answer> answers;
    for (const int kv_heads : {2, 10}) {
      c.num_kv_heads = kv_heads;
      Call call(c, lengths);
      fill_by_token(call, 2);
      answers.push_back(call.run(e, 2));
    }
    const Difference d = difference(answers[0], answers[1]);
    CHECK(d.out < 1.0 / 64);
    CHECK(d.lse < 1e-5);
  });
}

TEST_CASE("the order of sequences in a batch does not matter, to the last bit, where they are cut evenly") {
  each_small_entry([](const PagedAttentionEntry& e) {
    if (e.policy.balanced()) return;
    const std::vector<std::int32_t> lengths{0, 1, tile_of(e) - 1, tile_of(e) + 1, 700, 1, 33};
    std::vector<int> order(lengths.size());
    std::iota(order.begin(), order.end(), 0);
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    Answer first;
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<std::int32_t> permuted;
      for (const int b : order) permuted.push_back(lengths[b]);
      Call call(c, permuted);
      call.set_q([&](int row, int h, int d) { return drawn('q', order[row / 2] * 2 + row % 2, h, 0, d); });
      call.set_k([&](int b, int h, int t, int d) { return drawn('k', order[b], h, t, d); });
      call.set_v([&](int b, int h, int t, int d) { return drawn('v', order[b], h, t, d); });
      const Answer answer = call.run(e, 2);
      if (turn == 0) {
        first = answer;
        order = {4, 6, 0, 3, 1, 2, 5};
        continue;
      }
      int wrong = 0;
      for (int row = 0; row < call.rows(); ++row)
        for (int head = 0; head < c.num_q_heads; ++head) {
          const int was = order[row / 2] * 2 + row % 2;
          const float a = answer.lse_at(row, head), b = first.lse_at(was, head);
          wrong += std::memcmp(&a, &b, sizeof(a)) != 0;
          for (int d = 0; d < c.head_size; ++d) wrong += answer.at(row, head, d) != first.at(was, head, d);
        }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("a NaN or an infinity in K reaches the queries that see its token, and no other") {
  constexpr int mtp = 3, seen_by = 1;  // the last query of one sequence, and of no other
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{tile_of(e) + 7, 2 * tile_of(e) + 3, 40};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = mtp;
    const auto run_with = [&](float last) {
      Call call(c, lengths);
      fill_by_token(call, c.num_kv_heads);
      call.set_k([&](int b, int h, int t, int d) {
        return b == seen_by && t == lengths[b] - 1 && d < 2 ? last : d == 0 ? 0.0f : drawn('k', b, h, t, d);
      });
      return call.run(e, 2);
    };
    const Answer clean = run_with(1);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const Answer answer = run_with(bad);  // fp8 has no infinity, and makes its largest value of it
      int wrong = 0;
      for (int row = 0; row < std::ssize(lengths) * mtp; ++row)
        for (int head = 0; head < c.num_q_heads; ++head)
          for (int d = 0; d < c.head_size; ++d) {
            const float got = answer.at(row, head, d), wanted = clean.at(row, head, d);
            const bool sees = row == seen_by * mtp + mtp - 1;
            if (sees && (std::isnan(bad) || !is_fp8(e.spec.kv))) wrong += !std::isnan(got);
            if (!sees) wrong += !(std::abs(got - wanted) < 0.02f);
          }
      CAPTURE(bad);
      CHECK(wrong == 0);
    }
  });
}

}  // namespace
}  // namespace tilewave::test
