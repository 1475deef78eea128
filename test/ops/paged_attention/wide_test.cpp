// SPDX-License-Identifier: MIT
// Every spec that is served: head sizes x element types x scales x layouts. Each runs on two shapes, by turns.
#include "test/ops/paged_attention/call.hpp"
#include "test/ops/paged_attention/feature_shapes.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("every spec that is served is right around all boundaries of its tiles") {
  if (too_slow_here()) return;
  std::size_t turn = 0;
  for (const PagedAttentionEntry* e : all_paged_attention_wide_entries()) {
    INFO("entry " << describe(*e));
    REQUIRE(paged_attention_policy_status(e->arch, e->spec, e->policy).reason == std::string_view{});
    const std::vector<std::int32_t> lengths = boundary_lengths(*e);
    const std::span<const FeatureShape> shapes = shapes_of(*e);
    for (std::size_t i = 0; i < 2; ++i) {
      const FeatureShape& shape = shapes[(turn + i * (shapes.size() / 2)) % shapes.size()];
      const PagedAttentionCase c = case_of(*e, shape, lengths);
      Call call(c, lengths);
      call.fill();
      const bench::Verdict verdict = call.verify(call.run(*e, shape.splits), call.expected());
      INFO(name_of(c) << " splits " << shape.splits << ": " << verdict.reason);
      CHECK(verdict.pass);
      CHECK(verdict.elements == std::int64_t{c.batch} * c.mtp * c.num_q_heads * c.head_size);
    }
    ++turn;
  }
  CHECK(turn == (bench::emulated_device ? static_cast<int>(std::size(all_archs)) : 1) * 7 * 18);
}

}  // namespace
}  // namespace tilewave::test
