// SPDX-License-Identifier: MIT
#include "sim/machine/machine.hpp"

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "sim/machine/context.hpp"

namespace tilewave::sim {
namespace {

// Instructions of a wave before others get a turn: it may spin until one of them writes. Few, once a launch was seen to.
constexpr std::uint64_t first_turn = 1 << 20, short_turn = 1 << 12;
constexpr std::uint64_t waves_of_chip = 304 * 32;  // no more of them are begun at a time, as on an MI300X
constexpr std::uint64_t turns_in_vain = 5;         // of `max_wave_instructions`, until a launch is given up

/// State that the threads of a launch share.
struct Shared {
  explicit Shared(const Context& c) : context(c) {}

  const Context& context;
  std::atomic<std::uint64_t> next{0}, turn{first_turn};
  std::atomic<std::uint64_t> live{0};  // waves of blocks that are put aside
  std::atomic<std::uint64_t> vain{0};  // instructions since a wave has ended, come to a barrier or written
  std::atomic<bool> stopped{false};
  std::mutex mutex;
  std::exception_ptr failure;
  Counts total;
};

/// Returns the work of a wave without the instructions that waiting waves run.
std::uint64_t work_of(const Counts& counts) {
  const auto of = [&](Class cls) { return counts.instructions[static_cast<std::size_t>(cls)]; };
  return counts.stored + of(Class::mfma) + of(Class::lds);
}

/// Runs a block until all its waves have ended; false where those that are left had their turns in vain.
bool run_block(Shared& s, Block& block) {
  const Context& c = s.context;
  for (;;) {
    std::size_t ended = 0;
    bool spins = false, moved = false;
    for (std::size_t i = 0; i < block.waves.size(); ++i) {
      Wave& w = *block.waves[c.options.reverse ? block.waves.size() - 1 - i : i];
      ended += w.status == WaveStatus::ended;
      if (w.status != WaveStatus::running) continue;
      const std::uint64_t begun = w.executed, end = begun + s.turn, done = work_of(w.counts);
      while (w.status == WaveStatus::running && w.executed < end) c.step(w);
      ended += w.status == WaveStatus::ended;
      const bool left = w.status == WaveStatus::running;
      spins |= left, moved |= !left;
      if (!left || work_of(w.counts) > done)
        s.vain = 0;
      else if ((s.vain += w.executed - begun) > turns_in_vain * c.options.max_wave_instructions)
        throw Error("blocks wait for what none of them writes: " + c.where(w));
    }
    if (ended == block.waves.size()) return true;
    if (spins && moved) continue;  // perhaps what it waits for
    if (spins) return false;
    ++block.epoch;
    for (const auto& w : block.waves) {
      w->published = w->arrived;
      if (w->status == WaveStatus::at_barrier) w->status = WaveStatus::running;
    }
  }
}

/// Block after block; those that wait for others are put aside, and have turns with what is begun after them.
void work(Shared& s) {
  const Context& c = s.context;
  std::deque<std::unique_ptr<Block>> aside;
  std::unique_ptr<Block> block;
  Counts counts;
  while (!s.stopped) {
    const bool room = aside.empty() || s.live + c.waves() <= waves_of_chip;
    if (const std::uint64_t i = room ? s.next++ : c.blocks(); i < c.blocks()) {
      if (!block) block = std::make_unique<Block>();
      c.start(*block, c.options.reverse ? c.blocks() - 1 - i : i);
    } else if (!aside.empty()) {
      block = std::move(aside.front());
      aside.pop_front();
      s.live -= c.waves();
    } else {
      break;
    }
    if (run_block(s, *block)) {
      for (const auto& w : block->waves) counts.add(w->counts);
    } else {
      s.turn = short_turn;
      s.live += c.waves();
      aside.push_back(std::move(block));
    }
  }
  const std::lock_guard lock(s.mutex);
  s.total.add(counts);
}

}  // namespace

Counts run_launch(const CodeObject& object, const Launch& launch, Memory& memory, const MachineOptions& options) {
  const Context c(object, launch, memory, options);
  Shared shared(c);
  const auto worker = [&shared] {
    try {
      work(shared);
    } catch (...) {
      shared.stopped = true;
      const std::lock_guard lock(shared.mutex);
      if (!shared.failure) shared.failure = std::current_exception();
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < options.threads; ++i) workers.emplace_back(worker);
  worker();
  for (std::thread& other : workers) other.join();
  if (shared.failure) std::rethrow_exception(shared.failure);
  return shared.total;
}

}  // namespace tilewave::sim
