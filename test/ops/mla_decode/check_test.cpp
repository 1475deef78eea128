// SPDX-License-Identifier: MIT
// Every rule of a problem, broken once: a refusal by name before any work.
#include <array>

#include "test/ops/mla_decode/call.hpp"

namespace tilewave::test {
namespace {

constexpr ArchId arch = ArchId::gfx950;
constexpr DType fp8 = DType::fp8_e4m3fn;

/// Changes a good problem, and returns the code of the refusal.
template <class Change>
StatusCode refused(const Change& change, const MlaDecodeSpec& spec = {}) {
  MlaCall call(spec, {.lengths = {40, 7}, .heads = 8, .query_tokens = 2});
  MlaDecodeProblem p = call.p;
  REQUIRE(mla_decode_check(p, facts_of(arch)).ok());
  change(p);
  const Status status = mla_decode_check(p, facts_of(arch));
  CHECK((status.ok() || std::string(status.reason) != ""));
  return status.code;
}
template <class T>
void move_by(T*& pointer, std::int64_t bytes) {
  pointer = reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

TEST_CASE("specs that are not served") {
  using S = MlaDecodeSpec;
  const auto spec = [](const S& s) { return refused([&](MlaDecodeProblem& p) { p.spec = s; }); };
  CHECK(spec({.q = DType::f16}) == StatusCode::unsupported_dtype);
  CHECK(spec({.kv = DType::f16}) == StatusCode::unsupported_dtype);
  CHECK(spec({.kv = DType::fp8_e4m3fnuz}) == StatusCode::unsupported_dtype);
  CHECK(spec({.q = fp8}) == StatusCode::unsupported_dtype);
  CHECK(spec({.q = fp8, .kv = fp8, .layout = LatentLayout::groups_128}) == StatusCode::unsupported_dtype);
  CHECK(spec({.layout = LatentLayout::groups_64, .head_size = 512}) == StatusCode::unsupported_dtype);
  CHECK(spec({.layout = static_cast<LatentLayout>(3)}) == StatusCode::unsupported_layout);
  CHECK(spec({.head_size = 640}) == StatusCode::unsupported_head_size);
  CHECK(spec({.kv = fp8, .layout = LatentLayout::groups_128, .head_size = 512}) == StatusCode::unsupported_head_size);
  CHECK(spec({.kv = fp8, .layout = LatentLayout::groups_64}) == StatusCode::unsupported_head_size);
}

TEST_CASE("extents and values that are not served") {
  using P = MlaDecodeProblem;
  CHECK(refused([](P& p) { p.batch = -1; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.query_tokens = 0; }) == StatusCode::unsupported_mtp);
  CHECK(refused([](P& p) { p.query_tokens = 9; }) == StatusCode::unsupported_mtp);
  CHECK(refused([](P& p) { p.num_q_heads = 0; }) == StatusCode::unsupported_head_ratio);
  CHECK(refused([](P& p) { p.num_q_heads = 129; }) == StatusCode::unsupported_head_ratio);
  CHECK(refused([](P& p) { p.block_size = 0; }) == StatusCode::unsupported_block_size);
  CHECK(refused([](P& p) { p.table_columns = -1; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.table_columns = 1 << 30; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.num_pages = 0; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.num_pages = std::int64_t{1} << 31; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.batch = 1 << 28; }) == StatusCode::bad_extent);
  CHECK(refused([](P& p) { p.softmax_scale = 0.0f; }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.softmax_scale = std::numeric_limits<float>::infinity(); }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.split_tokens = -1; }) == StatusCode::bad_value);
}

TEST_CASE("pointers that are missing, useless or misaligned") {
  using P = MlaDecodeProblem;
  static float one = 1.0f;
  const MlaDecodeSpec codes{.kv = fp8}, all_codes{.q = fp8, .kv = fp8};
  CHECK(refused([](P& p) { p.q = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.kv = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.out = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.block_table = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.context_lengths = nullptr; }) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.kv_scale = nullptr; }, codes) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.q_scale = nullptr; }, all_codes) == StatusCode::null_pointer);
  CHECK(refused([](P& p) { p.kv_scale = &one; }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.q_scale = &one; }, codes) == StatusCode::bad_value);
  CHECK(refused([](P& p) { move_by(p.q, 8); }) == StatusCode::misaligned);
  CHECK(refused([](P& p) { move_by(p.kv, 8); }) == StatusCode::misaligned);
  CHECK(refused([](P& p) { move_by(p.out, 8); }) == StatusCode::misaligned);
  CHECK(refused([](P& p) { move_by(p.lse, 2); }) == StatusCode::misaligned);
}

TEST_CASE("strides that are not whole, and outputs that overlap") {
  using P = MlaDecodeProblem;
  const MlaDecodeSpec apart{.kv = fp8, .layout = LatentLayout::groups_64, .head_size = 512};
  CHECK(refused([](P& p) { p.q_head_stride += 4; }) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.out_head_stride += 4; }) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.page_stride += 4; }) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.token_stride = 0; }) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.token_stride += 16; }, apart) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.out_head_stride = 504; }) == StatusCode::bad_stride);
  CHECK(refused([](P& p) { p.out = const_cast<void*>(p.q); }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.lse = static_cast<float*>(p.out); }) == StatusCode::bad_value);
  CHECK(refused([](P& p) { p.workspace = p.out, p.workspace_bytes = 16; }) == StatusCode::bad_value);
}

TEST_CASE("pages of more than 2^31 bytes overlap as others do") {
  const MlaDecodeSpec apart{.kv = fp8, .layout = LatentLayout::groups_64, .head_size = 512};
  const auto out_behind_kv = [](MlaDecodeProblem& p) {
    p.block_size = 1 << 22, p.table_columns = 1;
    p = MlaDecodeProblem::dense(p);
    p.out = static_cast<std::byte*>(const_cast<void*>(p.kv)) + (std::int64_t{1} << 31);
  };
  CHECK(refused(out_behind_kv, apart) == StatusCode::bad_value);
}

TEST_CASE("a launch refuses another spec and a workspace that is too small") {
  for (const MlaDecodeEntry* entry : in_turn(all_mla_decode_entries())) {
    MlaCall call(entry->spec, {.lengths = {400}, .heads = 8});
    call.lend(*entry);
    if (!mla_decode_takes(entry->policy, call.p, facts_of(entry->arch)).ok()) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    if (call.p.workspace_bytes > 0) {
      MlaDecodeProblem p = call.p;
      p.workspace_bytes -= 4;
      CHECK(entry->launch(p, {}).code == StatusCode::workspace_too_small);
      p.workspace = nullptr;
      CHECK(entry->launch(p, {}).code == StatusCode::null_pointer);
    }
    MlaDecodeProblem p = call.p;
    p.spec.head_size = 1088 - p.spec.head_size;
    CHECK(entry->launch(p, {}).code == StatusCode::no_matching_entry);
  }
}

TEST_CASE("path tensor says what it does not take") {
  MlaCall call({}, {.lengths = {100}, .block_size = 20});
  constexpr MlaDecodePolicy copies = mla_decode_policies(ArchId::sm90, {})[0];
  static_assert(copies.path == MlaDecodePath::tensor && !copies.gathered);
  const auto code = [&](const MlaDecodePolicy& policy, const MlaDecodeProblem& p) {
    return mla_decode_takes(policy, p, sm90_facts).code;
  };
  MlaDecodePolicy gathered = copies;
  gathered.gathered = true;
  CHECK(code(copies, call.p) == StatusCode::unsupported_block_size);
  CHECK(code(gathered, call.p) == StatusCode::ok);
  MlaDecodeProblem p = call.p;
  p.q_row_stride += 8;
  CHECK(code(gathered, p) == StatusCode::bad_stride);
  p = call.p;
  p.softmax_scale = -1.0f;
  CHECK(code(gathered, p) == StatusCode::bad_value);
  p = call.p;
  p.block_size = 16, p.page_stride = 16 * 576 + 8;
  CHECK(code(copies, p) == StatusCode::bad_stride);
}

TEST_CASE("an empty batch is taken, whatever its strides are") {
  MlaCall call({}, {.lengths = {100}, .block_size = 16});
  MlaDecodeProblem p = call.p;
  p.batch = 0, p.q_head_stride = std::int64_t{1} << 62, p.token_stride = -8;
  CHECK(mla_decode_check(p, sm90_facts).ok());
  for (const MlaDecodePolicy& policy : mla_decode_policies(ArchId::sm90, {}))
    CHECK(mla_decode_takes(policy, p, sm90_facts).ok());
}

TEST_CASE("path lds says what it does not take") {
  MlaCall call({}, {.lengths = {100}, .block_size = 20});
  constexpr MlaDecodePolicy lds = mla_decode_policies(ArchId::gfx950, {})[0];
  static_assert(lds.path == MlaDecodePath::lds);
  const auto code = [&](const MlaDecodeProblem& p) { return mla_decode_takes(lds, p, gfx950_facts).code; };
  CHECK(code(call.p) == StatusCode::unsupported_block_size);
  MlaDecodeProblem p = call.p;
  p.block_size = 48;
  CHECK(code(p) == StatusCode::ok);
  p.page_stride = std::int64_t{1} << 35;
  CHECK(code(p) == StatusCode::bad_stride);
  p.page_stride = -48 * 576;
  CHECK(code(p) == StatusCode::bad_stride);
  p = call.p;
  p.block_size = 1 << 20, p.token_stride = 1024;
  CHECK(code(p) == StatusCode::bad_stride);
  p = call.p;
  p.block_size = 16, p.split_tokens = 64;
  CHECK(code(p) == StatusCode::no_matching_entry);
}

TEST_CASE("path lds of gfx942 widens codes where waves without rows fetch") {
  const auto code = [](const MlaDecodeSpec& spec, int rows, int tokens) {
    MlaDecodePolicy lds = mla_decode_policies(ArchId::gfx942, {})[0];
    CHECK(lds.path == MlaDecodePath::lds);
    lds.rows = rows, lds.tokens = tokens;
    return mla_decode_policy_status(ArchId::gfx942, spec, lds).code;
  };
  constexpr DType fp8 = gfx942_facts.fp8;
  CHECK(code({}, 128, 16) == StatusCode::ok);
  CHECK(code({}, 128, 32) == StatusCode::bad_value);
  CHECK(code({.q = fp8, .kv = fp8}, 128, 32) == StatusCode::ok);
  for (const MlaDecodeSpec& spec : {MlaDecodeSpec{.kv = fp8},
                                    {.kv = fp8, .layout = LatentLayout::groups_128},
                                    {.kv = fp8, .layout = LatentLayout::groups_64, .head_size = 512}}) {
    INFO(name_of(spec));
    CHECK(code(spec, 64, 16) == StatusCode::ok);
    CHECK(code(spec, 128, 16) == StatusCode::bad_value);
  }
}

TEST_CASE("path token_waves has one shape") {
  const auto code = [](ArchId arch, const MlaDecodeSpec& spec, const MlaDecodePolicy& policy) {
    return mla_decode_policy_status(arch, spec, policy).code;
  };
  constexpr MlaDecodePolicy bf16{.path = MlaDecodePath::token_waves, .tokens = 64, .waves_per_simd = 1};
  MlaDecodePolicy wide = bf16, rows = bf16, waves = bf16, two = bf16;
  wide.tokens = 128, rows.rows = 32, waves.waves = 8, two.waves_per_simd = 2;
  CHECK(code(ArchId::gfx942, {}, bf16) == StatusCode::ok);
  CHECK(code(ArchId::gfx942, {}, wide) == StatusCode::bad_value);
  CHECK(code(ArchId::gfx942, {.q = gfx942_facts.fp8, .kv = gfx942_facts.fp8}, wide) == StatusCode::ok);
  CHECK(code(ArchId::gfx950, {}, wide) == StatusCode::ok);
  CHECK(code(ArchId::gfx950, {}, bf16) == StatusCode::bad_value);
  for (const MlaDecodePolicy& policy : {rows, waves, two})
    CHECK(code(ArchId::gfx942, {}, policy) == StatusCode::bad_value);
  MlaDecodePolicy both = wide;  // fp8 leaves registers for two tiles of rows
  both.rows = 32;
  CHECK(code(ArchId::gfx942, {.q = gfx942_facts.fp8, .kv = gfx942_facts.fp8}, both) == StatusCode::ok);
  CHECK(code(ArchId::gfx950, {}, both) == StatusCode::bad_value);
  CHECK(code(ArchId::sm90, {}, bf16) == StatusCode::bad_value);
}

TEST_CASE("few rows choose small blocks") {
  MlaCall call({}, {.lengths = {100}, .block_size = 16});
  const auto chosen = [&](const ArchFacts& facts, const MlaDecodeSpec& spec, std::int32_t heads,
                          std::int32_t query_tokens) {
    MlaDecodeProblem p = call.p;
    p.num_q_heads = heads, p.query_tokens = query_tokens;
    const MlaDecodePolicies all = mla_decode_policies(facts.id, spec);
    return *std::ranges::min_element(all, [&](const MlaDecodePolicy& a, const MlaDecodePolicy& b) {
      return MlaDecodeRegistry::better(a, b, p, facts);
    });
  };
  const auto check = [&](const ArchFacts& facts, const MlaDecodeSpec& spec, std::int32_t heads,
                         std::int32_t query_tokens, MlaDecodePath path, int rows) {
    INFO(name_of(facts.id) << " " << name_of(spec) << ": " << heads << " heads, " << query_tokens << " query tokens");
    CHECK(chosen(facts, spec, heads, query_tokens).path == path);
    CHECK(chosen(facts, spec, heads, query_tokens).rows == rows);
  };
  for (const auto& [heads, query_tokens, rows] :
       {std::array{128, 1, 128}, std::array{65, 1, 128}, std::array{64, 1, 64}, std::array{16, 4, 64},
        std::array{32, 1, 32}, std::array{17, 1, 32}}) {
    check(gfx950_facts, {}, heads, query_tokens, MlaDecodePath::lds, rows);
  }
  for (const auto& [heads, query_tokens, rows] :
       {std::array{128, 1, 128}, std::array{65, 1, 128}, std::array{64, 1, 64}, std::array{16, 4, 64},
        std::array{33, 1, 64}}) {
    check(gfx942_facts, {}, heads, query_tokens, MlaDecodePath::lds, rows);
    check(gfx942_facts, {.kv = gfx942_facts.fp8}, heads, query_tokens, MlaDecodePath::lds, 64);
  }
  // Path lds of gfx942 has no blocks of 32 rows, and two of 16 are faster than one of 64.
  for (const int heads : {5, 16, 17, 32}) {
    check(gfx942_facts, {}, heads, 1, MlaDecodePath::token_waves, 16);
    check(gfx942_facts, {.kv = gfx942_facts.fp8}, heads, 1, MlaDecodePath::token_waves, 16);
    if (heads <= 16) check(gfx950_facts, {}, heads, 1, MlaDecodePath::token_waves, 16);
    for (const ArchFacts& facts : {gfx942_facts, gfx950_facts})
      check(facts, {.q = facts.fp8, .kv = facts.fp8}, heads, 1, MlaDecodePath::token_waves, heads <= 16 ? 16 : 32);
  }
  for (const ArchFacts& facts : {gfx942_facts, gfx950_facts})
    check(facts, {.q = facts.fp8, .kv = facts.fp8}, 33, 1, MlaDecodePath::lds, 64);
}

TEST_CASE("blocks of path tensor have the rows that a call has") {
  const auto chosen = [](const MlaDecodeSpec& spec, std::int32_t heads, std::int32_t block_size,
                         std::int32_t capacity = 1 << 20) {
    MlaCall call(spec, {.lengths = {100}, .heads = heads, .block_size = block_size});
    MlaDecodeProblem p = call.p;
    p.table_columns = capacity / block_size;
    const MlaDecodePolicies all = mla_decode_policies(ArchId::sm90, spec);
    const MlaDecodePolicy* best = nullptr;
    for (const MlaDecodePolicy& policy : all) {
      if (!mla_decode_takes(policy, p, sm90_facts).ok()) continue;
      if (best == nullptr || MlaDecodeRegistry::better(policy, *best, p, sm90_facts)) best = &policy;
    }
    REQUIRE(best != nullptr);
    CHECK(best->path == MlaDecodePath::tensor);
    return *best;
  };
  const DType fp8 = sm90_facts.fp8;
  const MlaDecodeSpec codes{.kv = fp8}, groups{.kv = fp8, .layout = LatentLayout::groups_128},
      apart{.kv = fp8, .layout = LatentLayout::groups_64, .head_size = 512};
  for (const std::int32_t heads : {5, 16, 128}) {
    CHECK(chosen({}, heads, 64).waves == 12);
    CHECK(chosen({}, heads, 61).gathered);
  }
  for (const auto& [heads, rows] : {std::array{1, 16}, std::array{16, 16}, std::array{17, 32}, std::array{32, 32},
                                    std::array{33, 64}, std::array{128, 64}}) {
    INFO(heads << " heads");
    CHECK(chosen(codes, heads, 64).rows == rows);
    CHECK(chosen(groups, heads, 64).rows == rows);
    CHECK(chosen(apart, heads, 64).rows == rows);
  }
  for (const MlaDecodeSpec& spec : {codes, groups, apart}) {
    CHECK(!chosen(spec, 128, 8).gathered);
    CHECK(chosen(spec, 128, 64, 8192).rows == 16);  // a short call
    CHECK(chosen(spec, 128, 64, 65536).rows == 64);
    // Lanes bring codes from pages of any size, for few rows a block.
    CHECK(chosen(spec, 128, 61).gathered);
    CHECK(chosen(spec, 128, 61).rows == 32);
  }
}

}  // namespace
}  // namespace tilewave::test
