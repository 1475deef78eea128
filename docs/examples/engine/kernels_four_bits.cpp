// SPDX-License-Identifier: MIT
// The chip's kernels for weights of four bits.
#include "plans_four_bits.hpp"
#include "room.hpp"

template struct engine::FourBitPlans<engine::Room>;
