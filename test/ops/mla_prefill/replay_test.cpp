// SPDX-License-Identifier: MIT
// A prefill captured in a graph takes whatever queries and earlier tokens its tensors say when it is replayed.
#include "test/graph.hpp"
#include "test/ops/mla_prefill/call.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("a graph of latent prefill is right for all lengths that it is replayed with") {
  for (const MlaPrefillEntry* const entry : all_mla_prefill_entries()) {
    INFO(name_of(entry->spec) << " " << name_of(entry->policy));
    using Lengths = std::array<std::vector<std::int32_t>, 2>;  // queries, earlier tokens
    MlaPrefillCall call(entry->spec, {.queries = {150, 70, 20}, .context = {300, 0, 90}, .chunk_tokens = 100});
    REQUIRE(call.run(*entry) == "");
    const std::vector<Lengths> inputs{{{{150, 70, 20}, {300, 0, 90}}},
                                      {{{1, 70, 1}, {389, 0, 0}}},
                                      {{{100, 70, 20}, {300, 0, 91}}},
                                      {{{0, 0, 0}, {0, 0, 0}}},
                                      {{{100, 1, 20}, {0, 60, 1}}}};
    const std::string errors = replayed([&](hipStream_t stream) { return call.plan.launch(call.p, stream); }, inputs,
                                        [&](const Lengths& lengths) { call.set_lengths(lengths[0], lengths[1]); },
                                        [&](const Lengths&) { return call.wrong(); });
    CHECK(errors == "");
  }
}

}  // namespace
}  // namespace tilewave::test
