// SPDX-License-Identifier: MIT
// Lengths of 0, lengths beyond the block table, and the checks that a caller may ask for of lengths and tables.
#include <limits>

#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();

TEST_CASE("lengths of 0 and below give rows of 0 with lse -inf") {
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{0, -1, 19, -1000, std::numeric_limits<std::int32_t>::min()};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    Call call(c, lengths);
    call.fill();
    for (const int n : {1, 3}) {
      CAPTURE(n);
      const Answer answer = call.run(e, n);
      int wrong = 0;
      for (int row = 0; row < call.rows(); ++row)
        for (int head = 0; head < c.num_q_heads; ++head) {
          const bool empty = row / 2 != 2;
          wrong += (answer.lse_at(row, head) == -inf) != empty;
          for (int d = 0; d < c.head_size; ++d) wrong += (answer.at(row, head, d) == 0) != empty;
        }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("lengths beyond the block table: a status on the host, NaN rows on the device, other rows right") {
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{40, 33, 48};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    Call call(c, lengths);
    call.fill();
    const reference::PagedAttentionResult expected = call.expected();
    CHECK(paged_attention_check_lengths(call.p, call.lengths.data()).ok());
    call.lengths[1] = GENERATE(49, 4096, int_max);
    const Status status = paged_attention_check_lengths(call.p, call.lengths.data());
    CHECK(status.code == StatusCode::length_beyond_block_table);
    CHECK(std::string(status.reason) != "");
    for (const int n : {1, 3}) {
      CAPTURE(n, call.lengths[1]);
      const Answer answer = call.run(e, n);  // the table ends at a guard page
      int wrong = 0;
      for (int row = 2; row < 4; ++row)
        for (int head = 0; head < c.num_q_heads; ++head) {
          wrong += !std::isnan(answer.lse_at(row, head));
          for (int d = 0; d < c.head_size; ++d) wrong += !std::isnan(answer.at(row, head, d));
        }
      CHECK(wrong == 0);
      for (const int b : {0, 2}) {
        for (int i = b * 2 * c.num_q_heads; i < (b * 2 + 2) * c.num_q_heads; ++i)
          wrong += !(std::abs(answer.lse[i] - expected.lse[i]) < 1e-3);
      }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("a block table without columns: empty sequences are fine, others are beyond it") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{1, 1};
    Call call(case_for(e, lengths), lengths);
    call.fill();
    call.p.table_columns = 0;
    call.lengths = {0, 1};
    for (const int n : {1, 3}) {
      CAPTURE(n);
      const Answer answer = call.run(e, n);
      CHECK(answer.at(0, 0, 0) == 0);
      CHECK(answer.lse_at(0, 0) == -inf);
      CHECK(std::isnan(answer.at(1, 0, 0)));
      CHECK(std::isnan(answer.lse_at(1, 0)));
    }
  });
}

TEST_CASE("lengths are checked on the host one by one") {
  PagedAttentionProblem p;
  p.batch = 3;
  p.block_size = 16;
  p.table_columns = 4;
  const auto check = [&](std::vector<std::int32_t> lengths) {
    return paged_attention_check_lengths(p, lengths.data()).code;
  };
  CHECK(check({0, 1, 64}) == StatusCode::ok);
  CHECK(check({0, 1, 65}) == StatusCode::length_beyond_block_table);
  CHECK(check({int_max, 1, 2}) == StatusCode::length_beyond_block_table);
  CHECK(check({0, -1, 64}) == StatusCode::bad_value);
  CHECK(paged_attention_check_lengths(p, nullptr).code == StatusCode::null_pointer);
}

TEST_CASE("the page ids of a table are checked on the host, as far as sequences attend them") {
  PagedAttentionProblem p;
  p.batch = 2;
  p.mtp = 1;
  p.num_q_heads = p.num_kv_heads = 1;
  p.softmax_scale = 1;
  p.block_size = 16;
  p.table_columns = 3;
  p.table_row_stride = 4;
  p.num_pages = 7;
  const std::vector<std::int32_t> lengths{33, 16};
  const auto check = [&](std::vector<std::int32_t> table) {
    return paged_attention_check_table(p, lengths.data(), table.data()).code;
  };
  CHECK(check({0, 6, 1, -9, 3, -9, -9, -9}) == StatusCode::ok);
  CHECK(check({0, 7, 1, -9, 3, -9, -9, -9}) == StatusCode::bad_value);
  CHECK(check({0, 6, -1, -9, 3, -9, -9, -9}) == StatusCode::bad_value);
  CHECK(check({0, 6, 1, -9, 7, -9, -9, -9}) == StatusCode::bad_value);
  p.sliding_window = 1;  // of the first sequence the last two tokens, on pages 1 and 2
  CHECK(check({-9, 6, 1, -9, 3, -9, -9, -9}) == StatusCode::ok);
  CHECK(check({-9, 7, 1, -9, 3, -9, -9, -9}) == StatusCode::bad_value);
  CHECK(paged_attention_check_table(p, lengths.data(), nullptr).code == StatusCode::null_pointer);
  p.num_pages = 0;
  CHECK(check({0, 6, 1, -9, 3, -9, -9, -9}) == StatusCode::bad_extent);
}

}  // namespace
}  // namespace tilewave::test
