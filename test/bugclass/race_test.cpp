// SPDX-License-Identifier: MIT
// One kernel of each kind under ThreadSanitizer, which ends a process that it has reported something in with a failure: KV
// straight to registers, through shared memory, and rows reduced by several waves. Preset host-tsan takes every entry.
#include <numeric>

#include "test/arch/host/host_room.hpp"
#include "test/ops/paged_attention/call.hpp"
#include "tilewave/ops/softmax/registry.hpp"

namespace tilewave::test {
namespace {

template <class B, bool bulk>
void decode() {
  constexpr PagedAttentionSpec spec{.kv = DType::bf16, .head_size = 64};
  constexpr PagedAttentionPolicies policies = paged_attention_policies(B::facts.id, spec);
  constexpr PagedAttentionPolicy policy = policies[bulk ? policies.size() - 1 : 0];
  static_assert(policy.bulk() == bulk);
  const PagedAttentionEntry& e = paged_attention_entry<B, spec, policy>;
  INFO(describe(e));
  const std::vector<std::int32_t> lengths{2 * tile_of(e) + 3};
  PagedAttentionCase c = case_for(e, lengths);
  c.mtp = 2;
  Call call(c, lengths);
  call.fill();
  CHECK(call.verify(call.run(e, bulk ? 1 : 2), call.expected()).pass);
}

TEST_CASE("the lanes of a decode do not race") {
  if (!under_tsan) return skip_test("needs -fsanitize=thread");
  decode<Gfx950, false>();
  decode<Sm90, true>();
}

TEST_CASE("the waves that reduce a row do not race") {
  if (!under_tsan) return skip_test("needs -fsanitize=thread");
  constexpr SoftmaxSpec spec{SoftmaxKind::softmax, DType::f32};
  constexpr RowPolicy policy{.lanes = 256, .chunks = 1};
  constexpr int rows = 3, columns = 1000;
  alignas(16) static float x[rows][columns];
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) x[r][c] = static_cast<float>((r + c) % 7 == 0);
  SoftmaxProblem p;
  p.spec = spec;
  p.x = p.out = x;
  p.rows = rows;
  p.columns = columns;
  p.x_strides = p.out_strides = {columns, 0};
  REQUIRE(softmax_launch<Gfx950, spec, policy>(p, {}).ok());
  for (const auto& row : x) CHECK(std::accumulate(row, row + columns, 0.0) == Approx(1).epsilon(1e-5));
}

}  // namespace
}  // namespace tilewave::test
