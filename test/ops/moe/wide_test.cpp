// SPDX-License-Identifier: MIT
// Tests of the layers of the wide list, which bench_moe_wide times: each has entries for all its launches and is right.
#include "test/ops/moe/call.hpp"

namespace tilewave::test {
namespace {

/// Returns all parts with the products of the wide list, but of layers this entry alone.
MoeParts wide_parts(const MoeEntry* const& entry) {
  static const std::vector<const GemmEntry*> products = [] {
    const MoeParts usual = all_moe_parts();
    std::vector<const GemmEntry*> all(usual.products.begin(), usual.products.end());
    const auto wide = all_gemm_moe_wide_entries();
    all.insert(all.end(), wide.begin(), wide.end());
    return all;
  }();
  MoeParts parts = all_moe_parts();
  parts.layers = {&entry, 1}, parts.products = products;
  return parts;
}

TEST_CASE("layers of the wide list have entries for all their launches and are right") {
  int layers = 0;
  for (const MoeEntry* const entry : all_moe_wide_entries()) {
    if (entry->policy.results == MoeResults::slots) continue;  // the list has no products that scatter
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    ++layers;
    const bool few = entry->policy.choosing != MoeChoosing::apart;  // up to 16 tokens
    for (const MoeShape& shape :
         {MoeShape{.tokens = 1, .topk = 1}, MoeShape{.tokens = few ? 16 : 150, .bias = true},
          MoeShape{.tokens = 9, .topk = 3, .hidden = 384, .intermediate = 256, .residual = true}}) {
      INFO(shape.tokens << " tokens, " << shape.topk << " of " << shape.experts);
      CHECK(MoeCall(entry->spec, shape).run(facts_of(entry->arch), wide_parts(entry)) == "");
    }
  }
  CHECK(layers > 0);
}

}  // namespace
}  // namespace tilewave::test
