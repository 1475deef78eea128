// SPDX-License-Identifier: MIT
// Properties that the modelled times of plans must have, whatever their constants are.
#include <cmath>
#include <limits>
#include <vector>

#include "test/catch_compat.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::test {
namespace {

constexpr const ArchFacts& facts = sm90_facts;

PagedAttentionProblem problem_of(const PagedAttentionSpec& spec, std::int32_t batch, int rows, int kv_heads,
                                 std::int32_t context) {
  PagedAttentionProblem p{.spec = spec, .batch = batch, .num_q_heads = rows * kv_heads, .num_kv_heads = kv_heads};
  p.block_size = 16;
  p.table_columns = ceil_div(context, 16);
  p.k_strides = packed_key_strides(spec, kv_heads, 16);
  p.v_strides = packed_value_strides(spec, kv_heads, 16, true);
  return p;
}

struct BulkPlan {
  PagedAttentionSpec spec;
  PagedAttentionPolicy policy;
  int splits;
  double cost(const PagedAttentionProblem& p) const { return paged_attention_bulk_cost(p, policy, facts, splits); }
};

std::vector<BulkPlan> plans_of(const PagedAttentionSpec& spec) {
  std::vector<BulkPlan> plans;
  for (const PagedAttentionPolicy& policy : paged_attention_policies(ArchId::sm90, spec)) {
    for (int splits = 1; policy.bulk() && splits <= (policy.balanced() ? 1 : max_bulk_splits); splits *= 2) {
      plans.push_back({spec, policy, splits});
    }
  }
  return plans;
}

template <class F>
void each_bulk_spec(F f) {
  for (const PagedAttentionSpec& spec : paged_attention_specs(ArchId::sm90)) {
    const std::vector<BulkPlan> plans = plans_of(spec);
    if (!plans.empty()) f(spec, plans);
  }
}

double least_cost(const std::vector<BulkPlan>& plans, const PagedAttentionProblem& p) {
  double least = std::numeric_limits<double>::max();
  for (const BulkPlan& plan : plans) least = min_of(least, plan.cost(p));
  return least;
}

constexpr int sequences[] = {1, 2, 7, 32, 131, 132, 264, 600};
/// A block more may begin another round, or share an SM, and spread over the chip, or keep its memory busy, better than
/// those without it; a stage more may give more blocks of a balanced launch work.
double dip_of(const PagedAttentionPolicy& policy) { return policy.balanced() ? 1.2 : 1.075; }
constexpr double least_dip = 1.075;

TEST_CASE("modelled times are positive and finite, from an empty batch to the largest capacities") {
  constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max() - 65536;
  each_bulk_spec([](const PagedAttentionSpec& spec, const std::vector<BulkPlan>& plans) {
    for (const BulkPlan& plan : plans) {
      CAPTURE(name_of(spec), name_of(plan.policy, spec), plan.splits);
      for (const std::int32_t batch : {0, 1, 1000, largest / 8}) {
        for (const std::int32_t context : {0, 1, 64, 1 << 20, largest}) {
          for (const std::int32_t window : {0, 1, largest}) {
            PagedAttentionProblem p = problem_of(spec, batch, 8, 1, context);
            p.sliding_window = window;
            const double cost = plan.cost(p);
            CHECK((std::isfinite(cost) && cost > 0));
          }
        }
      }
      // 2^22 stages or more for each of 2^30 sequences take 132 SMs days.
      CHECK(plan.cost(problem_of(spec, 1 << 30, 8, 1, 1 << 30)) > 1e9);
    }
  });
}

TEST_CASE("modelled times: more sequences, heads, rows or tokens never cost a plan less") {
  each_bulk_spec([](const PagedAttentionSpec& spec, const std::vector<BulkPlan>& plans) {
    for (const BulkPlan& plan : plans) {
      const double dip = dip_of(plan.policy);
      int less = 0;
      for (const std::int32_t context : {128, 1000, 8192, 131072}) {
        for (int batch = 0; batch < 600; ++batch) {
          const double cost = plan.cost(problem_of(spec, batch, 8, 1, context));
          less += plan.cost(problem_of(spec, batch + 1, 8, 1, context)) * dip < cost;
          less += plan.cost(problem_of(spec, batch, 8, 2, context)) * dip < cost;
          less += plan.cost(problem_of(spec, batch, 9 + batch % 50, 1, context)) * dip < cost;
        }
      }
      for (const int batch : sequences) {
        for (std::int32_t context = 64; context < 140000; context += 64) {
          const double cost = plan.cost(problem_of(spec, batch, 8, 1, context));
          less += plan.cost(problem_of(spec, batch, 8, 1, context + 64)) * dip < cost;
        }
      }
      CAPTURE(name_of(spec), name_of(plan.policy, spec), plan.splits);
      CHECK(less == 0);
    }
  });
}

TEST_CASE("modelled times: the best plan has no cliff between neighbouring batches and contexts") {
  // If another round would take longer, a balanced launch evens it out. Its second launch and the changes from item to
  // item cost some 10 us.
  const auto is_cliff = [](double before, double after, double more) {
    return after * least_dip < before || after > before * more * 1.1 + 10.0;
  };
  each_bulk_spec([&](const PagedAttentionSpec& spec, const std::vector<BulkPlan>& plans) {
    int cliffs = 0;
    for (const int kv_heads : {1, 4, 8}) {
      for (std::int32_t context = 128; context <= 131072; context *= 2) {
        double before = least_cost(plans, problem_of(spec, 1, 8, kv_heads, context));
        for (int batch = 2; batch <= 256; ++batch) {
          const double cost = least_cost(plans, problem_of(spec, batch, 8, kv_heads, context));
          cliffs += is_cliff(before, cost, static_cast<double>(batch) / (batch - 1));
          before = cost;
        }
      }
      for (const int batch : sequences) {
        // The model counts whole stages, though copies leave out what is beyond the end.
        double before = least_cost(plans, problem_of(spec, batch, 8, kv_heads, 256));
        for (std::int32_t context = 256, more = 256; context < 131072; context += more) {
          more = max_of(256, align_down(context / 16, 256));
          const double cost = least_cost(plans, problem_of(spec, batch, 8, kv_heads, context + more));
          cliffs += is_cliff(before, cost, static_cast<double>(context + more) / context);
          before = cost;
        }
      }
    }
    CAPTURE(name_of(spec));
    CHECK(cliffs == 0);
  });
}

TEST_CASE("modelled times: a window costs what its tokens do, not the context") {
  each_bulk_spec([](const PagedAttentionSpec& spec, const std::vector<BulkPlan>& plans) {
    for (const BulkPlan& plan : plans) {
      PagedAttentionProblem windowed = problem_of(spec, 8, 8, 1, 131072);
      windowed.sliding_window = 1023;
      CAPTURE(name_of(spec), name_of(plan.policy, spec), plan.splits);
      CHECK(plan.cost(windowed) == plan.cost(problem_of(spec, 8, 8, 1, 1024)));
    }
  });
}

}  // namespace
}  // namespace tilewave::test
