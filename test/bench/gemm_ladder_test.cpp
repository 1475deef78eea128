// SPDX-License-Identifier: MIT
// The lower rungs of the GEMM ladder in the emulated rooms. (No build of the library has them as entries.)
#include <set>

#include "bench/ladder/gemm_generated.hpp"
#include "test/ops/gemm/call.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/gemm/policy_status.hpp"

namespace tilewave::test {
namespace {

template <ArchId arch>
void check_rungs() {
  static constexpr GemmSpec spec = gemm_generated_specs(arch)[0];
  static constexpr auto rungs = ladder::entries<host::Backend<arch>, spec>();
  for (const GemmEntry& e : rungs) {
    INFO(name_of(arch) << " " << name_of(e.policy));
    const GemmPolicy& p = e.policy;
    const std::int32_t step = p.depth_bytes / size_of(spec.a);
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
      CHECK(GemmCall(spec, s, gemm_random).run(e) == "");
    }
  }
}

TEST_CASE("the lower rungs of the GEMM ladder are right where their tiles end") {
  check_rungs<ArchId::gfx942>();
  check_rungs<ArchId::gfx950>();
  check_rungs<ArchId::sm90>();
}

TEST_CASE("a rung of the GEMM ladder refuses what it does not compute") {
  static constexpr auto rungs = ladder::entries<host::Backend<ArchId::sm90>, GemmSpec{}>();
  const GemmCall call(GemmSpec{}, {.m = 2, .n = 2, .k = 8}, gemm_random);
  GemmProblem p = call.on_device();
  CHECK(rungs[0].launch(p, 2, {}).code == StatusCode::bad_value);
  p.spec.out = DType::f32;
  CHECK(rungs[0].launch(p, 1, {}).code == StatusCode::no_matching_entry);
}

template <ArchId arch>
void check_names() {
  constexpr GemmSpec spec = gemm_generated_specs(arch)[0];
  static constexpr auto lower = ladder::entries<host::Backend<arch>, spec>();
  const GemmPolicies upper = gemm_generated_policies(arch, spec);
  std::set<std::string> names;
  for (const GemmEntry& e : lower) CHECK(names.insert(name_of(e.policy)).second);
  for (int i = 0; i < upper.count; ++i) {
    INFO(name_of(arch) << " " << name_of(upper[i]));
    CHECK(names.insert(name_of(upper[i])).second);
    CHECK(gemm_policy_status(arch, spec, upper[i]).reason == std::string_view{});
  }
}

TEST_CASE("rungs of the GEMM ladder differ by name, and the upper ones fit their chips") {
  check_names<ArchId::gfx942>();
  check_names<ArchId::gfx950>();
  check_names<ArchId::sm90>();
}

}  // namespace
}  // namespace tilewave::test
