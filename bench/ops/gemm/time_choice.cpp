// SPDX-License-Identifier: MIT
// time_choice ROWS.csv SECONDS SHAPES.csv [SECONDS SHAPES.csv]... times all plans of products that sm90's choice may take,
// for fit_choice.
//
// SHAPES: columns run, spec, m, n, k, samples and peer, in any number of lines, of which as many are timed as SECONDS
// suffice for; what a file leaves over the next one has. All plans of a shape are in turns by sample, each behind a read
// of 160 MB, and up to 384 rows weights are rotated over eight copies. A plan has 4 samples, within 15 % of the best 10,
// and within 6 % `samples`, as the plan that is chosen has. Plans that the model takes for 1.5 times as long as the best are
// left out. With peer 1 the vendor's first eight proposals are timed as well, of which ROWS has the best one.
//
// ROWS: columns run, spec, m, n, k, plan, us, best_us, samples, and odd_us and even_us: what fit_choice takes for the time
// of a plan, by every second sample. Every plan's rows of output are compared with the vendor's, or the first plan's;
// those of a plan that is wrong are not written.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/ceiling.hpp"
#include "bench/harness/stats.hpp"
#include "bench/ops/gemm/choice_entries.hpp"
#include "bench/ops/gemm/choice_operands.hpp"
#include "bench/ops/gemm/vendor.hpp"
#include "tilewave/core/math.hpp"

namespace {

using namespace tilewave;
using namespace tilewave::bench;
using Shape = ChoiceShape;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t flush_bytes = std::int64_t{160} << 20;
constexpr int compared_elements = 16384;
// A row is wrong whose l2 norm differs by so much of it, or an element by so much of the row's root mean square. Fast sums
// of fp8 keep few bits, and those of blocks that share K others.
constexpr double wrong_row(const GemmSpec& s) { return is_fp8(s.a) ? 0.1 : 0.02; }
constexpr double wrong_element = 0.6;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Part {
  double seconds;
  std::vector<Shape> shapes;
};

std::vector<Shape> read_shapes(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("no file " + path);
  std::vector<Shape> shapes;
  std::string line;
  std::getline(file, line);  // of names
  while (std::getline(file, line)) {
    std::istringstream row(line);
    std::vector<std::string> cells;
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    if (cells.size() != 7) throw std::runtime_error(path + ": " + line);
    shapes.push_back({cells[0], cells[1], std::stoi(cells[2]), std::stoi(cells[3]), std::stoi(cells[4]),
                      std::stoi(cells[5]), cells[6] == "1"});
  }
  return shapes;
}

/// A side of a shape: a plan of ours, or a proposal of the vendor's.
struct Timed {
  std::string name;
  std::function<Status(hipStream_t)> launch;
  bool chosen = false, refused = false;
  std::vector<double> samples{};

  /// What fit_choice takes for the time, by samples of which the first and every so many count.
  double us(std::size_t first = 0, std::size_t every = 1) const {
    std::vector<double> some;
    for (std::size_t i = first; i < samples.size(); i += every) some.push_back(samples[i]);
    const SampleStats stats = stats_of(std::move(some));
    return 0.7 * stats.median + 0.3 * stats.min;
  }
};

class Trial {
 public:
  Trial(const ChoiceSizes& sizes, std::FILE* rows)
      : operands_(sizes), rows_(rows), flush_(ArchId::sm90, emulated_device ? choice_period : flush_bytes, stream_) {}

  void run(const Shape& shape) {
    const GemmSpec& spec = recorded_spec(shape.spec);
    operands_.fill(spec);
    GemmProblem p = operands_.problem(shape);
    DeviceBuffer workspace;
    std::vector<Timed> sides;
    std::string no_peer;
    std::vector<const void*> weights;
    for (std::int64_t i = 0; i < shape.copies(); ++i) weights.push_back(operands_.weights(shape, i));
    const std::unique_ptr<VendorGemm> vendor = shape.peer ? vendor_gemm(p, weights, no_peer) : nullptr;
    if (vendor != nullptr) {
      for (const Side& side : vendor->sides())
        if (sides.size() < 8) sides.push_back({side.name, side.launch});
    } else if (shape.peer) {
      std::printf("%s %d x %d x %d: %s\n", shape.spec.c_str(), shape.m, shape.n, shape.k, no_peer.c_str());
    }
    std::size_t turn = 0;
    for (const GemmPlan& plan : plans(p, shape.peer ? 2.0 : 1.5)) {
      const std::size_t bytes = plan.workspace_bytes(p);
      if (bytes > workspace.bytes()) workspace = DeviceBuffer(bytes);
      const bool chosen = sides.empty() || sides.back().name == "cublaslt";  // plans begin with it
      sides.push_back({plan.name(),
                       [&, plan](hipStream_t stream) {
                         p.b = operands_.weights(shape, turn++);
                         p.workspace = workspace.data(), p.workspace_bytes = workspace.bytes();
                         return plan.launch(p, stream);
                       },
                       chosen});
    }
    compare(shape, sides);
    const auto some = [&](double most) {
      double best = 1e30;
      for (const Timed& side : sides)
        if (!side.refused) best = std::min(best, side.us());
      std::vector<Timed*> in_turns;
      for (Timed& side : sides)
        if (!side.refused && (side.chosen || side.us() <= most * best)) in_turns.push_back(&side);
      return in_turns;
    };
    std::vector<Timed*> all;
    for (Timed& side : sides)
      if (!side.refused) all.push_back(&side);
    sample(all, 4);
    sample(some(1.15), 6);
    sample(some(1.06), shape.samples - 10);
    write(shape, sides);
    std::fflush(rows_);
    ++shapes;
  }

  int shapes = 0, plans_timed = 0, plans_wrong = 0;
  double worst_error = 0;

 private:
  ChoiceOperands operands_;
  std::FILE* rows_;
  hipStream_t stream_ = [] {
    hipStream_t stream;
    check_hip(hipStreamCreate(&stream), "creating a stream");
    return stream;
  }();
  CacheFlush flush_;
  std::vector<DeviceEvent> events_;
  std::vector<const GemmEntry*> entries_ = choice_entries();
  DeviceBuffer compared_;

  /// The plans that may be chosen, the one first that is, without those that the model takes for `most` times as long.
  std::vector<GemmPlan> plans(const GemmProblem& p, double most) const {
    std::vector<std::pair<double, GemmPlan>> found;
    for (const GemmEntry* e : entries_) {
      if (!(e->spec == p.spec) || e->policy.leaves_room()) continue;
      for (int splits = 1; splits <= e->policy.splits; ++splits) {
        if (splits > 1 && ceil_div(bytes_of(p.spec.a, p.k), e->policy.depth_bytes) < 2 * splits) break;
        const double us = gemm_cost_dense_sm90(p, p.m, e->policy, splits);
        if (us >= 1e5) continue;
        found.push_back({us, {}});
        found.back().second.entry = e, found.back().second.splits = splits;
      }
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<GemmPlan> plans;
    for (const auto& [us, plan] : found)
      if (us <= most * found.front().first) plans.push_back(plan);
    return plans;
  }

  /// Every side's first call, whose output is compared with that of the first one that is not refused.
  void compare(const Shape& shape, std::vector<Timed>& sides) {
    const GemmSpec& spec = recorded_spec(shape.spec);
    const std::int64_t row_bytes = std::int64_t{shape.n} * size_of(spec.out);
    const int rows = std::min(shape.m, std::clamp(compared_elements / shape.n, 2, 8));
    const auto row_of = [&](int i) { return rows > 1 ? std::int64_t{i} * (shape.m - 1) / (rows - 1) : 0; };
    const std::size_t bytes = sides.size() * rows * row_bytes;
    if (compared_.bytes() < bytes) compared_ = DeviceBuffer(bytes);
    auto* const kept = static_cast<std::byte*>(compared_.data());
    for (std::size_t i = 0; i < sides.size(); ++i) {
      check_hip(hipMemsetAsync(operands_.out().data(), 0xff, shape.m * row_bytes, stream_), "poisoning");
      const Status status = sides[i].launch(stream_);
      sides[i].refused = !status.ok();
      if (!status.ok() && sides[i].name != "cublaslt")
        std::printf("%s %d x %d x %d %s: %s\n", shape.spec.c_str(), shape.m, shape.n, shape.k, sides[i].name.c_str(),
                    status.reason);
      for (int r = 0; r < rows; ++r)
        check_hip(hipMemcpyAsync(kept + (i * rows + r) * row_bytes,
                                 static_cast<std::byte*>(operands_.out().data()) + row_of(r) * row_bytes, row_bytes,
                                 hipMemcpyDeviceToDevice, stream_),
                  "keeping output");
    }
    std::vector<std::uint16_t> values(bytes / 2);
    check_hip(hipMemcpy(values.data(), kept, bytes, hipMemcpyDeviceToHost), "copying output");
    const auto value = [&](std::size_t side, std::int64_t i) {  // bf16
      const std::uint32_t bits = std::uint32_t{values[side * rows * shape.n + i]} << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return f;
    };
    std::size_t first = 0;
    while (first < sides.size() && sides[first].refused) ++first;
    for (std::size_t side = first; side < sides.size(); ++side) {
      if (sides[side].refused) continue;
      for (int r = 0; r < rows; ++r) {
        float off = 0, all = 0, most = 0;
        for (std::int64_t i = std::int64_t{r} * shape.n; i < std::int64_t{r + 1} * shape.n; ++i) {
          const float want = value(first, i), difference = value(side, i) - want;
          off += difference * difference, all += want * want, most = std::max(most, std::abs(difference));
        }
        const double error = std::sqrt(off / all);
        if (error <= wrong_row(spec) && most <= wrong_element * std::sqrt(all / shape.n)) {
          worst_error = std::max(worst_error, error);
          continue;
        }
        ++plans_wrong, sides[side].refused = true;
        std::printf("wrong: %s %d x %d x %d %s, row %d by %g\n", shape.spec.c_str(), shape.m, shape.n, shape.k,
                    sides[side].name.c_str(), static_cast<int>(row_of(r)), error);
        break;
      }
    }
  }

  /// So many samples of each side, in turns. The host queues them while the device runs.
  void sample(const std::vector<Timed*>& sides, int rounds) {
    const std::size_t count = sides.size();
    while (rounds > 0 && events_.size() < 2 * count * rounds) events_.emplace_back();
    std::size_t at = 0;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < count; ++i) {
        flush_.queue(stream_);
        events_[at++].record(stream_);
        (void)sides[(round + i) % count]->launch(stream_);
        events_[at++].record(stream_);
      }
    }
    at = 0;
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < count; ++i, at += 2)
        sides[(round + i) % count]->samples.push_back(events_[at + 1].microseconds_since(events_[at]));
    }
  }

  void write(const Shape& shape, const std::vector<Timed>& sides) {
    const Timed* peer = nullptr;
    const auto row = [&](const Timed& side) {
      ++plans_timed;
      std::fprintf(rows_, "%s,%s,%d,%d,%d,%s,%.2f,%.2f,%zu,%.2f,%.2f\n", shape.run.c_str(), shape.spec.c_str(), shape.m,
                   shape.n, shape.k, side.name.c_str(), stats_of(side.samples).median, stats_of(side.samples).min,
                   side.samples.size(), side.us(0, 2), side.us(1, 2));
    };
    for (const Timed& side : sides) {
      if (side.refused || side.samples.empty()) continue;
      if (side.name != "cublaslt") {
        row(side);
      } else if (peer == nullptr || side.us() < peer->us()) {
        peer = &side;
      }
    }
    if (peer != nullptr) row(*peer);
  }
};

int run(int argc, char** argv) {
  const Clock::time_point start = Clock::now();
  if (argc < 4 || argc % 2 != 0)
    return std::fprintf(stderr, "usage: time_choice ROWS.csv SECONDS SHAPES.csv [SECONDS SHAPES.csv]...\n"), 1;
  std::vector<Part> parts;
  for (int i = 2; i < argc; i += 2) parts.push_back({std::stod(argv[i]), read_shapes(argv[i + 1])});
  std::FILE* const rows = std::fopen(argv[1], "w");
  if (rows == nullptr) throw std::runtime_error(std::string("cannot write ") + argv[1]);
  std::fprintf(rows, "run,spec,m,n,k,plan,us,best_us,samples,odd_us,even_us\n");
  ChoiceSizes sizes;
  for (const Part& part : parts)
    for (const Shape& shape : part.shapes) sizes.add(shape);
  Trial trial(sizes, rows);
  double end = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const int shapes = trial.shapes, plans = trial.plans_timed;
    const double begin = seconds_since(start);
    end += parts[i].seconds;
    for (const Shape& shape : parts[i].shapes) {
      if (seconds_since(start) > end) break;
      trial.run(shape);
    }
    std::printf("%-20s %4d of %4zu shapes, %5d plans, %.1f s\n", argv[3 + 2 * i], trial.shapes - shapes,
                parts[i].shapes.size(), trial.plans_timed - plans, seconds_since(start) - begin);
    std::fflush(stdout);
  }
  std::printf("%d plans wrong, others differ by %.4f of a row at most; %.1f s\n", trial.plans_wrong, trial.worst_error,
              seconds_since(start));
  std::fclose(rows);
  return trial.plans_wrong > 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "time_choice: %s\n", error.what()), 1;
  }
}
