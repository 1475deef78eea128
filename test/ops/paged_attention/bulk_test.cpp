// SPDX-License-Identifier: MIT
// The bulk kernel for specs and policies that no list of entries has, but that a caller may compile in. There are both
// types of Q, all kinds of scales and score features, 8 to 64 query rows, rings of one stage to six, and one and two
// wave groups.
#include ROOM_HEADER

#include <numeric>

#include "test/ops/paged_attention/counting.hpp"
#include "test/ops/paged_attention/far_below.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

#if !TILEWAVE_ON_GPU_COMPILER
#include "test/arch/host/host_room.hpp"
#endif

namespace tilewave::test {
namespace {

struct BulkCase {
  PagedAttentionSpec spec;
  PagedAttentionPolicy policy;
};

/// A ring policy, with one to four waves that fetch.
constexpr PagedAttentionPolicy ring(int rows, int stage_tokens, int stages, int groups = 1) {
  return {.row_tiles = rows / 8,
          .waves = {1, 4 * groups},
          .prefetch = {1, stages, stage_tokens, (stages + 1) % 4 + 1},
          .waves_per_simd = groups + 1};
}
constexpr PagedAttentionSpec wide(DType type, int head_size) {
  return {.q = type, .kv = type, .out = type, .head_size = head_size};
}
constexpr PagedAttentionSpec narrow(Scaling quant, int head_size, DType q = DType::bf16) {
  return {.q = q, .kv = DType::fp8_e4m3fn, .out = q, .quant = quant, .head_size = head_size};
}
constexpr PagedAttentionSpec with(PagedAttentionSpec spec, bool soft_cap, bool alibi) {
  spec.soft_cap = soft_cap;
  spec.alibi = alibi;
  return spec;
}

constexpr PagedAttentionSpec tokens(PagedAttentionSpec spec) {
  spec.values = ValueLayout::token_major;
  return spec;
}
constexpr PagedAttentionSpec native(PagedAttentionSpec spec) {
  spec.native = true;
  return spec;
}

constexpr int bulk_count = 41;
[[maybe_unused]] constexpr BulkCase bulk_case(int i) {
  using detail::balanced;
  constexpr DType bf16 = DType::bf16, f16 = DType::f16;
  constexpr Scaling tensor = Scaling::per_tensor, head = Scaling::per_head, token = Scaling::per_token;
  switch (i) {
    case 0: return {wide(f16, 64), ring(8, 64, 2)};
    case 1: return {with(wide(f16, 128), true, false), ring(16, 64, 3)};
    case 2: return {with(wide(bf16, 64), true, true), ring(8, 128, 2)};
    case 3: return {with(wide(bf16, 128), false, true), ring(32, 64, 3)};
    case 4: return {wide(bf16, 64), ring(64, 64, 3)};  // what blocks send each other takes the whole ring
    case 5: return {wide(bf16, 64), ring(16, 64, 1)};  // a ring of one stage
    case 6: return {wide(bf16, 128), ring(16, 128, 2)};
    case 7: return {wide(bf16, 128), ring(64, 64, 2)};
    case 8: return {wide(bf16, 256), ring(8, 64, 2)};
    case 9: return {narrow(head, 128), ring(8, 128, 5)};
    case 10: return {narrow(head, 64, f16), ring(16, 64, 2)};
    case 11: return {narrow(token, 64), ring(8, 256, 2)};
    case 12: return {with(narrow(token, 128), false, true), ring(16, 64, 5)};
    case 13: return {narrow(token, 64, f16), ring(32, 128, 3)};
    case 14: return {with(narrow(tensor, 128), true, false), ring(32, 64, 6)};
    case 15: return {narrow(tensor, 64), ring(64, 64, 6)};
    case 16: return {narrow(tensor, 64), ring(8, 64, 1)};
    case 17: return {narrow(tensor, 256), ring(16, 64, 3)};
    case 18: return {wide(f16, 64), balanced(ring(8, 64, 2))};
    case 19: return {narrow(head, 64), balanced(ring(16, 128, 2))};
    case 20: return {with(narrow(token, 128), false, true), balanced(ring(32, 64, 2))};
    case 21: return {with(wide(bf16, 64), true, false), balanced(ring(64, 64, 3))};
    case 22: return {wide(bf16, 128), ring(8, 64, 6, 2)};
    case 23: return {wide(f16, 64), ring(16, 128, 2, 2)};
    case 24: return {narrow(tensor, 128), ring(16, 128, 4, 2)};
    case 25: return {with(narrow(token, 64), true, true), ring(8, 64, 6, 2)};
    case 26: return {wide(bf16, 64), ring(64, 64, 4, 2)};
    case 27: return {native(narrow(tensor, 128)), ring(8, 128, 3)};
    case 28: return {native(narrow(tensor, 128)), ring(16, 64, 2)};
    case 29: return {native(narrow(tensor, 128)), ring(32, 128, 3)};
    case 30: return {native(narrow(head, 64, f16)), ring(8, 64, 2)};
    case 31: return {native(with(narrow(tensor, 64), true, true)), ring(8, 256, 2)};
    case 32: return {native(narrow(head, 64)), ring(64, 64, 6)};
    case 33: return {native(narrow(tensor, 64, f16)), balanced(ring(16, 256, 2))};
    case 34: return {native(narrow(tensor, 128)), ring(16, 128, 4, 2)};
    case 35: return {tokens(wide(bf16, 128)), ring(8, 64, 3)};
    case 36: return {tokens(wide(f16, 64)), ring(16, 128, 2)};
    case 37: return {tokens(with(wide(bf16, 64), true, true)), ring(8, 64, 1)};
    case 38: return {tokens(wide(bf16, 128)), balanced(ring(8, 64, 2))};
    case 39: return {tokens(wide(bf16, 128)), ring(8, 64, 4, 2)};
    default: return {tokens(wide(bf16, 256)), ring(32, 64, 2)};
  }
}

using Entries = std::vector<const PagedAttentionEntry*>;

template <class B, int... i>
void add_entries(std::integer_sequence<int, i...>, Entries& entries) {
  (entries.push_back(&paged_attention_entry<B, bulk_case(i).spec, bulk_case(i).policy>), ...);
}
template <class... Backends>
Entries entries_of() {
  Entries entries;
  const auto add = [&]<class B>(const B*) {
    if constexpr (GroupBackend<B>) add_entries<B>(std::make_integer_sequence<int, bulk_count>(), entries);
  };
  (add(static_cast<const Backends*>(nullptr)), ...);
  return entries;
}

template <class F>
void each_bulk(F f) {
  static const Entries entries = entries_of<ROOM_BACKENDS>();
  each_of(entries, f);
}

struct BulkShape {
  int block_size, group, mtp, kv_heads, window;
};
constexpr BulkShape bulk_shapes[] = {
    {16, 5, 3, 2, 0}, {48, 1, 8, 2, 21}, {64, 11, 1, 1, 0}, {1024, 3, 5, 1, 70}, {80, 33, 2, 1, 5}};

/// Lengths around every boundary of a stage, and once around the ring and past it.
std::vector<std::int32_t> bulk_lengths(const PagedAttentionEntry& e) {
  const int unit = e.spec.unit(), tile = tile_of(e), around = e.policy.prefetch.stages * tile;
  return {0, 1, unit + 1, tile - 1, tile + 1, 2 * tile, around + 3, around + 2 * tile};
}

PagedAttentionCase case_of(const PagedAttentionEntry& e, const BulkShape& shape,
                           const std::vector<std::int32_t>& lengths) {
  PagedAttentionCase c = case_for(e, lengths);
  c.block_size = shape.block_size;
  c.mtp = shape.mtp;
  c.num_kv_heads = shape.kv_heads;
  c.num_q_heads = shape.group * shape.kv_heads;
  c.sliding_window = shape.window;
  c.inputs = bench::Inputs::varied;
  return c;
}

constexpr int cluster_sizes[] = {1, 2, 4, 8};

TEST_CASE("bulk: right around all boundaries of its stages, in blocks and clusters of them") {
  int turn = 0;
  each_bulk([&](const PagedAttentionEntry& e) {
    for (const BulkShape& shape : bulk_shapes) {
      const std::vector<std::int32_t> lengths = bulk_lengths(e);
      Call call(case_of(e, shape, lengths), lengths);
      use_features(call, e);
      if (turn % 3 == 0) call.sinks.assign(call.p.num_q_heads, 0.5f);
      call.fill();
      const int splits = splits_for(e, cluster_sizes[turn++ % 4]);
      const bench::Verdict verdict = call.verify(call.run(e, splits), call.expected());
      INFO("page " << shape.block_size << " window " << shape.window << " splits " << splits << ": " << verdict.reason);
      CHECK(verdict.pass);
      CHECK(verdict.elements == call.rows() * call.p.num_q_heads * e.spec.head_size);
    }
  });
}

TEST_CASE("bulk: attends exactly the visible tokens, whatever the windows, and reads no other page") {
  int turn = 0;
  each_bulk([&](const PagedAttentionEntry& e) {
    if (e.spec.alibi) return;
    const int tile = tile_of(e);
    for (const int window : {0, 1, tile - 1, tile + 9}) {
      const std::vector<std::int32_t> lengths = bulk_lengths(e);
      Call call(case_of(e, {16, 2, 1 + turn % 4, 2, window}, lengths), lengths);
      use_features(call, e);
      set_counting(call);
      const auto first_seen = [&](int b) { return std::int64_t{window > 0 ? lengths[b] - call.p.mtp - window : 0}; };
      call.poison_tokens([&](int b, int t) { return t < first_seen(b); });
      for (int b = 0; b < call.p.batch; ++b)
        for (int column = 0; (column + 1) * call.p.block_size <= first_seen(b); ++column)
          call.table[b * call.p.table_row_stride + column] = -7;
      const int splits = splits_for(e, cluster_sizes[turn++ % 4]);
      CAPTURE(window, splits);
      CHECK(wrong_counts(call, call.run(e, splits)) == 0);
    }
  });
}

TEST_CASE("bulk: a head may be half of a wider one, so that units of V lie apart") {
  int turn = 0;
  each_bulk([&](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = bulk_lengths(e);
    PagedAttentionCase c = case_of(e, {turn % 2 ? 16 : 80, 3, 2, 2, turn % 3 ? 0 : 37}, lengths);
    c.head_size *= 2;
    Call call(c, lengths);
    use_features(call, e);
    call.draw();
    const int splits = splits_for(e, cluster_sizes[turn++ % 4]);
    const bench::Verdict verdict = call.verify(call.run(e, splits), call.expected());
    INFO("page " << c.block_size << " window " << c.sliding_window << " splits " << splits << ": " << verdict.reason);
    CHECK(verdict.pass);
    CHECK(verdict.elements == call.rows() * call.p.num_q_heads * e.spec.head_size);
  });
}

TEST_CASE("bulk: whatever unused slots and their scales hold, the answer is the same to the last bit") {
  struct Garbage {
    std::uint16_t wide, narrow;
    float scale;
  };
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  int turn = 0;
  each_bulk([&](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = bulk_lengths(e);
    Call call(case_of(e, {turn % 2 ? 48 : 1024, 4, 2, 1, turn % 3 ? 0 : 33}, lengths), lengths);
    use_features(call, e);
    call.fill();
    const int splits = splits_for(e, cluster_sizes[turn++ % 4]);
    const std::uint16_t infinite = e.spec.kv == DType::f16 ? 0x7c00 : 0x7f80;
    Answer clean;
    for (const Garbage& garbage : {Garbage{0, 0, 1}, Garbage{infinite, 0x7e, inf}, Garbage{0xffff, 0xff, -nan},
                                   Garbage{static_cast<std::uint16_t>(0x8000 | infinite), 0xfe, -inf}}) {
      call.fill_unused(is_fp8(e.spec.kv) ? garbage.narrow : garbage.wide, garbage.scale);
      const Answer answer = call.run(e, splits);
      if (clean.out.empty()) {
        clean = answer;
        CHECK(call.verify(answer, call.expected()).pass);
      }
      CHECK(same_bits(answer, clean));
    }
  });
}

TEST_CASE("bulk: many tokens far below one keep their share, though their probabilities are as small as f16 goes") {
  each_bulk([](const PagedAttentionEntry& e) {
    if (e.spec.alibi || e.spec.soft_cap || e.spec.native) return;
    CHECK(lost_shares(e, case_for(e, {700})) == 0);
  });
}

TEST_CASE("bulk: policies that the kernel cannot do are refused") {
  const auto why_not = [](const PagedAttentionSpec& s, const PagedAttentionPolicy& p) {
    return std::string_view(paged_attention_policy_status(ArchId::sm90, s, p).reason);
  };
  for (int i = 0; i < bulk_count; ++i) CHECK(why_not(bulk_case(i).spec, bulk_case(i).policy) == "");
  const auto fits = [&](PagedAttentionSpec spec, PagedAttentionPolicy policy) { return why_not(spec, policy).empty(); };
  const PagedAttentionSpec spec = wide(DType::bf16, 64);
  CHECK(fits(spec, ring(8, 512, 1)));
  for (const int tokens : {32, 96, 192, 1024})
    CHECK_FALSE(fits(spec, ring(8, tokens, 1)));  // stages must be cut into segments for any page
  for (const int rows : {-16, 0, 24, 48, 128})
    CHECK_FALSE(fits(spec, ring(rows, 64, 4)));  // group_mma has no such numbers of columns
  for (const int head_size : {80, 96, 112, 192}) CHECK_FALSE(fits(wide(DType::bf16, head_size), ring(8, 64, 2)));
  for (const int stages : {-1, 0}) CHECK_FALSE(fits(spec, ring(8, 64, stages)));
  // Two wave groups take stages by turns, each its own slots. At the end of an item each merges one tile.
  for (const int stages : {1, 3}) CHECK_FALSE(fits(spec, ring(8, 64, stages, 2)));
  for (const int groups : {0, 3, 4}) CHECK_FALSE(fits(spec, ring(8, 64, 12, groups)));
  CHECK_FALSE(fits(wide(DType::bf16, 256), ring(8, 64, 2, 2)));
  CHECK_FALSE(fits(spec, detail::balanced(ring(8, 64, 4, 2))));
  // At least one wave fetches, and waves_per_simd leaves room for those waves.
  PagedAttentionPolicy fetched = ring(8, 64, 4);
  for (const int waves : {1, 4, 0, 5}) {
    fetched.prefetch.waves = waves;
    CHECK(fits(spec, fetched) == (waves == 1 || waves == 4));
  }
  // What the blocks of a cluster send each other, 48 KiB for 64 rows, must fit into the ring.
  CHECK_FALSE(fits(spec, ring(64, 64, 2)));
  CHECK_FALSE(fits(narrow(Scaling::per_tensor, 64), ring(64, 64, 5)));
  CHECK(why_not(spec, ring(8, 64, 0)) ==
        "bulk: wave groups take stages by turns: prefetch.stages is a multiple of them");
  CHECK(why_not(wide(DType::bf16, 96), ring(8, 64, 2)) ==
        "bulk: head_size is 64, 128 or 256, as dimensions are dealt out 64 to a product");
  CHECK(why_not(spec, ring(64, 64, 2)) ==
        "bulk: what blocks of a cluster send each other must fit into the ring: more stages, fewer rows");
}

#if !TILEWAVE_ON_GPU_COMPILER
TEST_CASE("bulk: of each context the pieces of pages with a token to attend are copied, once, and no other") {
  int turn = 0;
  each_bulk([&](const PagedAttentionEntry& e) {
    if (e.policy.balanced()) return;  // the counters are those of the last launch, which is combine
    const int tile = tile_of(e);
    for (const int window : {0, 5, tile + 9}) {
      const std::vector<std::int32_t> lengths = bulk_lengths(e);
      const BulkShape shape{turn % 2 ? 16 : 96, 12, 1 + turn % 3, 2, window};
      Call call(case_of(e, shape, lengths), lengths);
      use_features(call, e);
      call.fill();
      call.run(e, cluster_sizes[turn++ % 4]);
      const int segment = std::gcd(shape.block_size, tile);
      const std::int64_t scale_bytes = e.spec.quant == Scaling::per_token ? sizeof(float) : 0;
      const std::int64_t token_bytes = 2 * (e.spec.head_size * size_of(e.spec.kv) + scale_bytes);
      // A page of K is one copy if it is a segment. Else it ends with the last unit, as V and scales do. Boxes are whole.
      const bool boxed = e.spec.values == ValueLayout::token_major;
      const std::int64_t behind_bytes =
          boxed ? 0 : token_bytes - (segment == shape.block_size ? e.spec.head_size * size_of(e.spec.kv) : 0);
      std::int64_t bytes = 0;
      for (const int length : lengths) {
        const int first = window > 0 ? std::max(0, length - shape.mtp - window) : 0, to = align_up(length, segment);
        bytes +=
            (to - align_down(first, segment)) * token_bytes - (to - align_up(length, e.spec.unit())) * behind_bytes;
      }
      const int row_blocks = ceil_div(shape.group * shape.mtp, e.policy.block_rows());
      CAPTURE(shape.block_size, window);
      CHECK(host::last_launch_counters().bulk_bytes == bytes * shape.kv_heads * row_blocks);
    }
  });
}

/// Short rings, so that slots are used again, and are freed for what other blocks send while these still read.
bool is_tight(const PagedAttentionEntry& e) { return e.policy.prefetch.stages <= 3 && e.policy.block_rows() <= 16; }

/// The schedules of one_wave_behind that keep back the first wave, and each wave that fetches in the first and the last
/// block.
std::vector<std::uint64_t> seeds_of(host::Schedule schedule, const PagedAttentionPolicy& policy, int cluster) {
  if (schedule == host::Schedule::random) return {1, 2, 3};
  std::vector<std::uint64_t> seeds{0};
  if (schedule != host::Schedule::one_wave_behind) return seeds;
  for (const int block : {0, cluster - 1}) {
    for (int wave = policy.waves_per_block(); wave < policy.block_waves(); ++wave)
      seeds.push_back(static_cast<std::uint64_t>(block * policy.block_waves() + wave));
    if (cluster == 1) break;
  }
  return seeds;
}

TEST_CASE("bulk: no schedule of waves and lanes changes a bit") {
  each_bulk([](const PagedAttentionEntry& e) {
    if (!is_tight(e)) return;
    const int tile = tile_of(e), around = e.policy.prefetch.stages * tile;
    const std::vector<std::int32_t> lengths{around + tile + 3, 2 * around + 5, tile / 2};
    // Blocks of two heads never meet, but where a block goes on from one to the next.
    const int kv_heads = e.policy.balanced() ? 2 : 1;
    Call call(case_of(e, {16, 3, 2, kv_heads, 0}, lengths), lengths);
    use_features(call, e);
    call.fill();
    for (const int cluster : {1, 2, 8}) {
      Answer first;
      for (const host::Schedule schedule : host::all_schedules)
        for (const std::uint64_t seed : seeds_of(schedule, e.policy, e.policy.balanced() ? 1 : cluster)) {
          const WithOptions options({.threads = 1, .schedule = schedule, .seed = seed});
          INFO(name_of(host::options()) << " cluster " << cluster);
          const Answer answer = call.run(e, cluster);
          if (first.out.empty()) {
            first = answer;
            CHECK(call.verify(answer, call.expected()).pass);
          }
          CHECK(same_bits(answer, first));
        }
      if (e.policy.balanced()) break;
    }
  });
}

TEST_CASE("bulk: no two lanes race, as ThreadSanitizer sees them") {
  if (!under_tsan) return skip_test("this is for ThreadSanitizer, preset host-tsan");
  for (const PagedAttentionEntry* e : entries_of<ROOM_BACKENDS>()) {
    if (!is_tight(*e)) continue;
    const int tile = tile_of(*e), around = e->policy.prefetch.stages * tile;
    const std::vector<std::int32_t> lengths{around + tile + 3};
    for (const int cluster : {1, 2, 4}) {
      INFO(describe(*e) << " cluster " << cluster);
      Call call(case_of(*e, {16, 1, 2, 1, 0}, lengths), lengths);
      use_features(call, *e);
      call.fill();
      CHECK(call.verify(call.run(*e, cluster), call.expected()).pass);
      if (e->policy.balanced()) break;
    }
  }
}
#endif

}  // namespace
}  // namespace tilewave::test
