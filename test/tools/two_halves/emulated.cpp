// SPDX-License-Identifier: MIT
// The half of g++, for the emulated device. The other is sm90.cu; both define inline functions of the same names, of
// which an unoptimised program has copies that the linker could take for one.
#include <cstdio>
#include <tilewave/arch/host/backend.hpp>
#include <tilewave/ops/vec_add/registry.hpp>

using namespace tilewave;

bool device_half_is_right();

static bool emulated_half_is_right() {
  constexpr VecAddSpec spec{DType::f32};
  constexpr int count = 1000;
  float *x = nullptr, *out = nullptr;
  if (hipMalloc(&x, sizeof(float) * count) != hipSuccess || hipMalloc(&out, sizeof(float) * count) != hipSuccess)
    return std::printf("the emulated device has no memory\n"), false;
  for (int i = 0; i < count; ++i) x[i] = static_cast<float>(i);
  const VecAddProblem p{.spec = spec, .a = x, .b = x, .out = out, .count = count};
  VecAddPlan plan;
  Status status = vec_add_plan<host::Backend<ArchId::gfx950>, spec>(p, plan);
  if (status.ok()) status = plan.launch(p, nullptr);
  bool right = status.ok() && hipDeviceSynchronize() == hipSuccess;
  for (int i = 0; right && i < count; ++i) right = out[i] == static_cast<float>(2 * i);
  right = hipFree(x) == hipSuccess && hipFree(out) == hipSuccess && right;
  if (!right) std::printf("the emulated device is wrong: %s\n", status.reason);
  return right;
}

int main() {
  const bool device = device_half_is_right(), emulated = emulated_half_is_right();
  return device && emulated ? 0 : 1;
}
