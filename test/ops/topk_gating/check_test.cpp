// SPDX-License-Identifier: MIT
// topk_gating_check refuses bad problems, and nothing is written then.
#include "test/ops/topk_gating/call.hpp"

namespace tilewave::test {
namespace {

using P = TopkGatingProblem;
using C = StatusCode;

const Wrong<P> wrongs[] = {
    {"logits of fp8", C::unsupported_dtype, [](P& p) { p.spec.x = DType::fp8_e4m3fn; }},
    {"score 7", C::bad_value, [](P& p) { p.score = static_cast<GatingScore>(7); }},
    {"group_score -1", C::bad_value, [](P& p) { p.group_score = static_cast<GroupScore>(-1); }},
    {"scale infinite", C::bad_value, [](P& p) { p.scale = std::numeric_limits<float>::infinity(); }},
    {"tokens -1", C::bad_extent, [](P& p) { p.tokens = -1; }},
    {"no experts", C::bad_extent, [](P& p) { p.experts = 0; }},
    {"1025 experts", C::bad_extent, [](P& p) { p.experts = 1025; }},
    {"topk 0", C::bad_extent, [](P& p) { p.topk = 0; }},
    {"topk 17", C::bad_extent, [](P& p) { p.topk = 17; }},
    {"more choices than experts", C::bad_extent, [](P& p) { p.experts = 4; }},
    {"no groups", C::bad_extent, [](P& p) { p.groups = 0; }},
    {"groups that leave a rest", C::bad_extent, [](P& p) { p.groups = 5; }},
    {"no group kept", C::bad_extent, [](P& p) { p.kept_groups = 0; }},
    {"more groups kept than there are", C::bad_extent, [](P& p) { p.kept_groups = 2; }},
    {"groups kept with fewer experts than choices", C::bad_extent, [](P& p) { p.groups = 16; }},
    {"two best of groups of one", C::bad_extent,
     [](P& p) {
       p.groups = 64;
       p.kept_groups = 64;
       p.group_score = GroupScore::two_best;
     }},
    {"logits null", C::null_pointer, [](P& p) { p.logits = nullptr; }},
    {"weights null", C::null_pointer, [](P& p) { p.weights = nullptr; }},
    {"indices null", C::null_pointer, [](P& p) { p.indices = nullptr; }},
    {"logits off by a byte", C::misaligned, [](P& p) { p.logits = moved(p.logits, 1); }},
    {"bias off by a byte", C::misaligned, [](P& p) { p.bias = moved(p.bias, 1); }},
    {"weights off by a byte", C::misaligned, [](P& p) { p.weights = moved(p.weights, 1); }},
    {"indices off by two", C::misaligned, [](P& p) { p.indices = moved(p.indices, 2); }},
    {"token_expert_indices off by a byte", C::misaligned,
     [](P& p) { p.token_expert_indices = moved(p.token_expert_indices, 1); }},
    {"logits in one place", C::bad_stride, [](P& p) { p.logits_stride = 0; }},
    {"a stride of 2^62", C::bad_stride, [](P& p) { p.logits_stride = std::int64_t{1} << 62; }},
    {"weights that overlap", C::bad_stride, [](P& p) { p.weights_stride = p.topk - 1; }},
    {"indices that overlap", C::bad_stride, [](P& p) { p.indices_stride = -(p.topk - 1); }},
    {"a stride of token_expert_indices that are not there", C::bad_value,
     [](P& p) { p.token_expert_indices = nullptr; }, "stride of token_expert_indices"},
    {"token_expert_indices in one place", C::bad_stride, [](P& p) { p.token_expert_stride = 0; }},
    {"weights inside the logits", C::bad_value,
     [](P& p) { p.weights = static_cast<float*>(const_cast<void*>(p.logits)); }},
    {"indices are weights", C::bad_value, [](P& p) { p.indices = reinterpret_cast<std::int32_t*>(p.weights); }},
    {"bias inside the weights", C::bad_value, [](P& p) { p.bias = p.weights + 4; }},
    {"token_expert_indices are indices", C::bad_value, [](P& p) { p.token_expert_indices = p.indices; }},
    {"token_expert_indices beyond 2^31", C::bad_extent, [](P& p) { p.tokens = 0x7fffffff - 65536; }},
};

TEST_CASE("bad gating problems get a named status and a reason, and nothing is written") {
  for (const TopkGatingEntry* e : all_topk_gating_entries()) {
    if (e->policy.lanes != 8) continue;
    GatingCall call(e->spec, {.tokens = 3, .experts = 64, .topk = 6, .bias = [](int) { return 0.0f; }});
    check_refused<TopkGatingEntry, P>(*e, call.p, wrongs, topk_gating_check, topk_gating_select,
                                      all_topk_gating_entries());
    call.p.tokens = 0;
    CHECK(call.run(facts_of(e->arch), e) == "");
    CHECK(call.wrong() == "");  // gaps are all there is

    P many = call.p;
    many.tokens = 0x7fffffff - 65536;
    many.token_expert_indices = nullptr;
    many.token_expert_stride = 0;
    many.logits = reinterpret_cast<const void*>(std::uintptr_t{1} << 48);
    many.weights = reinterpret_cast<float*>(std::uintptr_t{1} << 49);
    many.indices = reinterpret_cast<std::int32_t*>(std::uintptr_t{1} << 50);
    const TopkGatingEntry* chosen = e;
    const Status status = topk_gating_select(many, all_topk_gating_entries(), facts_of(e->arch), chosen);
    CHECK(name_of(status.code) == "bad_extent");
    CHECK(chosen == nullptr);
  }
}

TEST_CASE("an entry refuses a spec or a number of choices that it was not built for") {
  for (const TopkGatingEntry* e : all_topk_gating_entries()) {
    GatingCall call(e->spec, {.tokens = 3, .experts = 16, .topk = 9});
    const Status status = e->launch(call.p, {});
    CHECK(status.ok() == (e->policy.keep == 16));
    call.p.topk = 8;
    call.p.spec.x = e->spec.x == DType::f32 ? DType::bf16 : DType::f32;
    CHECK(name_of(e->launch(call.p, {}).code) == "no_matching_entry");
  }
}

}  // namespace
}  // namespace tilewave::test
