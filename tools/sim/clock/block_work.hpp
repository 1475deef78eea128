// SPDX-License-Identifier: MIT
// Counts how many instructions the blocks of a launch take. Some blocks all over the launch are executed without time,
// and the others are assumed to be like the nearest of those.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "sim/machine/context.hpp"

namespace tilewave::sim {

class BlockWork {
 public:
  /// Blocks go round robin over XCDs. Counts for a sixteenth of the instructions that are timed, more where blocks differ
  /// or are long. Throws BlocksWait if a block waits for another.
  BlockWork(const Context& c, std::uint64_t xcds, std::uint64_t timed_instructions);

  /// A block took more instructions than are worth counting, so nothing is known of any.
  bool unknown() const { return unknown_; }
  /// A block takes other instructions after another one than alone.
  bool shared() const { return shared_; }
  /// True if blocks differ by a quarter of their instructions, or since distinguish() was called.
  bool differ() const { return distinguished_; }
  /// Counts more, for a launch whose blocks were found to differ.
  void distinguish(const Context& c, std::uint64_t xcds);
  /// Returns the mean of the blocks that were counted; a launch whose blocks differ counts those of `xcd()` alone.
  std::uint64_t mean() const;
  std::uint64_t most() const { return most_; }
  /// The XCD with the most work, the first one where they are about alike.
  std::uint64_t xcd() const { return xcd_; }
  /// The work of all XCDs over that of xcd().
  double launch_over_xcd() const { return launch_over_xcd_; }
  /// A block of xcd(), by its index among those of this XCD.
  std::uint64_t of(std::uint64_t index) const;
  /// Returns the same for a block that is known to take more than `done` instructions; 0 if no counted one takes as
  /// many.
  std::uint64_t of_longer(std::uint64_t index, std::uint64_t done) const;
  /// Standard error of mean(), relative.
  double error() const;

 private:
  std::uint64_t count(const Context& c, std::uint64_t block);
  void choose_xcd(const Context& c, std::uint64_t xcds);
  std::pair<double, std::uint64_t> most_doubtful() const;  // and the index in the middle

  std::map<std::uint64_t, std::uint64_t>
      at_;  // instructions by index: of an XCD, or while they are alike of the launch
  std::uint64_t least_ = ~std::uint64_t{0}, most_ = 0, sum_ = 0, limit_, budget_, blocks_, xcd_ = 0;
  double launch_over_xcd_ = 0;
  bool unknown_ = false, distinguished_ = false, shared_ = false;
};

}  // namespace tilewave::sim
