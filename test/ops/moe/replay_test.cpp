// SPDX-License-Identifier: MIT
// A layer of experts captured in a graph takes whatever routing stands in its tensors when it is replayed.
#include "test/graph.hpp"
#include "test/ops/moe/call.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("a graph of a layer is right for every routing that it is replayed with") {
  for (const MoeEntry* const entry : all_moe_entries()) {
    if (entry->spec.routing != MoeRouting::given) continue;
    INFO(name_of(entry->spec) << " " << name_of(entry->policy));
    const MoeShape shape{.tokens = 150, .topk = 4};
    MoeCall call(entry->spec, shape);
    MoeParts parts = all_moe_parts();
    parts.layers = {&entry, 1};
    REQUIRE(call.run(facts_of(entry->arch), parts) == "");
    MoeProblem p = call.on_device();
    p.workspace = call.workspace().data(), p.workspace_bytes = call.workspace().bytes();
    const std::string errors =
        replayed([&](hipStream_t stream) { return call.plan().launch(p, stream); }, std::vector<int>{0, 1, 2, 3},
                 [&](int routing) {
                   std::vector<std::int32_t> ids;
                   for (int i = 0; i < shape.tokens * shape.topk; ++i)
                     ids.push_back(routing == 0 ? 3 : routing == 1 ? i % 8 : routing == 2 ? -1 : (i * 5 + i / 7) % 11);
                   call.set_ids(ids);
                 },
                 [&](int) {
                   call.at("out").download();
                   return call.wrong();
                 });
    CHECK(errors == "");
  }
}

}  // namespace
}  // namespace tilewave::test
