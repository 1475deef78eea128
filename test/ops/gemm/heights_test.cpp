// SPDX-License-Identifier: MIT
// Tests of tiles that are as high as the rows of their groups ask for, which only the device knows.
#include "test/arch/room.hpp"
#include "test/ops/gemm/call.hpp"

namespace tilewave::test {
namespace {

/// MXFP4 in fragments, as the products of a layer of experts take it.
constexpr GemmSpec of_groups(bool gated) {
  return {.b = DType::fp4_e2m1,
          .scale = Scaling::per_group,
          .weights = GemmWeights::fragments,
          .groups = GemmGroups::contiguous,
          .activation = gated ? ActivationKind::swigluoai : ActivationKind::none,
          .gated = gated,
          .scale_k = 32};
}
/// Returns the policy of so many rows of a spec's list.
template <GemmSpec S>
constexpr GemmPolicy policy_of(int rows) {
  for (const GemmPolicy& p : gemm_sm90_policies(S))
    if (p.rows == rows) return p;
  return {};
}

template <class B, GemmSpec S, GemmPolicy P>
void check(const std::vector<std::int32_t>& rows) {
  constexpr detail::GemmHeights heights = detail::gemm_heights(S, P);
  static_assert(heights.count > 1 && heights.rows[heights.count - 1] == P.rows);
  const GemmEntry entry{B::facts.id, B::emulated, S, P, &gemm_launch<B, S, P>};
  INFO(name_of(entry.policy));
  std::int32_t m = 0;
  for (const std::int32_t r : rows) m += r;
  for (const std::int32_t k : {416, 96}) CHECK(GemmCall(S, {.m = m, .n = 288, .k = k, .rows = rows}).run(entry) == "");
}

TEST_CASE("a batch-invariant call takes no tile whose height chooses the instruction") {
  int differing = 0;
  for (const bool gated : {false, true}) {
    const GemmSpec spec = of_groups(gated);
    int left = 0;
    for (const GemmPolicy& policy : gemm_sm90_policies(spec)) {
      const GemmEntry entry{ArchId::sm90, true, spec, policy, nullptr};
      GemmProblem p;
      p.spec = spec;
      REQUIRE(GemmRegistry::considers(p, entry, sm90_facts).ok());
      p.batch_invariant = true;
      const bool taken = GemmRegistry::considers(p, entry, sm90_facts).ok();
      CHECK(taken == !detail::gemm_height_changes_bits(spec, policy));
      taken ? ++left : ++differing;
    }
    CHECK(left > 0);
  }
  CHECK(differing > 0);
}

TEST_CASE("a tile is as high as the rows that its group has") {
  AllRooms::each([]<class B>() {
    if constexpr (B::facts.matrix == Matrix::mma) {
      check<B, of_groups(true), policy_of<of_groups(true)>(128)>({3, 0, 16, 17, 32, 33, 64, 65, 150});
      check<B, of_groups(true), policy_of<of_groups(true)>(80)>({16, 0, 17, 24, 25, 48, 49, 81, 104});
      check<B, of_groups(false), policy_of<of_groups(false)>(160)>({5, 40, 128, 0, 129, 160, 161, 300});
    }
  });
}

}  // namespace
}  // namespace tilewave::test
