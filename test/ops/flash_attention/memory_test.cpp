// SPDX-License-Identifier: MIT
// Where tensors lie and how long sequences are: elements beyond 2^31, lengths around every tile, other lengths with the
// same launch. All that must not be read is NaN in each call (call.hpp).
#include "test/device_memory.hpp"
#include "test/ops/flash_attention/shapes.hpp"

namespace tilewave::test::memory {
namespace {

constexpr std::int64_t far = (std::int64_t{1} << 31) + 4096;  // elements

bool plain(const FlashAttentionSpec& s) { return s == FlashAttentionSpec{}; }
bool plain_pages(const FlashAttentionSpec& s) { return s == FlashAttentionSpec{.storage = KvStorage::paged}; }

TEST_CASE("sequences, heads and pages more than 2^31 elements apart") {
  if (!has_memory(std::size_t{3} * far * 2)) return;
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (!plain(entry->spec) && !plain_pages(entry->spec)) continue;
    const bool pages = entry->spec.paged();
    FlashShape shape{.q = {2, 2}, .kv = {35, 35}, .q_heads = 2, .kv_heads = 2, .causal = true};
    shape.layout = pages ? FlashLayout::nhd : FlashLayout::bshd;
    shape.block_size = 32;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    const auto check = [&](const auto& move) {
      FlashCall call(entry->spec, shape);
      move(call);
      const Status status = flash_attention_takes(entry->policy, call.p);
      INFO(status.reason);
      CHECK((status.ok() || entry->policy.path == FlashAttentionPath::tensor));
      if (status.ok()) CHECK(call.run(*entry) == "");
    };
    if (pages) {
      shape.kv = {35, 20};  // three pages
      check([](FlashCall& call) { call.move_pages(far); });
      continue;
    }
    check([](FlashCall& call) { call.move_keys({.sequence = far, .token = 256, .head = 128}); });
    check([](FlashCall& call) { call.move_keys({.sequence = 35 * 128, .token = 128, .head = far}); });
  }
}

/// Lengths around the tiles of an entry: one packed call has the queries, another the keys.
void check_lengths(const FlashAttentionEntry& entry, int tiles) {
  const FlashAttentionPolicy& policy = entry.policy;
  INFO(name_of(entry.arch) << " " << name_of(entry.spec) << " " << name_of(policy));
  FlashShape of_keys{.q = {}, .kv = {}, .q_heads = 1, .causal = true}, of_rows = of_keys;
  of_keys.layout = of_rows.layout = entry.spec.paged() ? FlashLayout::nhd : FlashLayout::ragged;
  for (int tile = 0; tile <= tiles; ++tile)
    for (const int more : {-1, 0, 1}) {
      if (tile * policy.keys + more >= 0) {
        of_keys.q.push_back(1 + (tile + more) % 3), of_keys.kv.push_back(tile * policy.keys + more);
      }
      const int part = policy.rows / (policy.path == FlashAttentionPath::registers ? policy.waves : 2);
      if (tile * part + more >= 0 && tile <= 2) {
        of_rows.q.push_back(tile * part + more), of_rows.kv.push_back(tile * part + more + 2 * tile);
      }
    }
  for (const FlashShape& shape : {of_keys, of_rows}) {
    FlashCall call(entry.spec, shape);
    if (flash_attention_takes(policy, call.p).ok()) CHECK(call.run(entry) == "");
  }
}

TEST_CASE("lengths around each tile, in one packed call") {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (plain(entry->spec) || plain_pages(entry->spec)) check_lengths(*entry, 2);
  }
}
TEST_CASE("lengths around each of nine tiles, for every spec", "[full]") {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) check_lengths(*entry, 9);
}

TEST_CASE("a launch takes other lengths from the device, up to its capacities") {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (!plain(entry->spec) && !plain_pages(entry->spec)) continue;
    FlashShape shape{.q = {40, 70}, .kv = {120, 150}, .causal = true, .q_capacity = 75, .kv_capacity = 160};
    shape.layout = entry->spec.paged() ? FlashLayout::nhd : FlashLayout::ragged;
    FlashCall call(entry->spec, shape);
    if (!flash_attention_takes(entry->policy, call.p).ok()) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    CHECK(call.run(*entry) == "");
    // The second sequence's tokens begin where they began, and fewer of them are left.
    call.set_lengths({40, 9}, {120, 11});
    CHECK(call.run(*entry) == "");
    call.set_lengths({40, 0}, {120, 0});
    CHECK(call.run(*entry) == "");
  }
}

}  // namespace
}  // namespace tilewave::test::memory
