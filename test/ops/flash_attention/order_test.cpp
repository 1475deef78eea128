// SPDX-License-Identifier: MIT
// The order in which a block takes the items of packed sequences: each item once, and long sequences first.
#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "test/arch/room.hpp"
#include "test/uploads.hpp"
#include "tilewave/ops/flash_attention/launch_tensor.hpp"

namespace tilewave::test {
namespace {

constexpr FlashAttentionPolicy order_policy{.path = FlashAttentionPath::tensor,
                                            .rows = 128,
                                            .keys = 128,
                                            .waves = 2,
                                            .stages = 2,
                                            .waves_per_simd = 1,
                                            .turns = true};
constexpr int most_items = 4096;
using OrderedItem = std::array<std::int32_t, 3>;  // sequence, head, first query

/// A wave writes down the items of a block that has all of them.
template <class B>
struct OrderKernel {
  using Room = B;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;
  struct Args {
    FlashAttentionArgs attention;
    FlashAttentionSections sections;
    std::int32_t* items;  // [most_items][3]
  };
  struct Shared {
    int nothing;
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    FlashAttentionWork<B, order_policy, false> work(args.attention, args.sections, 1);
    work.begin(false);
    FlashAttentionItem item;
    for (int i = 0; i < most_items && work.next(item); ++i) {
      if (B::lane_id() != 0) continue;
      B::store(args.items + 3 * i, item.sequence.number);
      B::store(args.items + 3 * i + 1, item.head);
      B::store(args.items + 3 * i + 2, item.first_query);
    }
  }
};

template <class B>
std::vector<OrderedItem> order_of(const std::vector<std::int32_t>& q, const std::vector<std::int32_t>& kv) {
  Uploads upload;
  std::vector<std::int32_t> starts{0};
  for (const std::int32_t n : q) starts.push_back(starts.back() + n);
  FlashAttentionProblem p{.causal = true, .batch = static_cast<std::int32_t>(q.size()), .q_heads = 2, .kv_heads = 2};
  p.q_starts = static_cast<const std::int32_t*>(upload(starts));
  p.kv_lengths = static_cast<const std::int32_t*>(upload(kv));
  p.total_q = starts.back(), p.q_length = std::ranges::max(q), p.kv_length = std::ranges::max(kv);
  p = FlashAttentionProblem::bshd(p);
  auto* const items = static_cast<std::int32_t*>(upload(std::vector<std::int32_t>(3 * most_items, -1)));
  const typename OrderKernel<B>::Args args{flash_attention_args(p),
                                           detail::flash_sections<order_policy>(p, 1, 1, B::facts), items};
  REQUIRE(B::template launch<OrderKernel<B>>({1, OrderKernel<B>::block_threads}, args, nullptr).ok());
  std::vector<OrderedItem> order(most_items);
  bench::check_hip(hipMemcpy(order.data(), items, sizeof(order[0]) * order.size(), hipMemcpyDeviceToHost), "reading");
  order.erase(std::ranges::find_if(order, [](const OrderedItem& i) { return i[0] < 0; }), order.end());
  return order;
}

/// Sequences `of` in the order of their first items.
std::vector<std::int32_t> sequences_in(const std::vector<OrderedItem>& order, const std::vector<std::int32_t>& q,
                                       bool longer) {
  std::vector<std::int32_t> met;
  for (const OrderedItem& item : order) {
    if ((q[item[0]] > order_policy.rows) == longer && !std::ranges::count(met, item[0])) met.push_back(item[0]);
  }
  return met;
}

struct CheckOrder {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      std::vector<std::int32_t> q, kv;
      for (std::int32_t b = 0; b < 75; ++b) {  // more than lanes count at a time
        q.push_back(b % 3 == 0 ? 129 + 7 * b : b % 11 == 5 ? 0 : 1 + b % 4);
        kv.push_back(q.back() + 137 * (b * 29 % 75));
      }
      const std::vector<OrderedItem> order = order_of<B>(q, kv);
      std::set<OrderedItem> once(order.begin(), order.end()), wanted;
      for (std::int32_t b = 0; b < 75; ++b) {
        for (std::int32_t head = 0; head < 2; ++head)
          for (std::int32_t i = 0; i < q[b]; i += order_policy.rows) wanted.insert({b, head, i});
      }
      CHECK(once.size() == order.size());
      CHECK(once == wanted);
      for (const bool longer : {false, true}) {
        const std::vector<std::int32_t> met = sequences_in(order, q, longer);
        CHECK(met.size() > 20);
        const auto rank = [&](std::int32_t b) { return std::bit_cast<std::uint32_t>(static_cast<float>(kv[b])) >> 22; };
        CHECK(std::ranges::is_sorted(met, std::ranges::greater{}, rank));
      }
    }
  }
};

TEST_CASE("packed sequences: each item comes once, those of the longest sequences first") {
  AllRooms::each(CheckOrder{});
}

}  // namespace
}  // namespace tilewave::test
