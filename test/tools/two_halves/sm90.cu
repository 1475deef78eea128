// SPDX-License-Identifier: MIT
// The half of nvcc: its memory is the GPU's or, where there is none, not to be had.
#include <cstdio>
#include <tilewave/arch/sm90/backend.hpp>
#include <tilewave/ops/vec_add/registry.hpp>

using namespace tilewave;

bool device_half_is_right() {
  constexpr VecAddSpec spec{DType::f32};
  VecAddPlan plan;
  if (vec_add_plan<sm90::Backend, spec>({.spec = spec, .count = 4}, plan).code != StatusCode::null_pointer)
    return std::printf("a problem without tensors is planned\n"), false;
  void* memory = nullptr;
  if (hipMalloc(&memory, 400) != hipSuccess) return true;
  cudaPointerAttributes attributes{};
  const bool of_device =
      cudaPointerGetAttributes(&attributes, memory) == cudaSuccess && attributes.type == cudaMemoryTypeDevice;
  if (!of_device) std::printf("nvcc's half got memory that is no GPU's\n");
  return hipFree(memory) == hipSuccess && of_device;
}
