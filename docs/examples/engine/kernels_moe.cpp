// SPDX-License-Identifier: MIT
// The chip's kernels for layers of experts as they come.
#include "plans_moe.hpp"
#include "room.hpp"

template tilewave::Status engine::MoePlans<engine::Room>::plan(const tilewave::MoeProblem&, tilewave::MoePlan&);
