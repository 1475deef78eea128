// SPDX-License-Identifier: MIT
// What a row must not see: the future, what lies before its window, unused slots; and rows, tiles and splits that see
// nothing. Numbers are those of the ranked list of bug classes that this library was designed against.
#include "test/ops/paged_attention/counting.hpp"

namespace tilewave::test {
namespace {

struct Poison {
  const char* name;
  std::uint16_t bits;
  float scale;
};

/// Bit patterns that a cache slot without a token may hold, for an element type.
std::vector<Poison> poisons(DType kv) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  if (kv == DType::bf16)
    return {{"zero", 0, 0},     {"NaN", 0x7fc0, 0},  {"-NaN", 0xffff, 0},
            {"inf", 0x7f80, 0}, {"-inf", 0xff80, 0}, {"max", 0x7f7f, 0}};
  if (kv == DType::fp8_e4m3fn)
    return {
        {"zero", 0, 1}, {"NaN", 0x7f, 1}, {"-NaN", 0xff, nan}, {"scale inf", 0x7e, inf}, {"scale -inf", 0xfe, -inf}};
  return {{"zero", 0, 1},
          {"NaN", 0x80, 1},
          {"NaN, scale NaN", 0x80, nan},
          {"scale inf", 0x7f, inf},
          {"scale -inf", 0xff, -inf}};
}

TEST_CASE("bugclass 05: whatever unused slots and their scales hold, the answer is the same to the last bit") {
  each_entry([](const PagedAttentionEntry& e) {
    const int unit = e.spec.unit(), tile = tile_of(e);
    // A long sequence first: tails of the others must not be other tokens of it.
    std::vector<std::int32_t> lengths{tile + unit + 3};
    for (const int n : {1, 2, unit - 1, unit, unit + 1, tile - 1, tile, tile + 1}) lengths.push_back(n);
    PagedAttentionCase c = case_for(e, lengths);
    c.block_size = 48;
    c.mtp = 2;
    c.num_q_heads = 4;
    Call call(c, lengths);
    call.fill();
    Answer clean;
    for (const Poison& poison : poisons(e.spec.kv)) {
      CAPTURE(poison.name);
      call.fill_unused(poison.bits, poison.scale);
      const Answer answer = call.run(e, 2);
      if (clean.out.empty()) {
        clean = answer;
        CHECK(call.verify(answer, call.expected()).pass);
      }
      CHECK(same_bits(answer, clean));
    }
  });
}

TEST_CASE("bugclass 06: rows of empty sequences are written, whatever was there and wherever their table points") {
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{0, 7, 0, -5, tile_of(e) + 1, 0};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 3;
    c.num_q_heads = 3;
    Call call(c, lengths);
    set_counting(call);
    call.table[0] = call.table[call.p.table_row_stride];  // a page in use, and ids that are none
    for (const int splits : {1, 2, 7}) {
      CAPTURE(splits);
      CHECK(wrong_counts(call, call.run(e, splits)) == 0);
    }
  });
}

TEST_CASE("bugclass 07: splits without a token neither give NaN nor count") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{1, 2, tile_of(e), tile_of(e) + 1, 0, 3 * tile_of(e)};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 4;
    c.num_q_heads = 2;
    Call call(c, lengths);
    set_counting(call);
    for (const int splits : {2, 5, max_splits}) {
      CAPTURE(splits);
      CHECK(wrong_counts(call, call.run(e, splits)) == 0);
    }
    const std::vector<std::int32_t> nothing(3, 0);
    Call empty(case_for(e, nothing), nothing);
    set_counting(empty);
    CHECK(wrong_counts(empty, empty.run(e, 7)) == 0);
  });
}

TEST_CASE("bugclass 09: each of several new tokens sees itself and nothing later, even when that would win") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const int unit = e.spec.unit(), tile = tile_of(e);
    for (const int mtp : {1, 2, 3, 4}) {
      std::vector<std::int32_t> lengths;
      for (const int edge : {4, unit, wave_tile_of(e), tile, 2 * tile})
        for (int past = 0; past < 4; ++past) lengths.push_back(edge + past);
      PagedAttentionCase c = case_for(e, lengths);
      c.mtp = mtp;
      c.num_q_heads = 2;
      Call call(c, lengths);
      call.p.softmax_scale = 8;
      // Every new token beats all before it: the winner is the last one a row sees.
      call.set_q([](int, int, int d) { return d == 9 ? 4.0f : 0.0f; });
      call.set_k([&](int b, int, int t, int d) {
        return d == 9 ? static_cast<float>(std::max(0, t - (lengths[b] - mtp) + 1)) : 0.0f;
      });
      call.set_v([](int, int, int t, int d) { return static_cast<float>(1 + (t + d) % 15); });
      const Answer answer = call.run(e, 2);
      int wrong = 0;
      for (int row = 0; row < call.rows(); ++row)
        for (int head = 0; head < 2; ++head)
          for (int d = 0; d < c.head_size; ++d)
            wrong += answer.at(row, head, d) != static_cast<float>(1 + (call.position(row) + d) % 15);
      CAPTURE(mtp);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("bugclass 10: every length from 1 to past two tiles gives the mean of exactly its tokens") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e), step = tile > 64 ? 7 : 1;  // wide tiles: every seventh, and all around the edges
    std::vector<std::int32_t> lengths;
    for (int n = 1; n <= 2 * tile + 1; ++n) {
      if (n % step == 0 || n <= e.spec.unit() + 1 || (n + 1) % tile <= 2) lengths.push_back(n);
    }
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 1;
    Call call(c, lengths);
    set_counting(call);
    CHECK(wrong_counts(call, call.run(e)) == 0);
  });
}

/// Long contexts on few pages: the same 64 tokens of K and V over and over, so V counts residues just as well.
int wrong_long_counts(const PagedAttentionEntry& e, const std::vector<std::int32_t>& lengths, int splits) {
  const std::vector<std::int32_t> one_page(lengths.size(), 64);
  PagedAttentionCase c = case_for(e, one_page);
  c.block_size = 64;
  c.num_q_heads = 2;
  Call call(c, one_page);
  set_counting(call);
  const int columns = (*std::max_element(lengths.begin(), lengths.end()) + 63) / 64;
  std::vector<std::int32_t> table;
  for (int b = 0; b < c.batch; ++b) table.insert(table.end(), columns, static_cast<std::int32_t>(call.page(b, 0)));
  call.p.table_columns = columns;
  call.p.table_row_stride = columns;
  call.table = table;
  call.lengths = lengths;
  const Answer answer = call.run(e, splits);
  int wrong = 0;
  for (std::size_t b = 0; b < lengths.size(); ++b)
    for (int head = 0; head < 2; ++head) {
      const int n = lengths[b];
      wrong += !(std::abs(answer.lse_at(b, head) - std::log(static_cast<double>(n))) < 1e-5);
      for (int d = 0; d < 64; ++d) {
        const double count = n / 64 + (d < n % 64);
        wrong += !(std::abs(answer.at(b, head, d) * n - count) <= count * bf16_step);
      }
    }
  return wrong;
}

TEST_CASE("bugclass 11: no partition or reduction limit below 40 thousand tokens") {
  each_arch([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    CHECK(wrong_long_counts(e, {16384, 16385, 64 * tile - 1, 64 * tile + 1, 32769}, max_splits) == 0);
    CHECK(wrong_long_counts(e, {40001}, 1) == 0);
  });
}

TEST_CASE("bugclass 11: no partition or reduction limit below a quarter of a million tokens", "[full]") {
  each_small_entry([](const PagedAttentionEntry& e) {
    CHECK(wrong_long_counts(e, {131071, 131072, 131073}, max_splits) == 0);
    CHECK(wrong_long_counts(e, {262145}, 3) == 0);
  });
}

TEST_CASE("bugclass 21: logits far below zero are not beaten by masked tokens") {
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{3, 20, tile_of(e) + 3, 200};
    // Splits are merged by their lse, which at 1e5 has steps of 1/128, as much as a weight may be off.
    for (const auto& [size, splits] : {std::pair{-1e4f, 3}, {-1e5f, 1}, {-1e30f, 1}, {1e30f, 1}}) {
      if (e.policy.balanced() && std::abs(size) > 1e4f)
        continue;  // parts are combined by their lse, which has no digits left
      PagedAttentionCase c = case_for(e, lengths);
      c.mtp = 4;
      c.num_q_heads = 2;
      c.sliding_window = 50;
      Call call(c, lengths);
      call.p.softmax_scale = 1;
      set_counting_v(call);
      // Tokens before every row's window score 0, the others `size`.
      const float q = size;
      call.set_q([q](int, int, int d) { return d == 7 ? q : 0.0f; });
      call.set_k(
          [&](int b, int, int t, int d) { return d == 7 && t >= lengths[b] - c.mtp - c.sliding_window ? 1.0f : 0.0f; });
      Answer answer = call.run(e, splits);
      // lse is size + log n, with as many digits as f32 has at that size; counts tell the rest.
      const float score = bf16_to_f32(f32_to_bf16(size));
      for (int row = 0; row < call.rows(); ++row)
        for (int head = 0; head < 2; ++head) {
          float& lse = answer.lse[row * 2 + head];
          const float log_n = std::log(static_cast<float>(std::min(51, call.position(row) + 1)));
          if (std::abs(lse - (score + log_n)) <= std::abs(score) * 2.5e-7f) lse = log_n;
        }
      CAPTURE(size, splits);
      CHECK(wrong_counts(call, answer) == 0);
    }
  });
}

TEST_CASE("bugclass 22: rows, waves and splits that see nothing give neither NaN nor a finite lse") {
  each_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e), wave = wave_tile_of(e);
    // With a window of 1 the rows of a sequence see two tokens each, on different sides of an edge.
    std::vector<std::int32_t> lengths{1, 2, 3};
    for (const int edge : {wave, 2 * tile})
      for (int past = 0; past <= 4; ++past) lengths.push_back(edge + past);
    for (const int window : {1, 3}) {
      PagedAttentionCase c = case_for(e, lengths);
      c.mtp = 4;
      c.num_q_heads = 2;
      c.sliding_window = window;
      Call call(c, lengths);
      set_counting(call);
      for (const int splits : {1, 16}) {
        CAPTURE(window, splits);
        CHECK(wrong_counts(call, call.run(e, splits)) == 0);
      }
    }
  });
}

TEST_CASE("bugclass 24: a window of W hides the token W + 1 back and shows the one W back") {
  each_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    int turn = 0;
    for (const int window : {1, e.spec.unit() - 1, tile - 1, tile, tile + 1}) {
      const std::vector<std::int32_t> lengths{window + 5, window + tile + 5, 3 * tile, 3 * tile + 7};
      PagedAttentionCase c = case_for(e, lengths);
      c.sliding_window = window;
      c.mtp = 1 + turn++ % 4;
      c.num_q_heads = 2;
      Call call(c, lengths);
      call.p.softmax_scale = 8;
      // Scores fall from token to token at the left edge, so each row's answer is V of the first token it sees.
      call.set_q([](int, int, int d) { return d == 9 ? 4.0f : 0.0f; });
      call.set_k([&](int b, int, int t, int d) {
        const int behind_edge = t - (lengths[b] - c.mtp - window);  // 0 is the first row's first token
        return d == 9 && behind_edge < c.mtp ? static_cast<float>(std::min(8, c.mtp - behind_edge)) : 0.0f;
      });
      call.set_v(
          [](int, int, int t, int d) { return static_cast<float>(1 + (t + d) % 15); });  // never 0: the rest adds 1e-12
      const Answer answer = call.run(e, 1 + turn % 3);
      int wrong = 0;
      for (int row = 0; row < call.rows(); ++row)
        for (int head = 0; head < 2; ++head)
          for (int d = 0; d < c.head_size; ++d)
            wrong += answer.at(row, head, d) != static_cast<float>(1 + (call.position(row) - window + d) % 15);
      CAPTURE(window, c.mtp);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("bugclass 29: lengths rule, not how many pages the table lists") {
  each_small_entry([](const PagedAttentionEntry& e) {
    // Every column holds a page, those past the length pages of NaN.
    const std::vector<std::int32_t> lengths{1, 16, 33, tile_of(e), 400};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    c.num_q_heads = 2;
    Call call(c, lengths);
    set_counting(call);
    std::vector<bool> used(call.p.num_pages);
    for (int b = 0; b < c.batch; ++b)
      for (int t = 0; t < lengths[b]; ++t) used[call.page(b, t)] = true;
    const auto unused = static_cast<std::int32_t>(std::find(used.begin(), used.end(), false) - used.begin());
    REQUIRE(unused < call.p.num_pages);
    for (std::int32_t& id : call.table) {
      if (id < 0 || id >= call.p.num_pages) id = unused;
    }
    for (const int splits : {1, 3}) CHECK(wrong_counts(call, call.run(e, splits)) == 0);
  });
}

}  // namespace
}  // namespace tilewave::test
