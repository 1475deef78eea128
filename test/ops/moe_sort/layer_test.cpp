// SPDX-License-Identifier: MIT
// Ops one behind the other, as an engine launches a layer of experts.
#include "test/ops/moe_sort/layer.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("choices, their sort, gathered rows, a grouped product and sums are a layer of experts") {
  ArchId last{};
  int layers = 0;
  for (const MoeSortEntry* e : all_moe_sort_entries()) {
    if (layers++ > 0 && e->arch == last) continue;
    last = e->arch;
    for (const LayerShape& s : {LayerShape{.tokens = 1, .topk = 1, .unit = 1}, LayerShape{.tokens = 37, .topk = 3},
                                LayerShape{.tokens = 70, .experts = 16, .topk = 4, .unit = 64, .local = [](int expert) {
                                             return expert % 3 == 1;
                                           }}}) {
      INFO(name_of(e->arch) << ": " << s.tokens << " tokens, " << s.topk << " of " << s.experts);
      Layer layer(s);
      REQUIRE(layer.prepare(facts_of(e->arch)) == "");
      REQUIRE(layer.launch({}).ok());
      CHECK(layer.wrong() == "");
    }
  }
}

}  // namespace
}  // namespace tilewave::test
