// SPDX-License-Identifier: MIT
// Flash attention of CDNA through LDS, on the emulated chips: its tiles of 64 or 32 keys and 256 or 128 rows, the order
// in which it takes them, and what it leaves to other entries.
#include "test/ops/flash_attention/call.hpp"

namespace tilewave::test::lds {
namespace {

/// Runs a shape by every entry through LDS whose spec is wanted.
template <class Wanted>
void check_lds(FlashShape shape, const Wanted& wanted) {
  const FlashLayout layout = shape.layout;
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (entry->policy.path != FlashAttentionPath::lds || !wanted(entry->spec)) continue;
    shape.layout = entry->spec.paged() && layout == FlashLayout::bshd ? FlashLayout::nhd : layout;
    FlashCall call(entry->spec, shape);
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy) << ", " << shape.q[0]
                              << " queries, " << shape.kv[0] << " keys");
    CHECK(call.run(*entry) == "");
  }
}
bool any_spec(const FlashAttentionSpec&) { return true; }
bool plain(const FlashAttentionSpec& s) { return s == FlashAttentionSpec{}; }
/// bf16, and fp8 with native products.
bool contiguous(const FlashAttentionSpec& s) { return plain(s) || (is_fp8(s.q) && s.head_size == 128 && !s.paged()); }

TEST_CASE("every head size and type through LDS, with masked tiles and whole ones") {
  check_lds({.q = {37}, .kv = {300}, .causal = true}, any_spec);
}

TEST_CASE("lengths around each tile of keys, from one tile to more than the stages of LDS") {
  for (const std::int32_t keys : {1, 31, 33, 63, 64, 65, 128, 255, 257, 321, 577})
    check_lds({.q = {3}, .kv = {keys}, .q_heads = 1}, contiguous);
}

TEST_CASE("rows around a block's, whose waves see unlike keys") {
  for (const std::int32_t rows : {31, 33, 255, 257})
    check_lds({.q = {rows}, .kv = {rows + 70}, .q_heads = 1, .causal = true}, contiguous);
}

TEST_CASE("windows whose edges lie within tiles, on both sides of whole ones") {
  check_lds({.q = {70}, .kv = {700}, .q_heads = 1, .causal = true, .left = 400}, contiguous);
  check_lds({.q = {40}, .kv = {500}, .q_heads = 1, .left = 130, .right = 64, .sinks = true}, contiguous);
}

TEST_CASE("scores lie far apart, so that rows are rescaled at any tile") {
  check_lds({.q = {35}, .kv = {450}, .q_heads = 1, .spread = 6.0f}, contiguous);
}

TEST_CASE("packed sequences of any lengths, heads that share K and V") {
  check_lds({.q = {5, 0, 130},
             .kv = {200, 9, 131},
             .q_heads = 6,
             .kv_heads = 2,
             .layout = FlashLayout::ragged,
             .causal = true},
            contiguous);
}

TEST_CASE("rows of a block are queries of heads that share a kv head, and may end within a query's heads") {
  check_lds({.q = {3}, .kv = {80}, .q_heads = 8, .kv_heads = 2, .causal = true, .sinks = true}, contiguous);
  // A block of 256 rows ends within the heads of query 51, and one of 128 within those of 25.
  check_lds({.q = {60}, .kv = {140}, .q_heads = 5, .causal = true, .left = 70}, contiguous);
  check_lds({.q = {1, 40, 5}, .kv = {100, 43, 9}, .q_heads = 7, .layout = FlashLayout::nhd, .causal = true},
            [](const FlashAttentionSpec& s) { return s.paged(); });
}

TEST_CASE("pages of multiples of 16 keys, through LDS, with windows that begin in any page") {
  const auto paged = [](const FlashAttentionSpec& s) { return s.paged(); };
  for (const std::int32_t block_size : {16, 48, 64, 256}) {
    for (const FlashLayout layout : {FlashLayout::nhd, FlashLayout::hnd}) {
      FlashShape shape{.q = {40, 3, 0, 35}, .kv = {430, 97, 5, 35}, .layout = layout, .causal = true};
      shape.block_size = block_size;
      if (layout == FlashLayout::hnd) shape.left = 150;
      check_lds(shape, paged);
    }
  }
  for (const std::int32_t keys : {1, 16, 17, 64, 65, 320, 575})
    check_lds({.q = {2}, .kv = {keys}, .q_heads = 1}, paged);
}

TEST_CASE("fp8 whose scales are 0, so that all scores are alike") {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (entry->policy.path != FlashAttentionPath::lds || !is_fp8(entry->spec.q)) continue;
    FlashShape shape{.q = {3}, .kv = {67}, .q_heads = 1, .causal = true};
    if (entry->spec.paged()) shape.layout = FlashLayout::nhd;
    FlashCall call(entry->spec, shape);
    call.set_query_scale(0.0f);
    INFO(name_of(entry->arch) << " " << name_of(entry->spec));
    CHECK(call.run(*entry) == "");
  }
}

TEST_CASE("pages that cannot be fetched in groups of 16 keys are refused by name, and other entries take them") {
  constexpr FlashAttentionSpec spec{.storage = KvStorage::paged};
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (entry->spec != spec || entry->policy.path == FlashAttentionPath::tensor) continue;
    const auto reason = [&](std::int32_t block_size, std::int32_t columns, FlashLayout layout) {
      FlashCall call(spec, {.q = {3}, .kv = {20}, .layout = layout, .block_size = block_size});
      call.p.table_columns = columns;
      return std::string(flash_attention_takes(entry->policy, call.p).reason);
    };
    const bool lds = entry->policy.path == FlashAttentionPath::lds, direct = entry->policy.stages > 2;
    CHECK(reason(16, 8192, FlashLayout::nhd) == "");
    CHECK(reason(24, 2, FlashLayout::nhd) == (lds ? "lds: block_size must be a multiple of 16" : ""));
    CHECK(reason(16, 8193, FlashLayout::nhd) == (lds && direct ? "lds: table_columns must be 8192 or less" : ""));
    CHECK(reason(16, 2, FlashLayout::plain) == (lds ? "lds: dimensions of K must be contiguous" : ""));
  }
}

TEST_CASE("a negative softmax_scale is refused by name, and other entries take it") {
  FlashCall call({}, {.q = {3}, .kv = {20}});
  call.p.softmax_scale = -0.1f;
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (!plain(entry->spec) || entry->policy.path == FlashAttentionPath::tensor) continue;
    const Status status = flash_attention_takes(entry->policy, call.p);
    CHECK(status.ok() == (entry->policy.path == FlashAttentionPath::registers));
    if (!status.ok()) CHECK(std::string(status.reason) == "lds: softmax_scale must be positive");
  }
}

TEST_CASE("tokens and pages that lie backwards are refused by name, and other entries take them") {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    const bool lds = entry->policy.path == FlashAttentionPath::lds, paged = entry->spec.paged();
    if (!(plain(entry->spec) || entry->spec == FlashAttentionSpec{.storage = KvStorage::paged})) continue;
    if (entry->policy.path == FlashAttentionPath::tensor) continue;
    const FlashLayout layout = paged ? FlashLayout::nhd : FlashLayout::bshd;
    FlashCall call(entry->spec, {.q = {3}, .kv = {70}, .layout = layout});
    const FlashAttentionProblem forwards = call.p;
    call.p.k_strides.token = call.p.k_page_strides.token = -128;
    const std::string tokens = flash_attention_takes(entry->policy, call.p).reason;
    CHECK(tokens == (lds ? "lds: tokens of K or V must not lie backwards" : ""));
    call.p = forwards;
    call.p.v_page_strides.page = -call.p.v_page_strides.page;
    const std::string pages = flash_attention_takes(entry->policy, call.p).reason;
    CHECK(pages == (lds && paged ? "lds: pages must lie forwards, less than 2^35 elements apart" : ""));
  }
}

TEST_CASE("the entry straight to registers is better for a few queries, the one through LDS for many") {
  constexpr FlashAttentionPolicy lds{.path = FlashAttentionPath::lds, .rows = 256}, registers{};
  FlashAttentionProblem p{.q_heads = 4, .kv_heads = 4};
  const auto better = [&](const FlashAttentionPolicy& a, const FlashAttentionPolicy& b) {
    return FlashAttentionRegistry::better(a, b, p, facts_of(ArchId::gfx950));
  };
  for (const std::int32_t queries : {1, 32, 33, 4096}) {
    p.q_length = queries;
    CHECK(better(lds, registers) == (queries > 32));
    CHECK(better(registers, lds) == (queries <= 32));
  }
  p.kv_heads = 1;  // whose rows share a block
  for (const std::int32_t queries : {1, 8, 9, 4096}) {
    p.q_length = queries;
    CHECK(better(lds, registers) == (queries > 8));
  }
}

TEST_CASE("policies through LDS that no kernel can be built for are refused by name") {
  constexpr FlashAttentionPolicy good{
      .path = FlashAttentionPath::lds, .rows = 256, .keys = 64, .waves = 8, .stages = 2, .turns = true};
  const auto reason = [](ArchId arch, const FlashAttentionSpec& spec, const FlashAttentionPolicy& policy) {
    return std::string(flash_attention_policy_status(arch, spec, policy).reason);
  };
  CHECK(flash_attention_policy_status(ArchId::gfx942, {}, good).ok());
  CHECK(reason(ArchId::gfx950, {}, good) == "lds: stages is 4 or more where copies stay under way at barriers");
  CHECK(reason(ArchId::sm90, {}, good) == "lds: products of 32 x 32 are CDNA's");
  FlashAttentionPolicy bad = good;
  bad.rows = 128;
  CHECK(reason(ArchId::gfx942, {}, bad) == "lds: a wave has 32 rows: rows is 32 waves");
  bad = good, bad.stages = 3;
  CHECK(reason(ArchId::gfx942, {}, bad) == "lds: stages is even, as scores of two tiles take turns");
  bad = good, bad.stages = 4;
  CHECK(flash_attention_policy_status(ArchId::gfx950, {}, bad).ok());
  CHECK(reason(ArchId::gfx942, {}, bad) == "lds: stages is 2 where copies go through registers");
  bad = good, bad.stages = 8;
  CHECK(reason(ArchId::gfx950, {}, bad) == "lds: stages, or outputs, exceed a block's part of LDS");
  CHECK(reason(ArchId::gfx942, {.storage = KvStorage::paged, .values = ValueLayout::dim_major}, good) ==
        "lds: values are token_major");
  CHECK(flash_attention_policy_status(ArchId::gfx942, {.storage = KvStorage::paged}, good).ok());
  CHECK(reason(ArchId::gfx950, {.head_size = 192, .value_size = 192}, good) ==
        "lds: value_size is a power of two, as swizzles of V are");
  bad = good, bad.turns = false;
  CHECK(reason(ArchId::gfx942, {}, bad) == "lds: waves that copy through registers take turns");
  bad = good, bad.waves = 4, bad.rows = 128, bad.waves_per_simd = 1;
  CHECK(reason(ArchId::gfx942, {}, bad) == "lds: waves that take turns are two for each SIMD");
  const auto fp8 = [](ArchId arch, Scaling quant) {
    return FlashAttentionSpec{.q = facts_of(arch).fp8, .kv = facts_of(arch).fp8, .quant = quant};
  };
  CHECK(flash_attention_policy_status(ArchId::gfx942, fp8(ArchId::gfx942, Scaling::per_head), good).ok());
  CHECK(reason(ArchId::gfx942, fp8(ArchId::gfx942, Scaling::per_token), good) ==
        "lds: fp8 has scales per tensor or head");
  bad = good, bad.stages = 4, bad.keys = 32;
  CHECK(reason(ArchId::gfx950, fp8(ArchId::gfx950, Scaling::per_tensor), bad) ==
        "lds: keys is a multiple of what a product sums up");
  CHECK(reason(ArchId::gfx942, {.kv = DType::fp8_e4m3fnuz, .quant = Scaling::per_tensor}, good) ==
        "lds: q, K and V have one type");
  CHECK(reason(ArchId::gfx942, {.soft_cap = true}, good) == "lds: scores have no soft_cap, no alibi, no bit_mask");
}

}  // namespace
}  // namespace tilewave::test::lds
