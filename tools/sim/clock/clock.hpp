// SPDX-License-Identifier: MIT
// Times of a launch (docs/reference/clock.md): one XCD with its CUs and its share of memory, wave by wave; the chip is eight of it.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "sim/clock/cache_clock.hpp"
#include "sim/clock/issue_cost.hpp"
#include "sim/machine/machine.hpp"

namespace tilewave::sim {

enum class Stall : std::uint8_t { none, vmcnt, lgkmcnt, barrier, valu, matrix, lds, vmem, scalar, fetch };
constexpr int stall_count = 10;
constexpr std::array<std::string_view, stall_count> stall_names{"none",   "vmcnt", "lgkmcnt", "barrier", "valu",
                                                                "matrix", "lds",   "vmem",    "scalar",  "fetch"};

struct ClockOptions {
  std::string chip;                        // "" : the first of the code's architecture
  double mhz = 0;                          // 0: as the chip holds it
  bool warm = false;                       // inputs lie in the MALL
  std::uint64_t instructions = 6'000'000;  // wave instructions that are timed; what is left is extrapolated
};

class WaveTrace;

/// The clock of one instruction, over all timed waves.
struct OpClock {
  std::uint64_t hits = 0;
  double issue = 0;  // clk
  std::array<double, stall_count> stall{};
};

struct ClockReport {
  std::string chip, bound, limiter;
  double us = 0, cycles = 0, mhz = 0, launch_us = 0;
  double matrix_duty = 0, issue_duty = 0;  // of all SIMDs: what the clock goes down for
  double tflops = 0, hbm_gbs = 0;
  int blocks_per_cu = 0, waves_per_simd = 0;
  bool complete = true;          // every block of the XCD was timed
  bool whole_chip = false;       // all XCDs were timed, since blocks wait for each other
  double timed_share = 1;        // of the XCD's instructions
  double spread = 0;             // of the rate between the halves of the steady part: the error of sampling
  std::array<double, 7> busy{};  // share of the time: issue, matrix, LDS, L1, L2, HBM, tail
  std::vector<OpClock> ops;

  nlohmann::ordered_json to_json(const CodeObject& object) const;
  std::string to_text(const CodeObject& object, int top) const;
  /// Returns all instructions of a kernel in order, with hits, issue clk, stall clk and shares of their causes.
  std::string annotated(const CodeObject& object, const std::string& symbol) const;
};
constexpr std::array<std::string_view, 7> bound_names{"issue", "matrix", "lds", "l1", "l2", "hbm", "tail"};

/// Executes what it times; matrix products are left out, so results are not those of the kernel.
/// `trace` is told what waves do.
ClockReport time_launch(const CodeObject& object, const Launch& launch, Memory& memory, const ClockOptions& options,
                        WaveTrace* trace = nullptr);

}  // namespace tilewave::sim
