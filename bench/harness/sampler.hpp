// SPDX-License-Identifier: MIT
// GPU time of a launch by device events: cold (caches are displaced before each sample) and hot (back to back).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bench/harness/ceiling.hpp"
#include "bench/harness/device.hpp"
#include "bench/harness/model_time.hpp"
#include "bench/harness/stats.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave::bench {

struct Timing {
  SampleStats cold, hot;  // in microseconds
  ModelledTime modelled;  // with --model-time, in place of cold and hot
};

class Sampler {
 public:
  /// Displaces twice the last-level cache before a cold sample; 512 MiB covers AMD's 256 MiB Infinity Cache.
  Sampler(const ArchFacts& facts, StopRule rule, hipStream_t stream)
      : facts_(facts),
        rule_(rule),
        stream_(stream),
        flush_bytes_(std::max(2 * facts.last_level_cache_bytes, std::int64_t{512} << 20)) {}

  /// Times `launch`, a function that queues work on the stream and returns a Status; a bad Status ends the measurement.
  /// Cold samples take the rule's max_seconds, hot ones a third of it, and both take at least min_samples.
  template <class Launch>
  Status measure(const Launch& launch, Timing& timing) {
    if (!emulated_device && !flush_ && rule_.max_seconds > 0) {  // 0 means that nobody wants the times
      flush_ = std::make_unique<CacheFlush>(facts_.id, flush_bytes_, stream_);
    }
    std::vector<double> cold, hot;
    for (int i = 0; i < 2; ++i) {  // the first call loads code
      if (const Status status = launch(); !status.ok()) return status;
    }
    if (const Status status = sample(rule_, 1, 0, launch, cold); !status.ok()) return status;
    StopRule hot_rule = rule_;
    hot_rule.max_seconds /= 3;
    if (const Status status = sample(hot_rule, 10, 1, launch, hot); !status.ok()) return status;
    timing = {stats_of(std::move(cold)), stats_of(std::move(hot)), {}};
    return {};
  }

 private:
  // Runs rounds: displace the caches, make `warm` calls untimed, and time `batch` calls one by one. The host queues the
  // whole round while the flush runs, so no sample holds a gap in which the device waits for the host.
  template <class Launch>
  Status sample(const StopRule& rule, int batch, int warm, const Launch& launch, std::vector<double>& samples) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    std::vector<DeviceEvent> begin(batch), end(batch);
    RunningNoise noise;
    while (!rule.done(noise, std::chrono::duration<double>(Clock::now() - start).count())) {
      if (flush_) flush_->queue(stream_);
      for (int i = 0; i < warm; ++i) {
        if (const Status status = launch(); !status.ok()) return status;
      }
      for (int i = 0; i < batch; ++i) {
        begin[i].record(stream_);
        if (const Status status = launch(); !status.ok()) return status;
        end[i].record(stream_);
      }
      for (int i = 0; i < batch; ++i) {
        samples.push_back(end[i].microseconds_since(begin[i]));
        noise.add(samples.back());
      }
    }
    return {};
  }

  ArchFacts facts_;
  StopRule rule_;
  hipStream_t stream_;
  std::int64_t flush_bytes_;
  std::unique_ptr<CacheFlush> flush_;  // null on the emulated device, and where nothing is timed
};

}  // namespace tilewave::bench
