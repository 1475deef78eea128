// SPDX-License-Identifier: MIT
// A launch in the host room: the clusters (mostly of one block) of the grid, spread over threads.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <atomic>
#include <chrono>
#include <limits>
#include <system_error>
#include <thread>
#include <type_traits>
#include <typeinfo>

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/host/worker.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/core/math.hpp"

namespace tilewave::host {

/// A launch that passed its checks. The same kernel on another backend has this name with that backend's.
struct SeenLaunch {
  const std::type_info& kernel;
  ArchId arch;
  LaunchShape shape;
  const void* args;
  std::size_t args_bytes;
};

/// Receives the launches of its thread in place of the emulated device while it is `watching`.
class LaunchWatcher {
 public:
  virtual Status launched(const SeenLaunch& launch) = 0;
  static inline thread_local constinit LaunchWatcher* watching = nullptr;

 protected:
  ~LaunchWatcher() = default;
};

namespace detail {

/// Checks a launch and runs it. Code that does not depend on the kernel's type is here; otherwise it would take most of
/// a kernel's compile time. `block_threads` and `shared_bytes` are the kernel's. A build of many files that defines
/// TILEWAVE_HOST_LAUNCH_IS_LINKED compiles it in one of them, and links that.
#ifdef TILEWAVE_HOST_LAUNCH_IS_LINKED
Status start(const SeenLaunch& launch, const ArchFacts& facts, int block_threads, LaunchRequest request,
             std::size_t shared_bytes, hipStream_t stream);
#else

inline thread_local constinit char launch_error[sizeof(Cluster::error)] = {};

inline int thread_count(const LaunchRequest& request) {
  std::int64_t threads = request.options.threads;
  if (threads == 0) threads = std::thread::hardware_concurrency();
  // TSan supports at most some 8000 threads and fibers at a time.
  if (under_tsan) threads = std::min<std::int64_t>(threads, 4096 / (request.cluster_blocks * request.block_lanes));
  return static_cast<int>(std::max<std::int64_t>(1, std::min(threads, request.clusters)));
}

/// Runs a valid request. If several clusters fail, the first in running order is reported, however many threads there
/// are: a thread that fails ends, and the others go on only with the clusters before that one.
inline Status execute(const LaunchRequest& request) {
  struct Thread {
    std::unique_ptr<Worker> worker = WorkerPool::instance().take();
    std::int64_t failed_at = std::numeric_limits<std::int64_t>::max();
  };
  std::vector<Thread> threads_of_launch(1);
  // Accesses are relaxed, because clusters must not look ordered to TSan. The ends of the threads order what comes
  // after the launch.
  std::atomic<std::int64_t> next{0}, stop{request.clusters};

  // Returns true when it stopped in front of a cluster because `until` was over.
  const auto run_until = [&](Thread& thread, std::chrono::steady_clock::time_point until) {
    constexpr auto never = std::chrono::steady_clock::time_point::max();
    for (;;) {
      if (until != never && std::chrono::steady_clock::now() > until) return true;
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= stop.load(std::memory_order_relaxed)) return false;
      if (thread.worker->run(request, request.cluster_at(i))) continue;
      thread.failed_at = i;
      std::int64_t before = stop.load(std::memory_order_relaxed);
      while (i < before && !stop.compare_exchange_weak(before, i, std::memory_order_relaxed)) {
      }
      return false;
    }
  };
  const auto work = [&](Thread& thread) {
    run_until(thread, std::chrono::steady_clock::time_point::max());
    thread.worker->finish();
  };

  bool prepared = threads_of_launch[0].worker->prepare(request);
  // Most launches of tests end before a second thread would have begun: unless a number of threads is asked for, more
  // of them come when the first has run for a while. TSan is to see them all.
  const bool alone = request.options.threads == 0 && !under_tsan;
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(500);
  if (prepared && (!alone || run_until(threads_of_launch[0], until))) {
    threads_of_launch.resize(thread_count(request));
    for (std::size_t t = 1; t < threads_of_launch.size(); ++t)
      prepared = prepared && threads_of_launch[t].worker->prepare(request);
    if (prepared) {
      std::vector<std::thread> threads;
      try {
        for (std::size_t t = 1; t < threads_of_launch.size(); ++t)
          threads.emplace_back(work, std::ref(threads_of_launch[t]));
      } catch (const std::system_error&) {  // no more threads are available; those that started do the work
      }
      run_until(threads_of_launch[0], std::chrono::steady_clock::time_point::max());
      for (std::thread& thread : threads) thread.join();
    }
  }
  if (prepared) threads_of_launch[0].worker->finish();

  const Thread* failed = nullptr;
  last_counters = {};
  for (const Thread& thread : threads_of_launch) {
    if (prepared) last_counters.add(thread.worker->counters());
    if (thread.failed_at < (failed != nullptr ? failed->failed_at : request.clusters)) failed = &thread;
  }
  if (failed != nullptr) {
    std::memcpy(launch_error, failed->worker->error(), sizeof(launch_error));
    std::fprintf(stderr, "tilewave host room: %s\n", launch_error);
  }
  for (Thread& thread : threads_of_launch) WorkerPool::instance().give_back(std::move(thread.worker));
  if (!prepared) return {StatusCode::launch_failed, "the host room has no memory left for stacks or shared memory"};
  if (failed != nullptr) return {StatusCode::launch_failed, launch_error};
  return {};
}

/// A copy of a kernel's arguments that a graph keeps.
class Arguments {
 public:
  Arguments(const void* bytes, std::size_t count) : lines_((count + sizeof(Line) - 1) / sizeof(Line)) {
    std::memcpy(lines_.data(), bytes, count);
  }
  const void* data() const { return lines_.data(); }

 private:
  struct alignas(64) Line {  // tensor maps among arguments are aligned to 64 bytes
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

inline Status start(const SeenLaunch& launch, const ArchFacts& facts, int block_threads, LaunchRequest request,
                    std::size_t shared_bytes, hipStream_t stream) {
  const LaunchShape shape = launch.shape;
  if (Status s = check_launch(shape, facts); !s.ok()) return s;
  if (shape.block != block_threads) return {StatusCode::bad_extent, "the block is not the kernel's block_threads"};
  if (shape.block <= 0 || shape.block > max_block_lanes || shape.block % facts.wave_lanes != 0) {
    return {StatusCode::bad_extent, "the block is not a whole number of waves of at most 1024 lanes"};
  }
  if (shape.cluster * shape.block > max_cluster_waves * facts.wave_lanes) {
    return {StatusCode::bad_extent, "the host room runs clusters of at most 128 waves"};
  }
  if (shared_bytes > static_cast<std::size_t>(facts.lds_bytes)) {
    return {StatusCode::launch_failed, "the kernel's shared memory exceeds what a block of this chip may use"};
  }
  {
    OptionsState& state = options_state();
    const std::lock_guard lock(state.mutex);
    if (!state.status.ok()) return state.status;
    request.options = state.options;
  }
  last_counters = {};
  if (shape.grid == 0) return {};
  if (LaunchWatcher::watching != nullptr) return LaunchWatcher::watching->launched(launch);
  request.shared_bytes = align_up<std::size_t>(shared_bytes, 16);
  request.clusters = shape.grid / shape.cluster;
  request.cluster_blocks = shape.cluster;
  request.block_lanes = shape.block;
  request.wave_lanes = facts.wave_lanes;
  if (stream == nullptr || stream->captured == nullptr) return execute(request);
  stream->captured->calls.push_back([request, arguments = Arguments(launch.args, launch.args_bytes)]() mutable {
    request.args = arguments.data();
    return execute(request).ok();
  });
  return {};
}

#endif  // TILEWAVE_HOST_LAUNCH_IS_LINKED

}  // namespace detail

template <ArchId Id>
struct Launch {
  static constexpr bool is_this_pass = true;  // there is only one pass
  static constexpr bool emulated = true;

  /// Runs K::run(args, shared) for every lane of `shape.grid` blocks and returns when all are done. Errors:
  ///   bad_extent     negative or too large grid, block differs from K::block_threads or is no whole number of waves
  ///   launch_failed  K::Shared exceeds the chip's shared memory, or a lane broke a rule of the room; the reason then
  ///                  names block, wave and lane, and stays valid until this thread's next failing launch
  ///   bad_value      an environment variable of the room makes no sense
  /// Deterministic for kernels without races, whatever the number of threads. K::Args, K::Shared and whatever a lane
  /// holds are plain data: a failing lane's stack is dropped without running destructors.
  template <class K>
  static Status launch(LaunchShape shape, const typename K::Args& args, hipStream_t stream = nullptr) {
    const auto kernel = [](const void* args, void* shared) {
      K::run(*static_cast<const typename K::Args*>(args), *static_cast<typename K::Shared*>(shared));
    };
    return start<K>(kernel, shape, args, stream);
  }
  /// The same for a kernel with tensor maps, K::run(args, maps, shared).
  template <class K>
  static Status launch(LaunchShape shape, const typename K::Args& args, const typename K::Maps& maps,
                       hipStream_t stream = nullptr) {
    struct Both {
      typename K::Args args;
      typename K::Maps maps;
    };
    const auto kernel = [](const void* args, void* shared) {
      const Both& both = *static_cast<const Both*>(args);
      K::run(both.args, both.maps, *static_cast<typename K::Shared*>(shared));
    };
    return start<K>(kernel, shape, Both{args, maps}, stream);
  }

 private:
  template <class K, class Args>
  static Status start(void (*kernel)(const void*, void*), LaunchShape shape, const Args& args, hipStream_t stream) {
    using Shared = typename K::Shared;
    static_assert(std::is_trivially_copyable_v<Args> && std::is_trivially_destructible_v<Shared>,
                  "arguments and shared memory are plain data: no destructor runs on a device");
    static_assert(alignof(Args) <= 64, "a graph keeps arguments aligned to 64 bytes");
    static_assert(alignof(Shared) <= 4096, "shared memory is aligned to the page");
    const Args copy = args;  // a copy, as on hardware: later changes by the caller do not matter
    const SeenLaunch seen{typeid(K), Id, shape, &copy, sizeof(copy)};
    constexpr Early early = ReadsInputsEarly<K> ? Early::no_store : WaitsItself<K> ? Early::no_access : Early::over;
    return detail::start(seen, facts_of(Id), K::block_threads, {.kernel = kernel, .args = &copy, .early = early},
                         sizeof(Shared), stream);
  }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
