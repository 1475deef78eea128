// SPDX-License-Identifier: MIT
// Shows how far a run has come, where stderr is a terminal, and lets signals end it early.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <string>

namespace tilewave::bench {

/// Draws `[12/64] 0:43 left  softmax/...` in place. Code that writes to the terminal clears it first.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Progress(std::size_t rows, bool shown = isatty(STDERR_FILENO) != 0) : rows_(rows), shown_(shown) {}

  void begin(const std::string& row) {
    line_ = "[" + std::to_string(done_ + 1) + "/" + std::to_string(rows_) + "] " + left() + "  " + row;
    draw();
  }
  void end() {
    ++done_;
    clear();
  }
  void draw() const {
    if (!shown_) return;
    winsize size{};
    const std::size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
    std::cerr << "\r" << line_.substr(0, columns - 1) << "\x1b[K" << std::flush;
  }
  void clear() const {
    if (shown_) std::cerr << "\r\x1b[K" << std::flush;
  }
  std::size_t done() const { return done_; }
  ~Progress() { clear(); }  // an exception clears the line, too

 private:
  /// Returns the remaining time, as if the remaining rows took as long as those before.
  std::string left() const {
    if (done_ == 0) return "-:-- left";
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const auto rest =
        static_cast<long>(seconds / static_cast<double>(done_) * static_cast<double>(rows_ - done_) + 0.5);
    char text[48];
    std::snprintf(text, sizeof(text), "%ld:%02ld left", rest / 60, rest % 60);
    return text;
  }

  std::size_t rows_, done_ = 0;
  bool shown_;
  std::string line_;
  Clock::time_point start_ = Clock::now();
};

/// SIGINT and SIGTERM end a run after its current row. The second signal ends the process.
class Interrupt {
 public:
  static void watch() {
    struct sigaction action {};
    action.sa_handler = [](int signal) { received_ = signal; };
    action.sa_flags = SA_RESETHAND | SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
  }
  /// Returns the signal, or 0 if there was none.
  static int received() { return received_; }

 private:
  static inline volatile std::sig_atomic_t received_ = 0;
};

}  // namespace tilewave::bench
