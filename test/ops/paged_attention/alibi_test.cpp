// SPDX-License-Identifier: MIT
// ALiBi: slope of the head times the distance from query to key.
#include "test/ops/paged_attention/counting.hpp"

namespace tilewave::test {
namespace {

constexpr auto has_alibi = [](const PagedAttentionSpec& s) { return s.alibi; };

TEST_CASE("alibi: right with new tokens, windows, sinks and any number of splits") {
  each_score_entry(has_alibi, [](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{0, 1, 3, 20, tile_of(e) + 3, 700};
    for (int turn = 0; turn < 4; ++turn) {
      PagedAttentionCase c = case_for(e, lengths);
      c.mtp = 1 + turn;
      c.num_q_heads = 10;
      c.num_kv_heads = 2;
      c.sliding_window = turn % 2 == 0 ? 0 : 37;
      c.inputs = bench::Inputs::varied;
      Call call(c, lengths);
      use_features(call, e);
      call.slopes[3] = 0;
      call.slopes[4] = -0.125f;  // far tokens first
      call.slopes[9] = 20;
      if (turn > 1) call.sinks = {0.5f, -3.0f, 4.0f, minus_inf, 9.0f, 0.0f, 2.0f, 1.0f, -1.0f, 7.0f};
      call.fill();
      const reference::PagedAttentionResult expected = call.expected();
      for (const int splits : {1, 2 + turn}) {
        const bench::Verdict verdict = call.verify(call.run(e, splits), expected);
        INFO("turn " << turn << ", splits " << splits << ": " << verdict.reason);
        CHECK(verdict.pass);
      }
    }
  });
}

TEST_CASE("alibi: with q = 0 the weights are powers of the slope, by distance") {
  each_score_entry(has_alibi, [](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{1, 5, tile_of(e), tile_of(e) + 1, 40000};
    PagedAttentionCase c = case_for(e, {1, 1, 1, 1, 64});
    c.batch = static_cast<int>(lengths.size());
    c.block_size = 64;
    c.mtp = 2;
    c.num_q_heads = 3;
    Call call(c, {1, 1, 1, 1, 64});
    use_features(call, e);
    // One page for all, over and over: token t holds what token t % 64 holds.
    const int columns = 625;
    const auto page = static_cast<std::int32_t>(call.page(4, 0));
    set_counting(call);
    call.p.table_columns = columns;
    call.p.table_row_stride = columns;
    call.table.assign(std::size_t{5} * columns, page);
    call.lengths = lengths;
    call.slopes = {0.5f, 0.03125f, 0.0f};
    for (const int splits : {1, 7}) {
      const Answer answer = call.run(e, splits);
      int wrong = 0;
      for (int row = 0; row < call.rows(); ++row)
        for (int head = 0; head < 3; ++head) {
          double sum = 0, first = 0;  // `first`: of tokens 64 n
          for (int t = 0; t <= call.position(row); ++t) {
            const double weight = std::exp(double{call.slopes[head]} * (t - call.position(row)));
            sum += weight;
            if (t % 64 == 0) first += weight;
          }
          if (sum == 0) continue;
          wrong += !(std::abs(answer.lse_at(row, head) - std::log(sum)) < 4e-5);
          wrong += !(std::abs(answer.at(row, head, 0) - first / sum) <= first / sum * bf16_step);
        }
      CAPTURE(splits);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("alibi: slopes and a spec without, or the other way round, are refused") {
  const auto refused = [](const PagedAttentionEntry& e, StatusCode code, void (*change)(PagedAttentionProblem&)) {
    const std::vector<std::int32_t> lengths{20, 5};
    Call call(case_for(e, lengths), lengths);
    use_features(call, e);
    Prepared d = call.prepare(1);
    REQUIRE(paged_attention_check(d.p, facts_of(e.arch)).ok());
    change(d.p);
    const Status checked = paged_attention_check(d.p, facts_of(e.arch)), launched = e.launch(d.p, 1, {});
    CHECK(name_of(checked.code) == name_of(code));
    CHECK(std::string(checked.reason).find("alibi") != std::string::npos);
    CHECK(name_of(launched.code) == name_of(code));
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    const std::vector<std::uint16_t> out = from_device<std::uint16_t>(d.out);
    CHECK(std::all_of(out.begin(), out.end(), [](std::uint16_t bits) { return bits == unwritten_half; }));
  };
  each_arch([&](const PagedAttentionEntry& e) {
    refused(e, StatusCode::bad_value, [](PagedAttentionProblem& p) { p.alibi_slopes = p.lse; });
  });
  each_score_entry(has_alibi, [&](const PagedAttentionEntry& e) {
    refused(e, StatusCode::null_pointer, [](PagedAttentionProblem& p) { p.alibi_slopes = nullptr; });
    refused(e, StatusCode::misaligned, [](PagedAttentionProblem& p) {
      p.alibi_slopes = reinterpret_cast<const float*>(reinterpret_cast<std::uintptr_t>(p.alibi_slopes) + 2);
    });
    const std::vector<std::int32_t> lengths{20, 5};
    Call call(case_for(e, lengths), lengths);
    use_features(call, e);
    Prepared d = call.prepare(1);
    for (const void* written : {static_cast<const void*>(d.p.out), static_cast<const void*>(d.p.lse)}) {
      d.p.alibi_slopes = static_cast<const float*>(written);
      CHECK(name_of(paged_attention_check(d.p, facts_of(e.arch)).code) == "bad_stride");
    }
  });
}

}  // namespace
}  // namespace tilewave::test
