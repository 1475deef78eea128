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

/// Rows of A have a one each, for some k, and the 254 scales are dealt out to columns, 127 to each of two runs of 32 k.
/// So every loop, which is a height's own, widens all codes under all scales.
template <class B, GemmSpec S, GemmPolicy P>
void check_codes(const std::vector<std::int32_t>& rows) {
  const GemmEntry entry{B::facts.id, B::emulated, S, P, &gemm_launch<B, S, P>};
  INFO(name_of(entry.policy));
  constexpr std::int32_t k = 64, n = 128;
  constexpr auto value = [](char tensor, std::int64_t r, std::int64_t c) {
    if (tensor == 'a') return float(11 * r % k == c);
    if (tensor == 'b') return fp4_to_f32(static_cast<std::uint8_t>((r + c) % 16));
    return e8m0_to_f32(static_cast<std::uint8_t>(r % 2 * 127 + std::min<std::int64_t>(c, 127)));
  };
  std::int32_t m = 0;
  for (const std::int32_t r : rows) m += r;
  GemmCall call(S, {.m = m, .n = n, .k = k, .rows = rows}, value);
  call.run(entry);
  for (int r = 0; r < m; ++r) {
    for (int c = 0; c < n; ++c) {
      const int at = 11 * r % k;
      const double right = double{value('b', c, at)} * value('t', at / 32, c);
      const double rounded = bf16_to_f32(f32_to_bf16(static_cast<float>(right)));
      if (!(call.out().at(r, c) == rounded))
        FAIL("row " << r << " column " << c << ": " << call.out().at(r, c) << ", not " << rounded);
    }
  }
}

TEST_CASE("all codes of mxfp4 under all scales are exact at every height") {
  AllRooms::each([]<class B>() {
    if constexpr (B::facts.matrix == Matrix::mma) {
      check_codes<B, of_groups(false), policy_of<of_groups(false)>(80)>({16, 0, 24, 48, 80});
      check_codes<B, of_groups(false), policy_of<of_groups(false)>(160)>({32, 64, 0, 128, 160});
    }
  });
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
