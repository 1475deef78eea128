// SPDX-License-Identifier: MIT
// MoeChoose does for few tokens what topk_gating, MoeRoute and moe_sort do for many. Grid: one block. Its lanes choose
// the experts as TopkGating does; then each has a choice and counts those that come before it, by expert, then by
// token, then by slot. Bound: the latency of a read of logits and, as with all launches of few instructions, of the
// instructions themselves, which come from memory after a model's other kernels. MoeChooseBesideX has further blocks,
// which quantise x meanwhile.
#pragma once

#include "tilewave/ops/moe/calls.hpp"

namespace tilewave {

struct MoeChooseArgs {
  TopkGatingArgs gating;
  MoeRouteArgs route;  // of all choices, whether ids have to be made local or not
  std::int32_t* sorted_ids;
  float* sorted_weights;  // optional
  std::int32_t* group_offsets;
  std::int32_t* rows;
  std::int32_t groups;
};

template <class B, TopkGatingSpec S, TopkGatingPolicy P>
struct MoeChoose {
  using Room = B;
  using Args = MoeChooseArgs;
  using Gating = TopkGating<B, S, P>;
  static constexpr int block_threads = Gating::block_threads, waves_per_simd = Gating::waves_per_simd;
  static constexpr int most_choices = block_threads, at_once = 4;
  using Keys = Vec<std::uint32_t, at_once>;
  struct Shared {
    typename Gating::Shared gating;
    alignas(16) Keys keys[most_choices / at_once];
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    constexpr std::uint32_t none = ~0u;
    const std::int32_t lane = B::block_lane_id();
    const auto count = B::opaque(static_cast<std::int32_t>(a.route.count));  // brings the arguments behind the first
    Gating::run(a.gating, shared.gating);
    B::barrier();  // the block's lanes have stored ids and weights
    const std::int32_t token = a.route.slots.quotient(lane), slot = lane - token * a.route.slots.divisor;
    typename MoeRoute<B>::Choice choice{-1, 0.0f};
    if (lane < count) choice = MoeRoute<B>::choice_of(a.route, token, slot);
    const std::uint32_t key = choice.local < 0 ? none : key_of(choice.local, lane);
    shared.keys[lane / at_once][lane % at_once] = key;
    if (lane < count && a.route.slot_weights != nullptr) B::store(a.route.slot_weights + lane, choice.weight);
    B::barrier();
    // A lane's choice, and the first one of the expert whose number is the lane's.
    std::int32_t before[2] = {0, 0};
    const std::uint32_t ends[2] = {key, key_of(lane, 0)};
    count_keys(shared, count, ends, before);
    if (lane < count) {
      const std::int32_t row = key == none ? -1 : before[0];
      B::store(a.rows + lane, row);
      if (row >= 0) {
        B::store(a.sorted_ids + row, slot << sorted_token_bits | token);
        if (a.sorted_weights != nullptr) B::store(a.sorted_weights + row, choice.weight);
      }
    }
    if (lane <= a.groups) B::store(a.group_offsets + lane, before[1]);
    TILEWAVE_ROLL
    for (std::int32_t group = lane + block_threads; group <= a.groups; group += block_threads) {
      std::int32_t first[1] = {0};
      const std::uint32_t end[1] = {key_of(group, 0)};
      count_keys(shared, count, end, first);
      B::store(a.group_offsets + group, first[0]);
    }
  }

 private:
  TILEWAVE_DEVICE static std::uint32_t key_of(std::int32_t expert, std::int32_t choice) {
    return static_cast<std::uint32_t>(expert * most_choices + choice);
  }
  /// Adds to `before` how many keys are less than each of `ends`.
  template <int n>
  TILEWAVE_DEVICE static void count_keys(const Shared& shared, std::int32_t count, const std::uint32_t (&ends)[n],
                                         std::int32_t (&before)[n]) {
    TILEWAVE_ROLL
    for (std::int32_t i = 0; i < ceil_div(count, at_once); ++i) {
      const Keys keys = shared.keys[i];
      TILEWAVE_UNROLL
      for (int k = 0; k < at_once; ++k) {
        TILEWAVE_UNROLL
        for (int end = 0; end < n; ++end) before[end] += keys[k] < ends[end] ? 1 : 0;
      }
    }
  }
};

/// Returns the policy of the gating within MoeChoose: 256 lanes, which have 16 tokens of up to 256 experts.
constexpr TopkGatingPolicy moe_choose_policy(ArchId arch, const TopkGatingSpec& s) {
  for (const TopkGatingPolicy& p : topk_gating_policies(arch, s))
    if (p.lanes == 16 && p.block_columns(s.x) == 256 && p.keep == 8 && p.wide(s.x)) return p;
  return {};
}

/// Returns the policy of the quantisation beside it: 256 lanes, which have a row of up to 8192 columns.
constexpr QuantPolicy moe_beside_policy(ArchId arch, const QuantSpec& s) {
  for (const QuantPolicy& p : quant_policies(arch, s))
    if (p.lanes == 256 && p.rows == 1 && p.block_columns(s.x) == 8192 && p.held && p.wide(s.x)) return p;
  return {};
}

struct MoeChooseBesideXArgs {
  MoeChooseArgs choose;
  QuantArgs quant;
};

/// Block 0 chooses, and each of the others quantises a row of x.
template <class B, TopkGatingSpec S, QuantSpec X>
struct MoeChooseBesideX {
  using Room = B;
  using Args = MoeChooseBesideXArgs;
  using Choose = MoeChoose<B, S, moe_choose_policy(B::facts.id, S)>;
  using Quantise = Quant<B, X, moe_beside_policy(B::facts.id, X)>;
  static_assert(Quantise::block_threads == Choose::block_threads, "all blocks of a launch have as many lanes");
  static constexpr int block_threads = Choose::block_threads;
  static constexpr int waves_per_simd = min_of(Choose::waves_per_simd, Quantise::waves_per_simd);
  struct Shared {
    typename Choose::Shared choose;
    typename Quantise::Shared quant;
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    if (B::block_id() == 0) return Choose::run(a.choose, shared.choose);
    auto at = Quantise::Tile::lane_row(a.quant.extent, shared.quant);
    at.row -= 1;
    at.active = at.row < a.quant.extent.rows;
    at.leader = at.active && at.lane == 0;
    Quantise::convert(a.quant, at, shared.quant);
  }
};

/// Returns ok if one block may choose the experts of a problem's tokens and sort the choices, and others may quantise x
/// where the layer does so meanwhile, else no_matching_entry.
inline Status moe_choose_status(const MoeProblem& p, const MoeCalls& calls, const ArchFacts& facts) {
  const TopkGatingPolicy policy = moe_choose_policy(facts.id, calls.gating.spec);
  if (p.spec.routing != MoeRouting::logits || p.batch_invariant || p.tokens > policy.rows ||
      p.rows() > policy.block_threads() || !topk_gating_takes(policy, calls.gating)) {
    return {StatusCode::no_matching_entry,
            "one block chooses up to 8 of 256 experts for up to 16 tokens, by logits of 16 aligned bytes"};
  }
  if (moe_few_choosing(facts.id, p.spec) != MoeChoosing::beside_x) return {};
  const QuantProblem& x = calls.quant_x;
  if (policy_takes(moe_beside_policy(facts.id, x.spec), x.spec.x, x.columns, quant_aligned(x))) return {};
  return {StatusCode::no_matching_entry, "blocks beside the choice quantise up to 8192 columns"};
}

namespace detail {

inline MoeChooseArgs moe_choose_args(const MoeProblem& p, const MoeCalls& calls, const TopkGatingPolicy& policy) {
  return {.gating = topk_gating_args(calls.gating, policy),
          .route = calls.route,
          .sorted_ids = calls.sort.sorted_ids,
          .sorted_weights = calls.sort.sorted_weights,
          .group_offsets = calls.sort.group_offsets,
          .rows = calls.sort.rows,
          .groups = p.resident()};
}

}  // namespace detail

/// Launches MoeChoose, or MoeChooseBesideX. Errors: no_matching_entry for a problem that it does not serve;
/// launch_failed.
template <class B, MoeSpec S>
Status moe_choose_launch(const MoeProblem& p, const MoeCalls& calls, hipStream_t stream) {
  constexpr TopkGatingSpec logits{S.logits};
  constexpr TopkGatingPolicy policy = moe_choose_policy(B::facts.id, logits);
  if (const Status s = moe_choose_status(p, calls, B::facts); !s.ok()) return s;
  const MoeChooseArgs a = detail::moe_choose_args(p, calls, policy);
  if constexpr (moe_few_choosing(B::facts.id, S) == MoeChoosing::beside_x) {
    constexpr QuantSpec x{S.x, S.operand(), moe_quant_scaling(S)};
    using Kernel = MoeChooseBesideX<B, logits, x>;
    return B::template launch<Kernel>({1 + std::int64_t{p.tokens}, Kernel::block_threads},
                                      {a, quant_args(calls.quant_x)}, stream);
  } else {
    using Kernel = MoeChoose<B, logits, policy>;
    return B::template launch<Kernel>({1, Kernel::block_threads}, a, stream);
  }
}

}  // namespace tilewave
