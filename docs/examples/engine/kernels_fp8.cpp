// SPDX-License-Identifier: MIT
// The chip's kernels for weights and caches of fp8.
#include "plans_fp8.hpp"
#include "room.hpp"

template struct engine::Fp8Plans<engine::Room>;
