// SPDX-License-Identifier: MIT
#include "bench/harness/sampler.hpp"

#include <array>
#include <cmath>
#include <string>
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

/// A stream and a sampler that takes as many samples as it must: nobody wants the times.
class Untimed {
  hipStream_t stream_{};
  hipError_t made_ = hipStreamCreate(&stream_);

 public:
  Untimed() { REQUIRE(made_ == hipSuccess); }
  Untimed(Untimed&&) = delete;
  ~Untimed() { (void)hipStreamDestroy(stream_); }

  hipStream_t stream() const { return stream_; }
  Sampler sampler{facts_of(all_traffic_entries().front()->arch), StopRule{.max_seconds = 0}, stream_};
};

TEST_CASE("the sampler launches twice to warm up, once per cold sample, and stops at a bad status") {
  Untimed untimed;
  std::vector<SideTiming> timings;
  int launches = 0;
  const Side counted{"counted", [&](hipStream_t stream) {
                       CHECK(stream == untimed.stream());
                       ++launches;
                       return Status{};
                     }};
  const ChipState state = GENERATE(ChipState::as_is, ChipState::rested, ChipState::sustained);
  REQUIRE(untimed.sampler.measure(std::array{counted}, state, timings).ok());
  REQUIRE(timings.size() == 1);
  CHECK(timings[0].cold.count == 10);
  CHECK(timings[0].hot.count == 10);
  CHECK(launches == 2 + 10 + 1 + 10);
  CHECK(std::isnan(timings[0].sensors.sm_mhz));                              // nothing was timed
  if constexpr (emulated_device) CHECK(std::isnan(timings[0].cold.median));  // no invented time

  const Side fails{"fails", [&](hipStream_t) {
                     return ++launches == 3 ? Status{StatusCode::launch_failed, "third"} : Status{};
                   }};
  launches = 0;
  CHECK(untimed.sampler.measure(std::array{fails}, state, timings).code == StatusCode::launch_failed);
  CHECK(launches == 3);
  CHECK(timings.size() == 1);
  CHECK(timings[0].cold.count == 10);
}

TEST_CASE("sides take turns by sample, and another begins each round") {
  Untimed untimed;
  std::string order;
  const auto side = [&](char name) {
    return Side{std::string(1, name), [&order, name](hipStream_t) {
                  order += name;
                  return Status{};
                }};
  };
  std::vector<SideTiming> timings;
  REQUIRE(untimed.sampler.measure(std::array{side('a'), side('b'), side('c')}, ChipState::as_is, timings).ok());
  REQUIRE(timings.size() == 3);
  CHECK(order.substr(0, 6) == "aabbcc");  // warm
  CHECK(order.substr(6, 30) == "abcbcacababcbcacababcbcacababc");
  CHECK(order.substr(36) == std::string(11, 'a'));  // hot, of the first side alone
  for (const SideTiming& timing : timings) CHECK(timing.cold.count == 10);
  CHECK(timings[1].hot.count == 0);
}

TEST_CASE("the fastest side is sought among those that launch") {
  Untimed untimed;
  int tried = 0;
  const Side works{"works", [&](hipStream_t) {
                     ++tried;
                     return Status{};
                   }};
  const Side fails{"fails", [](hipStream_t) { return Status{StatusCode::launch_failed, "no such luck"}; }};
  CHECK(untimed.sampler.fastest(std::array{fails, works, fails}, 5) == 1);
  CHECK(tried == 1);  // alone it need not be timed
  CHECK(untimed.sampler.fastest(std::array{fails, fails}, 5) == 2);
  CHECK(untimed.sampler.fastest({}, 5) == 0);
  CHECK(untimed.sampler.fastest(std::array{fails, works, works}, 5) < 3);
  CHECK(tried == 1 + 2 * (1 + 5));
}

TEST_CASE("a mean of sensors is of the readings that told something") {
  SensorMean mean;
  CHECK(std::isnan(mean.mean().sm_mhz));
  mean.add({.sm_mhz = 1500, .power_w = 300});
  mean.add({.sm_mhz = 1700});
  CHECK(mean.mean().sm_mhz == Approx(1600));
  CHECK(mean.mean().power_w == Approx(300));
}

}  // namespace
}  // namespace tilewave::bench
