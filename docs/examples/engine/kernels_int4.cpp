// SPDX-License-Identifier: MIT
// The chip's kernels for products of int4 weights.
#include "plans_int4.hpp"
#include "room.hpp"

template struct engine::Int4Plans<engine::Room>;
