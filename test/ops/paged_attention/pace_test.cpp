// SPDX-License-Identifier: MIT
// When a paced block fetches, with a clock that moves on its own, and which launches are paced.
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

/// The times at which a block fetches its stages, if each stage takes it `each` ns.
std::vector<std::uint64_t> fetched_at(int stages, float stage_ns, float ratio, std::uint64_t each) {
  Clock::now = 1000;
  AttentionPace<Clock, 4> pace(stage_ns);
  std::vector<std::uint64_t> times;
  for (int i = 0; i < stages; ++i) {
    pace.read_clock();
    times.push_back(Clock::now - 1000);
    Clock::now += each;
    if (i + 1 < stages) pace.wait([&] { return ratio; });
  }
  return times;
}

TEST_CASE("pace: a block fills its ring, then keeps its pace, and does not wait behind its last stage") {
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

PagedAttentionProblem problem_of(const PagedAttentionSpec& spec, int batch, int kv_heads, int group) {
  PagedAttentionProblem p{.spec = spec, .batch = batch, .num_q_heads = kv_heads * group, .num_kv_heads = kv_heads};
  p.block_size = 64;
  p.table_columns = 128;
  p.k_strides = packed_key_strides(spec, kv_heads, 64);
  p.v_strides = packed_value_strides(spec, kv_heads, 64, true);
  return p;
}

TEST_CASE("pace: of launches whose blocks all run in two rounds at most, those rounds that take most of the chip") {
  const PagedAttentionSpec spec{.head_size = 128};
  const auto check = [&](const PagedAttentionPolicy& policy, int batch, int splits, int last_round, bool first_paced,
                         bool last_paced) {
    const PagedAttentionArgs a = paged_attention_args(problem_of(spec, batch, 1, 8), policy, sm90_facts, splits);
    CAPTURE(batch, splits, a.last_round, a.stage_ns, a.last_stage_ns);
    // A stage is 64 tokens of K and V in bf16, 32 KiB, at 4800 bytes a ns.
    const float stage_ns = 32768 / (0.94f * 4800);
    CHECK(a.last_round == last_round);
    CHECK(a.stage_ns == Approx(first_paced ? stage_ns : 0.0f));
    CHECK(a.last_stage_ns == Approx(last_paced ? stage_ns : 0.0f));
  };
  const PagedAttentionPolicy one = detail::bulk_policy(spec, 8),
                             two = detail::bulk_policy(spec, 8, {.per_sm = 1, .groups = 2}),
                             three = detail::bulk_policy(spec, 8, {.per_sm = 3});
  for (const int batch : {0, 1, 98}) check(one, batch, 1, 0, false, false);
  for (const int batch : {99, 132, 264}) check(one, batch, 1, 0, false, true);
  for (const int batch : {265, 362}) check(one, batch, 1, 264, true, false);
  for (const int batch : {363, 528}) check(one, batch, 1, 264, true, true);
  check(one, 529, 1, 528, false, false);
  check(one, 1000, 1, 792, false, false);
  check(two, 133, 1, 132, true, false);
  check(two, 231, 1, 132, true, true);
  check(three, 396, 1, 0, false, true);
  check(one, 28, 8, 0, false, true);
  check(one, 29, 8, 224, true, false);  // clusters of 8 leave an eighth of the chip idle, and are not cut
  for (const int batch : {1, 1000}) check(detail::balanced(one), batch, 1, 0, false, true);
}

/// Asks each block for its stages of the round, as the wave that fetches does.
template <class L>
struct RatiosKernel {
  using Room = typename L::Room;
  static constexpr int block_threads = Room::facts.wave_lanes, waves_per_simd = 1;
  struct Args {
    PagedAttentionArgs problem;
    float* ratios;
  };
  struct Shared {};
  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    PagedAttentionWorkQueue<L> queue(args.problem);
    queue.start();
    if (queue.stages() == 0) return;
    const float ratio = queue.round_stages_per_stage();
    if (Room::lane_id() == 0) args.ratios[Room::block_id()] = ratio;
  }
};

/// The ratio of each block of a launch with 8 rows, for 16 query heads on each of 3 KV heads. Two row blocks read the same
/// stages at the same time. It is -1 where a block has no stage.
std::vector<float> ratios_of(const std::vector<std::int32_t>& lengths, std::int32_t last_round) {
  using Room = host::Backend<ArchId::sm90>;
  constexpr PagedAttentionSpec spec{.head_size = 128};
  constexpr PagedAttentionPolicy policy = detail::bulk_policy(spec, 8);
  using K = RatiosKernel<PagedAttentionBulkLayout<Room, spec, policy>>;
  PagedAttentionProblem p = problem_of(spec, static_cast<int>(lengths.size()), 3, 16);
  p.context_lengths = lengths.data();
  const PagedAttentionArgs a = paged_attention_args(p, policy, sm90_facts, 1);
  REQUIRE(a.last_round == last_round);
  std::vector<float> ratios(lengths.size() * 6, -1.0f);
  const LaunchShape shape{static_cast<std::int64_t>(ratios.size()), K::block_threads};
  REQUIRE(Room::launch<K>(shape, {a, ratios.data()}, nullptr).ok());
  return ratios;
}

TEST_CASE("pace: blocks of a round share the time that the memory takes for their own tokens, not for all") {
  std::vector<std::int32_t> lengths(60, 4000);
  for (std::size_t s = 40; s < lengths.size(); ++s) lengths[s] = 8000;
  lengths[7] = 0;
  lengths[50] = 100;
  const std::vector<float> ratios = ratios_of(lengths, 264);
  // Stages have 64 tokens, for each of three KV heads. The first round has 44 sequences.
  const double in_first = (39 * 63 + 4 * 125) * 3, in_last = (15 * 125 + 2) * 3;
  for (std::size_t block = 0; block < ratios.size(); ++block) {
    CAPTURE(block);
    const int own = ceil_div(lengths[block / 6], 64);
    if (own == 0) {
      CHECK(ratios[block] == -1.0f);
    } else {
      CHECK(ratios[block] == Approx((block < 264 ? in_first : in_last) / own).epsilon(1e-5));
    }
  }
}

TEST_CASE("pace: where lengths differ much, blocks of one round are paced, of two not") {
  std::vector<std::int32_t> lengths(60, 200);
  lengths[3] = 8000;
  for (const float share : ratios_of(lengths, 264)) CHECK(share == 0.0f);
  lengths.resize(40);
  const std::vector<float> ratios = ratios_of(lengths, 0);
  for (std::size_t block = 0; block < ratios.size(); ++block)
    CHECK(ratios[block] == Approx((39 * 4 + 125) * 3.0 / (block / 6 == 3 ? 125 : 4)).epsilon(1e-5));
}

}  // namespace
}  // namespace tilewave::test
