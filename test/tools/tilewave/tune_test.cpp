// SPDX-License-Identifier: MIT
#include "tools/tilewave/tune/tune.hpp"

#include <regex>

#include "test/catch_compat.hpp"
#include "test/tools/tilewave/grammar.hpp"
#include "test/tools/tilewave/samples.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/tune/generate.hpp"
#include "tools/tilewave/tune/words.hpp"

namespace {
using namespace tilewave::tool;
using tilewave::test::Approx;
using tilewave::test::fuzz;
using tilewave::test::fuzz_texts;
using tilewave::test::Random;
using tilewave::test::status_of;

const std::string tried =
    "name,mtp,batch_size,lanes,vec,us,err,policy_columns\na,1,1,64,8,10,0,lanes vec\nb,1,1,128,8,20,0,lanes vec\n"
    "c,1,2,64,8,40,0,lanes vec\nd,1,2,128,8,20,0,lanes vec\ne,1,2,256,8,1,1,lanes vec\nf,2,1,64,8,5,1,lanes vec\n"
    "g,1,1,256,8,1,1,lanes vec\n";
}  // namespace

TEST_CASE("the best policy of a class is the one that loses least over all its configs") {
  const Tuned t = judge_tuning(parse_csv(tried, "t"), nullptr, {"mtp"});
  REQUIRE(t.configs.size() == 3);
  CHECK(t.configs[1].tried.front().policy == "lanes=128 vec=8");  // the wrong one is faster, and last
  CHECK_FALSE(t.configs[1].tried.back().right);
  REQUIRE(t.classes.size() == 2);
  CHECK(t.classes[0].loss == Approx(std::sqrt(2.0)));
  CHECK(t.classes[0].wrong == 2);
  CHECK(t.classes[0].policy != "lanes=256 vec=8");
  CHECK(t.classes[1].policy.empty());  // nothing right was tried
  const Csv selected = parse_csv("mtp,batch_size,lanes,vec,us,err\n1,1,128,8,20,0\n1,2,128,8,20,0\n", "s");
  CHECK(*judge_tuning(parse_csv(tried, "t"), &selected, {"mtp"}).classes[0].selected_loss == Approx(std::sqrt(2.0)));
}

TEST_CASE("what was tried twice or has no time is refused") {
  CHECK(status_of([] {
          judge_tuning(parse_csv("name,mtp,lanes,us,err,policy_columns\na,1,64,10,0,lanes\nb,1,64,11,0,lanes\n", "t"),
                       nullptr, {});
        }) == Exit::refused);
  CHECK(status_of([] {
          judge_tuning(parse_csv("name,mtp,lanes,us,err,policy_columns\na,1,64,nan,0,lanes\n", "t"), nullptr, {});
        }) == Exit::usage);
  CHECK(fuzz(tried, [](const std::string& text) {
          for (const TunedConfig& c : judge_tuning(parse_csv(text, "t"), nullptr, {}).configs) {
            if (c.tried.empty()) throw std::logic_error("a config without candidates");
          }
        }) > 0);
}

TEST_CASE("a filter takes the rows named and no longer ones") {
  const std::regex filter(filter_of({"a/c8.v16", "b+(x)"}));
  CHECK(std::regex_search("a/c8.v16", filter));
  CHECK(std::regex_search("a/c8.v16/iterations:1/manual_time", filter));
  CHECK(std::regex_search("b+(x)", filter));
  CHECK_FALSE(std::regex_search("a/c8.v16.nt", filter));
  CHECK_FALSE(std::regex_search("a/c8xv16", filter));
  CHECK_FALSE(std::regex_search("za/c8.v16", filter));
}

TEST_CASE("a shard is i of n") {
  CHECK(parse_shard("2/3") == std::pair(2, 3));
  for (const char* bad : {"", "0/1", "2/1", "1", "a/b", "1/2/3", "-1/2", "1/0"})
    CHECK(status_of([&] { parse_shard(bad); }) == Exit::usage);
}

const std::string attention =
    "name,kind,arch,q_dtype,kv_dtype,quant_mode,block_size,mtp,head_size,batch_size,context_length,num_q_heads,num_kv_heads,k_layout,"
    "any_block_size,native,sliding_window,sinks,split_tokens,num_splits,row_tiles,wave_rows,wave_tokens,slices,stages,"
    "stage_tokens,fetch_waves,q_shared,balanced,waves_per_simd,us,err,policy_columns\n";
std::string attention_row(int context, int splits, double us, int balanced = 0) {
  return "x,pa_decode,gfx950,bf16,bf16,none,64,1,128,16," + std::to_string(context) + ",32,8,units,0,0,0,0,0," +
         std::to_string(splits) + ",1,1,4,1,2,0,0,0," + std::to_string(balanced) + ",3," + std::to_string(us) +
         ",0,num_splits stages balanced\n";
}

TEST_CASE("a tuned table of paged attention has runs of contexts, in tokens that whole pages hold") {
  const TunedSource source{
      .op = "paged_attention", .arch = "gfx950", .device = "d", .commit = "c", .csv = "t.csv", .benchmark = "b"};
  const auto table = [&](const std::string& rows) {
    const Csv csv = parse_csv(attention + rows, "t");
    return tuned_header(csv, judge_tuning(csv, nullptr, {}), source);
  };
  const std::string text = table(attention_row(1000, 2, 5) + attention_row(1000, 4, 6) + attention_row(2048, 2, 9) +
                                 attention_row(4096, 4, 9));
  CHECK(text.find("64, 1, 32, 8, 16, 1024, 2048,") != text.npos);
  CHECK(text.find("64, 1, 32, 8, 16, 4096, 4096,") != text.npos);
  CHECK(text.find("TunedPagedAttention{{.q = DType::bf16, .kv = DType::bf16, .out = DType::bf16,") != text.npos);
  CHECK(status_of([&] { table(attention_row(1000, 1, 5, 1)); }) == Exit::usage);
  const std::string none = tuned_tables("paged_attention", {}), two = tuned_tables("gemm", {"gfx950", "sm90"});
  CHECK(none.find("tuned_paged_attention(ArchId) { return {}; }") != none.npos);
  CHECK(two.find("#include \"tilewave/ops/gemm/tuned/sm90.hpp\"") != two.npos);
  CHECK(two.find("if (arch == ArchId::gfx950) return tuned_gemm_gfx950;") != two.npos);
}

TEST_CASE("generated candidates are steps from the best that were tried, and none that was") {
  const Csv csv = parse_csv(attention + attention_row(1000, 2, 5) + attention_row(1000, 4, 6), "t");
  const Generated made = generate(csv, judge_tuning(csv, nullptr, {}), "paged_attention", 2);
  CHECK(made.policies > 8);
  const auto times = [&](const std::string& word) {
    std::size_t count = 0;
    for (std::size_t at = made.header.find(word); at != std::string::npos; at = made.header.find(word, at + 1)) ++count;
    return count;
  };
  CHECK(times("add({.row_tiles = 2, .waves = {1, 4}, .prefetch = {1, 2, 0, 0}") == 1);
  CHECK(times("add({.row_tiles = 1, .waves = {1, 4}, .prefetch = {1, 2, 0, 0}, .q_shared = false, .schedule = "
              "PagedAttentionSchedule::even, .waves_per_simd = 3}") == 0);  // what was tried
  CHECK(times(".waves = {2, 2}") == 1);                                     // two knobs at once
  CHECK(times("std::array<PagedAttentionSpec, 1>") == 1);
  CHECK(status_of([&] { generate(csv, judge_tuning(csv, nullptr, {}), "softmax", 2); }) == Exit::usage);
  CHECK(fuzz(
            attention + attention_row(1000, 2, 5) + attention_row(1000, 4, 6),
            [](const std::string& any) {
              const Csv some = parse_csv(any, "t");
              generate(some, judge_tuning(some, nullptr, {}), "paged_attention", 2);
            },
            300) > 0);
  CHECK(with_program("nice -n 5 build/bench/bench_pa --x", "paged_attention", "/a b") == "nice -n 5 '/a b' --x");
  CHECK(status_of([] { with_program("bench_norm", "gemm", "x"); }) == Exit::usage);
}

TEST_CASE("a config ends when what follows its best is slower by more than noise") {
  const auto ended = [](const std::string& rows, int patience) {
    return has_ended(parse_csv("us,err,us_q1,us_q3,samples\n" + rows, "x.csv"), patience, "us");
  };
  CHECK(ended("10,0,10,10,9\n11,0,11,11,9\n12,0,12,12,9\n", 2));
  CHECK_FALSE(ended("10,0,10,10,9\n11,0,11,11,9\n12,0,12,12,9\n", 3));
  CHECK_FALSE(ended("10,0,10,10,9\n11,0,11,11,9\n9,0,9,9,9\n", 2));
  CHECK_FALSE(ended("10,0,10,10,9\n11,0,9,13,4\n12,0,12,12,9\n", 2));  // its quartiles allow 10, too
  CHECK(ended("10,0,10,10,9\n1,1,1,1,9\nnan,1,nan,nan,0\n", 2));       // wrong ones never win
  CHECK_FALSE(ended("1,1,1,1,9\n11,0,11,11,9\n12,0,12,12,9\n", 2));
  CHECK(status_of([&] { ended("10,0,10,10,9\nnan,0,nan,nan,0\n", 1); }) == Exit::usage);
  CHECK(fuzz(
            "us,err,us_q1,us_q3,samples\n10,0,10,10,9\n11,0,9,13,4\n12,0,12,12,9\n",
            [](const std::string& text) { has_ended(parse_csv(text, "x"), 2, "us"); }, 300) > 0);
}

TEST_CASE("a tuned table holds the best of each config, neighbours that agree as one") {
  const std::string columns =
      "name,kind,arch,a_dtype,b_dtype,out_dtype,scale,group,layout,weights,activation,gated,out_scale,group_kind,batch,groups,m,n,k,config_m,"
      "config_n,config_k,tile_rows,tile_columns,depth,stages,waves_rows,waves_columns,path,swapped,cluster,splits,"
      "most_splits,waves_per_simd,waves_k,stream,us,err,policy_columns\n";
  const auto row = [](const std::string& m, int tile, int splits, double us, const std::string& config_m) {
    return "x,gemm,sm90,bf16,bf16,bf16,none,0,nt,row_major,none,0,none,one,1,0," + m + ",4096,512," + config_m +
           ",4096,512," + std::to_string(tile) + ",64,128,4,1,1,tensor,1,1," + std::to_string(splits) + ",8,1,1,0," +
           std::to_string(us) + ",0,tile_rows splits\n";
  };
  const TunedSource source{.op = "gemm",
                           .arch = "sm90",
                           .device = "a chip",
                           .commit = "abc",
                           .csv = "t.csv",
                           .benchmark = "b",
                           .least_gain = 0.02};
  const auto table = [&](const std::string& rows, const std::string& selected = "") {
    const Csv tried_rows = parse_csv(columns + rows, "t");
    Csv chosen;
    if (!selected.empty()) chosen = parse_csv(columns + selected, "s");
    return tuned_header(tried_rows, judge_tuning(tried_rows, selected.empty() ? nullptr : &chosen, {}), source);
  };
  const std::string text = table(row("1", 16, 4, 5, "1") + row("1", 32, 1, 9, "1") + row("8", 16, 4, 5, "8") +
                                 row("64", 64, 1, 6, "64") + row("64", 16, 4, 7, "64"));
  CHECK(text.find("1, 8, 4096, 512, 1, 0,") != text.npos);
  CHECK(text.find("64, 64, 4096, 512, 1, 0,") != text.npos);
  CHECK(text.find(".rows = 16, .columns = 64, .depth_bytes = 128") != text.npos);
  CHECK(text.find(".path = GemmPath::tensor, .swapped = true") != text.npos);
  for (const char* line :
       {"3 configs, 5 candidates.\n", "// source: t.csv\n", "// device: a chip\n", "// commit: abc\n"})
    CHECK(text.find(line) != text.npos);
  for (const std::string& line : lines_of(text)) CHECK(line.size() <= 120);
  CHECK(text.find(".rows = 32") == text.npos);
  // What was measured between two that agree and is left to the cost model stays its own.
  const std::string parted = table(row("8", 16, 4, 5, "8") + row("16", 16, 4, 5, "16") + row("64", 16, 4, 5, "64"),
                                   row("8", 32, 1, 9, "8") + row("16", 32, 1, 5.05, "16") + row("64", 32, 1, 9, "64"));
  CHECK(parted.find(" 8, 8, 4096, 512, 1, 0,") != text.npos);
  CHECK(parted.find(" 64, 64, 4096, 512, 1, 0,") != text.npos);
  // The library's own choice is as good: nothing to write.
  CHECK(status_of([&] { table(row("1", 16, 4, 5, "1"), row("1", 32, 1, 5.05, "1")); }) == Exit::refused);
  CHECK(table(row("1", 16, 4, 5, "1"), row("1", 32, 1, 6, "1")).find("1, 1, 4096") != text.npos);
  CHECK(status_of([&] { table(row("1", 16, 4, 5, "4096")); }) == Exit::usage);  // a part of a config
  CHECK(status_of([&] { table(row("1; system()", 16, 4, 5, "1")); }) == Exit::usage);
  CHECK(fuzz(
            columns + row("1", 16, 4, 5, "1") + row("8", 16, 4, 5, "8"),
            [&](const std::string& any) {
              const Csv csv = parse_csv(any, "t");
              tuned_header(csv, judge_tuning(csv, nullptr, {}), source);
            },
            300) > 0);
}

TEST_CASE("modelled policies of one config are ranked by cycles") {
  const std::string head =
      "name,m,lanes,us,err,model_us,model_clk,model_mhz,model_error_pct,model_chip,policy_columns\n";
  const std::string rows = "a,1,64,nan,0,22,40000,2000,0,MI355X,lanes\nb,1,128,nan,0,23,31500,1500,0,MI355X,lanes\n";
  const auto tuned = [&](const std::string& text) {
    return judge_tuning(parse_csv(head + text, "t"), nullptr, {}, "model_us");
  };
  const Tuned t = tuned(rows);
  CHECK(t.by_cycles());
  CHECK(t.classes[0].policy == "lanes=128");
  CHECK(t.configs[0].tried.front().us == Approx(23));  // shown as it was modelled
  CHECK(t.classes[0].loss == Approx(1));
  const Tuned chips = tuned(rows + "c,1,256,nan,0,30,60000,2000,0,MI350X,lanes\n");
  CHECK_FALSE(chips.by_cycles());
  CHECK(chips.classes[0].policy == "lanes=64");
  CHECK(judge_tuning(parse_csv(head + rows, "t"), nullptr, {}, "model_clk").classes[0].policy == "lanes=128");
  const Csv selected = parse_csv(head + "s,1,64,nan,0,22,40000,2000,0,MI355X,lanes\n", "s");
  CHECK(*judge_tuning(parse_csv(head + rows, "t"), &selected, {}, "model_us").classes[0].selected_loss > 1.15);
  // With --patience: the second takes fewer clk, so it is no row that is slower.
  CHECK_FALSE(has_ended(parse_csv(head + rows, "t"), 1, "model_us"));
}

TEST_CASE("what tune reads by a grammar is judged, written and stepped from, or refused") {
  const Csv rows = parse_csv(attention + attention_row(1000, 2, 5) + attention_row(1000, 4, 6), "t");
  tilewave::test::Table table{rows.columns, rows.rows};
  const auto column = [&](const char* name, const char* first, const char* second) {
    table.columns.push_back(name), table.rows[0].push_back(first), table.rows[1].push_back(second);
  };
  column("model_us", "22", "23"), column("model_clk", "40000", "31500"), column("model_mhz", "2000", "1500");
  column("model_chip", "MI355X", "MI355X");
  const TunedSource source{
      .op = "paged_attention", .arch = "gfx950", .device = "d", .commit = "c", .csv = "t.csv", .benchmark = "b"};
  CHECK(fuzz_texts(
            [&](Random& random) {
              return tilewave::test::csv_of(random.one_in(3) ? table : tilewave::test::other_table(table, random),
                                            random, true);
            },
            [&](const std::string& text) {
              const Csv csv = parse_csv(text, "t", "name");
              for (const char* metric : {"us", "model_us", "model_clk"}) {
                const Tuned t = judge_tuning(csv, nullptr, {}, metric);
                for (const TunedClass& c : t.classes)
                  if (!std::isfinite(c.loss)) throw std::logic_error("a loss that is no number");
                has_ended(csv, 1, metric);
                generate(csv, t, "paged_attention", 2);
                tuned_header(csv, t, source);
              }
              for (std::size_t r = 0; r < csv.rows.size(); ++r) {
                const std::string word = paged_attention_spec_text(csv, r) + paged_attention_policy_text(csv, r);
                if (word.find_first_of(";\"\n#") != word.npos) throw std::logic_error("no source code: " + word);
              }
            }) > 0);
}
