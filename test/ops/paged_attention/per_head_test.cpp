// SPDX-License-Identifier: MIT
// Scales of K and V that each KV head has for itself.
#include "test/ops/paged_attention/counting.hpp"

namespace tilewave::test {
namespace {

constexpr auto per_head = [](const PagedAttentionSpec& s) { return s.quant == Scaling::per_head; };
constexpr int kv_heads = 3;

Call three_heads(const PagedAttentionEntry& e) {
  const std::vector<std::int32_t> lengths{0, 1, 20, tile_of(e) + 3, 400};
  PagedAttentionCase c = case_for(e, lengths);
  c.mtp = 2;
  c.num_q_heads = 4 * kv_heads;
  c.num_kv_heads = kv_heads;
  c.inputs = bench::Inputs::varied;
  return Call(c, lengths);
}

TEST_CASE("scales per head: right with any number of splits") {
  each_score_entry(per_head, [](const PagedAttentionEntry& e) {
    Call call = three_heads(e);
    use_features(call, e);
    call.fill();
    const reference::PagedAttentionResult expected = call.expected();
    for (const int splits : {1, 2, 7}) {
      const bench::Verdict verdict = call.verify(call.run(e, splits), expected);
      INFO("splits " << splits << ": " << verdict.reason);
      CHECK(verdict.pass);
    }
  });
}

TEST_CASE("scales per head: any stride, also backwards") {
  each_score_entry(per_head, [](const PagedAttentionEntry& e) {
    Call call = three_heads(e);
    use_features(call, e);
    call.fill();
    const auto set = [&](bool backwards) {
      const auto nth = [=](int h) { return static_cast<float>(backwards ? kv_heads - 1 - h : h); };
      call.set_k_scale([&](int, int h, int) { return (4.0f + nth(h)) / fp8_max(e.spec.kv); });
      call.set_v_scale([&](int, int h, int) { return (4.0f - nth(h)) / fp8_max(e.spec.kv); });
    };
    set(false);
    const Answer forwards = call.run(e, 2);
    CHECK(call.verify(forwards, call.expected()).pass);
    set(true);
    Prepared d = call.prepare(2);
    d.p.k_scale += kv_heads - 1;
    d.p.v_scale += kv_heads - 1;
    d.p.scale_head_stride = -1;
    REQUIRE(e.launch(d.p, 2, {}).ok());
    CHECK(same_bits(call.collect(d), forwards));
  });
}

TEST_CASE("scales per head: missing ones and heads in one place are refused") {
  each_score_entry(per_head, [](const PagedAttentionEntry& e) {
    Call call = three_heads(e);
    use_features(call, e);
    Prepared d = call.prepare(1);
    const auto code_of = [&](void (*change)(PagedAttentionProblem&)) {
      PagedAttentionProblem p = d.p;
      change(p);
      const Status status = e.launch(p, 1, {});
      CHECK(std::string(status.reason) != "");
      CHECK(paged_attention_check(p, facts_of(e.arch)).code == status.code);
      return status.code;
    };
    CHECK(code_of([](PagedAttentionProblem& p) { p.k_scale = nullptr; }) == StatusCode::null_pointer);
    CHECK(code_of([](PagedAttentionProblem& p) { p.v_scale = nullptr; }) == StatusCode::null_pointer);
    CHECK(code_of([](PagedAttentionProblem& p) { p.scale_head_stride = 0; }) == StatusCode::bad_stride);
  });
}

}  // namespace
}  // namespace tilewave::test
