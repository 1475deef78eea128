// SPDX-License-Identifier: MIT
// A program's calls of one stream: a plan for each shape, one workspace that grows, and a spec that is known at run time.
#include "tilewave/tile/calls.hpp"

#include <string>
#include <vector>

#include "test/catch_compat.hpp"
#include "tilewave/arch/host/backend.hpp"

namespace tilewave::test {
namespace {

struct CallSpec {
  int number = 0;
  friend bool operator==(const CallSpec&, const CallSpec&) = default;
};
struct CallProblem {
  CallSpec spec{};
  std::size_t needs = 0;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};
struct PlainProblem {  // of an op without a workspace
  int value = 0;
};

std::vector<CallProblem> launched;
/// A plan whose launch notes the problem.
struct CallPlan {
  const int* entry = nullptr;
  std::size_t workspace_bytes(const CallProblem& p) const { return p.needs; }
  Status launch(const CallProblem& p, hipStream_t) const {
    if (p.workspace_bytes < p.needs) return {StatusCode::workspace_too_small, "too small"};
    launched.push_back(p);
    return {};
  }
};
struct PlainPlan {
  const int* entry = nullptr;
  Status launch(const PlainProblem&, hipStream_t) const { return {}; }
};

constexpr int an_entry = 1;

TEST_CASE("a plan is made once for each shape, and again where making it failed") {
  StreamCalls<CallPlan, PlainPlan> calls(nullptr);
  int made = 0;
  bool fails = true;
  const auto make = [&](const auto&, auto& plan) -> Status {
    ++made;
    if (fails) return {StatusCode::bad_value, "not now"};
    plan.entry = &an_entry;
    return {};
  };
  CHECK(std::string(calls.launch<CallPlan>({1}, CallProblem{}, make).reason) == "not now");
  fails = false;
  for (int i = 0; i < 3; ++i) CHECK(calls.launch<CallPlan>({1}, CallProblem{}, make).ok());
  CHECK(made == 2);
  CHECK(calls.launch<CallPlan>({1, 7}, CallProblem{}, make).ok());
  CHECK(calls.launch<PlainPlan>({1}, PlainProblem{}, make).ok());  // another op's
  CHECK(made == 4);
  CHECK(calls.workspace_moves() == 0);
}

TEST_CASE("calls share one workspace, which grows and never shrinks") {
  launched.clear();
  StreamCalls<CallPlan> calls(nullptr);
  const auto make = [](const CallProblem&, CallPlan& plan) {
    plan.entry = &an_entry;
    return Status{};
  };
  for (const std::size_t needs : {100, 64, 100, 1000}) {
    CHECK(calls.launch<CallPlan>({}, CallProblem{.spec = {}, .needs = needs}, make).ok());
    CHECK(launched.back().workspace_bytes >= needs);
    static_cast<char*>(launched.back().workspace)[needs - 1] = 1;
  }
  CHECK(launched[0].workspace == launched[1].workspace);
  CHECK(launched[0].workspace == launched[2].workspace);
  CHECK(calls.workspace_moves() == 2);
  const Status none = calls.launch<CallPlan>({}, CallProblem{.spec = {}, .needs = ~std::size_t{0} / 2}, make);
  CHECK(none.code == StatusCode::launch_failed);
  CHECK(calls.launch<CallPlan>({}, CallProblem{.spec = {}, .needs = 1000}, make).ok());  // the old one is still there
  CHECK(calls.workspace_moves() == 2);
}

struct Maker {
  template <CallSpec spec>
  static Status plan(const CallProblem&, CallPlan& plan) {
    static constexpr int number = spec.number;
    plan.entry = &number;
    return {};
  }
};
TEST_CASE("the plan of a spec at run time is that of the spec that was compiled") {
  const auto plan_of = [](int number, CallPlan& plan) {
    return plan_among<Maker, CallSpec{3}, CallSpec{5}>(CallProblem{.spec = {number}}, plan);
  };
  CallPlan plan;
  CHECK(plan_of(5, plan).ok());
  CHECK(*plan.entry == 5);
  CHECK(plan_of(3, plan).ok());
  CHECK(*plan.entry == 3);
  CHECK(plan_of(4, plan).code == StatusCode::no_matching_entry);
}

}  // namespace
}  // namespace tilewave::test
