// SPDX-License-Identifier: MIT
// Chi-square tests of the tokens that are drawn against their probabilities in double, with each filter.
#include "test/ops/sampling/sampled.hpp"

namespace tilewave::test {
namespace {

constexpr int vocabulary = 40;

/// Returns the bf16 entries; on the emulated device only the cheapest one, which has the fewest lanes.
std::vector<const SamplingEntry*> drawing_entries() {
  std::vector<const SamplingEntry*> entries;
  for (const SamplingEntry* e : all_sampling_entries())
    if (e->spec.x == DType::bf16 && policy_takes(e->policy, e->spec.x, vocabulary, true)) entries.push_back(e);
  const auto fewer = [](auto* a, auto* b) { return a->policy.block_threads() < b->policy.block_threads(); };
  if (bench::emulated_device) entries = {*std::min_element(entries.begin(), entries.end(), fewer)};
  return entries;
}

/// Checks tokens that are expected five times at least; the others together count as one.
void check_chi_square(const SamplingEntry& e, const RowSettings& settings, int draws) {
  SamplingShape shape{.rows = draws, .columns = vocabulary, .settings = {}};
  shape.value = [](int, int c) { return 0.0625f * static_cast<float>(c * c % 41 - 20); };
  INFO(name_of(e.policy));
  Sampled s(e.spec, shape);
  for (SamplingProblem* const p : {&s.problem, &s.on_host}) {
    p->temperature.value = settings.temperature;
    p->top_k.value = settings.top_k;
    p->top_p.value = settings.top_p;
    p->min_p.value = settings.min_p;
    p->seed.value = 20261122;
  }
  REQUIRE(s.run(&e, facts_of(e.arch)) == "");
  const std::vector<double> probabilities = reference::sampled_row(s.on_host, 0).probabilities;
  std::vector<int> seen(vocabulary);
  for (const std::int32_t token : s.tokens.host) ++seen.at(token);

  double statistic = 0, rest_wanted = 0;
  int cells = 0, rest = 0, left = 0;
  const auto add = [&](double wanted, int got) {
    statistic += (got - wanted) * (got - wanted) / wanted;
    ++cells;
  };
  for (int c = 0; c < vocabulary; ++c) {
    const double wanted = probabilities[c] * draws;
    if (wanted == 0) CHECK(seen[c] == 0);
    left += wanted > 0;
    if (wanted >= 5) {
      add(wanted, seen[c]);
    } else {
      rest_wanted += wanted;
      rest += seen[c];
    }
  }
  if (rest_wanted > 0) add(rest_wanted, rest);
  // Wilson and Hilferty: the cube root of chi-square / f is nearly normal. 4 sigma: one run of 30000 fails by chance.
  const double f = cells - 1, deviation = std::sqrt(2 / (9 * f));
  const double sigma = (std::cbrt(statistic / f) - (1 - deviation * deviation)) / deviation;
  INFO("chi-square " << statistic << " of " << f << " degrees of freedom, " << left << " tokens left");
  CHECK(left > 3);
  CHECK(sigma < 4);
  CHECK(sigma > -4);  // too even is no better
}

const RowSettings kinds[] = {{.temperature = 0.8f},
                             {.top_k = 12},
                             {.top_p = 0.7f},
                             {.min_p = 0.5f},
                             {.temperature = 1.3f, .top_p = 0.8f, .min_p = 0.4f, .top_k = 20}};

TEST_CASE("tokens are drawn with their probabilities") {
  for (const SamplingEntry* e : drawing_entries())
    for (const RowSettings& settings : kinds) check_chi_square(*e, settings, 4000);
}
TEST_CASE("tokens are drawn with their probabilities, 100000 times", "[full]") {
  for (const SamplingEntry* e : drawing_entries())
    for (const RowSettings& settings : kinds) check_chi_square(*e, settings, 100000);
}

}  // namespace
}  // namespace tilewave::test
