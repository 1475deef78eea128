// SPDX-License-Identifier: MIT
// Predicts when the blocks that a pass did not time would end, in a launch whose blocks differ. One after another, each
// replaces one that has ended, and runs as fast as CUs with as many blocks did in the pass.
#pragma once

#include "sim/clock/block_work.hpp"
#include "sim/clock/timed_pass.hpp"

namespace tilewave::sim {

struct Rest {
  double clk = 0;           // from the end of the pass
  double instructions = 0;  // of the XCD, those of the pass left out
};

/// Instructions a clk of a CU by how many blocks it has; `lone` is a pass with one block a CU, if there was one.
std::vector<double> rates_of(const Pass& pass, const Pass& lone);
/// True if the pass shows how fast a CU with one block is.
bool knows_lone_blocks(const Pass& pass);
/// Throws Error if what was counted does not fit what the pass saw.
Rest rest_of(const Pass& pass, const BlockWork& work, const std::vector<double>& rates, std::size_t cus);

/// An extrapolation that no chip could do is none: throws Error.
void check_peaks(const Pass& pass, const ClockReport& report);

}  // namespace tilewave::sim
