// SPDX-License-Identifier: MIT
// Lists of the compiled products, each in a .cu file of its own: together they take the compiler minutes.
#pragma once

#include <span>

#include "served.hpp"

namespace tilewave_torch {

using GemmServed = Served<tilewave::GemmSpec, tilewave::GemmProblem, tilewave::GemmPlan>;

template <tilewave::GemmSpec spec>
tilewave::Status gemm_plan_of(const tilewave::GemmProblem& p, tilewave::GemmPlan& plan) {
  return tilewave::gemm_plan<Room, spec>(p, plan);
}

std::span<const GemmServed> gemm_bf16();
std::span<const GemmServed> gemm_fp8_row();
std::span<const GemmServed> gemm_fp8_row_fast();
std::span<const GemmServed> gemm_fp8_tensor();
std::span<const GemmServed> gemm_fp8_block();
std::span<const GemmServed> gemm_int4();
std::span<const GemmServed> gemm_grouped_bf16();
std::span<const GemmServed> gemm_grouped_fp8();

}  // namespace tilewave_torch
