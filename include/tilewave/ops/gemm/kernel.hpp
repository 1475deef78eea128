// SPDX-License-Identifier: MIT
// The kernel of a room: what it offers decides.
#pragma once

#include "tilewave/ops/gemm/tensor_kernel.hpp"

namespace tilewave {

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
using GemmKernel = GemmTensorKernel<B, S, P, Epilogue>;

}  // namespace tilewave
