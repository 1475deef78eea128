// SPDX-License-Identifier: MIT
// Balanced calls whose stages were counted on the host.
#include <limits>

#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test::stage_starts {
namespace {

constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();

template <class F>
void each_balanced(F f) {
  each_entry([&](const PagedAttentionEntry& e) {
    if (e.policy.balanced()) f(e);
  });
}
/// One balanced entry of each architecture.
template <class F>
void each_arch_balanced(F f) {
  first_of_each_arch([](auto g) { each_balanced(g); }, f);
}

/// The list that the host counts. It refuses a length beyond the table, so here that length is 0, as the device takes
/// it.
std::vector<std::int32_t> starts_of(const Call& call, const PagedAttentionEntry& e) {
  std::vector<std::int32_t> lengths = call.lengths, starts(lengths.size() + 1, -1);
  for (std::int32_t& length : lengths) length = length > call.p.table_columns * call.p.block_size ? 0 : length;
  REQUIRE(paged_attention_stage_starts(call.p, e.policy, lengths.data(), starts.data()).ok());
  return starts;
}

/// Call::run with a list of stage starts.
Answer run_with(Call& call, const PagedAttentionEntry& e, const std::vector<std::int32_t>& starts) {
  Prepared d = call.prepare(e, 1);
  const DeviceBuffer list = on_device(starts);
  d.p.balanced = true;
  d.p.stage_starts = static_cast<const std::int32_t*>(list.data());
  const Status status = e.launch(d.p, 1, {});
  INFO(status.reason);
  REQUIRE(status.ok());
  Answer answer = call.collect(d);
  CHECK(answer.padding_kept);
  return answer;
}

/// The code of a status. An error must have a reason.
StatusCode checked(const Status& status) {
  CHECK(status.ok() == (std::string(status.reason) == ""));
  return status.code;
}

void check_same(Call& call, const PagedAttentionEntry& e) {
  CHECK(same_bits(run_with(call, e, starts_of(call, e)), call.run(e)));
}

TEST_CASE("a list of stages changes no bit of a balanced answer, which is right") {
  each_balanced([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> lengths{0, 5 * tile + 1, 1, 0, tile, 3 * tile - 1, 0};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    c.num_q_heads = 4;
    c.num_kv_heads = 2;
    for (const int window : {0, tile + 3}) {
      CAPTURE(window);
      c.sliding_window = window;
      Call call(c, lengths);
      call.fill();
      const Answer listed = run_with(call, e, starts_of(call, e));
      CHECK(same_bits(listed, call.run(e)));
      CHECK(call.verify(listed, call.expected()).pass);
    }
  });
}

TEST_CASE("a list changes no bit where a length is beyond the table") {
  each_arch_balanced([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    Call call(case_for(e, {tile + 1, 2 * tile, 3}), {tile + 1, 2 * tile, 3});
    call.fill();
    call.lengths[1] = 2 * tile + 1;
    check_same(call, e);
  });
}

TEST_CASE("a list of any length is searched to the right sequence") {
  each_arch_balanced([](const PagedAttentionEntry& e) {
    const int lanes = facts_of(e.arch).wave_lanes;
    for (const int batch : {1, lanes, lanes + 1, 2 * lanes + 1, lanes * lanes + 1}) {
      CAPTURE(batch);
      // There are stages at both ends, and on both sides of the entries that lanes look at, and none between.
      std::vector<std::int32_t> lengths(batch, 0);
      for (const int s : {0, 1, lanes - 1, lanes, lanes + 1, 2 * lanes - 1, 2 * lanes, batch / 2, batch - 2, batch - 1})
        if (s >= 0 && s < batch) lengths[s] = 1 + s % 7 * tile_of(e) / 2;
      PagedAttentionCase c = case_for(e, lengths);
      c.num_q_heads = 1;
      Call call(c, lengths);
      call.fill();
      check_same(call, e);
    }
  });
}

TEST_CASE("a balanced launch takes its stages from the list, not from the lengths") {
  each_balanced([](const PagedAttentionEntry& e) {
    // Each block has one stage. A list that ends a stage early makes the longer sequence give the answer of the shorter
    // one.
    const int tile = tile_of(e);
    const std::vector<std::int32_t> longer{4 * tile, 3 * tile}, shorter{3 * tile, 3 * tile};
    PagedAttentionCase c = case_for(e, longer);
    c.num_q_heads = 2;
    Call call(c, longer);
    call.fill();
    const Answer whole = call.run(e);
    call.lengths = shorter;
    const std::vector<std::int32_t> starts = starts_of(call, e);
    CHECK(starts == std::vector<std::int32_t>{0, 3, 6});
    const Answer cut = call.run(e);
    call.lengths = longer;
    CHECK_FALSE(same_bits(cut, whole));
    CHECK(same_bits(run_with(call, e, starts), cut));
  });
}

TEST_CASE("stages are counted on the host from the first token that is attended") {
  each_balanced([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    PagedAttentionCase c = case_for(e, {0, 1, tile, tile + 1, 9 * tile});
    c.mtp = 3;
    Call call(c, {0, 1, tile, tile + 1, 9 * tile});
    CHECK(starts_of(call, e) == std::vector<std::int32_t>{0, 0, 1, 2, 4, 13});
    call.p.sliding_window = tile - 2;  // with mtp one token beyond the tile
    CHECK(starts_of(call, e) == std::vector<std::int32_t>{0, 0, 1, 2, 4, 6});
    call.p.sliding_window = int_max;
    CHECK(starts_of(call, e).back() == 13);
    call.p.batch = 0;
    std::int32_t start = -1;
    CHECK(paged_attention_stage_starts(call.p, e.policy, call.lengths.data(), &start).ok());
    CHECK(start == 0);
  });
}

TEST_CASE("lists that cannot be are refused by name") {
  each_arch([](const PagedAttentionEntry& even) {
    const Call call(case_for(even, {20, 5}), {20, 5});
    PagedAttentionProblem p = call.p;
    PagedAttentionPolicy policy = even.policy;
    std::vector<std::int32_t> starts(3, -1), lengths = call.lengths;
    const auto code = [&](const std::int32_t* from, std::int32_t* to) {
      return checked(paged_attention_stage_starts(p, policy, from, to));
    };
    policy.schedule = PagedAttentionSchedule::even;
    CHECK(code(lengths.data(), starts.data()) == StatusCode::no_matching_entry);
    policy.schedule = PagedAttentionSchedule::balanced;
    CHECK(code(nullptr, starts.data()) == StatusCode::null_pointer);
    CHECK(code(lengths.data(), nullptr) == StatusCode::null_pointer);
    lengths[1] = -1;
    CHECK(code(lengths.data(), starts.data()) == StatusCode::bad_value);
    lengths[1] = p.table_columns * p.block_size + 1;
    CHECK(code(lengths.data(), starts.data()) == StatusCode::length_beyond_block_table);
    lengths[1] = 5;
    p.batch = -1;
    CHECK(code(lengths.data(), starts.data()) == StatusCode::bad_extent);
    p.batch = 2;
    CHECK(starts == std::vector<std::int32_t>(3, -1));
    CHECK(code(lengths.data(), starts.data()) == StatusCode::ok);
    CHECK(starts == std::vector<std::int32_t>{0, 1, 2});

    // The most stages are 2^31 - 1.
    const int stage_tokens = policy.block_tokens(p.spec), stages = 1 << 20;
    p.table_columns = stages * (stage_tokens / p.block_size);
    p.batch = 1 << 11;
    lengths.assign(p.batch, stages * stage_tokens);
    starts.resize(p.batch + 1);
    CHECK(code(lengths.data(), starts.data()) == StatusCode::bad_extent);
    lengths.back() -= stage_tokens;
    CHECK(code(lengths.data(), starts.data()) == StatusCode::ok);
    CHECK(starts.back() == int_max);
  });
}

TEST_CASE("a list that is not of the lengths touches nothing outside the tensors") {
  each_balanced([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> lengths{0, 3 * tile, 1, 0, 2 * tile + 1, 0};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    Call call(c, lengths);
    call.fill();
    constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
    for (const std::vector<std::int32_t>& list : {std::vector<std::int32_t>{5, 5, 5, 5, 5, 5, 5},
                                                  {0, 0, 0, 0, 0, 0, 9},
                                                  {0, 0, 0, 0, 0, 0, int_max},
                                                  {int_max, least, int_max, least, int_max, least, int_max},
                                                  {least, least, least, least, least, least, 4},
                                                  {0, 1, 2, 3, 4, 5, 6},
                                                  {0, 0, 3, 4, 4, 100, 100000},
                                                  {6, 5, 4, 3, 2, 1, 0},
                                                  {0, 0, 3, 4, 4, 7, least}}) {
      INFO(list[0] << " " << list[1] << " .. " << list[6]);
      // Its tensors end where inaccessible pages begin, and the gaps between rows of out are checked.
      run_with(call, e, list);
    }
  });
}

TEST_CASE("only a balanced call takes a list, and only a balanced entry serves it") {
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call(case_for(e, {20, 5}), {20, 5});
    const DeviceBuffer list = on_device(std::vector<std::int32_t>{0, 1, 2});
    Prepared d = call.prepare(e, 1);
    PagedAttentionPlan plan;
    const auto select = [&] {
      return paged_attention_select(d.p, all_paged_attention_entries(), facts_of(e.arch), plan).code;
    };
    d.p.stage_starts = static_cast<const std::int32_t*>(list.data());
    CHECK(checked(e.launch(d.p, 1, {})) == StatusCode::bad_value);
    CHECK(select() == StatusCode::bad_value);
    d.p.balanced = true;
    if (!e.policy.balanced()) CHECK(checked(e.launch(d.p, 1, {})) == StatusCode::no_matching_entry);
    REQUIRE(select() == StatusCode::ok);
    CHECK(plan.entry->policy.balanced());
    d.p.stage_starts = reinterpret_cast<const std::int32_t*>(static_cast<const char*>(list.data()) + 2);
    CHECK(checked(e.launch(d.p, 1, {})) == StatusCode::misaligned);
    const Answer answer = call.collect(d);
    CHECK(std::all_of(answer.out.begin(), answer.out.end(), [](std::uint16_t bits) { return bits == unwritten_half; }));
  });
}

}  // namespace
}  // namespace tilewave::test::stage_starts
