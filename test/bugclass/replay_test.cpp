// SPDX-License-Identifier: MIT
// Ops between products, captured in a graph and replayed with other inputs of the same size: what a launch depends on is on
// the device. Paged attention is replayed in runs_test.cpp and scores_test.cpp.
#include "entries/mqa_logits.hpp"
#include "test/graph.hpp"
#include "test/ops/kv_cache_write/call.hpp"
#include "test/ops/moe_sort/call.hpp"
#include "test/ops/moe_sort/layer.hpp"
#include "test/ops/mqa_logits/call.hpp"
#include "test/ops/sampling/sampled.hpp"

namespace tilewave::test {
namespace {

TEST_CASE("bugclass 08: a captured sort sorts other choices by blocks, clusters and a workspace") {
  for (const MoeSortEntry* e : all_moe_sort_entries()) {
    const MoeSortPolicy& policy = e->policy;
    bool seen[3] = {};
    for (const int tokens : {5, policy.batch * policy.threads / 8 + 40, policy.tiles_alone * policy.tile() / 8 + 9}) {
      SortCall call({.tokens = tokens, .topk = 8, .experts = 64, .unit = 16});
      seen[static_cast<int>(moe_sort_shares(call.p, policy).counts)] = true;
      INFO(name_of(e->policy) << ": " << tokens << " tokens");
      REQUIRE(call.run(*e) == "");
      CHECK(replayed([&](hipStream_t stream) { return e->launch(call.p, stream); }, std::vector{1, 7, 64},
                     [&](int step) { call.set_ids([&](int t, int slot) { return (t * step + slot * 8) % 70 - 2; }); },
                     [&](int) { return call.wrong(); }) == "");
    }
    CHECK(seen[static_cast<int>(MoeSortCounts::block)]);
    CHECK(seen[static_cast<int>(MoeSortCounts::workspace)]);
    CHECK(seen[static_cast<int>(MoeSortCounts::cluster)] == (policy.cluster > 1));
  }
}

TEST_CASE("bugclass 08: a captured sampling draws anew by an offset on the device") {
  for (const SamplingEntry* e : all_sampling_entries()) {
    SamplingShape shape{.rows = 64, .columns = 1000};
    shape.value = [](int, int c) { return 0.02f * static_cast<float>(c % 50); };
    if (!policy_takes(e->policy, e->spec.x, shape.columns, true)) continue;
    INFO(name_of(e->spec) << "/" << name_of(e->policy));
    const auto drawn_at = [&](std::uint64_t offset) {
      Sampled s(e->spec, shape);
      s.problem.offset.value = offset;
      REQUIRE(s.run(e, facts_of(e->arch)) == "");
      return s.tokens.host;
    };
    DeviceArray<std::uint64_t> offset({0});
    Sampled s(e->spec, shape);
    s.problem.offset = {0, offset.data(), true};
    REQUIRE(s.run(e, facts_of(e->arch)) == "");
    CHECK(replayed([&](hipStream_t stream) { return e->launch(s.problem, stream); },
                   std::vector<std::uint64_t>{1, 0, 5, std::uint64_t{1} << 33},
                   [&](std::uint64_t now) {
                     offset.host[0] = now;
                     offset.upload();
                   },
                   [&](std::uint64_t now) -> std::string {
                     s.tokens.download();
                     return s.tokens.host == drawn_at(now) ? "" : "other tokens at offset " + std::to_string(now);
                   }) == "");
  }
}

TEST_CASE("bugclass 08: captured logits of an indexer are right at other lengths") {
  for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
    if (e->spec.keys != MqaKeys::paged || !is_fp8(e->spec.type)) continue;
    MqaCall call(e->spec, {.lengths = {700, 64, 1000}, .queries = 2, .columns = 1024});
    if (!mqa_logits_takes(e->policy, call.p).ok()) continue;
    INFO(name_of(e->policy));
    REQUIRE(call.run(*e) == "");
    CHECK(replayed([&](hipStream_t stream) { return e->launch(call.p, stream); },
                   std::vector<std::vector<std::int32_t>>{{2, 2, 2}, {700, 64, 1000}, {0, 63, 513}, {65, 1, 999}},
                   [&](const auto& lengths) { call.set_lengths(lengths); },
                   [&](const auto&) { return call.wrong(); }) == "");
  }
}

TEST_CASE("bugclass 08: a captured cache write goes to other slots") {
  for (const KvCacheWriteEntry* e : all_kv_cache_write_entries()) {
    if (e->spec.group > 0 || e->policy.columns(e->spec.x) != 128) continue;
    INFO(name_of(e->spec) << "/" << name_of(e->policy));
    CacheCall call(e->spec, {21, 3, 2, 128, 64, 16, 3}, CacheLayout::nhd, IndexType::i64, false, KeyOut::own);
    REQUIRE(e->launch(call.device, {}).ok());
    call.check();
    CHECK(replayed([&](hipStream_t stream) { return e->launch(call.device, stream); }, std::vector{5, 7, 11},
                   [&](int step) {
                     call.clear();
                     call.set_slots([&](int t) { return t % 4 == 3 ? -1 : t * step % 48; });
                   },
                   [&](int) -> std::string {
                     call.check();
                     return "";
                   }) == "");
  }
}

TEST_CASE("bugclass 08: a captured layer of experts is right for other tokens, of which others choose each expert") {
  for (const int tokens : {37, 3000}) {  // sorted by blocks, by more than blocks
    Layer layer({.tokens = tokens, .experts = 16, .topk = 3});
    INFO(tokens << " tokens");
    REQUIRE(layer.prepare(facts_of(all_moe_sort_entries()[0]->arch)) == "");
    REQUIRE(layer.launch({}).ok());
    REQUIRE(layer.wrong() == "");
    CHECK(replayed([&](hipStream_t stream) { return layer.launch(stream); }, std::vector{1, 2, 0},
                   [&](int seed) { layer.set(seed); }, [&](int) { return layer.wrong(); }) == "");
  }
}

}  // namespace
}  // namespace tilewave::test
