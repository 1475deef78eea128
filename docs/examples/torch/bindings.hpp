// SPDX-License-Identifier: MIT
// What the bindings share: tensors as a Problem takes them, and a Status as a Python error. Every op is registered with the same
// function for devices and for meta tensors, of which it only makes the outputs.
#pragma once

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/library.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kernels.hpp"

namespace tilewave_torch {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

inline tilewave::DType dtype_of(const Tensor& t, const char* name) {
  using tilewave::DType;
  switch (t.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kFloat8_e4m3fn: return DType::fp8_e4m3fn;
    case at::kFloat8_e4m3fnuz: return DType::fp8_e4m3fnuz;
    case at::kChar: return DType::i8;
    default: TORCH_CHECK_TYPE(false, name, " is ", t.scalar_type(), ", which tilewave has no type for");
  }
}

inline void check_type(const Tensor& t, at::ScalarType type, const char* name) {
  TORCH_CHECK_TYPE(t.scalar_type() == type, name, " is ", t.scalar_type(), ", not ", type);
}
inline void check_dims(const Tensor& t, std::int64_t dims, const char* name) {
  TORCH_CHECK_VALUE(t.dim() == dims, name, " has ", std::to_string(t.dim()), " dimensions, not ", std::to_string(dims));
}
inline void check_extent(const Tensor& t, std::int64_t dim, std::int64_t extent, const char* name) {
  TORCH_CHECK_VALUE(t.size(dim) == extent, name, ".size(", std::to_string(dim), ") is ", std::to_string(t.size(dim)),
                    ", not ", std::to_string(extent));
}
/// Strides are a Problem's to say, but the last dimension lies side by side.
inline void check_last(const Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(t.size(-1) == 1 || t.stride(-1) == 1, name, " has gaps in its last dimension");
}
inline void check_packed(const Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(t.is_contiguous(), name, " is not contiguous");
}
inline void check_like(const Tensor& t, const Tensor& as, const char* name) {
  TORCH_CHECK_VALUE(t.device() == as.device(), name, " is on ", t.device(), ", not on ", as.device());
}
inline std::int32_t extent(std::int64_t value, const char* name) {
  TORCH_CHECK_VALUE(value <= std::numeric_limits<std::int32_t>::max(), name, " is 2^31 or more");
  return static_cast<std::int32_t>(value);
}

template <class T = void>
T* data_of(const Tensor& t) {
  return static_cast<T*>(t.data_ptr());
}
template <class T = void>
T* data_of(const OptionalTensor& t) {
  return t.has_value() ? data_of<T>(*t) : nullptr;
}

inline Tensor workspace_on(const Tensor& on, std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)}, on.options().dtype(at::kByte));
}

/// Queues a problem on the current stream, its workspace from PyTorch's allocator, which keeps memory until the stream has passed.
/// A refusal becomes a ValueError that names the op, the status and its reason.
template <class Problem>
void queue(const char* op, const Problem& p, const Tensor& on) {
  const c10::DeviceGuard guard(on.device());
  std::vector<Tensor> workspaces;
  const Call call{at::cuda::getCurrentCUDAStream(on.get_device()), [&](std::size_t bytes) {
                    workspaces.push_back(workspace_on(on, bytes));
                    return workspaces.back().data_ptr();
                  }};
  const tilewave::Status status = run(p, call);
  TORCH_CHECK_VALUE(status.ok(), "tilewave::", op, ": ", std::string(name_of(status.code)), ": ", status.reason);
}

/// Rows of a tensor of two or more dimensions that is contiguous but for the distance of its rows.
struct Rows {
  std::int32_t rows, columns;
  tilewave::RowStrides strides;
};
inline Rows rows_of(const Tensor& t, const char* name) {
  TORCH_CHECK_VALUE(t.dim() >= 1, name, " has no dimension");
  check_last(t, name);
  if (t.dim() != 2) check_packed(t, name);
  const std::int64_t columns = t.size(-1), rows = columns == 0 ? 0 : t.numel() / columns;
  return {extent(rows, name), extent(columns, name), {.outer = t.dim() == 2 ? t.stride(0) : columns}};
}

}  // namespace tilewave_torch
