// SPDX-License-Identifier: MIT
// What a cache write leaves in memory is read by the kernels of paged attention on the same device, and compared with
// attention in double over what was written.
#include "test/ops/kv_cache_write/read_back.hpp"

#include "entries/paged_attention.hpp"

namespace tilewave::test {
namespace {

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

  /// By the plan that is selected. Empty, or what went wrong.
  std::string run(const ArchFacts& facts) {
    PagedAttentionPlan plan;
    Status status = paged_attention_select(p, all_paged_attention_entries(), facts, plan);
    if (!status.ok()) return std::string("not selected: ") + status.reason;
    p.workspace_bytes = paged_attention_workspace_size(p, plan);
    workspace = bench::DeviceBuffer(p.workspace_bytes);
    p.workspace = workspace.data();
    status = plan.entry->launch(p, plan.num_splits, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running attention");
    out.download();
    return "";
  }
};

TEST_CASE("kv_cache_write: entries of paged attention read what was written, plain and shuffled") {
  constexpr int tokens = 37;
  int read = 0;
  for (const KvCacheWriteEntry* e : all_kv_cache_write_entries()) {
    const KvCacheWriteSpec& s = e->spec;
    // Default entries of attention: bf16 queries, V by dimensions, no scales of heads.
    if (s.x != DType::bf16 || s.quant == QuantMode::per_head || s.group > 0) continue;
    const auto size = static_cast<int>(e->policy.columns(s.x));
    if (size != 64 && size != 128) continue;
    for (const CacheLayout layout : {CacheLayout::plain, CacheLayout::shuffled}) {
      INFO(name_of(e->arch) << "/" << name_of(s) << "/" << name_of(e->policy) << ", layout "
                            << static_cast<int>(layout));
      CacheCall call(s, {tokens, 2, 2, size, size, 16, 3}, layout, IndexType::i32, false);
      call.set_slots(read_back_slot);
      REQUIRE(e->launch(call.device, {}).ok());
      Reader reader(call, tokens);
      REQUIRE(reader.run(facts_of(e->arch)) == "");
      for (int h = 0; h < 2; ++h) {
        // Probabilities and out are rounded to 8 bits, codes to 4.
        CHECK(relative_error(attended(call.host, tokens, h), [&](int d) {
                return reference::element(DType::bf16, reader.out.host.data(), h * size + d);
              }) < (is_fp8(s.kv) ? 0.08 : 0.01));
      }
      ++read;
    }
  }
  CHECK(read > 0);
}

}  // namespace
}  // namespace tilewave::test
