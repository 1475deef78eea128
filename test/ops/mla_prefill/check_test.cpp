// SPDX-License-Identifier: MIT
// Latent prefill refuses bad problems by name, before anything is queued.
#include "test/ops/mla_prefill/call.hpp"

namespace tilewave::test {
namespace {

using P = MlaPrefillProblem;
using C = StatusCode;

const MlaPrefillEntry& entry_of(bool scaled) {
  for (const MlaPrefillEntry* e : all_mla_prefill_entries())
    if (e->spec.has_scale() == scaled) return *e;
  throw std::logic_error("no such entry");
}

/// The good problem is planned. Each wrong one is refused by the check, by the choice and by the launch of the plan that
/// was made before, and nothing is written.
void refused(const MlaPrefillEntry& e, std::initializer_list<Wrong<P>> wrongs) {
  MlaPrefillCall call(e.spec, {.queries = {5}, .context = {9}, .lse = true});
  const std::vector<std::byte> before = call.answer();
  check_plan_refused(call.p, wrongs, mla_prefill_check, mla_prefill_select, all_mla_prefill_parts(), facts_of(e.arch));
  CHECK(call.answer() == before);
}

TEST_CASE("bad problems of latent prefill are refused by name") {
  refused(entry_of(false),
          {{"batch -1", C::bad_extent, [](P& p) { p.batch = -1; }, "batch"},
           {"total_q -1", C::bad_extent, [](P& p) { p.total_q = -1; }, "total_q"},
           {"context -1", C::bad_extent, [](P& p) { p.context_tokens = -1; }, "context_tokens"},
           {"no chunk", C::bad_extent, [](P& p) { p.chunk_tokens = 0; }, "chunk_tokens"},
           {"128 chunks", C::bad_extent, [](P& p) { p.context_tokens = 128, p.chunk_tokens = 1; }, "127"},
           {"no heads", C::unsupported_head_ratio, [](P& p) { p.q_heads = 0; }},
           {"1025 heads", C::unsupported_head_ratio, [](P& p) { p.q_heads = 1025; }},
           {"block_size 0", C::unsupported_block_size, [](P& p) { p.block_size = 0; }},
           {"no pages", C::bad_extent, [](P& p) { p.num_pages = 0; }, "num_pages"},
           {"no columns", C::bad_extent, [](P& p) { p.table_columns = 0; }, "table_columns"},
           {"2^31 tokens", C::bad_extent, [](P& p) { p.table_columns = 1 << 27; }, "2^30"},
           {"no scale of scores", C::bad_value, [](P& p) { p.softmax_scale = 0; }, "softmax_scale"},
           {"an infinite scale", C::bad_value, [](P& p) { p.softmax_scale = INFINITY; }, "finite"},
           {"q null", C::null_pointer, [](P& p) { p.q = nullptr; }, "q or out"},
           {"kv null", C::null_pointer, [](P& p) { p.kv = nullptr; }, "kv is null"},
           {"up null", C::null_pointer, [](P& p) { p.up = nullptr; }, "up is null"},
           {"starts null", C::null_pointer, [](P& p) { p.q_starts = nullptr; }, "q_starts"},
           {"lengths null", C::null_pointer, [](P& p) { p.kv_lengths = nullptr; }, "kv_lengths"},
           {"table null", C::null_pointer, [](P& p) { p.block_table = nullptr; }, "block_table"},
           {"a scale without use", C::bad_value, [](P& p) { p.kv_scale = p.lse; }, "kv_scale"},
           {"q off by 2", C::misaligned, [](P& p) { p.q = moved(p.q, 2); }},
           {"kv off by 8", C::misaligned, [](P& p) { p.kv = moved(p.kv, 8); }},
           {"up off by 8", C::misaligned, [](P& p) { p.up = moved(p.up, 8); }},
           {"lse off by 2", C::misaligned, [](P& p) { p.lse = moved(p.lse, 2); }},
           {"token_stride off", C::bad_stride, [](P& p) { p.token_stride += 1; }, "16 bytes"},
           {"token_stride 0", C::bad_stride, [](P& p) { p.token_stride = 0; }},
           {"heads of q overlap", C::bad_stride, [](P& p) { p.q_head_stride = 0; }},
           {"heads of out overlap", C::bad_stride, [](P& p) { p.out_head_stride = 64; }},
           {"rows of up overlap", C::bad_stride, [](P& p) { p.up_stride = 504; }},
           {"table rows of a batch overlap", C::bad_stride, [](P& p) { p.batch = 2, p.table_row_stride = 0; }},
           {"out is q", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.q); }, "overlap"},
           {"out is up", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.up); }, "overlap"},
           {"out is the cache", C::bad_value, [](P& p) { p.out = const_cast<void*>(p.kv); }, "overlap"},
           {"lse is the lengths", C::bad_value,
            [](P& p) { p.lse = reinterpret_cast<float*>(const_cast<std::int32_t*>(p.kv_lengths)); }, "overlap"},
           {"a stride of no lse", C::bad_value, [](P& p) { p.lse = nullptr, p.lse_head_stride = 77; }, "lse"}});
  refused(entry_of(true), {{"scale null", C::null_pointer, [](P& p) { p.kv_scale = nullptr; }, "kv_scale"}});
}

TEST_CASE("a plan of latent prefill is refused without entries, workspace or its own spec") {
  const MlaPrefillEntry& e = entry_of(false);
  const ArchFacts& facts = facts_of(e.arch);
  MlaPrefillCall call(e.spec, {.queries = {5}, .context = {9}});
  P p = call.p;
  MlaPrefillPlan plan;
  CHECK(plan.launch(p, {}).code == C::no_matching_entry);
  for (const int lacking : {0, 1, 2, 3}) {
    MlaPrefillParts parts = all_mla_prefill_parts();
    if (lacking == 0) parts.layers = {};
    if (lacking == 1) parts.products = {};
    if (lacking == 2) parts.attention = {};
    if (lacking == 3) parts.merge = {};
    CHECK(mla_prefill_select(p, parts, facts, plan).code == C::no_matching_entry);
  }
  REQUIRE(mla_prefill_select(p, all_mla_prefill_parts(), facts, plan).ok());
  CHECK(plan.launches(p).size() == 8);
  CHECK(plan.launch(p, {}).code == C::null_pointer);
  const bench::DeviceBuffer workspace(plan.workspace_bytes(p));
  p.workspace = workspace.data(), p.workspace_bytes = workspace.bytes() - 1;
  CHECK(plan.launch(p, {}).code == C::workspace_too_small);
  p.workspace = moved(p.workspace, 8), p.workspace_bytes = workspace.bytes();
  CHECK(plan.launch(p, {}).code == C::misaligned);
  p.workspace = const_cast<void*>(p.up);
  CHECK(plan.launch(p, {}).code == C::bad_value);
  p.workspace = workspace.data();
  p.spec.kv = facts.fp8;
  CHECK(plan.launch(p, {}).code == C::no_matching_entry);
  // A plan without chunks does not serve earlier tokens.
  P none = call.p;
  none.context_tokens = 0;
  REQUIRE(mla_prefill_select(none, all_mla_prefill_parts(), facts, plan).ok());
  p.spec = none.spec;
  CHECK(plan.launch(p, {}).code == C::no_matching_entry);
}

TEST_CASE("specs of latent prefill that no room computes are refused by name") {
  const ArchFacts& facts = facts_of(ArchId::gfx950);
  CHECK(mla_prefill_check_spec({}, facts).ok());
  CHECK(mla_prefill_check_spec({.kv = DType::f16}, facts).code == C::unsupported_dtype);
  CHECK(mla_prefill_check_spec({.kv = DType::fp8_e4m3fnuz}, facts).code == C::unsupported_dtype);
  CHECK(mla_prefill_check_spec({.layout = LatentLayout::groups_128}, facts).code == C::unsupported_dtype);
  CHECK(mla_prefill_check_spec({.kv = facts.fp8, .layout = LatentLayout::groups_64}, facts).code ==
        C::unsupported_layout);
}

}  // namespace
}  // namespace tilewave::test
