// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

std::atomic<pid_t> current_group{0};

void pass_on(int signal) {
  const pid_t group = current_group.load();
  if (group > 0) ::kill(-group, signal);
  std::signal(signal, SIG_DFL);  // and this process ends by it too
  ::raise(signal);
}

[[noreturn]] void start(const std::vector<std::string>& words, const ProcessOptions& o, int out) {
  ::setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) std::signal(signal, SIG_DFL);
  if (const int in = ::open("/dev/null", O_RDONLY); in >= 0) ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  if (o.errors_too) ::dup2(out, STDERR_FILENO);
  if (o.quiet) {
    if (const int nowhere = ::open("/dev/null", O_WRONLY); nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
  }
  for (const std::string& key : o.without) ::unsetenv(key.c_str());
  for (const auto& [key, value] : o.variables) ::setenv(key.c_str(), value.c_str(), 1);
  if (!o.folder.empty() && ::chdir(o.folder.c_str()) != 0) ::_exit(127);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  ::_exit(127);
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Reads until the end of the pipe, or the deadline (false).
bool collect(int pipe, double deadline, std::size_t max_bytes, std::string& out) {
  char buffer[1 << 14];
  for (;;) {
    const double left = deadline - now();
    if (deadline > 0 && left <= 0) return false;
    pollfd waiting{pipe, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, deadline > 0 ? static_cast<int>(std::min(left, 3600.0) * 1000) + 1 : -1);
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const ssize_t got = ::read(pipe, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    out.append(buffer, std::min(static_cast<std::size_t>(got), max_bytes - std::min(max_bytes, out.size())));
  }
}

/// Waits for the child, until the deadline (false).
bool wait_for(pid_t child, double deadline, int& status) {
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, deadline > 0 ? WNOHANG : 0);
    if (ended == child) return true;
    if (ended < 0 && errno != EINTR) return true;
    if (deadline > 0 && now() > deadline) return false;
    if (ended == 0) ::usleep(2000);
  }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& words, const ProcessOptions& o) {
  int out = -1, ends[2] = {-1, -1};
  if (!o.out_path.empty()) {
    out = ::open(o.out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out < 0) throw Error(Exit::failed, fmt::format("cannot write {}: {}", o.out_path, std::strerror(errno)));
  } else if (::pipe2(ends, O_CLOEXEC) == 0) {
    out = ends[1];
  } else {
    throw Error(Exit::failed, "no pipe");
  }
  const pid_t child = ::fork();
  if (child < 0) throw Error(Exit::failed, fmt::format("cannot start {}: {}", words[0], std::strerror(errno)));
  if (child == 0) start(words, o, out);
  ::setpgid(child, child);
  current_group = child;
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, pass_on);
  ::close(out);
  ProcessResult result;
  const double deadline = o.timeout_s > 0 ? now() + o.timeout_s : 0;
  int status = 0;
  bool in_time = ends[0] < 0 || collect(ends[0], deadline, o.max_bytes, result.out);
  in_time = in_time && wait_for(child, deadline, status);
  if (!in_time) {
    ::kill(-child, SIGKILL);
    ::waitpid(child, &status, 0);
    result.timed_out = true;
  }
  if (o.end_strays) ::kill(-child, SIGKILL);
  current_group = 0;
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  if (ends[0] >= 0) ::close(ends[0]);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

ProcessResult run_shell(const std::string& command, const ProcessOptions& options) {
  return run_process({"/bin/sh", "-c", command}, options);
}

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
    if (!folder.empty() && ::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

double seconds_of(const std::string& duration) {
  static const std::map<char, double> units{{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  std::string digits = duration;
  double unit = 1;
  if (!digits.empty() && units.contains(digits.back())) {
    unit = units.at(digits.back());
    digits.pop_back();
  }
  const auto value = number(digits);
  if (!value || !(*value >= 0) || *value > 1e7)
    refuse(fmt::format("'{}' is no duration: 90s, 10m, 1h", printable(duration)));
  return *value * unit;
}

}  // namespace tilewave::tool
