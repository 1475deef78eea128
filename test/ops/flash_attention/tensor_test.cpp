// SPDX-License-Identifier: MIT
// Flash attention of sm90 through shared memory: its tiles of keys and of rows, items that follow each other on a block,
// and the promise of batch-invariant calls.
#include <cstring>

#include "test/ops/flash_attention/shapes.hpp"

namespace tilewave::test::tensor {
namespace {

/// bf16, and fp8 whose values are transposed.
bool plain(const FlashAttentionSpec& s) { return s == FlashAttentionSpec{} || (is_fp8(s.q) && !s.paged()); }

/// Calls f(entry) for every entry through shared memory whose spec is wanted.
template <class Wanted, class F>
void each_tensor_entry(const Wanted& wanted, const F& f) {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (entry->policy.path != FlashAttentionPath::tensor || !wanted(entry->spec)) continue;
    INFO(name_of(entry->spec) << " " << name_of(entry->policy));
    f(*entry);
  }
}
void check_tensor(const FlashShape& shape) {
  each_tensor_entry(plain, [&](const FlashAttentionEntry& entry) {
    FlashCall call(entry.spec, shape);
    CAPTURE(shape.q[0], shape.kv[0]);
    CHECK(call.run(entry) == "");
  });
}

TEST_CASE("keys around one, two and three tiles of wave groups") {
  for (const std::int32_t keys : {79, 80, 81, 95, 96, 97, 127, 128, 129, 160, 161, 192, 193, 256, 257})
    check_tensor({.q = {2}, .kv = {keys}, .q_heads = 1});
}

TEST_CASE("rows around a wave group's and a block's, where each sees other keys") {
  for (const std::int32_t rows : {63, 65, 128, 129, 193})
    check_tensor({.q = {rows}, .kv = {rows + 20}, .q_heads = 1, .causal = true});
}

TEST_CASE("a wave group's rows end at half of their last tile of keys, and one key before and behind") {
  for (const std::int32_t keys : {128, 256})
    for (const std::int32_t rows : {126, 127, 128})
      check_tensor({.q = {rows}, .kv = {keys}, .q_heads = 1, .causal = true});
}

TEST_CASE("windows whose edges lie within tiles of wave groups, on both sides of whole ones") {
  check_tensor({.q = {66}, .kv = {420}, .q_heads = 1, .causal = true, .left = 300});
  check_tensor({.q = {20}, .kv = {400}, .q_heads = 1, .left = 170, .right = 100, .sinks = true});
}

TEST_CASE("scores lie far apart, so that references of some rows rise at any tile") {
  check_tensor({.q = {130}, .kv = {500}, .q_heads = 1, .causal = true, .sinks = true, .spread = 3.0f});
}

TEST_CASE("scores all below zero, each tile's far above those of the tile before") {
  FlashShape shape{.q = {66}, .kv = {500}, .q_heads = 1};
  shape.q_of = [](auto, auto, auto, int d) { return d == 0 ? 8.0f : 0.0f; };
  shape.k_of = [](auto, std::int64_t key, auto, int d) { return d == 0 ? -1.0f - static_cast<float>(key) / 8 : 0.0f; };
  check_tensor(shape);
}

TEST_CASE("scores rise from one tile to the next, by little for many keys or beyond the range of exponentials") {
  for (const float step : {30.0f, 48.0f, 4000.0f}) {  // 4, 6 and 510 of log2 units
    FlashShape shape{.q = {66}, .kv = {500}, .q_heads = 1, .causal = true};
    shape.q_of = [&](auto, std::int64_t row, auto, int d) {
      return d != 0 ? 0.0f : step > 100 ? 32.0f : 1.0f + row % 2;
    };
    shape.k_of = [&](auto, std::int64_t key, auto, int d) {
      return d != 0 ? 0.0f : (key < 300 ? 0.5f : -0.5f) * (step > 100 ? step / 32 : step);
    };
    check_tensor(shape);
  }
}

TEST_CASE("scores under a soft cap, near zero and far beyond the cap, with masks and sinks") {
  for (const float spread : {0.3f, 3.0f})
    check_flash({.q = {70}, .kv = {200}, .q_heads = 1, .causal = true, .left = 150, .sinks = true, .spread = spread},
                [](const FlashAttentionSpec& s) { return s.soft_cap; });
}

TEST_CASE("more items than blocks, some of them without keys or queries") {
  FlashShape shape{.q = {}, .kv = {}, .layout = FlashLayout::ragged, .causal = true};
  for (std::int32_t b = 0; b < 72; ++b)
    shape.q.push_back(b % 5 == 4 ? 0 : 1), shape.kv.push_back(b % 7 == 3 ? 0 : 1 + b % 3);
  check_tensor(shape);
}

TEST_CASE("rows of a tile are queries of several heads, however many share a kv head") {
  check_tensor({.q = {3}, .kv = {80}, .q_heads = 8, .kv_heads = 2, .causal = true, .sinks = true});
  check_tensor({.q = {30}, .kv = {70}, .q_heads = 7, .causal = true, .left = 20});
  each_tensor_entry(
      [](const FlashAttentionSpec& s) { return s.paged(); },
      [&](const FlashAttentionEntry& entry) {
        FlashCall call(entry.spec,
                       {.q = {1, 40, 5}, .kv = {100, 43, 9}, .q_heads = 5, .layout = FlashLayout::nhd, .causal = true});
        CHECK(call.run(entry) == "");
      });
}

TEST_CASE("sequences of one row tile alternate with longer ones, whichever are more") {
  for (const int longer : {1, 4}) {
    FlashShape shape{.q = {}, .kv = {}, .q_heads = 2, .layout = FlashLayout::ragged, .causal = true};
    for (int b = 0; b < 45; ++b) {
      const bool is_long = longer == 1 ? b == 33 : b % 5 != 0 && b < 12;
      shape.q.push_back(is_long ? 200 + b : 1 + b % 2), shape.kv.push_back(is_long ? 210 + b : 3 + b % 50);
    }
    check_tensor(shape);
  }
}

TEST_CASE("packed sequences, more than lanes count at a time, of which most have no queries") {
  FlashShape shape{
      .q = std::vector<std::int32_t>(70), .kv = std::vector<std::int32_t>(70, 3), .layout = FlashLayout::ragged};
  shape.q[3] = 2, shape.q[33] = 131, shape.q[69] = 1;
  check_tensor(shape);
}

TEST_CASE("blocks take items by a counter, which is 0 again behind each call") {
  FlashShape few{.q = {70}, .kv = {90}, .q_heads = 1, .causal = true, .by_counter = true};
  FlashShape many{.q = {}, .kv = {}, .layout = FlashLayout::ragged, .causal = true, .by_counter = true};
  for (std::int32_t b = 0; b < 90; ++b)
    many.q.push_back(b == 40 ? 300 : b % 3), many.kv.push_back(b == 40 ? 310 : b % 7 == 3 ? 0 : 2 + b % 3);
  FlashShape none{.q = {0, 0}, .kv = {5, 0}, .layout = FlashLayout::ragged, .q_capacity = 9, .by_counter = true};
  for (const FlashShape& shape : {few, many, none}) {
    each_tensor_entry(plain, [&](const FlashAttentionEntry& entry) {
      FlashCall call(entry.spec, shape);
      for (int run = 0; run < 2; ++run) {
        CHECK(call.run(entry) == "");
        CHECK(call.counter() == 0);
      }
    });
  }
}

/// In fp8, products sum up the probabilities that outputs are divided by, and additions those of the lse.
TEST_CASE("outputs have the same bits whether the lse is written or not") {
  FlashShape shape{.q = {10}, .kv = {270}, .q_heads = 1, .causal = true, .sinks = true, .spread = 2.0f};
  each_tensor_entry(plain, [&](const FlashAttentionEntry& entry) {
    shape.lse = true;
    FlashCall with(entry.spec, shape);
    CHECK(with.run(entry) == "");
    shape.lse = false;
    FlashCall without(entry.spec, shape);
    REQUIRE(entry.launch(without.p, {}).ok());
    const std::vector<std::byte> found = without.answer();
    std::vector<std::byte> wanted = with.answer();
    wanted.resize(found.size());
    CHECK(found == wanted);
  });
}

/// Where the unit keeps 13 bits of a sum throughout, what 6000 keys add comes out a tenth too low.
TEST_CASE("values of one sign are summed up over thousands of keys") {
  const auto native = [](const FlashAttentionSpec& s) { return is_fp8(s.q) && !s.paged(); };
  each_tensor_entry(native, [](const FlashAttentionEntry& entry) { check_values_of_one_sign(entry, 6000); });
}

TEST_CASE("more keys than sums of fp8 are right for are left to path registers, unless a window hides them") {
  each_tensor_entry(plain, [](const FlashAttentionEntry& entry) {
    constexpr std::int32_t most = 1 << 20;
    FlashAttentionProblem p{};
    p.spec = entry.spec;
    p.batch = p.q_heads = p.kv_heads = p.q_length = 1;
    p.kv_length = most, p.causal = true;
    const auto takes = [&] { return flash_attention_takes(entry.policy, FlashAttentionProblem::bshd(p)).ok(); };
    CHECK(takes());
    p.kv_length = most + 1;
    CHECK(takes() == !is_fp8(entry.spec.kv));
    p.window_left = most - 1;
    CHECK(takes());
  });
}

/// Queries of a sequence in one call, and cut into two: the second half sees all keys, the first all but its.
TEST_CASE("a batch-invariant row has the same bits however the queries are cut into calls") {
  each_tensor_entry(plain, [&](const FlashAttentionEntry& entry) {
    constexpr std::int32_t all = 150, cut = 37;
    const FlashAttentionSpec& s = entry.spec;
    const int q_bytes = 2 * s.head_size * size_of(s.q), row_bytes = 2 * s.value_size * size_of(s.out);
    FlashCall whole(entry.spec, {.q = {all}, .kv = {all}, .causal = true, .lse = false});
    REQUIRE(whole.run(entry) == "");
    const std::vector<std::byte> wanted = whole.answer();
    FlashCall second(entry.spec, {.q = {all}, .kv = {all}, .causal = true, .lse = false});
    for (FlashAttentionProblem* p : {&second.p, &second.host}) {
      p->q = static_cast<const std::byte*>(p->q) + cut * q_bytes;
      p->q_length = all - cut;
    }
    REQUIRE(entry.launch(second.p, {}).ok());
    const std::vector<std::byte> found = second.answer();
    CHECK(std::memcmp(found.data(), wanted.data() + cut * row_bytes, (all - cut) * row_bytes) == 0);
  });
}

}  // namespace
}  // namespace tilewave::test::tensor
