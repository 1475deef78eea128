// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/ops/paged_attention/kv_pool.hpp"
#include "bench/ops/paged_attention/sweep.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

TEST_CASE("sweeps have their sizes, unique names and disjoint config ids") {
  const std::map<Sweep, std::size_t> sizes{{Sweep::standard, 64},
                                           {Sweep::accuracy, 2304 + 2 + 8},
                                           {Sweep::decode, 9 * 2 * 3 * 3},
                                           {Sweep::features, (3 * 2 + 5 * 4 + 2 * 8) * 2 * 2},
                                           {Sweep::native, 9 * 3 * 3}};
  for (const Sweep sweep : all_sweeps) {
    CAPTURE(std::string(name_of(sweep)));
    CHECK(sweep_named(name_of(sweep)) == sweep);
    for (const ArchId arch : all_archs) {
      const std::vector<PagedAttentionCase> cases = cases_of(sweep, arch);
      if (sizes.contains(sweep)) CHECK(cases.size() == sizes.at(sweep));
      CHECK(first_config_id(sweep) + cases.size() <= 10000 * (static_cast<std::size_t>(sweep) + 1));
      std::set<std::string> names;
      for (const PagedAttentionCase& c : cases) {
        names.insert(name_of(c));
        REQUIRE(c.arch == arch);
        REQUIRE(c.kv == (c.quant == Scaling::none ? c.q : facts_of(arch).fp8));
        REQUIRE((c.q == DType::bf16 || sweep == Sweep::features));
      }
      CHECK(names.size() == cases.size());
    }
  }
  CHECK_FALSE(sweep_named("nightly").has_value());
}

TEST_CASE("the default sweep runs in the order of the original benchmark") {
  const std::vector<PagedAttentionCase> cases = cases_of(Sweep::standard, ArchId::gfx942);
  REQUIRE(cases.size() == 64);
  // Position = varlen, quant (per_token first), mtp, batch, heads, as digits of a mixed-radix number.
  for (int i = 0; i < 64; ++i) {
    CAPTURE(i);
    CHECK(cases[i].kv_varlen == (i / 32 == 1));
    CHECK(cases[i].quant == (i / 16 % 2 == 0 ? Scaling::per_token : Scaling::per_tensor));
    CHECK(cases[i].mtp == i / 4 % 4 + 1);
    CHECK(cases[i].batch == (i / 2 % 2 == 0 ? 3 : 81));
    CHECK(cases[i].num_q_heads == (i % 2 == 0 ? 8 : 16));
    CHECK(cases[i].num_kv_heads == 1);
    CHECK(cases[i].head_size == 128);
    CHECK(cases[i].block_size == 1024);
    CHECK(cases[i].context_length == 1027);
    CHECK(cases[i].trans_v);
    CHECK(cases[i].sliding_window == 0);
    CHECK(cases[i].num_pages() == 16 * cases[i].batch);
  }
  CHECK(name_of(cases[0]) == "gfx942/fp8.per_token/bs1024/mtp1/h128/b3/c1027/hq8/hkv1/vt1/vl0/sw0");
}

TEST_CASE("the emulated sweep holds every combination of classes, and larger configs of every class") {
  const std::vector<PagedAttentionCase> cases = cases_of(Sweep::emulated, ArchId::gfx950);
  std::set<std::string> small;
  std::map<std::string, std::set<int>> large;
  for (const PagedAttentionCase& c : cases) {
    if (c.batch == 3 && c.context_length == 1027) small.insert(name_of(c));
    if (c.batch > 3) {
      large["head_size"].insert(c.head_size);
      large["heads"].insert(c.num_q_heads);
      large["mtp"].insert(c.mtp);
      large["quant"].insert(static_cast<int>(c.quant));
      large["trans_v"].insert(c.trans_v);
      large["varlen"].insert(c.kv_varlen);
      large["block_size"].insert(c.block_size);
      large["context"].insert(c.context_length);
      large["batch"].insert(c.batch);
      large["window"].insert(c.sliding_window);
    }
  }
  for (PagedAttentionCase c : cases_of(Sweep::accuracy, ArchId::gfx950)) {
    c.batch = 3;
    c.context_length = 1027;
    REQUIRE(small.contains(name_of(c)));
  }
  const std::map<std::string, std::set<int>> wanted{
      {"head_size", {128, 256}}, {"heads", {4, 8, 16}}, {"mtp", {1, 2, 3, 4}},          {"quant", {0, 1, 2}},
      {"trans_v", {0, 1}},       {"varlen", {0, 1}},    {"block_size", {16, 64, 1024}}, {"context", {1027, 8192}},
      {"batch", {81, 128}},      {"window", {0, 1023}}};
  for (const auto& [dimension, values] : wanted) {
    CAPTURE(dimension);
    CHECK(large[dimension] == values);
  }
}

TEST_CASE("the scaling sweep holds every cell up to its limit, each within the first pages of the cell before") {
  const std::int64_t gpu_limit = std::int64_t{1} << 36;
  const std::vector<PagedAttentionCase> cases = scaling_sweep(ArchId::gfx950, gpu_limit);
  for (const Scaling quant : {Scaling::none, Scaling::per_tensor}) {
    CAPTURE(std::string(name_of(quant)));
    std::set<std::pair<int, int>> cells;
    std::vector<KvPoolKey> keys;
    for (const PagedAttentionCase& c : cases) {
      if (c.quant != quant) continue;
      cells.insert({c.batch, c.context_length});
      keys.push_back(pool_key_of(c));
      REQUIRE(keys.front().begins_with(keys.back()));
      REQUIRE(keys[keys.size() < 2 ? 0 : keys.size() - 2].num_pages >= keys.back().num_pages);
    }
    std::set<std::pair<int, int>> wanted;
    for (const int batch : scaling_batches)
      for (const int context : scaling_contexts) wanted.insert({batch, context});
    CHECK(*wanted.begin() == std::pair(1, 128));
    CHECK(*wanted.rbegin() == std::pair(256, 131072));
    if (quant == Scaling::none) {
      for (const auto& too_large : {std::pair(129, 131072), std::pair(192, 98304), std::pair(192, 131072),
                                    std::pair(256, 98304), std::pair(256, 131072)}) {
        CHECK(wanted.erase(too_large) == 1);
      }
    }
    CHECK(cells == wanted);
    CHECK(keys.size() == cells.size());
    CHECK(keys.front().bytes() - 2 * keys.front().scale_bytes() == static_cast<std::size_t>(gpu_limit));
  }
  const std::int64_t smallest = 128 * 2048;  // fp8, batch 1, context 128
  CHECK(scaling_sweep(ArchId::gfx950, smallest).size() == 1);
  CHECK(scaling_sweep(ArchId::gfx950, smallest - 1).empty());
}

TEST_CASE("lengths are the context, or spread from mtp to the context") {
  PagedAttentionCase c;
  c.batch = 2000;
  c.mtp = 3;
  c.context_length = 100;
  CHECK(lengths_of(c) == std::vector<std::int32_t>(2000, 100));
  c.kv_varlen = true;
  const std::vector<std::int32_t> lengths = lengths_of(c);
  CHECK(*std::min_element(lengths.begin(), lengths.end()) == 3);
  CHECK(*std::max_element(lengths.begin(), lengths.end()) == 100);
  CHECK(lengths == lengths_of(c));
  c.seed = 124;
  CHECK(lengths != lengths_of(c));
}

TEST_CASE("tables repeat pages, or use each once, and end in ids nobody may follow") {
  PagedAttentionCase c;
  c.batch = 50;
  c.context_length = 100;
  c.block_size = 16;
  c.kv_varlen = true;
  c.distinct_pages = GENERATE(false, true);
  const std::vector<std::int32_t> lengths = lengths_of(c), table = table_of(c, lengths);
  REQUIRE(c.table_columns() == 7);
  REQUIRE(table.size() == 50 * 8);
  REQUIRE(shape_of(c).table_row_stride == 8);
  std::multiset<std::int32_t> pages;
  for (int b = 0; b < c.batch; ++b) {
    for (int column = 0; column < 8; ++column) {
      const std::int32_t page = table[b * 8 + column];
      if (column * 16 < lengths[b]) {
        REQUIRE(page >= 0);
        REQUIRE(page < c.num_pages());
        pages.insert(page);
      } else {
        REQUIRE((page == -1 || page == std::numeric_limits<std::int32_t>::max()));
      }
    }
  }
  const std::set<std::int32_t> distinct(pages.begin(), pages.end());
  CHECK(c.num_pages() == (c.distinct_pages ? 50 * 7 : 50 * 1024));
  if (c.distinct_pages) CHECK(distinct.size() == pages.size());
  CHECK_FALSE(std::is_sorted(table.begin(), table.begin() + 7));

  // Used slots: every slot a sequence reaches is in, and only those.
  const std::vector<std::int32_t> used = used_slots(c, lengths, table);
  std::map<std::int32_t, int> expected;
  for (int b = 0; b < c.batch; ++b)
    for (int t = 0; t < lengths[b]; ++t) {
      int& slots = expected[table[b * 8 + t / 16]];
      slots = std::max(slots, t % 16 + 1);
    }
  for (std::int32_t page = 0; page < c.num_pages(); ++page)
    REQUIRE(used[page] == (expected.contains(page) ? expected[page] : 0));
}

TEST_CASE("a drawn table does repeat pages when there are few") {
  PagedAttentionCase c;
  c.batch = 81;
  c.context_length = 16384;
  const std::vector<std::int32_t> table = table_of(c, lengths_of(c));
  CHECK(std::set<std::int32_t>(table.begin(), table.end()).size() < 81 * 16);
}

TEST_CASE("work: bytes once and flops exactly, counted by hand") {
  PagedAttentionCase c;
  c.batch = 2;
  c.context_length = 40;
  c.block_size = 16;
  c.mtp = 3;
  c.num_q_heads = 8;
  c.num_kv_heads = 2;
  c.head_size = 64;
  const std::vector<std::int32_t> lengths{40, 10};
  // Columns: 3, stride 4. The second sequence's only page is the first one's second.
  const std::vector<std::int32_t> table{5, 7, 9, -1, 7, -1, -1, -1};
  const double rows = 2 * 3 * 8, q_out_lse = rows * (64 * 2 + 64 * 2 + 4);

  SECTION("causal, per-token fp8") {
    const PagedAttentionWork w = work_of(c, lengths, table);
    CHECK(w.flops == 4.0 * 64 * 8 * ((38 + 39 + 40) + (8 + 9 + 10)));
    CHECK(w.bytes == 2.0 * 40 * 2 * (64 + 4) + q_out_lse + 4 * (3 + 1 + 2));  // slots of page 7 count once
  }
  SECTION("per tensor, bf16") {
    c.quant = Scaling::per_tensor;
    CHECK(work_of(c, lengths, table).bytes == 2.0 * (40 * 2 * 64 + 4) + q_out_lse + 4 * 6);
    c.quant = Scaling::none;
    c.kv = DType::bf16;
    CHECK(work_of(c, lengths, table).bytes == 2.0 * 40 * 2 * 64 * 2 + q_out_lse + 4 * 6);
  }
  SECTION("a window of 4 sees 5 keys a query, 7 slots over three queries") {
    c.sliding_window = 4;
    const PagedAttentionWork w = work_of(c, lengths, table);
    CHECK(w.flops == 4.0 * 64 * 8 * (5 * 6));
    // First sequence: tokens 33..39, slots 1..7 of page 9. Second: tokens 3..9 of page 7.
    CHECK(w.bytes == 2.0 * 14 * 2 * (64 + 4) + q_out_lse + 4 * (1 + 1 + 2));
  }
}

}  // namespace
}  // namespace tilewave::bench
