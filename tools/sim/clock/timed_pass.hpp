// SPDX-License-Identifier: MIT
// One run of a launch's blocks in the order of time: on an XCD, or on all of the chip where blocks wait for each other.
#pragma once

#include <map>

#include "sim/clock/clock.hpp"
#include "sim/machine/context.hpp"

namespace tilewave::sim {

/// Instructions in a row that only wait, until a wave is held to wait for a block that is not timed.
constexpr int longest_wait = 20'000;
/// The same limit for loads of one word.
constexpr int longest_poll = 256;
struct BlocksWait : Error {
  BlocksWait() : Error("a wave waits in a loop for another block") {}
};

struct PassOptions {
  double mhz;
  std::map<std::uint64_t, double> first{};  // see XcdMemory
  std::uint64_t budget;                     // instructions
  int resident;                             // blocks of a CU
  std::uint64_t xcd = 0;                    // which one, unless it is the whole chip
  std::uint64_t from = 0;                   // its first block
  bool whole_chip = false;
  bool blocks_differ = false;  // so a rate that holds for a while says nothing of later blocks
  WaveTrace* trace = nullptr;  // of the first XCD
};

/// A block that had not ended when a pass did.
struct Unfinished {
  std::size_t unit;
  std::uint64_t index, instructions;  // among its XCD's blocks; done so far
};

/// The work of CUs while they had this many blocks.
struct Crowd {
  double clk = 0, instructions = 0;
};

/// The results of a pass, for all XCDs that it timed.
struct Pass {
  double cycles = 0, timed = 0, steady_rate = 0, spread = 0;     // timed: without what is still to be written
  std::uint64_t instructions = 0, loaded = 0, block_loaded = 0;  // bytes
  std::uint64_t blocks_done = 0, blocks_all = 0, block_instructions = 0;
  std::uint64_t done_instructions = 0;                // of the blocks that ended,
  std::uint64_t least = ~std::uint64_t{0}, most = 0;  // and of one of them
  double matrix_duty = 0, valu_duty = 0, flops = 0;
  Traffic traffic;
  std::map<std::uint64_t, double> touched;
  std::array<double, 6> busy{};
  std::vector<OpClock> ops;
  std::vector<Crowd> crowds;  // by blocks of a CU, in the later half of what was timed
  std::vector<Unfinished> unfinished;
  std::uint64_t started = 0;  // blocks
};

/// Leaves memory as it was. Throws BlocksWait if a block waits for one of another XCD that is not timed.
Pass run_pass(const Context& c, const Chip& chip, const PassOptions& options);

}  // namespace tilewave::sim
