// SPDX-License-Identifier: MIT
// Calls with split_tokens: the result of a sequence has the same bits whatever the batch, the other lengths and the
// table.
#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test {
namespace {

constexpr int mtp = 2, heads = 4;

/// A call on some of the sequences of a test.
struct Around {
  std::vector<int> who;  // all[who[b]] is the b-th length
  int split_tokens;
  int capacity = 0;  // tokens; 0: as the longest sequence needs
  int window = 0;
  bool sinks = false;
  bool zero_scale = false;  // of V: outputs are zeros, whose sign is a bit, too
};

std::vector<std::int32_t> lengths_of(const std::vector<std::int32_t>& all, const std::vector<int>& who) {
  std::vector<std::int32_t> lengths;
  for (const int b : who) lengths.push_back(all[b]);
  return lengths;
}

/// K, V and Q follow from the sequence, not from its number in the batch.
class CallAround : public Call {
 public:
  CallAround(const PagedAttentionEntry& e, const std::vector<std::int32_t>& all, const Around& around)
      : Call(case_of(e, all, around), lengths_of(all, around.who)) {
    use_features(*this, e);
    p.split_tokens = around.split_tokens;
    if (around.sinks) sinks = {1.0f, -2.0f, 5.0f, 0.25f};
    const auto drawn = [&](std::uint64_t tensor, int b, int h, int t, int d) {
      return bench::random_uniform(
          bench::random_bits({tensor, std::uint64_t(around.who[b]), std::uint64_t(h), std::uint64_t(t)}), d);
    };
    set_q([&](int row, int head, int d) { return drawn('q', row / mtp, head, row % mtp, d); });
    set_k([&](int b, int h, int t, int d) { return drawn('k', b, h, t, d); });
    set_v([&](int b, int h, int t, int d) { return drawn('v', b, h, t, d); });
    if (around.zero_scale) set_v_scale([](int, int, int) { return 0.0f; });
  }

 private:
  static PagedAttentionCase case_of(const PagedAttentionEntry& e, const std::vector<std::int32_t>& all,
                                    const Around& around) {
    PagedAttentionCase c = case_for(e, lengths_of(all, around.who));
    c.context_length = std::max(c.context_length, around.capacity);
    c.block_size = 64;
    c.mtp = mtp;
    c.num_q_heads = heads;
    c.num_kv_heads = 2;
    c.sliding_window = around.window;
    return c;
  }
};

Answer run(Call& call, const PagedAttentionEntry& e) {
  return call.run(e, paged_attention_splits(call.p, e.policy, facts_of(e.arch)));
}

/// Whether the rows of sequence `at` of one answer equal those of sequence `other_at` of another, to the last bit.
bool same_rows(const Answer& a, std::size_t at, const Answer& b, std::size_t other_at) {
  const std::size_t rows = std::size_t(mtp) * heads, values = rows * a.head_size;
  return std::equal(a.out.begin() + at * values, a.out.begin() + (at + 1) * values,
                    b.out.begin() + other_at * values) &&
         std::memcmp(&a.lse[at * rows], &b.lse[other_at * rows], rows * sizeof(float)) == 0;
}

void check_invariant(const PagedAttentionEntry& e, int split_tokens, int window, bool sinks) {
  const int tile = tile_of(e);
  const std::vector<std::int32_t> all{0, 1, tile - 1, tile, 3 * tile + 1, 5 * tile + 7, 40, 2 * tile};
  std::vector<int> everyone(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) everyone[i] = static_cast<int>(i);
  CallAround together(e, all, {everyone, split_tokens, 0, window, sinks});
  CHECK(takes(e, together.p) == !(e.policy.bulk() || e.policy.balanced()));
  if (!takes(e, together.p)) return;
  const Answer whole = run(together, e);
  CHECK(together.verify(whole, together.expected()).pass);
  CallAround wide(e, all, {{6, 5, 1, 5, 7}, split_tokens, 40 * tile, window, sinks});
  const Answer others = run(wide, e);
  CHECK(same_rows(others, 1, whole, 5));
  CHECK(same_rows(others, 3, whole, 5));
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(all[i]);
    CallAround alone(e, all, {{static_cast<int>(i)}, split_tokens, 0, window, sinks});
    CHECK(same_rows(run(alone, e), 0, whole, i));
  }
}

TEST_CASE("batch-invariant: alone, among others and in a wider table a sequence has the same bits") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    check_invariant(e, tile, 0, false);
    check_invariant(e, 2 * tile - 5, 0, true);
    check_invariant(e, tile + 1, tile + 20, true);
  });
}

TEST_CASE("batch-invariant: zeros have one sign, whether a call has one split or many") {
  int seen = 0;
  each_small_entry([&](const PagedAttentionEntry& e) {
    if (e.spec.quant == Scaling::none || e.policy.bulk() || e.policy.balanced()) return;
    ++seen;
    const std::vector<std::int32_t> all{tile_of(e) - 1};
    CallAround alone(e, all, {{0}, tile_of(e), 0, 0, false, true});
    CallAround wide(e, all, {{0}, tile_of(e), 40 * tile_of(e), 0, false, true});
    const Answer one = run(alone, e), many = run(wide, e);
    CHECK(std::count(one.out.begin(), one.out.end(), 0) == std::ssize(one.out));
    CHECK(same_bits(one, many));
  });
  CHECK((seen > 0 || too_slow_here()));
}

TEST_CASE("batch-invariant: with every feature too") {
  each_score_entry([](const PagedAttentionSpec&) { return true; },
                   [](const PagedAttentionEntry& e) { check_invariant(e, 2 * tile_of(e), 0, true); });
}

TEST_CASE("batch-invariant: a sequence of more than 128 splits takes longer ones, whatever the table") {
  each_arch([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> all{max_splits * tile_of(e) + 1, 17, max_splits * tile_of(e) - 3};
    std::vector<Answer> answers;
    for (const int capacity : {0, 200 * tile_of(e), 500 * tile_of(e)}) {
      CallAround call(e, all, {{0, 1, 2}, 1, capacity});
      CHECK(paged_attention_splits(call.p, e.policy, facts_of(e.arch)) == max_splits);
      answers.push_back(run(call, e));
      if (capacity == 0) CHECK(call.verify(answers[0], call.expected()).pass);
      CHECK(same_bits(answers.back(), answers.front()));
    }
    CallAround alone(e, all, {{2}, 1});
    CHECK(same_rows(run(alone, e), 0, answers[0], 2));
  });
}

TEST_CASE("batch-invariant: splits follow from the table alone, and other numbers are refused") {
  each_arch([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> all{5 * tile_of(e)};
    CallAround call(e, all, {{0}, tile_of(e)});
    const auto splits = [&](int tokens, int columns, int batch, int window = 0) {
      PagedAttentionProblem p = call.p;
      p.split_tokens = tokens;
      p.table_columns = columns;
      p.batch = batch;
      p.sliding_window = window;
      return paged_attention_splits(p, e.policy, facts_of(e.arch));
    };
    const int tile = tile_of(e), pages = tile / 64;  // of a tile
    CHECK(splits(tile, 8 * pages, 1) == 8);
    CHECK(splits(tile, 8 * pages, 1000) == 8);
    CHECK(splits(tile + 1, 8 * pages, 1) == 4);
    CHECK(splits(3 * tile, 8 * pages, 1) == 3);
    CHECK(splits(1, 8 * pages, 1) == 8);
    CHECK(splits(1, 100000, 1) == max_splits);
    CHECK(splits(2147483647, 100000, 1) == 1);
    CHECK(splits(tile, 0, 1) == 1);
    CHECK(splits(tile, 100000, 1, tile) == 2);

    const Prepared d = call.prepare(max_splits);
    CHECK(e.launch(d.p, 5, {}).ok());
    for (const int wrong : {1, 4, 6, max_splits}) CHECK(e.launch(d.p, wrong, {}).code == StatusCode::bad_value);
    PagedAttentionProblem negative = d.p;
    negative.split_tokens = -1;
    CHECK(paged_attention_check(negative, facts_of(e.arch)).code == StatusCode::bad_value);
  });
}

}  // namespace
}  // namespace tilewave::test
