// SPDX-License-Identifier: MIT
// Kernels that ThreadSanitizer looks at: they run in a child process that counts its reports.
#pragma once

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {

inline int race_reports = 0;  // counted by race_test.cpp

struct Seen {
  int reports = 0;
  std::string text;
};

/// Returns ThreadSanitizer's reports about a launch of two blocks, in clusters of K::cluster if there is one.
template <class B, class K>
Seen run_under_tsan(int threads) {
  Seen seen;
#if defined(TILEWAVE_HOST_TSAN)
  host::WorkerPool::instance().clear();  // ThreadSanitizer follows a fork only from a process without other threads
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    dup2(ends[1], 2);
    close(ends[0]);
    race_reports = 0;
    host::set_options({.threads = threads});
    alignas(16) static float values[4 * 4 * 64];
    const auto once = [] {
      if constexpr (requires { K::cluster; }) {
        return B::template launch<K>({2, K::block_threads, K::cluster}, K::args_of(values), nullptr);
      } else {
        return launch<B, K>(2, {values});
      }
    };
    const Status first = once(), second = once();  // the second uses fibers and shared memory again
    // ThreadSanitizer makes _exit wait a second for late threads.
    syscall(SYS_exit_group, first.ok() && second.ok() ? std::min(race_reports, 100) : 101);
  }
  close(ends[1]);
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) seen.text.append(buffer, n);
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  seen.reports = WEXITSTATUS(status);
  REQUIRE(seen.reports <= 100);
#else
  (void)threads;
#endif
  return seen;
}

/// K<B, true> must have no race, K<B, false> one, reported with a line of `file`.
template <class B, template <class, bool> class K>
void check_races(const char* file) {
  for (const int threads : {1, 2}) {
    CAPTURE(threads);
    const Seen right = run_under_tsan<B, K<B, true>>(threads), wrong = run_under_tsan<B, K<B, false>>(threads);
    INFO(right.text);
    CHECK(right.reports == 0);
    CHECK(wrong.reports > 0);
    CHECK(contains(wrong.text.c_str(), "data race"));
    CHECK(contains(wrong.text.c_str(), file));
  }
}

}  // namespace tilewave::test
