// SPDX-License-Identifier: MIT
// The chip's kernels for products of shuffled bf16 weights.
#include "plans_shuffled.hpp"
#include "room.hpp"

template struct engine::ShuffledPlans<engine::Room>;
