// SPDX-License-Identifier: MIT
#include "sim/programs/objdump.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "sim/machine/instruction.hpp"

extern char** environ;

namespace tilewave::sim {
namespace {

using Clock = std::chrono::steady_clock;

int allowed_seconds() {
  const char* text = std::getenv("ISA_SIM_OBJDUMP_SECONDS");
  if (!text || !*text) return 300;
  int seconds = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), seconds);
  if (error != std::errc{} || *end || seconds < 1 || seconds > 86400)
    throw Error(std::string("ISA_SIM_OBJDUMP_SECONDS is no number of seconds: ") + text);
  return seconds;
}

/// A shell in a process group of its own, whose output is read here. Ended with its group when this goes.
class Child {
 public:
  explicit Child(const std::string& command) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("cannot run " + command);
    out_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const char* const arguments[] = {"sh", "-c", command.c_str(), nullptr};
    const int failed =
        posix_spawn(&pid_, "/bin/sh", &actions, &attributes, const_cast<char* const*>(arguments), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (!failed) return;
    close(out_);
    throw Error("cannot run " + command);
  }
  ~Child() {
    close(out_);
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Reads what is available, at most `size` bytes; returns 0 at the end and -1 at the deadline.
  ssize_t read_some(char* to, std::size_t size, Clock::time_point deadline) const {
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (left <= 0) return -1;
      pollfd waiting{out_, POLLIN, 0};
      if (poll(&waiting, 1, static_cast<int>(left)) <= 0) continue;
      if (const ssize_t got = ::read(out_, to, size); got >= 0 || errno != EINTR) return got < 0 ? 0 : got;
    }
  }
  /// Its exit status, behind the end of its output; -1 at the deadline.
  int status(Clock::time_point deadline) {
    for (;;) {
      int status = 0;
      if (const pid_t ended = waitpid(pid_, &status, WNOHANG); ended != 0) {
        pid_ = -1;
        return ended > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 128;
      }
      if (Clock::now() >= deadline) return -1;
      usleep(1000);
    }
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
};

}  // namespace

void run_objdump(const std::string& objdump, const std::string& path, const std::function<void(const char*)>& line) {
  if (path.find('\'') != std::string::npos) throw Error("a path may not contain a quote: " + path);
  const std::string command = objdump + " -d '" + path + "'";
  const int seconds = allowed_seconds();
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(seconds);
  const auto too_long = [&] { return Error("ended after " + std::to_string(seconds) + " seconds: " + command); };
  Child child(command);
  std::string text;
  std::array<char, 1 << 16> part;
  while (const ssize_t got = child.read_some(part.data(), part.size(), deadline)) {
    if (got < 0) throw too_long();
    text.append(part.data(), static_cast<std::size_t>(got));
    std::size_t from = 0;
    for (std::size_t end; (end = text.find('\n', from)) != text.npos; from = end + 1) {
      text[end] = '\0';
      line(text.data() + from);
    }
    text.erase(0, from);
  }
  if (!text.empty()) line(text.c_str());
  const int status = child.status(deadline);
  if (status < 0) throw too_long();
  if (status > 0) throw Error("failed: " + command);
}

}  // namespace tilewave::sim
