// SPDX-License-Identifier: MIT
// The chip's kernels for attention over caches of bf16.
#include "plans_attention.hpp"
#include "room.hpp"

template struct engine::AttentionPlans<engine::Room>;
