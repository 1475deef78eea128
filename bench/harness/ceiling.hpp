// SPDX-License-Identifier: MIT
// The best speed at which the device can move its memory, and the time that it allows an op.
#pragma once

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/harness/device.hpp"
#include "bench/harness/stats.hpp"
#include "bench/harness/work.hpp"
#include "entries/traffic.hpp"

namespace tilewave::bench {

/// Bytes per second of three kernels: one only reads, one reads as much as it writes (both counted), and one only
/// writes.
struct Ceilings {
  static constexpr double none = std::numeric_limits<double>::quiet_NaN();
  double read = none, copy = none, write = none;

  static constexpr Ceilings all(double bytes_per_second) {
    return {bytes_per_second, bytes_per_second, bytes_per_second};
  }
  /// Returns the roof in seconds: the time of memory, or that of the products where they take longer. Bytes that can be
  /// paired, one read with one written, go at the speed of a copy, and the rest at that of a read or a write.
  constexpr double seconds(const Work& work) const {
    const auto written = static_cast<double>(work.written), reads = static_cast<double>(work.bytes - work.written);
    const double paired = std::min(reads, written);
    const double memory = 2 * paired / copy + (reads - paired) / read + (written - paired) / write;
    return std::max(memory, static_cast<double>(work.flops) / work.flops_per_second);
  }
};

/// The device that rows describe, by its data sheet: the GPU at hand, the chip whose times are modelled, or on the
/// emulated device the chip that it impersonates.
struct Device {
  std::string name;
  ArchFacts facts;
};
const Device& device_of(ArchId arch);

/// Returns the entry of a kind and policy. Throws if the architecture is not one of this build's.
inline const TrafficEntry& traffic_entry(ArchId arch, TrafficKind kind, const TrafficPolicy& policy) {
  for (const TrafficEntry* e : all_traffic_entries()) {
    if (e->arch == arch && e->spec.kind == kind && e->policy == policy) return *e;
  }
  throw std::runtime_error("no kernel of this build moves memory on this device");
}

/// Queues the kernel. Throws where the library would return an error.
inline void move(const TrafficEntry& entry, const TrafficProblem& problem, hipStream_t stream) {
  const Status status = entry.launch(problem, stream);
  if (!status.ok()) throw std::runtime_error(std::string("moving memory: ") + status.reason);
}

/// Fills [0, bytes) of a buffer with random bits.
inline void fill_random(ArchId arch, void* data, std::int64_t bytes, std::uint32_t seed, hipStream_t stream) {
  move(traffic_entry(arch, TrafficKind::write, {.chunks = 1}), {.to = data, .bytes = bytes, .seed = seed}, stream);
}

/// Displaces the contents of caches by reading `bytes` of random bits. It reads, because lines that it wrote would be
/// written back at the cost of the kernel that is timed next. It uses no hints, which could leave other lines in place.
class CacheFlush {
 public:
  CacheFlush(ArchId arch, std::int64_t bytes, hipStream_t stream)
      : entry_(&traffic_entry(arch, TrafficKind::read, {.chunks = 8})),
        data_(static_cast<std::size_t>(bytes)),
        verdict_(sizeof(TrafficVerdict)) {
    fill_random(arch, data_.data(), bytes, 0, stream);
  }
  void queue(hipStream_t stream) const {
    move(*entry_,
         {.from = data_.data(),
          .verdict = static_cast<TrafficVerdict*>(verdict_.data()),
          .bytes = static_cast<std::int64_t>(data_.bytes())},
         stream);
  }

 private:
  const TrafficEntry* entry_;
  DeviceBuffer data_, verdict_;
};

/// A read of `bytes` of random bits, rounded up to whole tiles, by each policy of the kernel that reads: the time below which no
/// kernel that reads as much can get under the same launch.
class ReadFloor {
 public:
  ReadFloor(ArchId arch, std::int64_t bytes, hipStream_t stream)
      : data_(static_cast<std::size_t>(align_up(bytes, most_tile_bytes))), verdict_(sizeof(TrafficVerdict)) {
    for (const TrafficEntry* e : all_traffic_entries())
      if (e->arch == arch && e->spec.kind == TrafficKind::read) entries_.push_back(e);
    fill_random(arch, data_.data(), static_cast<std::int64_t>(data_.bytes()), 0, stream);
  }
  std::size_t policies() const { return entries_.size(); }
  Status launch(std::size_t policy, hipStream_t stream) const {
    return entries_[policy]->launch({.from = data_.data(),
                                     .verdict = static_cast<TrafficVerdict*>(verdict_.data()),
                                     .bytes = static_cast<std::int64_t>(data_.bytes())},
                                    stream);
  }

 private:
  static constexpr std::int64_t most_tile_bytes = TrafficPolicy{.chunks = 8}.tile_bytes();

  DeviceBuffer data_, verdict_;
  std::vector<const TrafficEntry*> entries_;
};

/// Measures the fastest policy of each kind over 4 GiB: the median of nine passes after a first one. It does not run on
/// the emulated device.
inline Ceilings measured_ceilings(ArchId arch, hipStream_t stream) {
  constexpr std::int64_t bytes = std::int64_t{4} << 30;
  const DeviceBuffer data(bytes), verdict(sizeof(TrafficVerdict));
  const DeviceEvent begin, end;
  const auto best = [&](TrafficKind kind, const TrafficProblem& problem) {
    double fastest = std::numeric_limits<double>::infinity();  // in microseconds
    for (const TrafficEntry* entry : all_traffic_entries()) {
      if (entry->arch != arch || entry->spec.kind != kind) continue;
      std::vector<double> microseconds;
      for (int pass = 0; pass < 10; ++pass) {
        begin.record(stream);
        move(*entry, problem, stream);
        end.record(stream);
        const double us = end.microseconds_since(begin);
        if (pass > 0) microseconds.push_back(us);
      }
      fastest = std::min(fastest, stats_of(microseconds).median);
    }
    return static_cast<double>(bytes) / (fastest * 1e-6);
  };
  Ceilings ceilings;
  ceilings.write = best(TrafficKind::write, {.to = data.data(), .bytes = bytes});  // the others then read these bytes
  ceilings.read = best(TrafficKind::read,
                       {.from = data.data(), .verdict = static_cast<TrafficVerdict*>(verdict.data()), .bytes = bytes});
  ceilings.copy =
      best(TrafficKind::copy,
           {.from = data.data(), .to = static_cast<std::byte*>(data.data()) + bytes / 2, .bytes = bytes / 2});
  return ceilings;
}

}  // namespace tilewave::bench
