// SPDX-License-Identifier: MIT
// A layer of experts refuses bad problems by name, before anything is queued.
#include "test/ops/moe/call.hpp"

namespace tilewave::test {
namespace {

using P = MoeProblem;
using C = StatusCode;

/// Returns the first layer of an architecture with a routing, of bf16 or of fp8.
const MoeEntry& layer_of(MoeRouting routing, bool quantised = false) {
  for (const MoeEntry* e : all_moe_entries())
    if (e->spec.routing == routing && e->spec.quantised() == quantised) return *e;
  throw std::logic_error("no such layer");
}

/// The good problem is planned. Each wrong one is refused by the check, by the choice and by the launch of
/// the plan that was made before, and nothing is written.
void refused(const MoeEntry& e, std::initializer_list<Wrong<P>> wrongs) {
  MoeCall call(e.spec, {.tokens = 5});
  check_plan_refused(call.on_device(), wrongs, moe_check, moe_select, all_moe_parts(), facts_of(e.arch));
  call.at("out").download();
  CHECK(call.at("out").untouched(0, 0));
}

TEST_CASE("bad problems of a layer are refused by name") {
  refused(layer_of(MoeRouting::logits),
          {{"tokens -1", C::bad_extent, [](P& p) { p.tokens = -1; }},
           {"2^24 tokens", C::bad_extent, [](P& p) { p.tokens = 1 << 24; }, "2^24"},
           {"topk 0", C::bad_extent, [](P& p) { p.topk = 0; }},
           {"topk 17", C::bad_extent, [](P& p) { p.topk = 17; }},
           {"more choices than experts", C::bad_extent, [](P& p) { p.topk = 9; }},
           {"1025 experts", C::bad_extent, [](P& p) { p.experts = p.local_experts = 1025; }},
           {"local experts beyond all", C::bad_value, [](P& p) { p.first_expert = 1; }, "local experts"},
           {"no local expert", C::bad_extent, [](P& p) { p.local_experts = 0; }},
           {"intermediate 0", C::bad_extent, [](P& p) { p.intermediate = 0; }},
           {"hidden -1", C::bad_extent, [](P& p) { p.hidden = -1; }},
           {"hidden that is no 16 bytes", C::bad_extent, [](P& p) { p.hidden = 252; }},
           {"a capacity", C::bad_value, [](P& p) { p.capacity = 4; }},
           {"x null", C::null_pointer, [](P& p) { p.x = nullptr; }, "x or out"},
           {"w2 null", C::null_pointer, [](P& p) { p.w2.data = nullptr; }, "w1 or w2"},
           {"logits null", C::null_pointer, [](P& p) { p.logits = nullptr; }, "logits is null"},
           {"experts of w1 with half of their rows", C::bad_stride, [](P& p) { p.w1.expert_stride /= 2; },
            "2 * intermediate rows"},
           {"w2.stride 0", C::bad_stride, [](P& p) { p.w2.stride = 0; }, "w2.stride is 0"},
           {"ids beside logits", C::bad_value, [](P& p) { p.topk_ids = reinterpret_cast<const std::int32_t*>(p.x); }},
           {"x_scale without use", C::bad_value, [](P& p) { p.x_scale = static_cast<const float*>(p.x); }},
           {"h_scale without use", C::bad_value, [](P& p) { p.h_scale = static_cast<const float*>(p.x); }},
           {"x off by a byte", C::misaligned, [](P& p) { p.x = moved(p.x, 1); }},
           {"x_stride 0", C::bad_stride, [](P& p) { p.x_stride = 0; }},
           {"an expert's stride of x", C::bad_value, [](P& p) { p.x_expert_stride = 8; }},
           {"out is x", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.x); }, "out overlaps"},
           {"out is w1", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.w1.data); }, "out overlaps"},
           {"out is the logits", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.logits); }, "out overlaps"},
           {"kept groups without groups", C::bad_extent, [](P& p) { p.kept_groups = 2; }},
           {"a weight scale that is infinite", C::bad_value, [](P& p) { p.weight_scale = INFINITY; }},
           {"a weight of no shared expert", C::bad_value, [](P& p) { p.shared_weight = 0.5f; }, "shared_weight"}});
  refused(layer_of(MoeRouting::given),
          {{"ids null", C::null_pointer, [](P& p) { p.topk_ids = nullptr; }},
           {"weights null", C::null_pointer, [](P& p) { p.topk_weights = nullptr; }},
           {"ids that overlap", C::bad_stride, [](P& p) { p.ids_stride = 1; }},
           {"a bias of gating", C::bad_value, [](P& p) { p.gating_bias = p.topk_weights; }},
           {"a scale of given weights", C::bad_value, [](P& p) { p.weight_scale = 2.5f; }, "weight_scale"},
           {"given weights renormalised", C::bad_value, [](P& p) { p.renormalise = true; }, "renormalise"},
           {"groups of given experts", C::bad_value, [](P& p) { p.expert_groups = p.kept_groups = 2; }},
           {"ids off by a byte", C::misaligned, [](P& p) { p.topk_ids = moved(p.topk_ids, 1); }}});
  refused(layer_of(MoeRouting::masked),
          {{"rows null", C::null_pointer, [](P& p) { p.expert_rows = nullptr; }},
           {"capacity -1", C::bad_extent, [](P& p) { p.capacity = -1; }},
           {"2^31 places of all experts", C::bad_extent, [](P& p) { p.capacity = 1 << 28; }, "local_experts"},
           {"topk", C::bad_value, [](P& p) { p.topk = 2; }}});
  refused(layer_of(MoeRouting::logits), {{"rows of 2^53 elements", C::bad_extent,
                                          [](P& p) { p.tokens = (1 << 24) - 1, p.hidden = 1 << 28; }, "2^50"}});
  refused(layer_of(MoeRouting::logits, true),
          {{"x_scale without use", C::bad_value, [](P& p) { p.x_scale = p.w1.scale; }, "finds the scales"},
           {"scales of w1 null", C::null_pointer, [](P& p) { p.w1.scale = nullptr; }}});
}

TEST_CASE("dense strides are those of tensors without gaps") {
  MoeProblem p;
  p.tokens = 5, p.hidden = 384, p.experts = 8, p.topk = 2;
  p.residual = &p;
  const MoeProblem plain = MoeProblem::dense(p);
  CHECK((plain.x_stride == 384 && plain.out_stride == 384 && plain.residual_stride == 384));
  CHECK((plain.logits_stride == 8 && plain.ids_stride == 0 && plain.x_expert_stride == 0));
  p.spec.routing = MoeRouting::given;
  const MoeProblem given = MoeProblem::dense(p);
  CHECK((given.logits_stride == 0 && given.ids_stride == 2 && given.weights_stride == 2));
  p.spec.routing = MoeRouting::masked, p.spec.scale = Scaling::per_block;
  p.capacity = 16, p.residual = nullptr;
  const float scale = 1.0f;
  p.x_scale = &scale;
  const MoeProblem masked = MoeProblem::dense(p);
  CHECK((masked.x_expert_stride == 16 * 384 && masked.out_expert_stride == 16 * 384 && masked.residual_stride == 0));
  CHECK((masked.x_scale_stride == 3 && masked.x_scale_k_stride == 1 && masked.x_scale_expert_stride == 48));
}

TEST_CASE("a plan is refused without entries, workspace or its own spec") {
  const MoeEntry& e = layer_of(MoeRouting::logits);
  const ArchFacts& facts = facts_of(e.arch);
  MoeCall call(e.spec, {});
  MoeProblem p = call.on_device();
  MoePlan plan;
  CHECK(plan.launch(p, {}).code == C::no_matching_entry);
  MoeParts parts = all_moe_parts();
  parts.products = {};
  CHECK(moe_select(p, parts, facts, plan).code == C::no_matching_entry);
  REQUIRE(moe_select(p, all_moe_parts(), facts, plan).ok());
  CHECK(plan.launch(p, {}).code == C::null_pointer);
  const bench::DeviceBuffer workspace(plan.workspace_bytes(p));
  p.workspace = workspace.data(), p.workspace_bytes = workspace.bytes() - 1;
  CHECK(plan.launch(p, {}).code == C::workspace_too_small);
  p.workspace = moved(p.workspace, 8), p.workspace_bytes = workspace.bytes();
  CHECK(plan.launch(p, {}).code == C::misaligned);
  p.workspace = workspace.data();
  p.spec.weight = MoeWeight::input;
  CHECK(plan.launch(p, {}).code == C::no_matching_entry);
}

TEST_CASE("rows are copied where experts have many, and those that the layer reads keep their rules") {
  const MoeEntry* sm90 = nullptr;
  for (const MoeEntry* e : all_moe_entries())
    if (e->policy.rows == MoeRows::copied && !e->spec.quantises_x()) sm90 = e;
  if (sm90 == nullptr) return;  // this build has no room that copies rows
  const ArchFacts& facts = facts_of(sm90->arch);
  const auto rows_of = [&](std::int32_t tokens, bool batch_invariant) {
    MoeCall call(sm90->spec, {.tokens = tokens, .batch_invariant = batch_invariant});
    MoePlan plan;
    REQUIRE(moe_select(call.on_device(), all_moe_parts(), facts, plan).ok());
    return plan.entry->policy.rows;
  };
  CHECK(rows_of(9, false) == MoeRows::gathered);
  CHECK(rows_of(400, false) == MoeRows::copied);  // 100 rows an expert
  CHECK(rows_of(400, true) == MoeRows::gathered);

  MoeCall call(sm90->spec, {.tokens = 400});
  MoeProblem p = call.on_device();
  const MoePolicy copied{.rows = MoeRows::copied};
  CHECK(moe_check(p, copied, facts, moe_no_workspace(), {}).ok());
  p.x = moved(p.x, 8);
  CHECK(moe_check(p, copied, facts, moe_no_workspace(), {}).code == C::misaligned);
}

TEST_CASE("x that blocks quantise beside the choice of experts keeps its rules") {
  for (const MoeEntry* e : all_moe_entries()) {
    if (e->policy.choosing != MoeChoosing::beside_x) continue;
    return refused(*e, {{"x_stride 0", C::bad_stride, [](P& p) { p.x_stride = 0; }}});
  }
}

TEST_CASE("a kept plan whose h is f32 takes no bias of the first product") {
  for (const MoeEntry* const& e : all_moe_entries()) {
    if (e->policy.h != MoeH::f32) continue;
    MoeParts parts = all_moe_parts();
    parts.layers = {&e, 1};
    MoeCall call(e->spec, {.tokens = 5});
    MoeProblem p = call.on_device();
    MoePlan plan;
    REQUIRE(moe_select(p, parts, facts_of(e->arch), plan).ok());
    const bench::DeviceBuffer workspace(plan.workspace_bytes(p));
    p.workspace = workspace.data(), p.workspace_bytes = workspace.bytes();
    p.w1 = p.w1.with_bias(p.w2.data, 2 * p.intermediate);
    CHECK(plan.launch(p, {}).code == C::no_matching_entry);
    return;
  }
}

TEST_CASE("specs that no room computes are refused by name") {
  const ArchFacts& facts = facts_of(ArchId::gfx950);
  const auto code = [&](void (*change)(MoeSpec&)) {
    MoeSpec s;
    change(s);
    return moe_check_spec(s, facts).code;
  };
  CHECK(code([](MoeSpec&) {}) == C::ok);
  CHECK(code([](MoeSpec& s) { s.x = DType::f32; }) == C::unsupported_dtype);
  CHECK(code([](MoeSpec& s) { s.out = DType::f16; }) == C::unsupported_dtype);
  CHECK(code([](MoeSpec& s) { s.weights = DType::fp8_e4m3fn; }) == C::unsupported_dtype);
  CHECK(code([](MoeSpec& s) { s.scale = Scaling::per_row; }) == C::unsupported_scaling);
  CHECK(code([](MoeSpec& s) { s.logits = DType::i8; }) == C::unsupported_dtype);
  CHECK(code([](MoeSpec& s) { s.routing = MoeRouting::masked, s.shared = true; }) == C::bad_value);
  CHECK(code([](MoeSpec& s) { s.weights = DType::i4, s.scale = Scaling::per_group, s.scale_k = 7; }) == C::bad_value);
  CHECK(code([](MoeSpec& s) { s.fragments = true; }) == C::unsupported_layout);
  CHECK(code([](MoeSpec& s) { s.zero_points = true; }) == C::unsupported_dtype);
  const auto awq = [](MoeSpec& s) {
    s.x = s.out = DType::f16, s.weights = DType::i4, s.scale = Scaling::per_group, s.scale_k = 128;
    s.zero_points = true;
  };
  CHECK(code(awq) == C::ok);
}

}  // namespace
}  // namespace tilewave::test
