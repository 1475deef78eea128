// SPDX-License-Identifier: MIT
// What a caller compiles in by naming a spec that no list has: plans, balanced ones too, and why they are as they are.
#include ROOM_HEADER

#include "test/ops/paged_attention/call.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::test {
namespace {

constexpr PagedAttentionSpec named{.head_size = 80, .values = ValueLayout::token_major};

struct CheckPlans {
  template <class B>
  void operator()(const B*) const {
    const PagedAttentionEntry& first = paged_attention_entries<B, named>[0];
    INFO(describe(first));
    const std::vector<std::int32_t> lengths{300, 7, 0, 129};
    PagedAttentionCase c = case_for(first, lengths);
    c.num_q_heads = 6;
    c.num_kv_heads = 2;
    Call call(c, lengths);
    call.fill();
    const reference::PagedAttentionResult expected = call.expected();
    for (const bool balanced : {false, true}) {
      CAPTURE(balanced);
      call.p.balanced = balanced;
      PagedAttentionPlan plan;
      const Status status = paged_attention_plan<B, named>(call.prepare(1).p, plan);
      INFO(status.reason);
      REQUIRE(status.ok());
      CHECK(plan.entry->policy.balanced() == balanced);
      CHECK(call.verify(call.run(*plan.entry, plan.splits), expected).pass);
    }

    call.p.balanced = false;
    PagedAttentionVerdict verdicts[4] = {};
    const PagedAttentionProblem p = call.prepare(1).p;
    REQUIRE(paged_attention_explain<B, named>(p, verdicts) == paged_attention_entries<B, named>.size() + 1);
    CHECK(verdicts[0].entry == &first);
    CHECK(verdicts[0].status.ok());
    CHECK(verdicts[1].status.ok());
    CHECK(verdicts[2].entry == nullptr);
    CHECK(std::string(verdicts[2].status.reason) == paged_attention_has_staged(B::facts.id, named).reason);

    // A problem of another spec, which would fail another check first: here its strides are not those of bf16 dim_major.
    PagedAttentionProblem other = p;
    other.spec = {};
    PagedAttentionPlan plan;
    const Status status = paged_attention_plan<B, named>(other, plan);
    CHECK(status.code == StatusCode::no_matching_entry);
    CHECK(std::string(status.reason).find("problem.spec") == 0);
    CHECK(plan.entry == nullptr);
    CHECK(paged_attention_explain<B, named>(other, verdicts) == 1);
    CHECK(verdicts[0].status.code == StatusCode::no_matching_entry);
  }
};

template <class... Backends, class F>
void each_backend(F f) {
  (f(static_cast<const Backends*>(nullptr)), ...);
}

TEST_CASE("a spec that is named has an entry, and a balanced one, and says what it has not") {
  if (too_slow_here()) return;
  each_backend<ROOM_BACKENDS>(CheckPlans{});
}

}  // namespace
}  // namespace tilewave::test
