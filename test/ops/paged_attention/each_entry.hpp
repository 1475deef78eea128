// SPDX-License-Identifier: MIT
// The entries of this build, as tests go through them, and the lengths worth testing each with.
#pragma once

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "bench/ops/paged_attention/case.hpp"
#include "entries/paged_attention.hpp"
#include "test/catch_compat.hpp"
#include "test/turns.hpp"

namespace tilewave::test {

using bench::PagedAttentionCase;

/// `gfx950/q_bf16.kv_bf16.none.h64/t128.r1.w1x4.p1x2`
inline std::string describe(const PagedAttentionEntry& e) {
  return std::string(name_of(e.arch)) + "/" + name_of(e.spec) + "/" + name_of(e.policy, e.spec);
}

/// Whether this build is instrumented by ThreadSanitizer, which makes a switch between lanes a thousand times slower.
#if TILEWAVE_ON_GPU_COMPILER
inline constexpr bool under_tsan = false;
#else
inline constexpr bool under_tsan = host::under_tsan;
#endif

/// Whether a test must be skipped for that, which the output of the test then says.
inline bool too_slow_here() {
  if (under_tsan) skip_test("kernels are too slow under ThreadSanitizer; bugclass 14 runs them all on small shapes");
  return under_tsan;
}

/// Calls f(entry) for every entry of a list. A failure inside names the entry.
template <class F>
void every_of(std::span<const PagedAttentionEntry* const> entries, F f) {
  if (too_slow_here()) return;
  for (const PagedAttentionEntry* e : entries) {
    INFO("entry " << describe(*e));
    f(*e);
  }
}
/// The same for those whose turn it is (turns.hpp).
template <class F>
void each_of(std::span<const PagedAttentionEntry* const> entries, F f) {
  every_of(in_turn(entries), f);
}
/// The same for the default entries of this build: all of them, or those whose turn it is.
template <class F>
void every_entry(F f) {
  every_of(all_paged_attention_entries(), f);
}
template <class F>
void each_entry(F f) {
  each_of(all_paged_attention_entries(), f);
}
/// The same for the entries of paged_attention_score_specs() that have(spec).
template <class Has, class F>
void each_score_entry(Has has, F f) {
  each_of(all_paged_attention_score_entries(), [&](const PagedAttentionEntry& e) {
    if (has(e.spec)) f(e);
  });
}
/// The same as each_entry for the entries of head_size 64, for tests that no head size changes. Their policies differ,
/// and masks need all of them.
template <class F>
void each_small_entry(F f) {
  each_entry([&](const PagedAttentionEntry& e) {
    if (e.spec.head_size == 64) f(e);
  });
}
/// Calls f with the first entry of each architecture that `each` calls its function with.
template <class Each, class F>
void first_of_each_arch(Each each, F f) {
  const PagedAttentionEntry* last = nullptr;
  each([&](const PagedAttentionEntry& e) {
    if (last == nullptr || last->arch != e.arch) f(e);
    last = &e;
  });
}
/// One entry of each architecture, for tests of what no policy or spec changes.
template <class F>
void each_arch(F f) {
  first_of_each_arch(
      [](auto g) {
        every_entry([&](const PagedAttentionEntry& e) {
          if (e.spec.head_size == 64) g(e);
        });
      },
      f);
}

/// Whether the entry takes a problem that others of its spec take. Bulk and balanced entries take fewer problems.
inline bool takes(const PagedAttentionEntry& e, const PagedAttentionProblem& p) {
  const int splits = p.split_tokens > 0 ? paged_attention_fixed_splits(p, e.policy) : 1;
  return paged_attention_takes(p, e.policy, facts_of(e.arch), splits).ok();
}
/// The wanted number of splits, or the nearest that the entry can do. A balanced entry takes one, a bulk one 1, 2, 4 or
/// 8.
inline int splits_for(const PagedAttentionEntry& e, int wanted) {
  if (e.policy.balanced()) return 1;
  return e.policy.bulk() ? static_cast<int>(std::bit_floor(std::min<unsigned>(wanted, max_bulk_splits))) : wanted;
}

/// The tokens that a block, a wave and a lane advance by.
inline int tile_of(const PagedAttentionEntry& e) { return e.policy.block_tokens(e.spec); }
inline int wave_tile_of(const PagedAttentionEntry& e) { return AtomFacts::groups * e.spec.unit(); }

/// Lengths around every boundary of the entry's tiles, several tiles, and a prime.
inline std::vector<std::int32_t> boundary_lengths(const PagedAttentionEntry& e) {
  const int unit = e.spec.unit(), wave = wave_tile_of(e), tile = tile_of(e);
  return {0,        1,        2,    3,        unit - 1,     unit,     unit + 1,     wave - 1,     wave,
          wave + 1, tile - 1, tile, tile + 1, 2 * tile - 1, 2 * tile, 2 * tile + 1, 3 * tile + 5, 521};
}

/// A case of the entry's spec for these lengths. Every page is used once, in a random order, and tables are as long as
/// needed.
inline PagedAttentionCase case_for(const PagedAttentionEntry& e, const std::vector<std::int32_t>& lengths) {
  PagedAttentionCase c = bench::case_of(e.arch, e.spec);
  c.block_size = 16;
  c.batch = static_cast<int>(lengths.size());
  c.context_length = std::max(1, lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end()));
  c.distinct_pages = true;
  return c;
}

}  // namespace tilewave::test
