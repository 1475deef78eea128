// SPDX-License-Identifier: MIT
// GPU time of launches, by device events: cold (caches displaced before each sample) and hot (back to back). Several sides of a
// comparison are sampled in turns, so that what the chip does meanwhile happens to all of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/harness/ceiling.hpp"
#include "bench/harness/chip_state.hpp"
#include "bench/harness/device.hpp"
#include "bench/harness/model_time.hpp"
#include "bench/harness/stats.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave::bench {

/// A side of a comparison: a function that queues its work on a stream.
struct Side {
  std::string name;
  std::function<Status(hipStream_t)> launch;
};

struct SideTiming {
  SampleStats cold, hot;  // in microseconds
  SensorReading sensors;  // means, while cold samples of this side ran
};

class Sampler {
 public:
  /// Displaces twice the last-level cache before a cold sample; 512 MiB covers AMD's 256 MiB Infinity Cache.
  Sampler(const ArchFacts& facts, StopRule rule, hipStream_t stream)
      : facts_(facts),
        rule_(rule),
        stream_(stream),
        flush_bytes_(std::max(2 * facts.last_level_cache_bytes, std::int64_t{512} << 20)) {}

  /// Times `sides` in turns, sample by sample, under a state of the chip: one timing for each. Cold samples end when all sides are
  /// quiet or the rule's max_seconds are over, once for each side, and are at least min_samples each. Hot ones, for which the rule
  /// has a third of the time, are of the first side alone. A bad Status of any side ends the measurement.
  Status measure(std::span<const Side> sides, ChipState state, std::vector<SideTiming>& timings) {
    make_flush();
    for (const Side& side : sides)
      for (int i = 0; i < 2; ++i)  // the first call loads code
        if (const Status status = side.launch(stream_); !status.ok()) return status;
    if (const Status status = bring_to(state, sides); !status.ok()) return status;
    std::vector<SideTiming> found(sides.size());
    if (const Status status = sample_cold(sides, state, rule_, found); !status.ok()) return status;
    if (const Status status = sample_hot(sides.front(), found.front().hot); !status.ok()) return status;
    timings = std::move(found);
    return {};
  }

  /// The place of the side with the smallest median of `samples` cold samples each, taken in turns; sides.size() where all answer
  /// with a bad Status. Those that do are left out.
  std::size_t fastest(std::span<const Side> sides, std::size_t samples) {
    make_flush();
    std::vector<Side> able;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < sides.size(); ++i) {
      if (!sides[i].launch(stream_).ok()) continue;
      able.push_back(sides[i]);
      places.push_back(i);
    }
    if (able.size() < 2) return places.empty() ? sides.size() : places.front();
    std::vector<SideTiming> found(able.size());
    const StopRule rule{.min_samples = samples, .max_seconds = 0};
    if (!sample_cold(able, ChipState::as_is, rule, found).ok()) return sides.size();
    std::size_t best = 0;
    for (std::size_t i = 1; i < able.size(); ++i)
      if (found[i].cold.median < found[best].cold.median) best = i;
    return places[best];
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  static void idle(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

  bool timed() const { return !emulated_device && rule_.max_seconds > 0; }  // 0 means that nobody wants the times
  void make_flush() {
    if (timed() && !flush_) flush_ = std::make_unique<CacheFlush>(facts_.id, flush_bytes_, stream_);
  }

  Status bring_to(ChipState state, std::span<const Side> sides) {
    if (!timed() || state == ChipState::as_is) return {};
    check_hip(hipStreamSynchronize(stream_), "waiting for the device");
    if (state == ChipState::rested) {
      idle(rest_seconds);
      return {};
    }
    constexpr int burst = 8;
    const DeviceEvent done[2];
    const Clock::time_point start = Clock::now();
    for (int i = 0; seconds_since(start) < load_seconds; ++i) {  // a burst runs while the next is queued
      for (const Side& side : sides)
        for (int call = 0; call < burst; ++call)
          if (const Status status = side.launch(stream_); !status.ok()) return status;
      done[i % 2].record(stream_);
      if (i > 0) done[(i + 1) % 2].wait();
    }
    return {};
  }

  // Rounds of one sample a side, and each round another side begins. The host queues a sample while the flush before it runs, so
  // that none holds a gap in which the device waits for the host.
  Status sample_cold(std::span<const Side> sides, ChipState state, const StopRule& rule,
                     std::vector<SideTiming>& timings) {
    const std::size_t count = sides.size();
    std::vector<DeviceEvent> begin(count), end(count);
    std::vector<std::vector<double>> samples(count);
    std::vector<RunningNoise> noise(count);
    std::vector<SensorMean> sensors(count);
    const Clock::time_point start = Clock::now();
    Clock::time_point last_reading{};
    const auto done = [&] {
      const double seconds = seconds_since(start) / static_cast<double>(count);
      return std::all_of(noise.begin(), noise.end(), [&](const RunningNoise& n) { return rule.done(n, seconds); });
    };
    for (std::size_t round = 0; !done(); ++round) {
      if (timed() && state == ChipState::rested) idle(pause_seconds);
      const bool reads = timed() && seconds_since(last_reading) >= sensor_seconds;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = (round + i) % count;
        if (flush_) flush_->queue(stream_);
        begin[at].record(stream_);
        if (const Status status = sides[at].launch(stream_); !status.ok()) return status;
        end[at].record(stream_);
        if (!reads) continue;
        sensors[at].add(read_sensors());
        end[at].wait();  // the next reading is the next side's
      }
      if (reads) last_reading = Clock::now();
      for (std::size_t i = 0; i < count; ++i) {
        samples[i].push_back(end[i].microseconds_since(begin[i]));
        noise[i].add(samples[i].back());
      }
    }
    for (std::size_t i = 0; i < count; ++i) {
      timings[i].cold = stats_of(std::move(samples[i]));
      timings[i].sensors = sensors[i].mean();
    }
    return {};
  }

  // Rounds of: displace the caches, one call untimed, ten calls timed one by one.
  Status sample_hot(const Side& side, SampleStats& hot) {
    constexpr int batch = 10;
    StopRule rule = rule_;
    rule.max_seconds /= 3;
    const Clock::time_point start = Clock::now();
    std::vector<DeviceEvent> begin(batch), end(batch);
    std::vector<double> samples;
    RunningNoise noise;
    while (!rule.done(noise, seconds_since(start))) {
      if (flush_) flush_->queue(stream_);
      if (const Status status = side.launch(stream_); !status.ok()) return status;
      for (int i = 0; i < batch; ++i) {
        begin[i].record(stream_);
        if (const Status status = side.launch(stream_); !status.ok()) return status;
        end[i].record(stream_);
      }
      for (int i = 0; i < batch; ++i) {
        samples.push_back(end[i].microseconds_since(begin[i]));
        noise.add(samples.back());
      }
    }
    hot = stats_of(std::move(samples));
    return {};
  }

  ArchFacts facts_;
  StopRule rule_;
  hipStream_t stream_;
  std::int64_t flush_bytes_;
  std::unique_ptr<CacheFlush> flush_;  // null on the emulated device, and where nothing is timed
};

}  // namespace tilewave::bench
