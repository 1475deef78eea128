// SPDX-License-Identifier: MIT
// The chip's kernels for layers of experts that were quantised while loading.
#include "plans_moe.hpp"
#include "room.hpp"

template tilewave::Status engine::MoePlans<engine::Room>::quantised(const tilewave::MoeProblem&, tilewave::MoePlan&);
