// SPDX-License-Identifier: MIT
// GemmKernel is the kernel of a policy, which the policy's path and the room choose.
#pragma once

#include "tilewave/ops/gemm/few_rows/dense_kernel.hpp"
#include "tilewave/ops/gemm/few_rows/kernel.hpp"
#include "tilewave/ops/gemm/lds/kernel.hpp"
#include "tilewave/ops/gemm/registers/int4_kernel.hpp"
#include "tilewave/ops/gemm/registers/kernel.hpp"
#include "tilewave/ops/gemm/tensor/kernel.hpp"

namespace tilewave {

namespace detail {

template <GemmPath path>
struct GemmKernelOf {
  template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
  using Kernel = GemmLdsKernel<B, S, P, Epilogue>;
};
template <>
struct GemmKernelOf<GemmPath::tensor> {
  template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
  using Kernel = GemmTensorKernel<B, S, P, Epilogue>;
};
template <>
struct GemmKernelOf<GemmPath::weights_in_registers> {
  template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
  using Kernel = std::conditional_t<
      B::facts.matrix == Matrix::mma,
      std::conditional_t<S.four_bit(), GemmFewRowsKernel<B, S, P, Epilogue>, GemmDenseFewRowsKernel<B, S, P, Epilogue>>,
      std::conditional_t<S.four_bit(), GemmInt4Kernel<B, S, P, Epilogue>, GemmRegisterKernel<B, S, P, Epilogue>>>;
};

}  // namespace detail

template <class B, GemmSpec S, GemmPolicy P, class Epilogue>
using GemmKernel = typename detail::GemmKernelOf<P.path>::template Kernel<B, S, P, Epilogue>;

}  // namespace tilewave
