// SPDX-License-Identifier: MIT
// Every entry against the reference: pages in any order and of any size, queries that see a part of the keys, and what
// no query sees.
#include <algorithm>

#include "test/ops/mqa_logits/call.hpp"

namespace tilewave::test::mqa_logits_tests {
namespace {

using Ranges = std::vector<std::pair<std::int32_t, std::int32_t>>;

void each_entry_on(MqaKeys keys, const std::vector<MqaShape>& shapes) {
  for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
    if (e->spec.type == DType::fp4_e2m1) continue;  // see mqa_fp4_test.cpp
    if (e->spec.keys != keys) continue;
    int number = 0;
    for (const MqaShape& s : shapes) {
      INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ", shape " << number++);
      MqaCall call(e->spec, s);
      if (const Status taken = mqa_logits_takes(e->policy, call.p); !taken.ok()) {
        CHECK(name_of(e->launch(call.p, {}).code) == name_of(taken.code));
        continue;
      }
      CHECK(call.run(*e) == "");
    }
  }
}

TEST_CASE("mqa_logits: keys of pages, as many as sequences have, for their last tokens") {
  each_entry_on(MqaKeys::paged, {{.lengths = {300, 0, 1, 129}, .columns = 301},
                                 {.lengths = {64, 65, 3}, .queries = 2, .columns = 130, .fused = true},
                                 {.lengths = {200}, .queries = 5, .columns = 1000, .block_size = 7},
                                 {.lengths = {33, 32, 31}, .queries = 4, .columns = 33, .block_size = 1},
                                 {.lengths = {700, 190}, .queries = 4, .columns = 710, .block_size = 128},
                                 {.lengths = {1}, .columns = 1, .block_size = 256, .fused = true}});
}

TEST_CASE("mqa_logits: keys of ranges, none of which need begin or end with a tile") {
  each_entry_on(MqaKeys::ranges, {{.ranges = {{0, 300}, {17, 18}, {299, 300}, {64, 128}, {5, 5}}, .columns = 300},
                                  {.ranges = {{70, 75}}, .columns = 129},
                                  {.ranges = {{3, 643}, {70, 75}, {9, 9}, {200, 644}, {640, 641}}, .columns = 644},
                                  {.ranges = {{130, 140}, {1, 2}, {9, 3}, {0, 0}, {0, 1}, {31, 65}}, .columns = 201}});
}

TEST_CASE("mqa_logits: blocks of several tiles share long keys") {
  // Four blocks for each compute unit of gfx942 are 1216, and there are more tiles than that.
  Ranges some(40, {1000, 1700});
  some[7] = {0, 20000};
  for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
    if (e->spec.type == DType::fp4_e2m1) continue;  // see mqa_fp4_test.cpp
    if (e->spec.keys != MqaKeys::ranges) continue;
    INFO(name_of(e->arch) << "/" << name_of(e->policy));
    MqaCall call(e->spec, {.ranges = some, .columns = 20000});
    CHECK(mqa_logits_chunk(call.p, e->policy, facts_of(e->arch)) > mqa_logits_chunk({}, e->policy, facts_of(e->arch)));
    CHECK(call.run(*e) == "");
  }
}

TEST_CASE("mqa_logits: lengths and ranges outside the cache make NaN of their queries alone") {
  each_entry_on(MqaKeys::paged, {{.lengths = {-1, 40, 101, 1 << 30, 100}, .queries = 2, .columns = 100},
                                 {.lengths = {0x7fffffff, 3, -0x7fffffff - 1}, .queries = 3, .columns = 100}});
  each_entry_on(MqaKeys::ranges,
                {{.ranges = {{-1, 3}, {0, 101}, {90, 100}, {1 << 30, 2}, {7, 1 << 30}}, .columns = 100},
                 {.ranges = {{-0x7fffffff - 1, 0x7fffffff}, {0x7fffffff, -0x7fffffff - 1}, {99, 100}, {0, 0x7fffffff}},
                  .columns = 100}});
}

TEST_CASE("mqa_logits: a length beyond the block table is outside the cache, too") {
  for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
    if (e->spec.type == DType::fp4_e2m1) continue;  // see mqa_fp4_test.cpp
    if (e->spec.keys != MqaKeys::paged) continue;
    MqaCall call(e->spec, {.lengths = {129, 128}, .columns = 180, .block_size = 64});
    call.p.table_columns = call.host.table_columns = 2;
    CHECK(call.run(*e) == "");
  }
}

TEST_CASE("mqa_logits: the same bits from run to run, under every schedule, and of every entry of a kind") {
  for (const MqaKeys keys : {MqaKeys::paged, MqaKeys::ranges}) {
    std::vector<std::pair<std::pair<ArchId, bool>, std::vector<float>>> seen;  // of bulk entries and of others
    for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
      if (e->spec.type == DType::fp4_e2m1) continue;
      if (e->spec.keys != keys) continue;
      each_schedule([&] {
        MqaShape s{.lengths = {140}, .queries = 3, .columns = 152};
        if (keys == MqaKeys::ranges) s.ranges = {{0, 140}, {3, 149}, {60, 70}};
        MqaCall call(e->spec, s);
        REQUIRE(call.run(*e) == "");
        const std::pair kind(e->arch, e->policy.bulk);
        const auto before = std::find_if(seen.begin(), seen.end(), [&](const auto& run) { return run.first == kind; });
        if (before == seen.end()) {
          seen.emplace_back(kind, call.logits());
        } else {
          CHECK(before->second == call.logits());
        }
      });
    }
  }
}

TEST_CASE("mqa_logits: as many queries a block as a sequence has are chosen") {
  for (const MqaLogitsEntry* e : all_mqa_logits_entries()) {
    if (e->spec.type == DType::fp4_e2m1) continue;
    MqaShape s{.lengths = {40}, .queries = e->policy.queries, .columns = 40};
    s.ranges.assign(s.queries, {0, 40});
    MqaCall call(e->spec, s);
    const MqaLogitsEntry* chosen = nullptr;
    REQUIRE(mqa_logits_select(call.p, all_mqa_logits_entries(), facts_of(e->arch), chosen).ok());
    CHECK(chosen->policy.queries == e->policy.queries);
    CHECK(chosen->policy.bulk == (e->arch == ArchId::sm90));
    call.p.k_scale = static_cast<const float*>(call.p.k_scale) + 1;
    REQUIRE(mqa_logits_select(call.p, all_mqa_logits_entries(), facts_of(e->arch), chosen).ok());
    CHECK(!chosen->policy.bulk);
  }
}

}  // namespace
}  // namespace tilewave::test::mqa_logits_tests
