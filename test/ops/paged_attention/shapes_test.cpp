// SPDX-License-Identifier: MIT
// Every entry against the reference, at lengths around all of its boundaries.
#include <array>
#include <set>

#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test {
namespace {

constexpr std::array block_sizes{16, 48, 64, 128, 1024};
constexpr std::array groups{1, 3, 5, 8, 16};
constexpr std::array split_counts{1, 2, 7};

struct Shape {
  int block_size, group, mtp;
  bool trans_v;
  std::size_t from = 0, step = 1;  // of the boundary lengths: every step-th
};

/// The entries of one spec, of all architectures. Those of one fp8 flavour share their answers.
struct Family {
  PagedAttentionSpec spec;
  std::vector<const PagedAttentionEntry*> entries;
};

std::vector<Family> families() {
  std::vector<Family> all;
  for (const PagedAttentionEntry* e : all_paged_attention_entries()) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const Family& f) { return f.spec == e->spec; });
    if (same == all.end()) {
      all.push_back({e->spec, {e}});
    } else {
      same->entries.push_back(e);
    }
  }
  return all;
}

/// Runs the entries of a family on one shape, with the boundary lengths of all of them. splits(i) is for the i-th
/// entry. In the slice of tests it runs every second entry, by turns.
template <class Splits>
void check_family(const Family& family, const Shape& shape, std::size_t turn, Splits splits) {
  std::set<std::int32_t> boundaries;
  for (const PagedAttentionEntry* e : family.entries) {
    const std::vector<std::int32_t> lengths = boundary_lengths(*e);
    boundaries.insert(lengths.begin(), lengths.end());
  }
  const std::vector<std::int32_t> all(boundaries.begin(), boundaries.end());
  std::vector<std::int32_t> lengths;
  for (std::size_t i = shape.from; i < all.size(); i += shape.step) lengths.push_back(all[i]);
  PagedAttentionCase c = case_for(*family.entries.front(), lengths);
  c.block_size = shape.block_size;
  c.mtp = shape.mtp;
  c.num_kv_heads = shape.group <= 5 ? 2 : 1;
  c.num_q_heads = shape.group * c.num_kv_heads;
  c.trans_v = shape.trans_v;
  c.inputs = bench::Inputs::varied;
  Call call(c, lengths);
  call.fill();
  const reference::PagedAttentionResult expected = call.expected();
  for (std::size_t i = 0; i < family.entries.size(); ++i) {
    if (!all_entries() && (i + turn) % 2 > 0) continue;
    // If a page has one unit, shuffled and plain V are the same.
    const bool shuffled = shape.trans_v || shape.block_size == family.spec.unit();
    CHECK(takes(*family.entries[i], call.p) == (shuffled || !family.entries[i]->policy.bulk()));
    if (!takes(*family.entries[i], call.p)) continue;
    const bench::Verdict verdict = call.verify(call.run(*family.entries[i], splits(i)), expected);
    INFO(describe(*family.entries[i]) << " splits " << splits(i) << ", " << name_of(c) << ": " << verdict.reason);
    CHECK(verdict.pass);
    CHECK(verdict.elements == std::int64_t{c.batch} * c.mtp * c.num_q_heads * c.head_size);
  }
}

TEST_CASE("every entry is right around all boundaries of its tiles") {
  // The entries of a spec meet every block size and GQA ratio, every mtp, both layouts of V, every split count and
  // every length. Pairs of them rotate from spec to spec.
  if (too_slow_here()) return;
  const std::vector<Family> all = families();
  REQUIRE_FALSE(all.empty());
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (std::size_t i = 0; i < block_sizes.size(); ++i) {
      const Shape shape{block_sizes[i],
                        groups[(2 * i + s) % groups.size()],
                        static_cast<int>(1 + (i + s) % 4),
                        (i + s / 2) % 2 == 0,
                        i % 2,
                        2};
      check_family(all[s], shape, s + i / 2,
                   [&](std::size_t e) { return split_counts[(i + e + s) % split_counts.size()]; });
    }
  }
}

/// Every spec at one block size: all mtp, both layouts, two GQA ratios each, and split counts by turns.
void check_block_size(int block_size) {
  if (too_slow_here()) return;
  const std::vector<Family> all = families();
  for (std::size_t s = 0; s < all.size(); ++s)
    for (const int mtp : {1, 2, 3, 4})
      for (const bool trans_v : {true, false})
        for (int turn = 0; turn < 2; ++turn) {
          const std::size_t at = s + mtp + (trans_v ? 0 : 3) + 2 * turn;
          check_family(all[s], {block_size, groups[at % groups.size()], mtp, trans_v}, at,
                       [&](std::size_t e) { return split_counts[(at + e) % split_counts.size()]; });
        }
}

// Each block size has a test case of its own, so that none takes minutes.
TEST_CASE("every entry on the product of mtp, layouts and head ratios, pages of 16", "[full]") { check_block_size(16); }
TEST_CASE("every entry on the product of mtp, layouts and head ratios, pages of 48", "[full]") { check_block_size(48); }
TEST_CASE("every entry on the product of mtp, layouts and head ratios, pages of 64", "[full]") { check_block_size(64); }
TEST_CASE("every entry on the product of mtp, layouts and head ratios, pages of 128", "[full]") {
  check_block_size(128);
}
TEST_CASE("every entry on the product of mtp, layouts and head ratios, pages of 1024", "[full]") {
  check_block_size(1024);
}

}  // namespace
}  // namespace tilewave::test
