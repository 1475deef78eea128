// SPDX-License-Identifier: MIT
// A worker runs clusters (mostly of one block) one after the other on the thread that holds it. It keeps its lanes'
// fibers and its shared memory from launch to launch.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <memory>
#include <mutex>
#include <numeric>
#include <vector>

#include "tilewave/arch/host/schedule.hpp"

namespace tilewave::host {

/// Every block's shared memory starts with this byte: NaN as f32, f16, bf16 and e4m3fn (-240 as e4m3fnuz), -1 as an
/// int.
inline constexpr int shared_poison = 0xff;

/// A launch without the kernel's type.
struct LaunchRequest {
  void (*kernel)(const void* args, void* shared) = nullptr;  // runs one lane
  const void* args = nullptr;
  std::size_t shared_bytes = 0;  // a multiple of 16, so that the start is as aligned as on the chips
  std::int64_t clusters = 0;     // clusters of the grid
  int cluster_blocks = 1;
  int block_lanes = 0;
  int wave_lanes = 0;
  Early early = Early::over;
  Options options{};

  /// Returns the number of the i-th cluster to run.
  std::int64_t cluster_at(std::int64_t i) const {
    if (options.schedule == Schedule::reverse) return clusters - 1 - i;
    if (options.schedule != Schedule::random) return i;
    // i -> a * i + b modulo clusters visits every cluster once when a and clusters have no common factor. clusters <
    // 2^31.
    std::int64_t a = static_cast<std::int64_t>(options.seed % 1000003) | 1;
    while (std::gcd(a, clusters) != 1) a += 2;
    return (a % clusters * i + static_cast<std::int64_t>(options.seed % static_cast<std::uint64_t>(clusters))) %
           clusters;
  }
};

class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    shared_.unmap();
    copies_.unmap();
    stores_.unmap();
    groups_.unmap();
  }

  const char* error() const { return cluster_.error; }
  const LaunchCounters& counters() const { return cluster_.counters; }

  /// Runs before the clusters of a launch. It returns false when the system has no memory left.
  bool prepare(const LaunchRequest& request) {
    cluster_.kernel = request.kernel;
    cluster_.args = request.args;
    cluster_.options = request.options;
    const Schedule schedule = request.options.schedule;
    cluster_.ascending = schedule == Schedule::lockstep || schedule == Schedule::first_wave_ahead ||
                         schedule == Schedule::last_wave_ahead;
    cluster_.early = request.early;
    cluster_.blocks = request.cluster_blocks;
    cluster_.block_lanes = request.block_lanes;
    cluster_.block_waves = request.block_lanes / request.wave_lanes;
    cluster_.shared_bytes = request.shared_bytes;
    cluster_.counters = {};
    while (static_cast<int>(waves_.size()) < cluster_.waves()) {
      waves_.push_back(std::make_unique<Wave>());
      cluster_.wave[waves_.size() - 1] = waves_.back().get();
    }
    while (static_cast<int>(lanes_.size()) < cluster_.lanes()) {
      auto lane = std::make_unique<Lane>();
      if (!lane->stack.map()) return false;
      lane->cluster = &cluster_;
      lane->stack.restart<lane_main>(static_cast<int>(lanes_.size()));
      lanes_.push_back(std::move(lane));
    }
    const std::size_t shared_bytes = request.shared_bytes * request.cluster_blocks;
    if (shared_.bytes < shared_bytes) {
      shared_.unmap();
      if (!shared_.map(shared_bytes)) return false;
    }
    if (copies_.begin == nullptr && !copies_.map(max_cluster_blocks * max_bulk_copies * sizeof(BulkCopy))) return false;
    if (stores_.begin == nullptr && !stores_.map(max_cluster_blocks * max_tensor_stores * sizeof(TensorStore))) {
      return false;
    }
    constexpr int max_groups = max_cluster_waves / group_waves;
    if (groups_.begin == nullptr && !groups_.map(max_groups * sizeof(Group))) return false;
    // Shared memory lies at the end of its pages, so that an access beyond it faults.
    for (int b = 0; b < cluster_.blocks; ++b) {
      cluster_.block[b].rank = b;
      cluster_.block[b].copy = reinterpret_cast<BulkCopy*>(copies_.begin) + b * max_bulk_copies;
      cluster_.block[b].store = reinterpret_cast<TensorStore*>(stores_.begin) + b * max_tensor_stores;
      cluster_.block[b].group = reinterpret_cast<Group*>(groups_.begin) + b * (cluster_.block_waves / group_waves);
      cluster_.block[b].shared = shared_.end() - shared_bytes + b * request.shared_bytes;
    }
    return true;
  }

  /// Runs one cluster. It returns false when the cluster failed, with the reason in error().
  TILEWAVE_HOST_UNTRACKED bool run(const LaunchRequest& request, std::int64_t id) {
    begin_cluster(request, id);
    adopt_thread(cluster_.main);
    order_release(&cluster_.started);
    Lane& first = detail::first_lane(cluster_, request.options.schedule == Schedule::reverse ? 0 : 63);
    current_lane = &first;
    switch_fiber(cluster_.main, first.stack.fiber);
    current_lane = nullptr;
    cluster_.counters.blocks += cluster_.blocks;
    ++clusters_run_;
    if (cluster_.failed) {
      for (int i = 0; i < cluster_.lanes(); ++i) {
        lanes_[i]->stack.release_to(&cluster_.ended);
        lanes_[i]->stack.restart<lane_main>(i);
      }
    }
    return !cluster_.failed;
  }

  /// Runs after the last cluster: everything that the lanes wrote is before whatever the thread does next.
  void finish() { order_acquire(&cluster_.ended); }

 private:
  TILEWAVE_HOST_UNTRACKED void begin_cluster(const LaunchRequest& request, std::int64_t id) {
    cluster_.arrived = cluster_.returned = cluster_.number = 0;
    for (int b = 0; b < cluster_.blocks; ++b) {
      Block& block = cluster_.block[b];
      block.id = id * cluster_.blocks + b;
      block.arrived = block.returned = block.number = block.unseen = 0;
      block.waited = false;
      detail::drop_copies(block);
      detail::drop_stores(block);
      for (int g = 0; g < cluster_.block_waves / group_waves; ++g) block.group[g].restart();
    }
    cluster_.copies_in_flight = 0;
    cluster_.failed = false;
    // The state differs for every cluster and is the same on every run. The multiplier is 2^64 / golden ratio. It is
    // never 0.
    cluster_.random = ((request.options.seed + 1) * 0x9e3779b97f4a7c15u ^ (static_cast<std::uint64_t>(id) + 1)) | 1;
    for (int i = 0; i < 8; ++i) cluster_.draw();
    cluster_.runnable = ~WaveSet{0} >> (max_cluster_waves - cluster_.waves());
    for (int w = 0; w < cluster_.waves(); ++w) {
      Wave& wave = *cluster_.wave[w];
      wave.block = &cluster_.block[w / cluster_.block_waves];
      wave.index = w % cluster_.block_waves;
      wave.slot = w;
      wave.lanes = request.wave_lanes;
      wave.ready = wave.all = ~std::uint64_t{0} >> (64 - request.wave_lanes);
      wave.at_barrier = wave.returned = 0;
      wave.arrived = wave.parity = 0;
      wave.awaited.lane = wave.in_group = nullptr;
      for (auto& agreement : wave.agreements) agreement.number = 0;
    }
    // TSan cannot distinguish the clusters that share a fiber, so it would take cluster n's lane 3 to be before cluster
    // n+1's. Giving every cluster the fibers in another rotation leaves only unrelated lanes in that order.
    const int rotation = under_tsan ? static_cast<int>(clusters_run_ % cluster_.lanes()) : 0;
    for (int i = 0; i < cluster_.lanes(); ++i) {
      Lane& lane = *lanes_[(i + rotation) % cluster_.lanes()];
      lane.wave = cluster_.wave[i / request.wave_lanes];
      lane.index = i % request.wave_lanes;
      lane.agreements = lane.stores = 0;
      lane.early = request.early;
      lane.copies.count = lane.copies.batches = lane.copies.open = 0;
      lane.group = {};
      lane.unseen.count = 0;
      lane.wave->lane[lane.index] = &lane;
    }
    // Fresh pages make TSan forget the accesses of the cluster before, which had this memory to itself.
    if (under_tsan) {
      mmap(shared_.begin, shared_.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    std::memset(cluster_.block[0].shared, shared_poison, cluster_.blocks * cluster_.shared_bytes);
  }

  TILEWAVE_HOST_UNTRACKED static void lane_main() {
    LaneStack::entered();
    Lane& self = *current_lane;  // a fiber keeps its lane object for ever
    for (;;) {
      Cluster& cluster = *self.cluster;
      order_acquire(&cluster.started);
      cluster.kernel(cluster.args, self.wave->block->shared);
      lane_returned(self);
    }
  }

  Cluster cluster_;
  std::vector<std::unique_ptr<Wave>> waves_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  GuardedPages shared_, copies_, stores_, groups_;
  std::int64_t clusters_run_ = 0;
};

/// Workers between launches. Threads start and end with each launch, so a forked child can launch as well; things that
/// are slow to make stay here.
class WorkerPool {
 public:
  static WorkerPool& instance() {
    static auto* const pool = new WorkerPool;  // lives as long as the process
    return *pool;
  }
  std::unique_ptr<Worker> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Worker>();
    auto worker = std::move(idle_.back());
    idle_.pop_back();
    return worker;
  }
  void give_back(std::unique_ptr<Worker> worker) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(worker));
  }
  /// Frees the stacks, and with them the fibers that make TSan take a process for one with many threads.
  void clear() {
    const std::lock_guard lock(mutex_);
    idle_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Worker>> idle_;
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
