// SPDX-License-Identifier: MIT
#include "sim/clock/block_work.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sim/clock/timed_pass.hpp"

namespace tilewave::sim {
namespace {

// Blocks that are counted: at least `few` and at most `many`; of blocks that differ at least `some`, and `rows` of one
// for each XCD to choose between XCDs. No block takes more than `longest` times the instructions that are timed.
constexpr std::uint64_t few = 3, some = 32, many = 256, rows = 4, longest = 16;
constexpr int slice = 1000;  // instructions of a wave in its turn

/// The i-th of a sequence that fills 0 .. count - 1 evenly and has no period in common with any grid (the golden ratio).
std::uint64_t spread(std::uint64_t i, std::uint64_t count) {
  const std::uint64_t fraction = (i + 1) * 0x9e3779b97f4a7c15u;
  return static_cast<std::uint64_t>(static_cast<double>(fraction >> 11) * 0x1p-53 * static_cast<double>(count));
}

/// A wave whose products are left out. It gives its turn up where it only waits.
class CountedWave {
 public:
  /// Instructions of a turn; `fruitless` says that it ended by waiting.
  int turn(const Context& c, Wave& w, std::vector<Touch>& touched) {
    int count = 0;
    for (fruitless = false; count < slice && w.status == WaveStatus::running && !fruitless; ++count) {
      const Class cls = c.object.program.ops[w.pc].cls;
      if (cls == Class::mfma) {
        ++w.pc;
        continue;
      }
      const std::size_t pc = w.pc;
      touched.clear();
      c.step(w);
      const bool memory = cls == Class::vmem || cls == Class::smem;
      if (memory && !touched.empty()) {  // the same word, from the same place, and nothing else
        const std::uint64_t load = touched.front().address ^ pc << 48;
        polls_ = !touched.front().write && load == polled_ ? polls_ + 1 : 0;
        polled_ = load;
      }
      waiting_ = cls <= Class::valu || cls == Class::vmem || cls == Class::lds ? 0 : waiting_ + 1;
      fruitless = polls_ > longest_poll || waiting_ > longest_wait;
    }
    return count;
  }
  bool fruitless = false;

 private:
  std::uint64_t polled_ = 0;
  int polls_ = 0, waiting_ = 0;
};

/// Instructions of a block, executed without time; `limit` and a few more where there are more than that.
std::uint64_t execute_block(const Context& c, std::uint64_t number, std::uint64_t limit) {
  struct Touched {  // also where a step throws
    explicit Touched(const Memory& m) : memory(m) { memory.touched = &list; }
    ~Touched() { memory.touched = nullptr; }
    const Memory& memory;
    std::vector<Touch> list;
  } touched(c.memory);
  Block block;
  c.start(block, number);
  std::vector<CountedWave> waves(block.waves.size());
  std::uint64_t count = 0;
  while (count <= limit) {
    bool running = false, waits = true;
    for (std::size_t i = 0; i < waves.size(); ++i) {
      Wave& w = *block.waves[i];
      if (w.status != WaveStatus::running) continue;
      running = true;
      count += static_cast<std::uint64_t>(waves[i].turn(c, w, touched.list));
      waits &= waves[i].fruitless;
    }
    if (running && waits) throw BlocksWait();
    if (running) continue;
    bool at_barrier = false;
    for (const auto& w : block.waves) at_barrier |= w->status == WaveStatus::at_barrier;
    if (!at_barrier) break;
    ++block.epoch;
    for (const auto& w : block.waves) {
      w->published = w->arrived;
      if (w->status == WaveStatus::at_barrier) w->status = WaveStatus::running;
    }
  }
  return count;
}

/// Counts the instructions of a block and leaves memory as it was.
std::uint64_t count_block(const Context& c, std::uint64_t number, std::uint64_t limit) {
  const Undo undo(c.memory);
  return execute_block(c, number, limit);
}

/// True if the work of a block depends on another that ran before it, as where all blocks take tiles from one counter.
bool share_work(const Context& c, std::uint64_t before, std::uint64_t block, std::uint64_t alone, std::uint64_t limit) {
  const auto& ops = c.object.program.ops;
  if (std::none_of(ops.begin(), ops.end(), [](const Op& op) { return op.text.find("_atomic_") != std::string::npos; }))
    return false;
  const Undo undo(c.memory);
  execute_block(c, before, limit);
  const std::uint64_t after = execute_block(c, block, limit);
  return after < alone / 2 || after / 2 > alone;
}

}  // namespace

std::uint64_t BlockWork::count(const Context& c, std::uint64_t block) {
  const std::uint64_t n = count_block(c, block, limit_);
  unknown_ |= n > limit_;
  least_ = std::min(least_, n), most_ = std::max(most_, n), sum_ += n;
  return n;
}

BlockWork::BlockWork(const Context& c, std::uint64_t xcds, std::uint64_t timed_instructions)
    : limit_(longest * timed_instructions),
      budget_(timed_instructions / 16),
      blocks_(c.blocks()),
      launch_over_xcd_(static_cast<double>(xcds)) {
  bool alike = true;
  for (std::uint64_t i = 0; i < many && alike && !unknown_ && (i < few || sum_ < budget_); ++i) {
    const std::uint64_t block = spread(i, c.blocks());
    if (!at_.contains(block)) at_[block] = count(c, block);
    alike = most_ <= least_ + least_ / 4;
  }
  if (c.blocks() > 1 && !unknown_) {
    const std::uint64_t block = spread(1, c.blocks());
    shared_ = share_work(c, spread(0, c.blocks()), block, at_.at(block), limit_);
  }
  if (!alike) distinguish(c, xcds);
}

void BlockWork::distinguish(const Context& c, std::uint64_t xcds) {
  distinguished_ = true;
  if (unknown_) return;
  at_.clear(), sum_ = 0;
  if (c.blocks() > xcds) choose_xcd(c, xcds);
  blocks_ = (c.blocks() - xcd_ + xcds - 1) / xcds;
  const auto count_at = [&](std::uint64_t index) {
    if (!at_.contains(index) && !unknown_) at_[index] = count(c, index * xcds + xcd_);
  };
  count_at(0), count_at(blocks_ - 1);
  for (std::uint64_t i = 0; i < some && sum_ < limit_; ++i) count_at(spread(i, blocks_));
  // Then where most is uncertain, the middle between two that differ: so an edge along the launch is found.
  for (const std::uint64_t most = 2 * sum_ + budget_; at_.size() < many && sum_ < most && !unknown_;) {
    const auto [doubt, index] = most_doubtful();
    if (doubt < 0.002 * static_cast<double>(mean()) * static_cast<double>(blocks_)) break;
    count_at(index);
  }
}

/// Compares blocks of all XCDs at the same places, so that what grows along the launch is no difference.
void BlockWork::choose_xcd(const Context& c, std::uint64_t xcds) {
  std::vector<std::map<std::uint64_t, std::uint64_t>> counted(xcds);
  std::vector<std::uint64_t> work(xcds);
  const std::uint64_t indices = c.blocks() / xcds;
  for (std::uint64_t i = 0; i < rows && !unknown_; ++i) {
    const std::uint64_t index = spread(i, indices);
    for (std::uint64_t x = 0; x < xcds && !counted[x].contains(index); ++x)
      work[x] += counted[x][index] = count(c, index * xcds + x);
  }
  const auto busiest = static_cast<std::uint64_t>(std::max_element(work.begin(), work.end()) - work.begin());
  xcd_ = work[busiest] > work[0] + work[0] / 10 ? busiest : 0;
  double all = 0;
  for (const std::uint64_t w : work) all += static_cast<double>(w);
  launch_over_xcd_ = all / static_cast<double>(std::max<std::uint64_t>(work[xcd_], 1));
  at_ = counted[xcd_], sum_ = work[xcd_];
}

std::uint64_t BlockWork::mean() const {
  double sum = 0;  // each for the places that are nearer to it than to others
  for (auto at = at_.begin(); at != at_.end(); ++at) {
    const double low = at == at_.begin() ? 0 : static_cast<double>(std::prev(at)->first + at->first + 1) / 2,
                 high = std::next(at) == at_.end() ? static_cast<double>(blocks_)
                                                   : static_cast<double>(at->first + std::next(at)->first + 1) / 2;
    sum += static_cast<double>(at->second) * (high - low);
  }
  return static_cast<std::uint64_t>(sum / static_cast<double>(blocks_));
}

/// Between two neighbours: the instructions by which they differ, for each index between them.
std::pair<double, std::uint64_t> BlockWork::most_doubtful() const {
  std::pair<double, std::uint64_t> most{0, 0};
  for (auto at = at_.begin(); std::next(at) != at_.end(); ++at) {
    const std::uint64_t gap = std::next(at)->first - at->first;
    const double step = static_cast<double>(std::next(at)->second) - static_cast<double>(at->second);
    if (gap > 1) most = std::max(most, {std::fabs(step) * static_cast<double>(gap - 1), at->first + gap / 2});
  }
  return most;
}

std::uint64_t BlockWork::of(std::uint64_t index) const { return of_longer(index, 0); }

std::uint64_t BlockWork::of_longer(std::uint64_t index, std::uint64_t done) const {
  auto after = at_.lower_bound(index), before = after;
  while (after != at_.end() || before != at_.begin()) {
    const bool later =
        before == at_.begin() || (after != at_.end() && after->first - index <= index - std::prev(before)->first);
    const std::uint64_t n = later ? (after++)->second : (--before)->second;
    if (n > done) return n;
  }
  return 0;
}

double BlockWork::error() const {
  double squares = 0;
  for (auto at = at_.begin(); std::next(at) != at_.end(); ++at) {
    const double step = static_cast<double>(std::next(at)->second) - static_cast<double>(at->second),
                 doubt = step * static_cast<double>(std::next(at)->first - at->first - 1);
    squares += doubt * doubt / 2;
  }
  return std::sqrt(squares) / (static_cast<double>(mean()) * static_cast<double>(blocks_));
}

}  // namespace tilewave::sim
