// SPDX-License-Identifier: MIT
// What a cache write leaves in memory is read by the kernels of paged attention on the same device, and compared with
// attention in double over what was written.
#include "test/ops/kv_cache_write/read_back.hpp"

#include <set>

#include "entries/paged_attention.hpp"

namespace tilewave::test {
namespace {

// A build for the label full has entries that no other program has.
#ifdef READ_BACK_ALL
constexpr bool reads_all = true;
#else
constexpr bool reads_all = false;
#endif

/// All entries of attention that this program has.
const std::vector<const PagedAttentionEntry*>& readers() {
  static const std::vector<const PagedAttentionEntry*> all = [] {
    std::vector<const PagedAttentionEntry*> lists;
    const auto add = [&](const auto& list) { lists.insert(lists.end(), list.begin(), list.end()); };
    add(all_paged_attention_entries());
    add(all_paged_attention_feature_entries());
    add(all_paged_attention_score_entries());
#ifdef READ_BACK_ALL
    add(all_paged_attention_written_entries());
#endif
    return lists;
  }();
  return all;
}
/// Whether one of the entries reads caches of this kind, and the spec of that entry, which may allow pages of any size.
bool has_reader(ArchId arch, PagedAttentionSpec& spec) {
  for (const bool any : {false, true}) {
    spec.any_block_size = any;
    for (const PagedAttentionEntry* e : readers())
      if (e->arch == arch && e->spec == spec) return true;
  }
  return false;
}

/// Everything that the caller of both ops has on the device beside the caches.
struct Reader {
  PagedAttentionProblem p;
  Bytes q, out, table, length;
  bench::DeviceBuffer workspace;

  Reader(const CacheCall& call, std::int32_t tokens)
      : p(read_back_problem(call.device, call.k_cache.device(), call.v_cache.device())),
        q(std::int64_t{2} * p.num_q_heads * p.spec.head_size),
        out(std::int64_t{2} * p.num_q_heads * p.spec.head_size),
        table(sizeof(read_back_table)),
        length(4) {
    for (int i = 0; i < p.num_q_heads * p.spec.head_size; ++i) {
      const std::uint32_t bits = encode(p.spec.q, read_back_query(i % p.spec.head_size));
      std::memcpy(&q.host[2 * i], &bits, 2);
    }
    std::memcpy(table.host.data(), read_back_table, sizeof(read_back_table));
    std::memcpy(length.host.data(), &tokens, 4);
    for (const Bytes* b : {&q, &table, &length}) b->upload();
    p.q = q.device();
    p.out = out.device();
    p.block_table = static_cast<const std::int32_t*>(table.device());
    p.context_lengths = static_cast<const std::int32_t*>(length.device());
  }

  /// Runs the plan that is selected. Returns what went wrong, or nothing.
  std::string run(const ArchFacts& facts) {
    PagedAttentionPlan plan;
    Status status = paged_attention_select(p, readers(), facts, plan);
    if (!status.ok()) return std::string("not selected: ") + status.reason;
    p.workspace_bytes = plan.workspace_bytes(p);
    workspace = bench::DeviceBuffer(p.workspace_bytes);
    p.workspace = workspace.data();
    status = plan.launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running attention");
    out.download();
    return "";
  }
};

TEST_CASE("kv_cache_write: entries of paged attention read what was written, in every type and layout") {
  constexpr int tokens = 37;
  std::set<std::string> read, all;
  for (const KvCacheWriteEntry* e : all_kv_cache_write_entries()) {
    const KvCacheWriteSpec& s = e->spec;
    if (s.group > 0) continue;  // DeepSeek's latent heads are read by other kernels
    for (const CacheLayout layout : cache_layouts) {
      const bool dim_major = layout == CacheLayout::plain || layout == CacheLayout::shuffled;
      // The slice of tests has no entries of paged_attention_written_specs.
      const bool full = dim_major ? s.kv == DType::f16 : s.quant == Scaling::per_head;
      const std::string kind =
          std::string(name_of(e->arch)) + "/" + name_of(s) + ", layout " + std::to_string(static_cast<int>(layout));
      if (!full || reads_all) all.insert(kind);
      for (const int size : {64, 128, 192}) {
        CacheCall call(s, {tokens, 2, 2, size, size, 16, 3}, layout, IndexType::i32, false);
        const KvCacheWriteEntry* chosen = nullptr;
        REQUIRE(kv_cache_write_select(call.device, all_kv_cache_write_entries(), facts_of(e->arch), chosen).ok());
        Reader reader(call, tokens);
        if (chosen != e || !has_reader(e->arch, reader.p.spec)) continue;
        INFO(kind << ", " << name_of(e->policy) << ", head_size " << size);
        call.set_slots(read_back_slot);
        REQUIRE(e->launch(call.device, {}).ok());
        REQUIRE(reader.run(facts_of(e->arch)) == "");
        for (int h = 0; h < 2; ++h) {
          // Probabilities and out are rounded to 8 bits, codes to 4.
          CHECK(relative_error(attended(call.host, tokens, h), [&](int d) {
                  return reference::element(reader.p.spec.out, reader.out.host.data(), h * size + d);
                }) < (is_fp8(s.kv) ? 0.08 : 0.01));
        }
        read.insert(kind);
      }
    }
  }
  CHECK(read == all);
}

}  // namespace
}  // namespace tilewave::test
