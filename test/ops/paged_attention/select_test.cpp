// SPDX-License-Identifier: MIT
// The registry, the choice of an entry, the number of splits and the workspace.
#include <set>
#include <sstream>

#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test {
namespace {

/// A valid problem of a spec. Selection does not look into the tensors.
PagedAttentionProblem problem_of(const PagedAttentionSpec& spec, int batch, int group, int mtp, std::int64_t context) {
  const auto somewhere = [](std::uintptr_t i) {
    return reinterpret_cast<float*>(i << 48);
  };  // each far from the others
  PagedAttentionCase c;
  c.kv = spec.kv;
  c.quant = spec.quant;
  c.head_size = spec.head_size;
  c.block_size = 64;
  c.batch = batch;
  c.num_q_heads = group;
  c.mtp = mtp;
  c.context_length = static_cast<int>(context);
  PagedAttentionProblem p = bench::shape_of(c);
  p.q = somewhere(1);
  p.k = somewhere(2);
  p.v = somewhere(3);
  p.out = somewhere(4);
  p.k_scale = somewhere(5);
  p.v_scale = somewhere(6);
  p.block_table = reinterpret_cast<const std::int32_t*>(somewhere(7));
  p.context_lengths = reinterpret_cast<const std::int32_t*>(somewhere(8));
  return p;
}

std::set<ArchId> archs() {
  std::set<ArchId> all;
  every_entry([&](const PagedAttentionEntry& e) { all.insert(e.arch); });
  return all;
}

TEST_CASE("every spec of an architecture has entries, each different, none above the chip's shared memory") {
  if (too_slow_here()) return;
  for (const ArchId arch : archs()) {
    std::set<std::string> names;
    std::size_t entries = 0;
    for (const PagedAttentionSpec& spec : paged_attention_specs(arch)) {
      CAPTURE(name_of(spec));
      std::size_t of_spec = 0;
      every_entry([&](const PagedAttentionEntry& e) {
        if (e.arch != arch || !(e.spec == spec)) return;
        ++of_spec;
        names.insert(describe(e));
        CHECK(e.emulated == bench::emulated_device);
        CHECK(e.lds_bytes <= facts_of(arch).lds_bytes);
        CHECK(paged_attention_policy_status(arch, e.spec, e.policy).reason == std::string_view{});
      });
      CHECK(of_spec > 0);
      entries += of_spec;
    }
    CHECK(names.size() == entries);
  }
  CHECK(archs().size() == (bench::emulated_device ? std::size(all_archs) : 1));
}

TEST_CASE("select takes the bulk plan of least cost, else the smallest entry that holds all rows or the largest") {
  if (too_slow_here()) return;
  for (const ArchId arch : archs())
    for (const PagedAttentionSpec& spec : paged_attention_specs(arch))
      for (const auto& [group, mtp] : {std::pair{1, 1}, {8, 2}, {16, 1}, {8, 3}, {16, 2}, {11, 3}, {16, 4}, {32, 4}}) {
        CAPTURE(name_of(spec), group, mtp);
        const PagedAttentionProblem p = problem_of(spec, 4, group, mtp, 4096);
        PagedAttentionPlan plan;
        REQUIRE(paged_attention_select(p, all_paged_attention_entries(), facts_of(arch), plan).ok());
        CHECK(plan.entry->arch == arch);
        CHECK(plan.entry->spec == spec);
        const int chosen = plan.entry->policy.block_rows(), rows = group * mtp;
        const bool bulk = arch == ArchId::sm90 && spec.head_size <= 128;
        CHECK(plan.entry->policy.bulk() == bulk);
        every_entry([&](const PagedAttentionEntry& e) {
          if (e.arch != arch || !(e.spec == spec)) return;
          if (bulk && e.policy.bulk()) {
            const auto cost = [&](const PagedAttentionEntry& of, int splits) {
              return paged_attention_bulk_cost(p, of.policy, facts_of(arch), splits);
            };
            for (int splits = 1; splits <= (e.policy.balanced() ? 1 : max_bulk_splits); splits *= 2)
              CHECK(cost(*plan.entry, plan.splits) <= cost(e, splits));
          }
          if (bulk || e.policy.balanced()) return;
          const int other = e.policy.block_rows();
          CHECK((chosen >= rows ? other < rows || other >= chosen : other <= chosen));
        });
        CHECK(plan.name().find(name_of(plan.entry->policy, spec) + ".s") == 0);
        CHECK(paged_attention_takes(p, plan.entry->policy, facts_of(arch), plan.splits).ok());
      }
}

TEST_CASE("without a candidate of the spec there is no matching entry") {
  each_arch([](const PagedAttentionEntry& e) {
    PagedAttentionPlan plan;
    const PagedAttentionProblem p = problem_of(e.spec, 4, 8, 1, 4096);
    const Status status = paged_attention_select(p, {}, facts_of(e.arch), plan);
    CHECK(status.code == StatusCode::no_matching_entry);
    CHECK(std::string(status.reason) != "");
    PagedAttentionProblem wide = problem_of({.kv = e.spec.kv, .quant = e.spec.quant, .head_size = 128}, 4, 8, 1, 4096);
    const PagedAttentionEntry* const only[] = {&e};
    CHECK(paged_attention_select(wide, only, facts_of(e.arch), plan).code == StatusCode::no_matching_entry);
    CHECK(plan.entry == nullptr);
  });
}

TEST_CASE("a candidate of the spec alone is not enough: what is missing, or too much, is named") {
  each_arch([](const PagedAttentionEntry& e) {
    const PagedAttentionEntry* const only[] = {&e};
    PagedAttentionPlan plan;
    PagedAttentionProblem p = problem_of(e.spec, 4, 8, 1, 4096);
    p.balanced = true;
    const Status status = paged_attention_select(p, only, facts_of(e.arch), plan);
    CHECK(status.code == StatusCode::no_matching_entry);
    CHECK(std::string(status.reason).find("no balanced entry") == 0);
    const PagedAttentionProblem many = problem_of(e.spec, 1 << 25, 1, 1, 16);
    const Status refused = paged_attention_select(many, only, facts_of(e.arch), plan);
    CHECK(refused.code == StatusCode::bad_extent);
    CHECK(refused.code == e.launch(many, 1, {}).code);  // before anything is queued
    CHECK(plan.entry == nullptr);
    // One launch has lanes for so many blocks, and not for one more sequence.
    const int lanes = e.policy.block_waves() * facts_of(e.arch).wave_lanes, most = static_cast<int>(0xffffffff / lanes);
    CHECK(paged_attention_select(problem_of(e.spec, most, 1, 1, 16), only, facts_of(e.arch), plan).ok());
    CHECK_FALSE(paged_attention_select(problem_of(e.spec, most + 1, 1, 1, 16), only, facts_of(e.arch), plan).ok());
  });
}

TEST_CASE("explain has a line for every candidate, and for every kind of entry of which there is none") {
  if (too_slow_here()) return;
  for (const ArchId arch : archs())
    for (const PagedAttentionSpec& spec : paged_attention_specs(arch)) {
      CAPTURE(name_of(spec));
      const ArchFacts& facts = facts_of(arch);
      PagedAttentionProblem p = problem_of(spec, 4, 8, 1, 4096);
      p.v_strides = packed_value_strides(spec, 1, 64, false);  // V plain, which no bulk entry takes
      std::vector<const PagedAttentionEntry*> of_spec;
      every_entry([&](const PagedAttentionEntry& e) {
        if (e.arch == arch && e.spec == spec) of_spec.push_back(&e);
      });
      const bool has_bulk = paged_attention_has_bulk(arch, spec).ok();
      PagedAttentionPlan plan;
      REQUIRE(paged_attention_select(p, of_spec, facts, plan).ok());
      const auto expect = [&](auto serves) {
        std::istringstream text(plan.explain(p));
        std::string line;
        for (const PagedAttentionEntry* e : of_spec) {
          REQUIRE(std::getline(text, line));
          const std::string verdict = line.substr(line.find(": ") + 2);
          CAPTURE(line);
          CHECK(line.find(name_of(e->policy, spec)) == 0);
          CHECK(verdict == (e == plan.entry ? "chosen" : serves(e->policy) ? "serves" : verdict));
          if (!serves(e->policy)) CHECK(verdict.find("no_matching_entry: ") == 0);
        }
        CHECK(static_cast<bool>(std::getline(text, line)) == !has_bulk);
        if (!has_bulk) CHECK(line.find("not compiled in: no_matching_entry: ") == 0);
        CHECK_FALSE(std::getline(text, line));
      };
      expect([](const PagedAttentionPolicy& policy) { return !policy.bulk(); });
      p.balanced = true;  // where the balanced entries are bulk ones, none takes plain V
      CHECK(paged_attention_select(p, of_spec, facts, plan).ok() == !has_bulk);
      expect([](const PagedAttentionPolicy& policy) { return policy.balanced() && !policy.bulk(); });
      p.block_size = 8;  // a problem that the check refuses is one line
      CHECK(plan.explain(p).find("unsupported_block_size: ") == 0);
      // Without the balanced entries, the text says that there is none.
      p.block_size = 64;
      std::erase_if(of_spec, [](const PagedAttentionEntry* e) { return e->policy.balanced(); });
      CHECK_FALSE(paged_attention_select(p, of_spec, facts, plan).ok());
      CHECK(plan.explain(p).find("not compiled in: no_matching_entry: there is no balanced entry") !=
            std::string::npos);
    }
}

TEST_CASE("select gives a balanced entry where it is asked for, and no bulk one where a layout forbids it") {
  if (too_slow_here()) return;
  for (const ArchId arch : archs())
    for (const PagedAttentionSpec& spec : paged_attention_specs(arch)) {
      CAPTURE(name_of(spec));
      const auto select = [&](PagedAttentionProblem p) {
        PagedAttentionPlan plan;
        const Status status = paged_attention_select(p, all_paged_attention_entries(), facts_of(arch), plan);
        return status.ok() ? plan : PagedAttentionPlan{nullptr, static_cast<int>(status.code), {}};
      };
      PagedAttentionProblem p = problem_of(spec, 4, 8, 1, 4096);
      p.balanced = true;
      REQUIRE(select(p).entry != nullptr);
      CHECK(select(p).entry->policy.balanced());
      CHECK(select(p).splits == 1);
      p.split_tokens = 512;
      CHECK(select(p).entry == nullptr);
      CHECK(select(p).splits == static_cast<int>(StatusCode::bad_value));
      p.balanced = false;
      REQUIRE(select(p).entry != nullptr);
      CHECK_FALSE(select(p).entry->policy.balanced());
      CHECK_FALSE(select(p).entry->policy.bulk());
      p.split_tokens = 0;
      p.v_strides = packed_value_strides(spec, 1, 64, false);
      CHECK_FALSE(select(p).entry->policy.bulk());
    }
}

TEST_CASE("clusters share a context while that gives idle SMs work, and few long contexts are balanced") {
  if (too_slow_here()) return;
  for (const ArchId arch : archs()) {
    if (arch != ArchId::sm90) continue;
    const auto plan_of = [&](int batch, std::int64_t context) {
      PagedAttentionPlan plan;
      const PagedAttentionProblem p = problem_of({.head_size = 128}, batch, 8, 1, context);
      REQUIRE(paged_attention_select(p, all_paged_attention_entries(), facts_of(arch), plan).ok());
      return plan;
    };
    CHECK(plan_of(1, 64).splits == 1);
    CHECK(plan_of(3, 1027).splits == 8);
    const PagedAttentionPlan one_an_sm = plan_of(128, 8192), several_an_sm = plan_of(512, 8192);
    CHECK(one_an_sm.splits * one_an_sm.entry->policy.wave_groups() == 2);  // two groups for each SM
    CHECK(several_an_sm.splits * several_an_sm.entry->policy.wave_groups() == 1);
    CHECK_FALSE(plan_of(512, 8192).entry->policy.balanced());
    CHECK(plan_of(4, 131072).entry->policy.balanced());
  }
}

TEST_CASE("splits depend on capacities only, fill the chip and never exceed the tiles") {
  each_small_entry([](const PagedAttentionEntry& e) {
    if (e.policy.bulk() || e.policy.balanced()) return;  // which cut in their own ways
    const ArchFacts& facts = facts_of(e.arch);
    const auto splits = [&](int batch, std::int64_t context, int window = 0) {
      PagedAttentionProblem p = problem_of(e.spec, batch, 8, 1, context);
      p.sliding_window = window;
      return paged_attention_splits(p, e.policy, facts);
    };
    CHECK(splits(1, 16) == 1);
    CHECK(splits(1, 131072) > 8);
    CHECK(splits(1, 131072) <= max_splits);
    CHECK(splits(1, tile_of(e)) == 1);
    CHECK(splits(300 * facts.compute_units, 65536) == 1);  // the batch fills the chip many times over
    CHECK(splits(1, 131072, 16) <= 2);                     // a window leaves at most two tiles
    CHECK(splits(1, 131072, std::numeric_limits<std::int32_t>::max()) == splits(1, 131072));
    PagedAttentionProblem p = problem_of(e.spec, 1, 8, 1, 0);
    p.table_columns = 0;
    CHECK(paged_attention_splits(p, e.policy, facts) == 1);
  });
}

TEST_CASE("workspace: an output and an lse in f32 for every row and split, nothing for one split") {
  each_arch([](const PagedAttentionEntry& e) {
    PagedAttentionProblem p = problem_of(e.spec, 3, 8, 2, 4096);
    CHECK(paged_attention_workspace_size(p, 1) == 0);
    CHECK(paged_attention_workspace_size(p, 5) == std::size_t{3} * 2 * 8 * 5 * (64 + 1) * 4);
    p.batch = 1 << 20;  // more bytes than 32 bits count
    CHECK(paged_attention_workspace_size(p, max_splits) == (std::size_t{1} << 20) * 2 * 8 * 128 * (64 + 1) * 4);
  });
}

TEST_CASE("workspace: two parts a block of a balanced launch, of no more blocks than stages, nothing for clusters") {
  every_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e), stages = (192 + tile - 1) / tile;
    const PagedAttentionProblem small = problem_of(e.spec, 2, 8, 1, 192), large = problem_of(e.spec, 300, 8, 4, 9999);
    const auto bytes = [&](const PagedAttentionProblem& p) { return PagedAttentionPlan{&e, 1, {}}.workspace_bytes(p); };
    const auto parts = [&](std::int64_t blocks) {
      return std::size_t(2 * blocks) * e.policy.block_rows() * (e.spec.head_size + 1) * 4;
    };
    if (e.policy.balanced()) {
      CHECK(bytes(small) == parts(2 * stages));
      CHECK(bytes(large) == parts(paged_attention_chip_blocks(e.policy, facts_of(e.arch))));
      PagedAttentionProblem window = small;  // which may begin inside a stage
      window.sliding_window = 1;
      CHECK(bytes(window) == parts(2 * std::min(2, stages)));
    } else {
      CHECK(bytes(large) == 0);
    }
    if (e.policy.bulk()) CHECK(PagedAttentionPlan{&e, splits_for(e, 8), {}}.workspace_bytes(large) == bytes(large));
  });
}

TEST_CASE("the selected plan is right, whatever it chose") {
  each_arch([](const PagedAttentionEntry& e) {
    for (const PagedAttentionSpec& spec : paged_attention_specs(e.arch)) {
      const std::vector<std::int32_t> lengths{300, 7, 0};
      PagedAttentionCase c = case_for(e, lengths);
      c.kv = spec.kv;
      c.quant = spec.quant;
      c.head_size = spec.head_size;
      c.num_q_heads = 10;
      c.num_kv_heads = 2;
      c.mtp = 4;
      Call call(c, lengths);
      call.fill();
      PagedAttentionPlan plan;
      REQUIRE(paged_attention_select(call.prepare(1).p, all_paged_attention_entries(), facts_of(e.arch), plan).ok());
      INFO(describe(*plan.entry) << " " << plan.name());
      CHECK(call.verify(call.run(*plan.entry, plan.splits), call.expected()).pass);
    }
  });
}

}  // namespace
}  // namespace tilewave::test
