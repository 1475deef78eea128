// SPDX-License-Identifier: MIT
// The chip's kernels for products of bf16 weights.
#include "plans_gemm.hpp"
#include "room.hpp"

template struct engine::GemmPlans<engine::Room>;
