// SPDX-License-Identifier: MIT
// Cache writes: every entry and layout against the reference, in place and not, and read back by paged attention.
#include "test/ops/kv_cache_write/read_back.hpp"
#include "tilewave/reference/paged_attention.hpp"

namespace tilewave::test {
namespace {

template <class F>
void each_entry(F f) {
  for (const KvCacheWriteEntry* e : all_kv_cache_write_entries()) {
    if (e->spec.group > 0) continue;  // see latent_test.cpp
    INFO("entry " << name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy));
    f(*e);
  }
}

const CacheShape shapes[] = {{1, 1, 1, 64, 64, 16, 2},  {7, 3, 2, 128, 128, 16, 3}, {21, 4, 1, 80, 32, 32, 2},
                             {5, 2, 3, 192, 64, 48, 1}, {3, 0, 2, 256, 256, 16, 2}, {6, 1, 1, 512, 64, 16, 1},
                             {40, 5, 1, 96, 96, 64, 2}, {2, 2, 1, 16, 16, 16, 1}};

TEST_CASE("kv_cache_write: every entry writes what the reference says, in every layout, and nothing else") {
  each_entry([&](const KvCacheWriteEntry& e) {
    int variant = 0, taken = 0;
    for (const CacheShape& s : shapes) {
      for (const CacheLayout layout : cache_layouts) {
        const bool in_place = e.spec.q_out == e.spec.x && e.spec.fused && variant % 2 == 0;
        const auto key_out = static_cast<KeyOut>(variant % 3);
        const IndexType index = variant++ % 4 == 0 ? IndexType::i32 : IndexType::i64;
        INFO(s.tokens << " tokens, heads " << s.q_heads << "/" << s.kv_heads << " of " << s.head_size << ", "
                      << s.rotary << " turned, pages of " << s.block_size << ", layout " << static_cast<int>(layout)
                      << (in_place ? ", in place" : "") << ", k_out " << static_cast<int>(key_out));
        CacheCall call(e.spec, s, layout, index, in_place, key_out);
        const Status status = e.launch(call.device, {});
        if (!policy_takes(e.policy, e.spec.x, s.head_size, true)) {
          CHECK(name_of(status.code) == "no_matching_entry");
          continue;
        }
        INFO(status.reason);
        REQUIRE(status.ok());
        call.check();
        ++taken;
      }
    }
    CHECK(taken > 0);
  });
}

TEST_CASE("kv_cache_write: pages of any size with token-major caches, and in every order of waves") {
  each_entry([](const KvCacheWriteEntry& e) {
    if (e.policy.columns(e.spec.x) != 128) return;
    each_schedule([&] {
      CacheCall call(e.spec, {9, 3, 2, 128, 64, 7, 3}, CacheLayout::nhd, IndexType::i64,
                     e.spec.fused && e.spec.q_out == e.spec.x, KeyOut::in_place);
      const KvCacheWriteEntry* chosen = nullptr;
      REQUIRE(kv_cache_write_select(call.device, all_kv_cache_write_entries(), facts_of(e.arch), chosen).ok());
      CHECK(name_of(chosen->policy) == name_of(e.policy));
      REQUIRE(chosen->launch(call.device, {}).ok());
      call.check();
    });
  });
}

TEST_CASE("kv_cache_write: weights may be missing, one or both") {
  each_entry([](const KvCacheWriteEntry& e) {
    if (!e.spec.norm || e.policy.columns(e.spec.x) != 64) return;
    for (const int missing : {1, 2, 3}) {
      CacheCall call(e.spec, {4, 2, 1, 64, 32, 16, 1}, CacheLayout::hnd, IndexType::i32, true, KeyOut::own);
      for (KvCacheWriteProblem* p : {&call.host, &call.device}) {
        if (missing & 1) p->q_norm = nullptr;
        if (missing & 2) p->k_norm = nullptr;
      }
      REQUIRE(e.launch(call.device, {}).ok());
      call.check();
    }
  });
}

/// Compares attention over the written cache, by the reference of paged attention, with a softmax over k and v as
/// given.
void check_read_back(const CacheCall& call, int tokens) {
  const KvCacheWriteProblem& w = call.host;
  PagedAttentionProblem p = read_back_problem(w, call.k_cache.host.data(), call.v_cache.host.data());
  std::vector<std::uint16_t> q(static_cast<std::size_t>(w.kv_heads) * w.head_size);
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] = static_cast<std::uint16_t>(encode(w.spec.x, read_back_query(static_cast<int>(i) % w.head_size)));
  }
  p.q = q.data();
  p.block_table = read_back_table;
  p.context_lengths = &tokens;
  const reference::PagedAttentionResult got = reference::paged_attention(p, 1);
  for (int h = 0; h < w.kv_heads; ++h) {
    // Values stored in 16 bits are those that were given, unless they were rotated. Codes have 4 bits.
    const double limit = is_fp8(w.spec.kv) ? 0.1 : w.spec.fused ? 0.01 : 1e-9;
    CHECK(relative_error(attended(w, tokens, h), [&](int d) { return got.out[h * w.head_size + d]; }) < limit);
  }
}

TEST_CASE("kv_cache_write: paged attention reads what was written") {
  each_entry([](const KvCacheWriteEntry& e) {
    if (e.policy.columns(e.spec.x) != 64) return;
    for (const CacheLayout layout : cache_layouts) {
      constexpr int tokens = 37;  // one sequence, its pages 2, 0 and 1
      CacheCall call(e.spec, {tokens, 2, 2, 64, 64, 16, 3}, layout, IndexType::i32, false);
      call.set_slots(read_back_slot);
      REQUIRE(e.launch(call.device, {}).ok());
      call.check();
      check_read_back(call, tokens);
    }
  });
}

}  // namespace
}  // namespace tilewave::test
