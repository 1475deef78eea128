// SPDX-License-Identifier: MIT
// Runs: repeated, replayed, in other orders, batches and streams, and refused. Numbers are those of the ranked list of bug
// classes that this library was designed against.
#include "test/bugclass/replay.hpp"
#include "test/ops/paged_attention/counting.hpp"

#if !TILEWAVE_ON_GPU_COMPILER
#include "test/arch/host/host_room.hpp"
#endif

namespace tilewave::test {
namespace {

/// A call with everything that shares memory in it: several tiles, new tokens and kv heads, unequal lengths.
Call busy_call(const PagedAttentionEntry& e, int kv_heads = 2) {
  const std::vector<std::int32_t> lengths{2 * tile_of(e) + 3, 21};
  PagedAttentionCase c = case_for(e, lengths);
  c.mtp = 3;
  c.num_q_heads = 6 * kv_heads;
  c.num_kv_heads = kv_heads;
  c.inputs = bench::Inputs::varied;
  return Call(c, lengths);
}

#if TILEWAVE_ON_GPU_COMPILER
TEST_CASE("bugclass 08: a graph captured at length 1 is right when replayed at the longest") {
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{3 * tile_of(e) + 5, 700, 40};
    PagedAttentionCase c = case_for(e, lengths);
    c.mtp = 2;
    c.num_q_heads = 4;
    Call call(c, lengths);
    set_counting(call);
    for (const int splits : {1, 5}) {
      int wrong = 0;
      replay(e, call, splits, {{1, 1, 1}, lengths, {1, 5, 0}, lengths},
             [&](const Answer& answer) { wrong += wrong_counts(call, answer); });
      CAPTURE(splits);
      CHECK(wrong == 0);
    }
  });
}
#else
TEST_CASE("bugclass 08: lengths are read on the device, the grid follows from capacities alone") {
  // No graphs here; what makes them work is that the work queued does not depend on the lengths.
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{300, 40};
    Call call(case_for(e, lengths), lengths);
    call.fill();
    std::vector<std::int64_t> blocks;
    for (const std::int32_t first : {300, 1, 0}) {
      call.lengths[0] = first;
      call.run(e, 1);
      blocks.push_back(host::last_launch_counters().blocks);
    }
    // The last launch: decode, or what combines the parts of a balanced one, a wave or a block a row.
    const std::int64_t grid =
        e.policy.balanced() ? call.rows() * call.p.num_q_heads : paged_attention_grid(call.p, e.policy, 1);
    CHECK(blocks == std::vector<std::int64_t>(3, grid));
  });
}

TEST_CASE("bugclass 14: no schedule of waves and lanes changes a bit") {
  each_entry([](const PagedAttentionEntry& e) {
    // Blocks of two heads never meet, but where a block goes on from one to the next.
    Call call = busy_call(e, e.policy.balanced() ? 2 : 1);
    call.fill();
    Answer first;
    for (const host::Schedule schedule : host::all_schedules)
      for (const std::uint64_t seed : {1, 2}) {
        if (seed > 1 && schedule != host::Schedule::random) continue;
        const WithOptions options({.threads = static_cast<int>(seed), .schedule = schedule, .seed = seed});
        INFO(name_of(host::options()));
        const Answer answer = call.run(e, 2);
        if (first.out.empty()) first = answer;
        CHECK(same_bits(answer, first));
      }
  });
}

TEST_CASE("bugclass 14: no two lanes race, as ThreadSanitizer sees them") {
  if (!under_tsan) return skip_test("this is for ThreadSanitizer, preset host-tsan");
  std::vector<const PagedAttentionEntry*> entries;
  for (const auto list : {all_paged_attention_entries(), all_paged_attention_feature_entries()}) {
    entries.insert(entries.end(), list.begin(), list.end());
  }
  for (const PagedAttentionEntry* e : entries) {
    INFO(describe(*e));
    const std::vector<std::int32_t> lengths{2 * tile_of(*e) + 3};
    PagedAttentionCase c = case_for(*e, lengths);
    c.mtp = 2;
    Call call(c, lengths);
    call.fill();
    CHECK(call.verify(call.run(*e, 2), call.expected()).pass);
  }
}
#endif

TEST_CASE("bugclass 33: a sequence's answer does not depend on what else is in the batch") {
  each_small_entry([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> all{0, 1, tile - 1, tile + 1, 4096, 1, 2 * tile};
    // Each sequence alone, in its own batch of one, then all of them in two orders, with the same splits.
    const auto fill = [](Call& call, const std::vector<int>& who) {
      const auto drawn = [&](std::uint64_t tensor, int b, int h, int t, int d) {
        return bench::random_uniform(
            bench::random_bits({tensor, std::uint64_t(who[b]), std::uint64_t(h), std::uint64_t(t)}), d);
      };
      call.set_q([&](int row, int head, int d) { return drawn('q', row / call.p.mtp, head, row % call.p.mtp, d); });
      call.set_k([&](int b, int h, int t, int d) { return drawn('k', b, h, t, d); });
      call.set_v([&](int b, int h, int t, int d) { return drawn('v', b, h, t, d); });
    };
    const auto answer_of = [&](const std::vector<int>& who) {
      std::vector<std::int32_t> lengths;
      for (const int b : who) lengths.push_back(all[b]);
      PagedAttentionCase c = case_for(e, lengths);
      c.mtp = 2;
      c.num_q_heads = 2;
      Call call(c, lengths);
      fill(call, who);
      return call.run(e, 3);
    };
    const auto same_rows = [](const Answer& a, int a_at, const Answer& b, int b_at) {
      const std::size_t row = std::size_t(a.heads) * a.head_size * 2;  // of one sequence with two new tokens
      return std::memcmp(&a.out[a_at * row], &b.out[b_at * row], row * sizeof(std::uint16_t)) == 0 &&
             std::memcmp(&a.lse[a_at * a.heads * 2], &b.lse[b_at * a.heads * 2], a.heads * 2 * sizeof(float)) == 0;
    };
    const std::vector<int> one_order{0, 1, 2, 3, 4, 5, 6}, other_order{4, 6, 0, 3, 1, 2, 5};
    const Answer ordered = answer_of(one_order), permuted = answer_of(other_order);
    for (int i = 0; i < 7; ++i) {
      CAPTURE(all[i]);
      CHECK(same_rows(answer_of({i}), 0, ordered, i));
      CHECK(same_rows(permuted, i, ordered, other_order[i]));
    }
  });
}

TEST_CASE("bugclass 34: runs repeat to the last bit, whatever workspace and outputs held before") {
  each_entry([](const PagedAttentionEntry& e) {
    Call call = busy_call(e);
    call.fill();
    const Answer first = call.run(e, 3);
    CHECK(call.verify(first, call.expected()).pass);
    const int repetitions = bench::emulated_device ? 3 : 100;
    bool same = true;
    for (int i = 0; i < repetitions; ++i) {
      constexpr int fills[] = {0x00, 0x7f, 0x80};
      call.workspace_fill = fills[i % 3];
      same = same && same_bits(call.run(e, 3), first);
    }
    CHECK(same);
  });
}

TEST_CASE("bugclass 37: amplified data, every value within two steps of bf16") {
  // V is an index, all positive, so nothing cancels; K is tiny and Q large, so scores come from K's smallest digits.
  each_entry([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{50, tile_of(e) + 9, 500};
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 4;
    Call call(c, lengths);
    const bool fp8 = e.spec.quant != Scaling::none;
    call.p.softmax_scale = 1;
    call.set_q([](int row, int head, int d) {
      return 2048.0f * bench::random_uniform(bench::random_bits({std::uint64_t(row), std::uint64_t(head)}), d);
    });
    call.set_k([&](int b, int, int t, int d) {
      return (fp8 ? 1.0f : 0x1p-13f) *
             bench::random_uniform(bench::random_bits({std::uint64_t(b), std::uint64_t(t)}), d);
    });
    call.set_k_scale([](int, int, int t) { return 0x1p-13f * (1.0f + 0.1f * static_cast<float>(t % 7)); });
    call.set_v([](int, int, int t, int d) { return static_cast<float>(1 + (t + d) % 16); });
    call.set_v_scale([](int, int, int t) { return 1.0f + static_cast<float>(t % 5); });
    const reference::PagedAttentionResult expected = call.expected();
    for (const int splits : {1, 4}) {
      const Answer answer = call.run(e, splits);
      double worst = 0, sum = 0;
      for (std::size_t i = 0; i < expected.out.size(); ++i) {
        const double error = std::abs(bf16_to_f32(answer.out[i]) - expected.out[i]) / expected.out[i];
        worst = std::max(worst, error);
        sum += error;
      }
      CAPTURE(splits);
      CHECK(worst < 2 * bf16_step);
      CHECK(sum / static_cast<double>(expected.out.size()) < bf16_step / 3);  // rounding alone: a quarter
    }
  });
}

TEST_CASE("bugclass 38: work goes to the caller's stream") {
  each_small_entry([](const PagedAttentionEntry& e) {
    Call call = busy_call(e);
    call.fill();
    const Answer on_default = call.run(e, 2);
    hipStream_t stream{};
    bench::check_hip(hipStreamCreate(&stream), "creating a stream");
    const Prepared d = call.prepare(e, splits_for(e, 2));
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    REQUIRE(e.launch(d.p, splits_for(e, 2), stream).ok());
    bench::check_hip(hipStreamSynchronize(stream), "waiting for the stream");
    CHECK(same_bits(call.collect(d), on_default));
    (void)hipStreamDestroy(stream);
  });
}

TEST_CASE("bugclass 39: more sequences than a grid dimension other than the first may have") {
  if (too_slow_here()) return;
  const PagedAttentionEntry& e = *all_paged_attention_entries().front();  // one is enough: the grid is the same for all
  INFO(describe(e));
  constexpr int batch = 65600;
  std::vector<std::int32_t> lengths(batch);
  for (int b = 0; b < batch; ++b) lengths[b] = b % 64 == 0 || b > 65500;
  PagedAttentionCase c = case_for(e, lengths);
  c.num_q_heads = 1;
  Call call(c, lengths);
  call.table.assign(call.table.size(), 5);  // one page for all
  call.set_q([](int, int, int) { return 0.0f; });
  call.set_k([](int, int, int, int) { return 0.0f; });
  call.set_v([](int, int, int, int d) { return static_cast<float>(1 + d % 15); });
  const Answer answer = call.run(e);
  std::int64_t wrong = 0;
  for (int b = 0; b < batch; ++b)
    for (int d = 0; d < c.head_size; ++d) wrong += answer.at(b, 0, d) != static_cast<float>(lengths[b] * (1 + d % 15));
  CHECK(wrong == 0);
}

TEST_CASE("bugclass 39: a grid of 2^31 blocks is refused with a status, before anything runs") {
  each_arch([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{1};
    PagedAttentionCase c = case_for(e, lengths);
    c.num_q_heads = 1;
    Call call(c, lengths);
    call.fill();
    const Prepared d = call.prepare(2);
    PagedAttentionProblem p = d.p;
    p.batch = 1 << 24;
    // As far apart as so many sequences would be.
    const auto somewhere = [](std::uintptr_t i) { return reinterpret_cast<void*>(i << 44); };
    p.q = somewhere(1);
    p.k = somewhere(2);
    p.v = somewhere(3);
    p.block_table = static_cast<const std::int32_t*>(somewhere(4));
    p.context_lengths = static_cast<const std::int32_t*>(somewhere(5));
    p.workspace = somewhere(6);
    if (p.lse != nullptr) p.lse = static_cast<float*>(somewhere(7));
    p.workspace_bytes = paged_attention_workspace_size(p, max_splits);  // a lie, but nobody gets that far
    const Status status = e.launch(p, max_splits, {});
    CHECK(status.code == StatusCode::bad_extent);
    CHECK(std::string(status.reason) != "");
    bench::check_hip(hipDeviceSynchronize(), "waiting");
    const std::vector<std::uint16_t> out = from_device<std::uint16_t>(d.out);
    CHECK(std::all_of(out.begin(), out.end(), [](std::uint16_t bits) { return bits == unwritten_half; }));
  });
}

}  // namespace
}  // namespace tilewave::test
