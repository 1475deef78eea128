// SPDX-License-Identifier: MIT
// The chip's kernels for layers of experts.
#include "plans_moe.hpp"
#include "room.hpp"

template struct engine::MoePlans<engine::Room>;
