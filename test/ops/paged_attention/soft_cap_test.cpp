// SPDX-License-Identifier: MIT
// Logit soft-cap: cap * tanh(score / cap), before the masks.
#include "test/ops/paged_attention/counting.hpp"

namespace tilewave::test {
namespace {

constexpr auto has_cap = [](const PagedAttentionSpec& s) { return s.soft_cap; };

TEST_CASE("soft-cap: right at small and at saturating caps, with windows, sinks and any number of splits") {
  each_score_entry(has_cap, [](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{0, 1, 20, tile_of(e) + 3, 400};
    int turn = 0;
    for (const float cap : {0.1f, 2.0f, 30.0f, 1e6f}) {
      PagedAttentionCase c = case_for(e, lengths);
      c.mtp = 2;
      c.num_q_heads = 8;
      c.num_kv_heads = 2;
      c.sliding_window = turn % 2 == 0 ? 0 : 37;
      c.inputs = bench::Inputs::varied;
      Call call(c, lengths);
      use_features(call, e);
      call.p.soft_cap = cap;
      call.p.softmax_scale = 1.5f;  // scores of some ten
      if (turn > 1) call.sinks = {0.5f, -3.0f, 4.0f, minus_inf, 9.0f, 0.0f, 2.0f, 1.0f};
      call.fill();
      const reference::PagedAttentionResult expected = call.expected();
      for (const int splits : {1, 2 + turn++}) {
        const bench::Verdict verdict = call.verify(call.run(e, splits), expected);
        INFO("cap " << cap << ", splits " << splits << ": " << verdict.reason);
        CHECK(verdict.pass);
      }
    }
  });
}

TEST_CASE("soft-cap: tanh keeps its digits from the smallest scores to saturation") {
  // The lse of a sequence of one token is its score.
  each_score_entry(has_cap, [](const PagedAttentionEntry& e) {
    std::vector<float> scores;
    for (float x = 0x1p-40f; x < 100.0f; x *= x < 0.25f || x > 2 ? 1.5f : 1.03125f) {
      for (const float sign : {1.0f, -1.0f}) scores.push_back(bf16_to_f32(f32_to_bf16(sign * x)));
    }
    const std::vector<std::int32_t> lengths(scores.size(), 1);
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 1;
    Call call(c, lengths);
    use_features(call, e);
    call.p.soft_cap = 8.0f;
    call.p.softmax_scale = 8.0f;  // score / cap is q itself
    call.set_q([&](int row, int, int d) { return d == 3 ? scores[row] : 0.0f; });
    call.set_k([](int, int, int, int) { return 1.0f; });
    call.set_v([](int, int, int, int) { return 1.0f; });
    const Answer answer = call.run(e);
    int wrong = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const double wanted = 8 * std::tanh(double{scores[i]});
      const double error = std::abs(answer.lse_at(static_cast<int>(i), 0) - wanted);
      wrong += !(error < 8e-7 * std::abs(wanted));  // tanh, and three roundings on the way to lse
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("soft-cap: a cap and a spec that has none, or the other way round, are refused") {
  const auto refused = [](const PagedAttentionEntry& e, float cap) {
    const std::vector<std::int32_t> lengths{20, 5};
    Call call(case_for(e, lengths), lengths);
    use_features(call, e);
    Prepared d = call.prepare(1);
    REQUIRE(paged_attention_check(d.p, facts_of(e.arch)).ok());
    d.p.soft_cap = cap;
    const Status checked = paged_attention_check(d.p, facts_of(e.arch)), launched = e.launch(d.p, 1, {});
    CHECK(name_of(checked.code) == name_of(StatusCode::bad_value));
    CHECK(std::string(checked.reason).find("soft_cap") != std::string::npos);
    CHECK(name_of(launched.code) == name_of(StatusCode::bad_value));
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    const std::vector<std::uint16_t> out = from_device<std::uint16_t>(d.out);
    CHECK(std::all_of(out.begin(), out.end(), [](std::uint16_t bits) { return bits == unwritten_half; }));
  };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  each_arch([&](const PagedAttentionEntry& e) {
    for (const float cap : {30.0f, -1.0f, nan}) refused(e, cap);
  });
  each_score_entry(has_cap, [&](const PagedAttentionEntry& e) {
    for (const float cap : {0.0f, -1.0f, nan, -minus_inf, 3e38f, 1e-40f}) refused(e, cap);
  });
}

}  // namespace
}  // namespace tilewave::test
