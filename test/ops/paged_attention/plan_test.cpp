// SPDX-License-Identifier: MIT
// What a caller gets by naming a spec that no list has: plans, balanced ones too, and explanations of them.
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
    const PagedAttentionProblem p = call.prepare(1).p;
    PagedAttentionPlan plan;
    REQUIRE(paged_attention_plan<B, named>(p, plan).ok());
    const std::string first_line = plan.name() + ": chosen\n", text = plan.explain(p);
    CHECK(text.find(first_line) == 0);
    CHECK(text.find(".balanced.s1: serves\n") != std::string::npos);
    CHECK(text.ends_with("not compiled in: no_matching_entry: " +
                         std::string(paged_attention_has_bulk(B::facts.id, named).reason) + "\n"));

    // A problem of another spec is refused for that first, though its strides are not those of a bf16 dim_major one
    // either.
    PagedAttentionProblem other = p;
    other.spec = {};
    const Status status = paged_attention_plan<B, named>(other, plan);
    CHECK(status.code == StatusCode::no_matching_entry);
    CHECK(std::string(status.reason).find("problem.spec") == 0);
    CHECK(plan.entry == nullptr);
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
