// SPDX-License-Identifier: MIT
#include "machine.hpp"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "context.hpp"

namespace isa_sim {
namespace {

void run_block(const Context& c, Block& block, std::uint64_t number, Counts& counts) {
  c.start(block, number);
  for (std::size_t ended = 0; ended < block.waves.size(); ++block.epoch) {
    ended = 0;
    for (const auto& w : block.waves) w->published = w->arrived;
    for (std::size_t i = 0; i < block.waves.size(); ++i) {
      Wave& w = *block.waves[c.options.reverse ? block.waves.size() - 1 - i : i];
      if (w.status == WaveStatus::at_barrier) w.status = WaveStatus::running;
      while (w.status == WaveStatus::running) c.step(w);
      ended += w.status == WaveStatus::ended;
    }
  }
  for (const auto& w : block.waves) counts.add(w->counts);
}

}  // namespace

Counts run_launch(const CodeObject& object, const Launch& launch, Memory& memory, const MachineOptions& options) {
  const Context c(object, launch, memory, options);
  const std::uint64_t blocks = c.blocks();
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  Counts total;
  const auto work = [&] {
    Block block;
    Counts counts;
    try {
      for (std::uint64_t i = next++; i < blocks; i = next++)
        run_block(c, block, options.reverse ? blocks - 1 - i : i, counts);
    } catch (...) {
      next = blocks;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    total.add(counts);
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < options.threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  if (failure) std::rethrow_exception(failure);
  return total;
}

}  // namespace isa_sim
