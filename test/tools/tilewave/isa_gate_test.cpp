// SPDX-License-Identifier: MIT
// The gate's rules on facts that are edited by hand, which no compiler would produce, and what it reads and writes; those of
// compiled kernels: test/isa/gate_test.py.
#include <fmt/format.h>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/grammar.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/isa/tables.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::fuzz;
using tilewave::test::fuzz_json;
using tilewave::test::status_of;
using Names = std::vector<std::string>;

const std::string shape = "f32_16x16x16_bf16";

/// One instruction each 4 bytes, "mnemonic operands".
Listing listing_of(const Names& lines) {
  std::string text;
  for (std::size_t n = 0; n < lines.size(); ++n) text += fmt::format("\t{} // {:012X}: BF800000\n", lines[n], 4 * n);
  return parse_amd_listing(text);
}

/// 20 loads of K and V feed 40 products, nothing is wrong.
Judged good() {
  Judged k{.file = "good.co", .arch = "gfx942", .compiler = "clang 22", .label = "decode a b", .family = "decode b"};
  k.needs = {.symbol = "k", .vgprs = 100, .sgprs = 40, .allocated = 104, .lds_bytes = 1024, .block_lanes = 256};
  k.waves_per_simd = 4;
  k.claims = Claims{.file = "good.co", .arch = "gfx942", .waves_per_simd = 4, .waves_per_block = 4, .lds_bytes = 65536};
  k.claims->kv = KvClaims{{shape}, 2, {16}};
  k.whole.matrix = k.loops.matrix = k.hot.matrix = {{shape, 40}};
  k.loops.loads = {{16, 20}, {4, 6}};
  k.hot.instructions = 100;
  k.hot.waits = {0, 3};
  return k;
}

Names rules_of(const Judged& kernel) {
  Names rules;
  for (const Violation& v : violations_of(kernel)) rules.push_back(v.rule);
  return rules;
}
template <class Edit>
Names rules_after(const Edit& edit) {
  Judged k = good();
  edit(k);
  return rules_of(k);
}

const std::string entries =
    R"({"schema": "tilewave-isa-entries/1", "archs": {"gfx950": {"lds_bytes": 163840}}, "entries": [
 {"code_object": "pa.co", "arch": "gfx950", "kernel": "decode", "spec": "s", "policy": "p", "waves_per_simd": 2, "waves_per_block": 4,
  "lds_bytes": 0, "mfma": ["f32_16x16x32_bf16"], "mfma_per_load": 1, "kv_widths": [16, 8],
  "steady": {"steady_valu": 5, "steady_matrix": 6.5, "steady_flight": 1}},
 {"code_object": "n.co", "symbol": "Kernel1", "arch": "gfx950", "full": true, "kernel": "norm", "spec": "", "policy": "q", "waves_per_simd": 8,
  "waves_per_block": 1, "lds_bytes": 4, "mfma": null, "row": {"vector": true, "bytes_in_flight": 64, "wide_loads": 4, "wide_stores": 3,
  "narrow_load_bytes": 2, "narrow_store_bytes": 1, "dpp": 8, "barriers": 1}},
 {"code_object": "g.co", "arch": "gfx950", "kernel": "gemm", "spec": "s", "policy": "", "waves_per_simd": 2, "waves_per_block": 4,
  "lds_bytes": 8, "mfma": null, "gemm": {"mfma": "f32_32x32x16_bf16", "writes_lds": true, "valu_of_products": 0.5}}]})";
}  // namespace

TEST_CASE("rules of every kernel, each broken alone") {
  CHECK(rules_of(good()).empty());
  CHECK(rules_after([](Judged& k) { k.needs.scratch_bytes = 4; }) == Names{"scratch"});
  CHECK(rules_after([](Judged& k) { k.needs.dynamic_stack = true; }) == Names{"scratch"});
  CHECK(rules_after([](Judged& k) { k.whole.kinds["scratch"] = 1; }) == Names{"scratch"});
  CHECK(rules_after([](Judged& k) { k.needs.vgpr_spills = 1; }) == Names{"spill"});
  CHECK(rules_after([](Judged& k) { k.needs.sgpr_spills = 1; }) == Names{"spill"});
  CHECK(rules_after([](Judged& k) { k.whole.kinds["call"] = 1; }) == Names{"call"});
  CHECK(rules_after([](Judged& k) { k.claims->arch = "gfx950"; }) == Names{"arch"});
  CHECK(rules_after([](Judged& k) { k.needs.lds_bytes = 65536; }).empty());
  CHECK(rules_after([](Judged& k) { k.needs.lds_bytes = 65552, k.claims->lds_bytes = 65552; }) == Names{"lds"});
  CHECK(rules_after([](Judged& k) { k.claims->lds_bytes = 1008; }) == Names{"lds"});
  CHECK(rules_after([](Judged& k) { k.claims->waves_per_block = 8; }) == Names{"block"});
  CHECK(rules_after([](Judged& k) { k.claims->waves_per_simd = 5; }) == Names{"waves"});
}

TEST_CASE("rules of kernels that stream K and V") {
  CHECK(rules_after([](Judged& k) { k.whole.matrix["f32_32x32x8_bf16"] = 1; }) == Names{"mfma"});
  CHECK(rules_after([](Judged& k) { k.claims->kv->mfma = {shape, shape}; }).empty());
  // 95 % stands between one and two of 20 loads cut into narrow ones.
  CHECK(rules_after([](Judged& k) { k.loops.loads = {{16, 19}, {4, 8}}; }).empty());
  CHECK(rules_after([](Judged& k) { k.loops.loads = {{16, 18}, {4, 12}}; }) == Names{"kv_width"});
  CHECK(rules_after([](Judged& k) { k.loops = {}; }) == Names{"kv_width"});
  // A value layout that has pieces of 8 bytes claims them beside the 16 of K.
  CHECK(rules_after([](Judged& k) { k.loops.loads = {{16, 10}, {8, 20}, {4, 6}}; }) == Names{"kv_width"});
  CHECK(rules_after([](Judged& k) { k.loops.loads = {{16, 10}, {8, 20}}, k.claims->kv->widths = {16, 8}; }).empty());

  // 2 KB and one wait that leaves one of them under way; a product of 16 clocks.
  const Listing path = listing_of({"global_load_dwordx4 v[0:3], v4, s[0:1]", "global_load_dwordx4 v[0:3], v4, s[0:1]",
                                   "global_load_dword v0, v4, s[0:1]", "s_waitcnt vmcnt(2)", "v_exp_f32_e32 v0, v1",
                                   "v_add_f32_e32 v0, v1, v2", "v_mfma_f32_16x16x16_bf16_1k a[0:3]"});
  const SteadyCost cost = steady_cost(path, {16});
  CHECK((cost.kb == 2 && cost.kb_in_flight == 1 && cost.matrix_clocks == 16 && cost.mix.quarter_rate == 1));
  CHECK(cost.per_kb(static_cast<double>(cost.mix.of("vector"))) == Approx(1));
  const auto steady = [&](SteadyClaims claim, SteadyCost found) {
    return rules_after([&](Judged& k) { k.claims->steady = claim, k.steady = found; });
  };
  CHECK(steady({1, 8, 1}, cost).empty());
  CHECK(steady({0.9, 8, 1}, cost) == Names{"steady_valu"});
  CHECK(steady({1, 7.9, 1}, cost) == Names{"steady_matrix"});
  CHECK(steady({1, 8, 1.1}, cost) == Names{"steady_flight"});
  CHECK(steady({1, 8, 1}, steady_cost(path, {2})) == Names{"steady"});
}

TEST_CASE("rules of GEMM") {
  const Names lines{"v_mfma_f32_32x32x16_bf16 a[0:15]", "ds_read_b128 v[0:3], v0", "buffer_load_dwordx4 v[0:3], v0",
                    "s_waitcnt vmcnt(4)"};
  const auto rules = [&](const Names& added, bool writes = false) {
    Names all = lines;
    all.insert(all.end(), added.begin(), added.end());
    Judged k = good();
    k.claims->kv.reset();
    k.claims->gemm = GemmClaims{"f32_32x32x16_bf16", 0, writes};
    k.whole = k.hot = mix_of(listing_of(all));
    return rules_of(k);
  };
  CHECK(rules({}).empty());
  CHECK(rules({"v_mfma_f32_32x32x8_bf16_1k a[0:15]"}) == Names{"gemm_mfma"});
  CHECK(rules({"s_waitcnt vmcnt(0)"}) == Names{"gemm_drain"});
  CHECK(rules({"v_add_u32_e32 v0, v1, v2"}) == Names{"gemm_valu"});
  CHECK(rules({"ds_write_b128 v0, v[0:3]"}) == Names{"gemm_lds"});
  CHECK(rules({"ds_write_b128 v0, v[0:3]"}, true).empty());
  CHECK(matrix_clocks("f32_32x32x64_f8f6f4") == 64);
  CHECK(matrix_clocks("scale_f32_16x16x128_f8f6f4") == 32);
  CHECK(status_of([] { matrix_clocks("f32_4x4x4_f16"); }) == Exit::usage);
}

TEST_CASE("rules of rows are broken by their bytes, waits and exchanges") {
  const Names lines{"buffer_load_dwordx4 v[0:3], v8, s[0:3], 0 offen nt",
                    "buffer_load_dwordx4 v[4:7], v8, s[0:3], 0 offen nt",
                    "s_waitcnt vmcnt(0)",
                    "v_add_f32_dpp v0, v1, v2 quad_perm:[1,0,3,2]",
                    "s_barrier",
                    "global_store_dwordx4 v8, v[0:3], s[0:1]"};
  const auto rules = [&](const RowClaims& claim, std::size_t at = 0, const Names& added = {}) {
    Names all = lines;
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(at), added.begin(), added.end());
    Claims claims = *good().claims;
    claims.kv.reset(), claims.row = claim;
    return rules_of(judged({.file = "rows.co", .arch = "gfx942", .image = {}, .compiler = {}, .kernels = {}},
                           good().needs, listing_of(all), claims));
  };
  const RowClaims claim{true, 32, 2, 1, 0, 0, 1, 1, 0};
  CHECK(rules(claim).empty());
  CHECK(rules(claim, 2, {"global_load_dword v0, v1, s[0:1]"}) == Names{"row_width"});
  CHECK(rules(claim, 6, {"global_store_short v0, v1, s[0:1]"}) == Names{"row_width"});
  CHECK(rules(claim, 1, {"s_waitcnt vmcnt(0)"}) == Names{"row_flight"});
  CHECK(rules(claim, 3, {"ds_bpermute_b32 v0, v1, v2"}) == Names{"row_lanes"});
  CHECK(rules({true, 32, 2, 1, 0, 0, 2, 1, 0}) == Names{"row_lanes"});
  CHECK(rules(claim, 3, {"s_barrier"}) == Names{"row_barriers"});
  CHECK(rules({true, 32, 2, 1, 0, 0, 1, 0, 0}, 3, {"ds_read_b32 v0, v1"}) == Names{"row_lanes", "row_barriers"});
  CHECK(rules({true, 32, 2, 1, 0, 0, 1, 0, 0, 9}, 3, {"ds_read_b32 v0, v1"}) == Names{"row_barriers"});
  CHECK(status_of([&] { rules(claim, 0, {"buffer_load_format_xyzw v[0:3], v0"}); }) == Exit::usage);
}

TEST_CASE("loops that multiply, with one out of line behind the end of the other") {
  const Names code{"s_nop 0", "v_mov_b32 v0, v1", "s_branch 4",           "s_cbranch_scc1 65533", "s_endpgm",
                   "s_nop 0", "s_nop 0",          "s_add_u32 s0, s0, s1", "s_cbranch_scc0 65534", "s_branch 65529"};
  const auto loops = [&](const std::vector<int>& products) {
    Names lines = code;
    for (const int n : products) lines[static_cast<std::size_t>(n)] = "v_mfma_f32_16x16x16_bf16 a[0:3]";
    std::vector<std::vector<int>> found;
    for (const Listing& loop : matrix_loops(listing_of(lines))) {
      auto& places = found.emplace_back();
      for (const AsmLine& line : loop) places.push_back(static_cast<int>(line.address / 4));
    }
    return found;
  };
  const std::vector<std::vector<int>> outer{{1, 2, 3, 7, 8, 9}}, inner{{7, 8}};
  CHECK(loops({0, 5}).empty());
  CHECK(loops({1}) == outer);
  CHECK(loops({1, 7}) == outer);
  CHECK(loops({7}) == inner);  // nothing else multiplies
  const Listing one = listing_of({"v_mfma_a"}), two = listing_of({"v_mfma_a", "s_nop 0"});
  CHECK(most_products({one, two}).size() == 2);
  CHECK(most_products({two, one}, true).size() == 1);
}

TEST_CASE("widths of accesses are told by the mnemonic") {
  for (const auto& [name, bytes] : {std::pair{"global_load_dwordx4", 16},
                                    {"buffer_load_dwordx3", 12},
                                    {"flat_load_dwordx2", 8},
                                    {"global_load_dword", 4},
                                    {"global_load_lds_dwordx4", 16},
                                    {"global_load_short_d16_hi", 2},
                                    {"global_load_ubyte", 1},
                                    {"buffer_load_ushort", 2},
                                    {"global_store_dwordx4", 0},
                                    {"s_load_dwordx4", 0},
                                    {"ds_read_b128", 0}})
    CHECK((load_bytes(name) == bytes));
  CHECK((store_bytes("buffer_store_byte_d16_hi") == 1 && store_bytes("global_atomic_add") == 0));
}

TEST_CASE("claims are read whole, or refused") {
  const auto claims = parse_claims(entries, "e");
  REQUIRE(claims.size() == 3);
  CHECK((claims[0].label == "decode s p" && claims[0].kv->widths == std::vector<int>{16, 8}));
  CHECK((claims[0].steady->matrix_clocks == 6.5 && !claims[0].row && !claims[0].gemm && !claims[0].full));
  CHECK((claims[1].full && claims[1].symbol == "Kernel1" && claims[1].family == "norm q" && !claims[1].kv));
  CHECK((claims[1].row->wide_stores == 3 && claims[1].row->narrow_load_bytes == 2 && claims[1].row->exchanges == 0));
  CHECK((claims[2].gemm->writes_lds && claims[2].gemm->valu_of_products == 0.5));
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string text = entries;
    text.replace(text.find(from), from.size(), to);
    return status_of([&] { parse_claims(text, "e"); }) == Exit::usage;
  };
  CHECK(refused("163840", "1"));
  CHECK(refused("tilewave-isa-entries/1", "other/1"));
  CHECK(refused("\"wide_loads\": 4,", ""));
  CHECK(refused("\"mfma_per_load\": 1", "\"mfma_per_load\": 0"));
  CHECK(refused("{\"code_object\": \"g.co\", \"arch\"", "{\"arch\""));
  CHECK(status_of([] { parse_claims(R"({"schema": "tilewave-isa-entries/1", "archs": {}, "entries": []})", "e"); }) ==
        Exit::usage);
  CHECK(parse_entries(entries, "e").size() == 3);
  CHECK(fuzz(entries, [](const std::string& text) { parse_claims(text, "e"), parse_entries(text, "e"); }) > 0);
  CHECK(fuzz_json(
            entries,
            [](const std::string& text) {
              std::string words;
              for (const Claims& c : parse_claims(text, "e")) words += c.symbol + " " + c.arch + " " + c.label + ";";
              return words;
            },
            false) > 0);
}

TEST_CASE("a page has the tables, and may hold anything") {
  Judged row = good(), gemm = good();
  row.claims->kv.reset(), row.claims->row = RowClaims{}, row.family = "norm p";
  gemm.claims->kv.reset(), gemm.claims->gemm = GemmClaims{}, gemm.label = "gemm x";
  const IsaTables all{"clang 22", true, tables_of({good(), row, row, gemm})};
  REQUIRE(all.tables.size() == 4);
  CHECK(all.tables[0].rows.size() == 2);
  CHECK(all.tables[1].rows[0][5] == "100");   // of the bytes of K and V
  CHECK(all.tables[2].rows[0][4] == "0.62");  // 100 instructions, 40 products of 16 clocks
  CHECK(all.tables[3].rows[0] == Names{"gfx942", "norm p", "2", "100", "40", "1024", "0", "0", "4", "0", "0", "0"});

  const std::string json = dump(tables_json(all));
  CHECK(dump(tables_json(parse_tables(json, "t"))) == json);
  const std::string empty = "a\n<!-- begin: written by tilewave isa page -->\n<!-- end -->\nb\n",
                    page = page_with(empty, all, "p");
  CHECK((page.starts_with("a\n") && page.ends_with("<!-- end -->\nb\n")));
  CHECK(page_with(page, all, "p") == page);
  CHECK((check_page(page, all, "p").same_compiler && check_page(page, all, "p").differences.empty()));
  CHECK(check_page(empty, all, "p").differences.size() == 3);
  IsaTables other = all;
  other.tables[0].rows[0][2] = "101";
  CHECK(check_page(page, other, "p").differences.size() == 2);
  other.compiler = "clang 23";
  CHECK(check_page(page, other, "p").differences.empty());
  CHECK(status_of([&] { page_with("b", all, "p"); }) == Exit::usage);

  CHECK(fuzz(json, [&](const std::string& text) { check_page(page, parse_tables(text, "t"), "p"); }) > 0);
  CHECK(fuzz_json(
            json, [](const std::string& text) { return dump(tables_json(parse_tables(text, "t"))); }, false) > 0);
  CHECK(fuzz(page, [&](const std::string& text) { check_page(text, all, "p"), page_with(text, all, "p"); }) > 0);
}
