// SPDX-License-Identifier: MIT
// Chooses experts and sorts the choices in one launch, where one block holds all tokens. With few tokens a launch takes
// some 5 us, whatever it does. Grid: one block, which does what a block of each of the two kernels does. Bound: the
// latency of memory.
#pragma once

#include "tilewave/ops/moe_sort/registry.hpp"
#include "tilewave/ops/topk_gating/registry.hpp"

namespace tilewave {

struct MoeChooseArgs {
  TopkGatingArgs gating;
  MoeSortArgs sort;
};

template <class B, TopkGatingSpec G, TopkGatingPolicy P, MoeSortPolicy Q>
struct MoeChoose {
  using Room = B;
  using Args = MoeChooseArgs;
  using Gating = TopkGating<B, G, P>;
  using Sort = MoeSort<B, MoeSortSpec{}, Q>;
  struct Shared {
    typename Gating::Shared gating;
    typename Sort::Shared sort;
  };
  static constexpr int block_threads = Sort::block_threads;
  static constexpr int waves_per_simd = min_of(Gating::waves_per_simd, Sort::waves_per_simd);
  static_assert(Gating::block_threads == block_threads, "one block is a block of both kernels");

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    Gating::run(a.gating, shared.gating);
    B::barrier();  // ids are in memory, where the lanes of the block read them again
    Sort::run(a.sort, shared.sort);
  }
};

/// Says whether a policy of gating has such kernels. On CDNA a barrier of a block does not wait for stores to memory.
constexpr bool moe_chooses_by(const ArchFacts& facts, const TopkGatingSpec& s, const TopkGatingPolicy& p,
                              const MoeSortPolicy& sort) {
  return facts.matrix == Matrix::mma && p.vec == 16 && p.keep == 8 && p.lanes >= 8 && p.lanes <= 16 &&
         p.chunks * 16 / size_of(s.x) == 16 && p.block_threads() == sort.threads;
}
/// Says whether one block holds a call's tokens and choices.
constexpr bool moe_chooses_at_once(const ArchFacts& facts, const TopkGatingProblem& g, const TopkGatingPolicy& p,
                                   const MoeSortProblem& s, const MoeSortPolicy& q) {
  return moe_chooses_by(facts, g.spec, p, q) && s.topk_ids == g.indices && g.tokens <= p.rows &&
         g.tokens * g.topk <= q.threads;
}

namespace detail {

/// The kernels of a spec of gating: one for each policy that has any.
template <class B, TopkGatingSpec G>
struct MoeChooseKernels {
  static constexpr MoeSortPolicy sort = moe_sort_policies(B::facts.id, MoeSortSpec{})[0];
  static constexpr TopkGatingPolicies policies = topk_gating_policies(B::facts.id, G);

  /// Queues the kernel of policy number `at`, if that is `policy` and has one.
  template <std::size_t at>
  static void launch(const TopkGatingProblem& g, const TopkGatingPolicy& policy, const MoeSortProblem& s,
                     hipStream_t stream, Status& status) {
    if constexpr (moe_chooses_by(B::facts, G, policies[at], sort)) {
      if (!(policy == policies[at])) return;
      using Kernel = MoeChoose<B, G, policies[at], sort>;
      MoeChooseArgs args{topk_gating_args(g, policy), moe_sort_args(s, sort)};
      args.sort.blocks = 1, args.sort.segment = args.sort.block_choices = args.sort.choices;
      status = B::template launch<Kernel>({1, Kernel::block_threads}, args, stream);
    }
  }
};

}  // namespace detail

/// Queues the launch. The problems are those of the two ops, which are checked.
template <class B, TopkGatingSpec G>
Status moe_choose_launch(const TopkGatingProblem& g, const TopkGatingPolicy& policy, const MoeSortProblem& s,
                         hipStream_t stream) {
  using Kernels = detail::MoeChooseKernels<B, G>;
  Status status{StatusCode::no_matching_entry, "the policy of gating has no kernel that sorts as well"};
  [&]<std::size_t... at>(std::index_sequence<at...>) {
    (Kernels::template launch<at>(g, policy, s, stream, status), ...);
  }
  (std::make_index_sequence<Kernels::policies.size()>{});
  return status;
}

}  // namespace tilewave
