// SPDX-License-Identifier: MIT
// Exits 0 if the library refuses a problem without tensors, which takes no GPU.
#include ROOM_HEADER

#include "tilewave/ops/vec_add/registry.hpp"

int main() {
  using namespace tilewave;
  constexpr VecAddSpec spec{DType::f32};
  VecAddPlan plan;
  return vec_add_plan<ROOM::Backend, spec>({.spec = spec, .count = 4}, plan).code == StatusCode::null_pointer ? 0 : 1;
}
