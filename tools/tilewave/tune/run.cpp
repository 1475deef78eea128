// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"
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
  const std::string text = fmt::format("{} rows a chunk\n{}\n", o.chunk_rows, join(names, "\n"));
  if (!fs::exists(file)) write_atomically(file, text);
  if (read_file(file.string()) != text) {
    throw Error(Exit::conflict,
                fmt::format("{} is of other rows or another chunk size than this benchmark's", file.string()));
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

class Worker {
 public:
  Worker(const TuneRun& o, const std::vector<std::string>& names) : o_(o), names_(names) {}

  /// Takes chunks that nobody has, until none is left.
  int run() {
    int failures = 0;
    const std::size_t rows = static_cast<std::size_t>(o_.chunk_rows), chunks = (names_.size() + rows - 1) / rows;
    const auto begin = std::chrono::steady_clock::now();
    std::size_t measured = 0;
    for (std::size_t c = static_cast<std::size_t>(o_.shard) - 1; c < chunks; c += static_cast<std::size_t>(o_.shards)) {
      const fs::path file = o_.folder / "chunks" / fmt::format("{:06}.csv", c);
      if (fs::exists(file)) continue;
      const int lock = ::open((file.string() + ".lock").c_str(), O_RDWR | O_CREAT, 0644);
      if (lock < 0) throw Error(Exit::failed, "cannot write " + file.string());
      if (::flock(lock, LOCK_EX | LOCK_NB) == 0 && !fs::exists(file)) {
        const std::size_t end = std::min((c + 1) * rows, names_.size());
        const std::string why = measure(
            {names_.begin() + static_cast<std::ptrdiff_t>(c * rows), names_.begin() + static_cast<std::ptrdiff_t>(end)},
            file);
        if (!why.empty()) fmt::print(stderr, "tilewave: chunk {}: {}\n", c, why), ++failures;
        ++measured;
        if (::isatty(STDERR_FILENO)) {
          const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
                              static_cast<double>(measured);
          fmt::print(stderr, "tilewave: chunk {} of {}, at most {:.0f} s left\n", c + 1, chunks,
                     each * static_cast<double>((chunks - c - 1) / static_cast<std::size_t>(o_.shards)));
        }
        fs::remove(file.string() + ".lock");
      }
      ::close(lock);
    }
    return failures;
  }

 private:
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
  const std::vector<std::string>& names_;
  BoundGpu gpu_;
};

}  // namespace

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
  const auto names = plan_of(o);
  std::vector<pid_t> children;
  for (int w = 1; w < o.workers; ++w) {
    const pid_t child = ::fork();
    if (child < 0) throw Error(Exit::failed, "cannot start a worker");
    if (child == 0) {
      int status = static_cast<int>(Exit::failed);
      try {
        status = Worker(o, names).run() > 0;
      } catch (const std::exception& error) {
        fmt::print(stderr, "tilewave: a worker ended: {}\n", error.what());
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  Worker(o, names).run();
  for (const pid_t child : children) {
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  TuneProgress progress;
  const std::size_t rows = static_cast<std::size_t>(o.chunk_rows), chunks = (names.size() + rows - 1) / rows;
  for (std::size_t c = static_cast<std::size_t>(o.shard) - 1; c < chunks; c += static_cast<std::size_t>(o.shards)) {
    ++progress.chunks;
    progress.done += fs::exists(o.folder / "chunks" / fmt::format("{:06}.csv", c));
  }
  progress.failed = progress.chunks - progress.done;
  return progress;
}

}  // namespace tilewave::tool
