// SPDX-License-Identifier: MIT
// When a paced block fetches, in a room whose clock moves; and which launches are paced.
#include <vector>

#include "test/catch_compat.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::test {
namespace {

struct Clock {
  static inline std::uint64_t now = 0;
  static std::uint64_t nanoseconds() { return now; }
  static void pause_until(std::uint64_t time) { now = max_of(now, time); }
  static bool any(bool predicate) { return predicate; }
};

/// When stages of a block are fetched that needs `each` ns for one.
std::vector<std::uint64_t> fetched_at(int stages, float stage_ns, float share, std::uint64_t each) {
  Clock::now = 1000;
  PagedAttentionPace<Clock, 4> pace(stage_ns);
  std::vector<std::uint64_t> times;
  for (int i = 0; i < stages; ++i) {
    pace.look();
    times.push_back(Clock::now - 1000);
    Clock::now += each;
    if (i + 1 < stages) pace.wait([&] { return share; });
  }
  return times;
}

TEST_CASE("pace: a block fills its ring, then keeps to its share, and does not wait behind its last stage") {
  const std::vector<std::uint64_t> times = fetched_at(12, 10.0f, 100.0f, 1);
  for (int i = 0; i < 4; ++i) CHECK(times[i] == static_cast<std::uint64_t>(i));
  for (int i = 4; i < 12; ++i) CHECK(times[i] == static_cast<std::uint64_t>(i) * 1000);
  CHECK(Clock::now - 1000 == 11001);
  (void)fetched_at(4, 10.0f, 100.0f, 1);
  CHECK(Clock::now - 1000 == 4);
}

TEST_CASE("pace: a block that is behind never waits, nor does one without a pace") {
  const std::vector<std::uint64_t> behind = fetched_at(12, 10.0f, 100.0f, 1300), free = fetched_at(12, 0.0f, 100.0f, 1);
  for (int i = 0; i < 12; ++i) {
    CHECK(behind[i] == static_cast<std::uint64_t>(i) * 1300);
    CHECK(free[i] == static_cast<std::uint64_t>(i));
  }
}

TEST_CASE("pace: of launches whose blocks all run in two rounds at most, those rounds that take most of the chip") {
  const PagedAttentionSpec spec{.head_size = 128};
  // 64 tokens of K and V in bf16, 32 KiB, at 4800 bytes a ns.
  const float all = 32768 / (0.94f * 4800);
  /// What the blocks of full rounds, and those of the last, need for a stage, as shares of what all of them need.
  const auto check = [&](const PagedAttentionPolicy& policy, int batch, int splits, int full, int last) {
    PagedAttentionProblem p{.spec = spec, .batch = batch, .num_q_heads = 8, .num_kv_heads = 1};
    p.block_size = 64;
    p.table_columns = 128;
    p.k_strides = packed_key_strides(spec, 1, 64);
    p.v_strides = packed_value_strides(spec, 1, 64, true);
    const PagedAttentionArgs a = paged_attention_args(p, policy, sm90_facts, splits);
    const int blocks = policy.balanced() ? a.workers : batch * splits;
    CAPTURE(batch, splits, blocks, a.last_round, a.stage_ns, a.last_stage_ns);
    const auto share = [&](int of) { return Approx(all * static_cast<float>(of) / static_cast<float>(blocks)); };
    CHECK(a.last_stage_ns == share(last));
    if (a.last_round > 0) CHECK(a.stage_ns == share(full));
  };
  const PagedAttentionPolicy one = detail::staged_policy(spec, 8),
                             three = detail::staged_policy(spec, 8, {.per_sm = 3}),
                             two = detail::staged_policy(spec, 8, {.per_sm = 1, .groups = 2});
  for (const int batch : {1, 98}) check(one, batch, 1, 0, 0);
  for (const int batch : {99, 132, 264}) check(one, batch, 1, 0, batch);
  for (const int batch : {265, 362}) check(one, batch, 1, 264, 0);
  for (const int batch : {363, 528}) check(one, batch, 1, 264, batch - 264);
  for (const int batch : {529, 1000}) check(one, batch, 1, 0, 0);
  check(two, 133, 1, 132, 0);
  check(two, 231, 1, 132, 99);
  check(three, 396, 1, 0, 396);
  check(one, 28, 8, 0, 224);
  check(one, 29, 8, 231, 0);  // clusters of 8 leave an eighth of the chip idle
  for (const int batch : {1, 1000}) check(detail::balanced(one), batch, 1, 0, 264);
}

}  // namespace
}  // namespace tilewave::test
