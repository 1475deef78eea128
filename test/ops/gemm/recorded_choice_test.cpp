// SPDX-License-Identifier: MIT
// The choice of a policy on sm90 against recorded_choices.txt: plans that were measured to be good. Whoever changes a cost
// model, a table or a list of policies learns here which shapes they make slower, without a GPU.
#include <array>
#include <cstdint>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "bench/ops/gemm/recorded_names.hpp"
#include "test/catch_compat.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::test {
namespace {

using Plans = std::set<std::string>;

struct RecordedShape {
  std::string spec;
  std::int32_t m = 0, n = 0, k = 0;
  double best_us = 0;
  Plans good;  // within 10 % of the best
};

struct Record {
  std::map<std::string, Plans> measured;  // by spec
  std::vector<RecordedShape> shapes;
};

Record read_record() {
  Record record;
  std::ifstream file(RECORDED_CHOICES);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, plan;
    RecordedShape shape;
    words >> kind >> shape.spec;
    if (kind == "shape") words >> shape.m >> shape.n >> shape.k >> shape.best_us;
    while (kind[0] != '#' && words >> plan) (kind == "shape" ? shape.good : record.measured[shape.spec]).insert(plan);
    if (kind == "shape") record.shapes.push_back(shape);
  }
  return record;
}

/// Choosing looks at extents and at where tensors are, not at what is in them.
GemmProblem problem_of(const RecordedShape& shape) {
  const auto somewhere = [](std::uintptr_t i) { return reinterpret_cast<void*>(i << 44); };
  GemmProblem p;
  p.spec = bench::recorded_spec(shape.spec);
  p.a = somewhere(1), p.b = somewhere(2), p.out = somewhere(3);
  p.m = shape.m, p.n = shape.n, p.k = shape.k;
  p.a_stride = p.b_stride = p.k, p.out_stride = p.n;
  if (p.spec.four_bit()) {
    p.b_stride = 0, p.b_group_scale = somewhere(4), p.b_scale_k_stride = p.n;
    return p;
  }
  if (p.spec.scale != Scaling::none) p.a_scale = p.b_scale = static_cast<const float*>(somewhere(4));
  if (p.spec.scale == Scaling::per_block) {
    p.a_scale_stride = p.b_scale_stride = ceil_div(p.k, gemm_scale_block);
    p.a_scale_k_stride = p.b_scale_k_stride = 1;
  }
  return p;
}

/// Whether the choice is a good plan: one that was measured within 10 % of the best or, if it is of a policy that the
/// record does not have yet, one that the model expects there.
bool chooses_well(const Record& record, const RecordedShape& shape, std::span<const TunedGemm> tuned) {
  const GemmProblem p = problem_of(shape);
  const GemmPolicies policies = gemm_policies(ArchId::sm90, p.spec);
  std::array<GemmEntry, GemmPolicies::capacity> built{};
  std::array<const GemmEntry*, GemmPolicies::capacity> all{};
  for (int i = 0; i < policies.count; ++i) {
    built[i] = {ArchId::sm90, true, p.spec, policies[i], nullptr, 0};
    all[i] = &built[i];
  }
  GemmPlan plan;
  const Status status = gemm_select(p, std::span(all.data(), policies.count), sm90_facts, plan, tuned);
  INFO((status.ok() ? "" : status.reason));
  REQUIRE(status.ok());
  const std::string name = bench::recorded_name(plan.name());
  if (record.measured.at(shape.spec).contains(name)) return shape.good.contains(name);
  return GemmRegistry::cost_us(p, *plan.entry, plan.splits) <= 1.1 * shape.best_us;
}

TEST_CASE("the library chooses no worse than a tenth above the best") {
  const Record record = read_record();
  REQUIRE(record.shapes.size() == 40);
  std::string wrong;
  int off = 0;
  for (const RecordedShape& shape : record.shapes) {
    if (chooses_well(record, shape, tuned_gemm(ArchId::sm90))) continue;
    ++off;
    wrong += shape.spec + " " + std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " +
             std::to_string(shape.k) + "\n";
  }
  INFO(wrong);
  CHECK(off == 0);
}

}  // namespace
}  // namespace tilewave::test
