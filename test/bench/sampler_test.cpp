// SPDX-License-Identifier: MIT
#include "bench/harness/sampler.hpp"

#include <cmath>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

using test::Approx;

TEST_CASE("quantiles interpolate between order statistics") {
  const SampleStats s = stats_of({9, 1, 5, 3, 7, 11});  // numpy.percentile: 25 -> 3.5, 50 -> 6, 75 -> 8.5
  CHECK(s.min == 1);
  CHECK(s.q1 == Approx(3.5));
  CHECK(s.median == Approx(6));
  CHECK(s.q3 == Approx(8.5));
  CHECK(s.mean == Approx(6));
  CHECK(s.noise == Approx(std::sqrt(14.0) / 6));  // sample variance 70 / 5
  CHECK(s.count == 6);
}

TEST_CASE("no samples and one sample have no noise to report") {
  CHECK(std::isnan(stats_of({}).median));
  CHECK(std::isnan(stats_of({}).min));
  CHECK(stats_of({}).count == 0);
  const SampleStats one = stats_of({4});
  CHECK((one.min == 4 && one.q1 == 4 && one.median == 4 && one.q3 == 4));
  CHECK(std::isnan(one.noise));
}

TEST_CASE("running noise is the noise of all samples so far") {
  std::vector<double> samples;
  RunningNoise running;
  for (int i = 0; i < 200; ++i) {
    samples.push_back(1e6 + std::sin(i * 1.7) * (i % 5));
    running.add(samples.back());
    if (i > 0) CHECK(running.noise() == Approx(stats_of(samples).noise).epsilon(1e-6));
  }
  CHECK(running.count() == 200);
}

TEST_CASE("sampling stops when quiet, or out of time, but never below the minimum") {
  const StopRule rule{.max_noise = 0.005, .min_samples = 10, .max_seconds = 1};
  RunningNoise quiet, loud;
  for (int i = 0; i < 9; ++i) {
    quiet.add(100);
    loud.add(i % 2 ? 90 : 110);
  }
  CHECK_FALSE(rule.done(quiet, 5));
  quiet.add(100);
  loud.add(90);
  CHECK(rule.done(quiet, 0));
  CHECK_FALSE(rule.done(loud, 0.99));
  CHECK(rule.done(loud, 1));
}

TEST_CASE("the sampler launches twice to warm up, once per cold sample, and stops at a bad status") {
  hipStream_t stream{};
  REQUIRE(hipStreamCreate(&stream) == hipSuccess);
  Sampler sampler(facts_of(all_traffic_entries().front()->arch), StopRule{.max_seconds = 0}, stream);
  Timing timing;
  int launches = 0;
  const auto count = [&] {
    ++launches;
    return Status{};
  };
  REQUIRE(sampler.measure(count, timing).ok());
  CHECK(timing.cold.count == 10);
  CHECK(timing.hot.count == 10);
  CHECK(launches == 2 + 10 + 1 + 10);
  if constexpr (emulated_device) CHECK(std::isnan(timing.cold.median));  // no invented time

  const auto fail_third = [&] { return ++launches == 3 ? Status{StatusCode::launch_failed, "third"} : Status{}; };
  launches = 0;
  const Timing before = timing;
  CHECK(sampler.measure(fail_third, timing).code == StatusCode::launch_failed);
  CHECK(launches == 3);
  CHECK(timing.cold.count == before.cold.count);
  REQUIRE(hipStreamDestroy(stream) == hipSuccess);
}

}  // namespace
}  // namespace tilewave::bench
