// SPDX-License-Identifier: MIT
// Runs of the specs with features, sinks and batch-invariant splits among them: replayed, reordered, repeated. Numbers are
// those of the ranked list of bug classes that this library was designed against.
#include "test/bugclass/replay.hpp"
#include "test/ops/paged_attention/counting.hpp"

#if !TILEWAVE_ON_GPU_COMPILER
#include "test/arch/host/host_room.hpp"
#endif

namespace tilewave::test {
namespace {

/// A call with everything at once: several tiles, new tokens and kv heads, unequal lengths, sinks.
class FeatureCall : public Call {
 public:
  FeatureCall(const PagedAttentionEntry& e, std::vector<std::int32_t> lengths, int split_tokens)
      : Call(case_of(e, lengths), lengths) {
    use_features(*this, e);
    p.split_tokens = split_tokens;
    sinks = {1.0f, -2.0f, 5.0f, minus_inf};
    fill();
  }
  int splits(const PagedAttentionEntry& e) const {
    return p.split_tokens > 0 ? paged_attention_splits(p, e.policy, facts_of(e.arch)) : 3;
  }

 private:
  static PagedAttentionCase case_of(const PagedAttentionEntry& e, const std::vector<std::int32_t>& lengths) {
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    c.num_q_heads = 4;
    c.num_kv_heads = 2;
    c.inputs = bench::Inputs::varied;
    return c;
  }
};

constexpr auto any_feature = [](const PagedAttentionSpec&) { return true; };

#if TILEWAVE_ON_GPU_COMPILER
TEST_CASE("bugclass 08: features captured in a graph at length 1 are right when replayed at the longest") {
  each_score_entry(any_feature, [](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{3 * tile_of(e) + 5, 700, 40};
    for (const int split_tokens : {0, tile_of(e)}) {
      FeatureCall call(e, lengths, split_tokens);
      std::string wrong;
      replay(e, call, call.splits(e), {{1, 1, 1}, lengths, {1, 5, 0}, lengths},
             [&](const Answer& answer) { wrong += call.verify(answer, call.expected()).reason; });
      CAPTURE(split_tokens);
      CHECK(wrong == "");
    }
  });
}
#else
TEST_CASE("bugclass 08: with features too the work queued does not depend on the lengths") {
  each_score_entry(any_feature, [](const PagedAttentionEntry& e) {
    FeatureCall call(e, {5 * tile_of(e), 40}, 0);
    for (const std::int32_t first : {5 * tile_of(e), 1, 0}) {
      call.lengths[0] = first;
      CHECK(call.verify(call.run(e, 1), call.expected()).pass);
      CHECK(host::last_launch_counters().blocks == paged_attention_grid(call.p, e.policy, 1));
    }
  });
}

TEST_CASE("bugclass 14: no schedule of waves and lanes changes a bit of a feature") {
  each_score_entry(any_feature, [](const PagedAttentionEntry& e) {
    FeatureCall call(e, {2 * tile_of(e) + 3, 21}, 0);
    Answer first;
    for (const host::Schedule schedule : host::all_schedules) {
      const WithOptions options({.threads = 2, .schedule = schedule, .seed = 5});
      INFO(name_of(host::options()));
      const Answer answer = call.run(e, 3);
      if (first.out.empty()) first = answer;
      CHECK(same_bits(answer, first));
    }
  });
}

TEST_CASE("bugclass 14: no two lanes race over a feature, as ThreadSanitizer sees them") {
  if (!under_tsan) return skip_test("this is for ThreadSanitizer, preset host-tsan");
  for (const PagedAttentionEntry* e : all_paged_attention_score_entries()) {
    INFO(describe(*e));
    FeatureCall call(*e, {tile_of(*e) + 3}, 0);
    CHECK(call.verify(call.run(*e, 2), call.expected()).pass);
  }
}
#endif

TEST_CASE("bugclass 34: runs with features repeat to the last bit, whatever workspace and outputs held before") {
  each_score_entry(any_feature, [](const PagedAttentionEntry& e) {
    for (const int split_tokens : {0, tile_of(e)}) {
      FeatureCall call(e, {2 * tile_of(e) + 3, 0, 21}, split_tokens);
      const Answer first = call.run(e, call.splits(e));
      CHECK(call.verify(first, call.expected()).pass);
      const int repetitions = bench::emulated_device ? 3 : 100;
      bool same = true;
      for (int i = 0; i < repetitions; ++i) {
        constexpr int fills[] = {0x00, 0x7f, 0x80};
        call.workspace_fill = fills[i % 3];
        same = same && same_bits(call.run(e, call.splits(e)), first);
      }
      CHECK(same);
    }
  });
}

}  // namespace
}  // namespace tilewave::test
