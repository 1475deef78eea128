// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/compare.hpp"
#include "tools/tilewave/gpu/wait.hpp"
#include "tools/tilewave/tune/tune.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

/// The rows that the benchmark would measure, as the first run wrote them down.
std::vector<std::string> plan_of(const TuneRun& o) {
  ProcessOptions p;
  p.timeout_s = o.timeout_s, p.quiet = true;
  const ProcessResult listed = run_shell(o.benchmark + " --benchmark_list_tests=true", p);
  if (listed.status != 0)
    throw Error(Exit::failed, fmt::format("the benchmark cannot list its rows: exit status {}", listed.status));
  std::vector<std::string> names;
  for (const std::string& line : lines_of(listed.out)) {
    if (!trim(line).empty()) names.emplace_back(trim(line));
  }
  if (names.empty()) throw Error(Exit::failed, "the benchmark lists no row");
  if (std::set<std::string>(names.begin(), names.end()).size() != names.size())
    refuse("the benchmark lists a row twice");
  fs::create_directories(o.folder / "chunks");  // not before: a run that cannot begin leaves nothing
  const fs::path file = o.folder / "plan.txt";
  const std::string patience = o.patience > 0 ? fmt::format(", patience {}", o.patience) : "";
  const std::string text = fmt::format("{} rows a chunk{}\n{}\n", o.chunk_rows, patience, join(names, "\n"));
  if (!fs::exists(file)) write_atomically(file, text);
  if (read_file(file.string()) != text) {
    throw Error(Exit::conflict, fmt::format("{} is of other rows, another chunk size or patience than this benchmark's",
                                            file.string()));
  }
  return names;
}

/// Exactly the rows that were asked for.
bool complete(const std::string& csv, const std::string& source, std::vector<std::string> names) {
  const Csv rows = parse_csv(csv, source, "name");
  const std::size_t name = rows.need("name");
  std::vector<std::string> found;
  for (const auto& row : rows.rows) found.push_back(row[name]);
  std::sort(found.begin(), found.end());
  std::sort(names.begin(), names.end());
  return found == names;
}

struct Chunk {
  std::size_t number = 0;
  std::vector<std::string> names;
};
/// The work that one worker takes at a time: a chunk, or with patience the chunks of a config, in their order.
using Task = std::vector<Chunk>;

std::vector<Task> tasks_of(const std::vector<std::string>& names, const TuneRun& o) {
  std::vector<Task> tasks;
  std::size_t chunks = 0;
  std::string config;
  for (const std::string& name : names) {
    const std::string its = name.substr(0, name.rfind('/'));
    const bool same = o.patience > 0 && !tasks.empty() && its == config;
    const bool full = tasks.empty() || tasks.back().back().names.size() == static_cast<std::size_t>(o.chunk_rows);
    if (o.patience > 0 ? !same : full) {
      tasks.push_back({{chunks++, {}}});
    } else if (full) {
      tasks.back().push_back({chunks++, {}});
    }
    tasks.back().back().names.push_back(name);
    config = its;
  }
  return tasks;
}

fs::path file_of(const TuneRun& o, const Chunk& chunk, const char* extension) {
  return o.folder / "chunks" / fmt::format("{:06}{}", chunk.number, extension);
}
bool is_done(const TuneRun& o, const Chunk& chunk) {
  return fs::exists(file_of(o, chunk, ".csv")) || fs::exists(file_of(o, chunk, ".left"));
}

class Worker {
 public:
  Worker(const TuneRun& o, const std::vector<Task>& tasks) : o_(o), tasks_(tasks) {}

  /// Takes tasks that nobody has, until none is left.
  int run() {
    int failures = 0;
    const auto begin = std::chrono::steady_clock::now();
    std::size_t measured = 0;
    const auto step = static_cast<std::size_t>(o_.shards);
    for (std::size_t s = static_cast<std::size_t>(o_.shard) - 1; s < tasks_.size(); s += step) {
      const Task& task = tasks_[s];
      const auto done = [&] {
        return std::all_of(task.begin(), task.end(), [&](const Chunk& c) { return is_done(o_, c); });
      };
      if (done()) continue;
      const fs::path lock_file = file_of(o_, task.front(), ".csv.lock");
      const int lock = ::open(lock_file.c_str(), O_RDWR | O_CREAT, 0644);
      if (lock < 0) throw Error(Exit::failed, "cannot write " + lock_file.string());
      if (::flock(lock, LOCK_EX | LOCK_NB) == 0 && !done()) {
        failures += take(task);
        ++measured;
        if (::isatty(STDERR_FILENO)) {
          const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
                              static_cast<double>(measured);
          fmt::print(stderr, "tilewave: {} {} of {}, at most {:.0f} s left\n", o_.patience > 0 ? "config" : "chunk",
                     s + 1, tasks_.size(), each * static_cast<double>((tasks_.size() - s - 1) / step));
        }
        fs::remove(lock_file);
      }
      ::close(lock);
    }
    return failures;
  }

 private:
  int take(const Task& task) {
    int failures = 0;
    Csv rows;
    for (const Chunk& chunk : task) {
      const fs::path file = file_of(o_, chunk, ".csv");
      if (o_.patience > 0 && !is_done(o_, chunk) && has_ended(rows, o_.patience, o_.metric)) {
        write_atomically(file_of(o_, chunk, ".left"), join(chunk.names, "\n") + "\n");
        continue;
      }
      if (!is_done(o_, chunk)) {
        const std::string why = measure(chunk.names, file);
        if (!why.empty()) fmt::print(stderr, "tilewave: chunk {}: {}\n", chunk.number, why), ++failures;
      }
      if (o_.patience == 0 || !fs::exists(file)) continue;
      Csv more = read_csv(file.string(), "name");
      if (rows.columns.empty()) rows.columns = more.columns, rows.source = more.source;
      if (more.columns != rows.columns) refuse(file.string() + " has other columns than the chunks before it");
      for (std::size_t r = 0; r < more.rows.size(); ++r)
        rows.rows.push_back(std::move(more.rows[r])), rows.lines.push_back(more.lines[r]);
    }
    return failures;
  }

  std::string measure(const std::vector<std::string>& names, const fs::path& file) {
    ProcessOptions p;
    p.timeout_s = o_.timeout_s, p.quiet = true;
    if (o_.gpus && gpu_.lock < 0) gpu_ = wait_for_gpu({o_.retry_s, o_.limit_s, 1});
    if (o_.gpus) p.variables[gpu_.variable] = std::to_string(gpu_.gpu.index);
    const ProcessResult result =
        run_shell(o_.benchmark + " --benchmark_format=csv --benchmark_filter=" + shell_word(filter_of(names)), p);
    if (result.timed_out) return "no end in time";
    if (result.status > 1) return fmt::format("exit status {}", result.status);  // 1: wrong rows, which are results
    try {
      if (!complete(result.out, "its CSV", names)) return "its CSV has other rows than it was asked for";
    } catch (const Error& error) {
      return error.what();
    }
    write_atomically(file, result.out);
    return "";
  }

  const TuneRun& o_;
  const std::vector<Task>& tasks_;
  BoundGpu gpu_;
};

}  // namespace

bool has_ended(const Csv& rows, int patience, const std::string& metric) {
  const std::size_t last = static_cast<std::size_t>(patience);
  if (rows.rows.size() <= last) return false;
  const std::size_t us = rows.need(metric), err = rows.need("err");
  OneClock clock(metric);
  for (std::size_t r = 0; r < rows.rows.size(); ++r)
    if (rows.need_number(r, err) == 0) clock.add(rows, r);
  const auto mhz = clock.mhz();
  struct Time {
    double us = HUGE_VAL, noise = 0;
  };
  const auto time_of = [&](std::size_t r) -> Time {
    if (rows.need_number(r, err) != 0) return {};
    const double time = rows.need_number(r, us);
    if (!std::isfinite(time) || time <= 0)
      refuse(rows.where(r) + ": " + metric + " is no time; --metric names another");
    return {mhz ? cycles_of(rows, r).us_at(*mhz, time) : time, noise_of(rows, r, time, is_modelled(metric))};
  };
  Time best;
  for (std::size_t r = 0; r < rows.rows.size() - last; ++r)
    if (const Time time = time_of(r); time.us < best.us) best = time;
  for (std::size_t r = rows.rows.size() - last; r < rows.rows.size(); ++r)
    if (const Time time = time_of(r); time.us <= best.us * (1 + 2 * std::hypot(time.noise, best.noise))) return false;
  return true;
}

std::pair<int, int> parse_shard(const std::string& text) {
  const auto words = split(text, '/');
  const auto i = words.size() == 2 ? integer(words[0]) : std::nullopt,
             n = words.size() == 2 ? integer(words[1]) : std::nullopt;
  if (!i || !n || *n < 1 || *n > 1000000 || *i < 1 || *i > *n)
    refuse(fmt::format("--shard '{}' is not i/n with 1 <= i <= n", printable(text)));
  return {static_cast<int>(*i), static_cast<int>(*n)};
}

std::string filter_of(const std::vector<std::string>& names) {
  std::vector<std::string> escaped;
  for (const std::string& name : names) {
    std::string word;
    for (const char c : name) {
      if (std::string_view(".+*?()[]{}|^$\\").find(c) != std::string_view::npos) word += '\\';
      word += c;
    }
    escaped.push_back(word);
  }
  return "^(" + join(escaped, "|") + ")(/iterations|$)";  // Google Benchmark adds to the name
}

TuneProgress run_tune(const TuneRun& o) {
  const auto tasks = tasks_of(plan_of(o), o);
  std::vector<pid_t> children;
  for (int w = 1; w < o.workers; ++w) {
    const pid_t child = ::fork();
    if (child < 0) throw Error(Exit::failed, "cannot start a worker");
    if (child == 0) {
      int status = static_cast<int>(Exit::failed);
      try {
        status = Worker(o, tasks).run() > 0;
      } catch (const std::exception& error) {
        fmt::print(stderr, "tilewave: a worker ended: {}\n", error.what());
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  Worker(o, tasks).run();
  for (const pid_t child : children) {
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  TuneProgress progress;
  for (std::size_t i = static_cast<std::size_t>(o.shard) - 1; i < tasks.size();
       i += static_cast<std::size_t>(o.shards)) {
    for (const Chunk& chunk : tasks[i]) {
      ++progress.chunks;
      progress.done += is_done(o, chunk);
      if (fs::exists(file_of(o, chunk, ".left"))) progress.left += chunk.names.size();
    }
  }
  progress.failed = progress.chunks - progress.done;
  return progress;
}

}  // namespace tilewave::tool
