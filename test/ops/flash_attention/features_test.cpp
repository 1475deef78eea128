// SPDX-License-Identifier: MIT
// What only some specs have: bit masks for trees of drafts, ALiBi, other layouts of V, scales, outputs in fp8; and rows
// that hold q, K and V of a token.
#include "test/ops/flash_attention/shapes.hpp"

namespace tilewave::test {
namespace {

/// Calls f for each entry of the short list of features whose spec is wanted.
template <class Wanted, class F>
void each_feature_entry(const Wanted& wanted, const F& f) {
  int ran = 0;
  for (const FlashAttentionEntry* entry : all_flash_attention_feature_entries()) {
    if (!wanted(entry->spec)) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    f(*entry);
    ++ran;
  }
  CHECK(ran > 0);
}
bool with_mask(const FlashAttentionSpec& s) { return s.bit_mask; }

TEST_CASE("every feature in every layout of its keys") {
  each_feature_entry([](const FlashAttentionSpec&) { return true; }, check_spec);
}

/// Eight drafts: each follows another one, or the last of the sequence's own tokens (-1).
constexpr std::int32_t parent[] = {-1, 0, 0, 1, 1, 2, -1, 6};
constexpr std::int32_t drafts = 8;
/// Returns the drafts on the way from the root to draft i, which is the last of them.
std::vector<std::int32_t> path_to(std::int32_t i) {
  std::vector<std::int32_t> path;
  for (; i >= 0; i = parent[i]) path.insert(path.begin(), i);
  return path;
}

TEST_CASE("drafts of a tree see the prefix and their ancestors, as if each path were a sequence") {
  each_feature_entry(with_mask, [](const FlashAttentionEntry& entry) {
    constexpr std::int32_t prefix = 45, width = 128;
    FlashShape shape{.q = {drafts}, .kv = {prefix + drafts}, .layout = FlashLayout::plain};
    shape.sees = [](std::int32_t, std::int64_t i, std::int64_t key) {
      const std::vector<std::int32_t> path = path_to(static_cast<std::int32_t>(i));
      return key < prefix || std::ranges::count(path, key - prefix) > 0;
    };
    FlashCall tree(entry.spec, shape);
    REQUIRE(tree.run(entry) == "");
    const std::vector<std::byte> of_tree = tree.answer();
    for (const std::int32_t last : {4, 5, 7}) {  // leaves
      const std::vector<std::int32_t> path = path_to(last);
      const auto length = static_cast<std::int32_t>(path.size());
      FlashShape alone{.q = {length}, .kv = {prefix + length}, .layout = FlashLayout::plain, .causal = true};
      // Token i of the path is draft path[i] of the tree; the tree's call draws its values so.
      const auto token = [&](std::int64_t i) { return i < prefix ? i : prefix + path[i - prefix]; };
      alone.q_of = [&](auto, std::int64_t i, auto h, int d) { return drawn('q', path[i] * 61 + h, d); };
      alone.k_of = [&](auto, std::int64_t i, auto h, int d) { return drawn('k', token(i) * 61 + h, d); };
      alone.v_of = [&](auto, std::int64_t i, auto h, int d) { return drawn('v', token(i) * 61 + h, d); };
      alone.sees = [](auto, auto, auto) { return true; };
      FlashCall call(entry.spec, alone);
      REQUIRE(call.run(entry) == "");
      const std::vector<std::byte> of_path = call.answer();
      int wrong = 0;
      for (std::int32_t i = 0; i < length; ++i)
        for (std::int32_t element = 0; element < 2 * width; ++element) {
          const double in_tree = reference::element(DType::bf16, of_tree.data(), path[i] * 2 * width + element);
          const double in_path = reference::element(DType::bf16, of_path.data(), i * 2 * width + element);
          wrong += !(std::abs(in_tree - in_path) <= 0x1p-6);  // values are below 2, probabilities rounded to bf16
        }
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("a bit mask that spells the causal mask gives the bits of the causal mask") {
  each_feature_entry(with_mask, [](const FlashAttentionEntry& entry) {
    FlashShape spelled{.q = {30, 5}, .kv = {95, 33}, .layout = FlashLayout::shuffled};
    FlashShape causal = spelled;
    spelled.sees = [&](std::int32_t b, std::int64_t i, std::int64_t key) {
      return key <= spelled.kv[b] - spelled.q[b] + i;
    };
    causal.causal = true;
    causal.sees = [](auto, auto, auto) { return true; };
    FlashCall a(entry.spec, spelled), b(entry.spec, causal);
    REQUIRE(a.run(entry) == "");
    REQUIRE(b.run(entry) == "");
    CHECK(a.answer() == b.answer());
  });
}

TEST_CASE("queries whose bit masks let them see nothing give 0 and lse -inf") {
  each_feature_entry(with_mask, [](const FlashAttentionEntry& entry) {
    FlashShape shape{.q = {4}, .kv = {50}, .layout = FlashLayout::plain};
    shape.sees = [](auto, std::int64_t i, std::int64_t key) { return i % 2 == 1 && key == 49; };
    FlashCall call(entry.spec, shape);
    CHECK(call.run(entry) == "");
  });
}

TEST_CASE("q, K and V of a token in one row") {
  const auto wanted = [](const FlashAttentionSpec& s) { return !s.paged() && s.head_size == s.value_size; };
  check_flash({.q = {21, 21}, .kv = {21, 21}, .q_heads = 4, .kv_heads = 2, .causal = true, .packed_qkv = true}, wanted);
  check_flash({.q = {70, 3},
               .kv = {70, 3},
               .q_heads = 3,
               .kv_heads = 1,
               .layout = FlashLayout::ragged,
               .causal = true,
               .packed_qkv = true},
              [](const FlashAttentionSpec& s) { return s == FlashAttentionSpec{}; });
}

}  // namespace
}  // namespace tilewave::test
