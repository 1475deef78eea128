// SPDX-License-Identifier: MIT
// The lower rungs of the GEMM ladder in the emulated rooms. (No build of the library has them as entries.)
#include "bench/ladder/kernels.hpp"
#include "test/ops/gemm/call.hpp"
#include "tilewave/arch/host/backend.hpp"

namespace tilewave::test {
namespace {

template <ArchId arch, GemmSpec S>
void check_rungs() {
  static constexpr auto rungs = ladder::entries<host::Backend<arch>, S>();
  for (const GemmEntry& e : rungs) {
    INFO(name_of(arch) << " " << name_of(e.policy));
    const GemmPolicy& p = e.policy;
    const std::int32_t step = p.depth / size_of(S.a);
    for (const GemmShape& s : {GemmShape{.m = 1, .n = 1, .k = 1},
                               {.m = p.rows - 1, .n = p.columns + 1, .k = step + 3, .gap = 3},
                               {.m = p.rows, .n = p.columns, .k = 2 * step},
                               {.m = p.rows + 1,
                               .n = 40,
                               .k = 3 * step - 1,
                               .batch = 2,
                               .gap = 4,
                               .bias = true,
                               .residual = true,
                               .alpha = -0.75f}}) {
      INFO(name_of(s));
      CHECK(GemmCall(S, s, gemm_random).run(e) == "");
    }
  }
}

TEST_CASE("the lower rungs of the GEMM ladder are right where their tiles end") {
  constexpr GemmSpec f16{.a = DType::f16, .b = DType::f16, .out = DType::f16};
  check_rungs<ArchId::gfx942, GemmSpec{}>();
  check_rungs<ArchId::gfx950, GemmSpec{}>();
  check_rungs<ArchId::sm90, GemmSpec{}>();
  check_rungs<ArchId::sm90, f16>();
}

TEST_CASE("a rung of the GEMM ladder refuses what it does not compute") {
  static constexpr auto rungs = ladder::entries<host::Backend<ArchId::sm90>, GemmSpec{}>();
  const GemmCall call(GemmSpec{}, {.m = 2, .n = 2, .k = 8}, gemm_random);
  GemmProblem p = call.on_device();
  CHECK(rungs[0].launch(p, 2, {}).code == StatusCode::bad_value);
  p.spec.out = DType::f32;
  CHECK(rungs[0].launch(p, 1, {}).code == StatusCode::no_matching_entry);
}

}  // namespace
}  // namespace tilewave::test
