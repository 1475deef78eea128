// SPDX-License-Identifier: MIT
// The plan of a prefill of latent attention: an entry for each of its launches.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tilewave/ops/mla_prefill/check.hpp"
#include "tilewave/tile/workspace.hpp"

namespace tilewave {

/// The launches, in order: `starts` once, the next three for each part, and `merge` where earlier tokens come in
/// chunks.
enum class MlaPrefillLaunch : int { starts, gather, up, attend, merge };

constexpr const char* name_of(MlaPrefillLaunch l) {
  constexpr const char* names[] = {"starts", "gather", "up", "attend", "merge"};
  return names[static_cast<int>(l)];
}

/// What a room has of this op itself. Everything else are entries of other ops.
struct MlaPrefillEntry {
  ArchId arch;
  bool emulated;
  MlaPrefillSpec spec;
  MlaPrefillPolicy policy;
  Status (*starts)(const MlaPrefillStartsArgs&, hipStream_t);
  Status (*gather)(const MlaPrefillGatherArgs&, hipStream_t);
};

template <class B>
Status mla_prefill_starts_launch(const MlaPrefillStartsArgs& a, hipStream_t stream) {
  using Kernel = MlaPrefillStarts<B>;
  return B::template launch<Kernel>({1, Kernel::block_threads}, a, stream);
}
template <class B, MlaPrefillSpec S, MlaPrefillPolicy P>
Status mla_prefill_gather_launch(const MlaPrefillGatherArgs& a, hipStream_t stream) {
  using Kernel = MlaPrefillGather<B, S, P>;
  return B::template launch<Kernel>({ceil_div<std::int64_t>(a.rows, P.tokens), Kernel::block_threads}, a, stream);
}

/// The entries among which a plan chooses. Their owner keeps them.
struct MlaPrefillParts {
  std::span<const MlaPrefillEntry* const> layers;
  std::span<const GemmEntry* const> products;
  std::span<const FlashAttentionEntry* const> attention;
  std::span<const AttentionCombineEntry* const> merge;
};

/// A plan serves every later problem of the same spec, extents, capacities and strides. Pointers, starts and lengths
/// may differ, so a launch may be captured in a graph.
struct MlaPrefillPlan {
  /// The entries of a part of the queries' own tokens, or of a chunk.
  struct Part {
    GemmPlan up{};
    const FlashAttentionEntry* attend = nullptr;
  };
  const MlaPrefillEntry* entry = nullptr;
  Part own{}, chunk{};
  const AttentionCombineEntry* merge = nullptr;

  /// Returns the bytes that launch() needs at problem.workspace, 16-byte aligned, with any contents. It is 0 for
  /// extents that launch() refuses.
  std::size_t workspace_bytes(const MlaPrefillProblem& p) const {
    if (has_nothing_to_launch(p)) return 0;
    return MlaPrefillCalls(p, mla_prefill_no_workspace(), up_bytes(p)).workspace_bytes;
  }

  /// Queues all launches on the stream. Nothing is allocated, synchronised or read from the device.
  /// Errors, before anything is queued: no_matching_entry for a plan that was not made, or of another spec; those of
  /// mla_prefill_check; null_pointer, misaligned or workspace_too_small for the workspace; launch_failed with the
  /// runtime's reason.
  Status launch(const MlaPrefillProblem& p, hipStream_t stream) const {
    return checked(p, [&](const MlaPrefillCalls& calls) {
      if (Status s = entry->starts(calls.starts, stream); !s.ok()) return s;
      for (std::int32_t i = 0; i <= p.chunks(); ++i) {
        const MlaPrefillPart part = calls.part(i);
        for (const MlaPrefillLaunch l : {MlaPrefillLaunch::gather, MlaPrefillLaunch::up, MlaPrefillLaunch::attend})
          if (Status s = run(part, i, l, stream); !s.ok()) return s;
      }
      return p.chunks() > 0 ? merge->launch(calls.merge, stream) : Status{};
    });
  }
  /// Queues one launch of a part, or none where the call has no such launch. What those before it wrote is in the
  /// workspace. Parts are numbered from 0, the queries' own tokens.
  Status launch_one(const MlaPrefillProblem& p, MlaPrefillLaunch one, std::int32_t part, hipStream_t stream) const {
    return checked(p, [&](const MlaPrefillCalls& calls) {
      if (one == MlaPrefillLaunch::starts) return entry->starts(calls.starts, stream);
      if (one == MlaPrefillLaunch::merge) return p.chunks() > 0 ? merge->launch(calls.merge, stream) : Status{};
      return part >= 0 && part <= p.chunks() ? run(calls.part(part), part, one, stream) : Status{};
    });
  }

  /// A launch, its part, and the entry that it runs.
  struct Launch {
    MlaPrefillLaunch what;
    std::int32_t part;
    std::string entry;
  };
  /// Returns the launches of a problem, in order.
  std::vector<Launch> launches(const MlaPrefillProblem& p) const {
    std::vector<Launch> all;
    if (has_nothing_to_launch(p) || !has_parts(p)) return all;
    all.push_back({MlaPrefillLaunch::starts, 0, "lanes"});
    for (std::int32_t i = 0; i <= p.chunks(); ++i) {
      const Part& part = i == 0 ? own : chunk;
      all.push_back({MlaPrefillLaunch::gather, i, name_of(entry->policy)});
      all.push_back({MlaPrefillLaunch::up, i, part.up.name()});
      all.push_back({MlaPrefillLaunch::attend, i, name_of(part.attend->policy)});
    }
    if (p.chunks() > 0) all.push_back({MlaPrefillLaunch::merge, 0, name_of(merge->policy)});
    return all;
  }
  /// Returns the policy, and the entries of product and attention of the queries' own tokens.
  std::string name() const {
    if (entry == nullptr) return "none";
    return name_of(entry->policy) + "+" + own.up.name() + "+" +
           (own.attend != nullptr ? name_of(own.attend->policy) : "none");
  }

 private:
  bool has_nothing_to_launch(const MlaPrefillProblem& p) const {
    return entry == nullptr || !detail::check_mla_prefill_extents(p).ok() || mla_prefill_is_empty(p);
  }
  /// Says whether the plan has entries of all parts of a problem.
  bool has_parts(const MlaPrefillProblem& p) const {
    return own.attend != nullptr && (p.chunks() == 0 || (chunk.attend != nullptr && merge != nullptr));
  }
  std::size_t up_bytes(const MlaPrefillProblem& p) const {
    MlaPrefillProblem extents = p;  // strides change no size, and may not have been checked
    extents.up_stride = extents.page_stride = extents.token_stride = 0;
    const MlaPrefillCalls calls(extents, mla_prefill_no_workspace(), 0);
    const std::size_t bytes = own.up.workspace_bytes(calls.part(0).up);
    return p.chunks() > 0 ? max_of(bytes, chunk.up.workspace_bytes(calls.part(1).up)) : bytes;
  }
  template <class Queue>
  Status checked(const MlaPrefillProblem& p, const Queue& queue) const {
    if (entry == nullptr) return {StatusCode::no_matching_entry, "the plan has no entry: it was not made, or refused"};
    if (!(entry->spec == p.spec)) return {StatusCode::no_matching_entry, "the plan was made for another spec"};
    const ArchFacts& facts = facts_of(entry->arch);
    if (Status s = mla_prefill_check(p, facts); !s.ok()) return s;
    if (mla_prefill_is_empty(p)) return {};
    const std::size_t bytes = up_bytes(p);
    const MlaPrefillCalls calls(p, p.workspace, bytes);
    if (Status s = check_workspace(p.workspace, p.workspace_bytes, calls.workspace_bytes); !s.ok()) return s;
    if (Status s = mla_prefill_check(p, facts, p.workspace, bytes); !s.ok()) return s;
    if (!has_parts(p))
      return {StatusCode::no_matching_entry, "the plan was made for a problem without earlier tokens, or without any"};
    return queue(calls);
  }
  Status run(const MlaPrefillPart& part, std::int32_t i, MlaPrefillLaunch one, hipStream_t stream) const {
    const Part& entries = i == 0 ? own : chunk;
    if (one == MlaPrefillLaunch::gather) return entry->gather(part.gather, stream);
    if (one == MlaPrefillLaunch::up) return entries.up.launch(part.up, stream);
    return entries.attend->launch(part.attend, stream);
  }
};

namespace detail {

/// Sets the entries of a plan.
inline Status choose_mla_prefill_parts(const MlaPrefillProblem& p, const MlaPrefillParts& parts, const ArchFacts& facts,
                                       MlaPrefillPlan& plan) {
  const MlaPrefillCalls calls(p, mla_prefill_no_workspace(), 0);
  for (std::int32_t i = 0; i <= min_of(p.chunks(), 1); ++i) {
    const MlaPrefillPart part = calls.part(i);
    MlaPrefillPlan::Part& chosen = i == 0 ? plan.own : plan.chunk;
    if (Status s = gemm_select(part.up, parts.products, facts, chosen.up); !s.ok()) return s;
    if (Status s = flash_attention_select(part.attend, parts.attention, facts, chosen.attend); !s.ok()) return s;
  }
  return p.chunks() > 0 ? attention_combine_select(calls.merge, parts.merge, facts, plan.merge) : Status{};
}

}  // namespace detail

/// Sets the plan to the entries that are expected to be fastest, by extents alone. Pointers of the problem count as
/// given or not, and are not read; the workspace need not be there. Where there is nothing to do, any entry does.
/// Errors, with a null entry: those of mla_prefill_check; no_matching_entry where `parts` lack an entry.
inline Status mla_prefill_select(const MlaPrefillProblem& p, const MlaPrefillParts& parts, const ArchFacts& facts,
                                 MlaPrefillPlan& plan) {
  plan = {};
  if (Status s = mla_prefill_check(p, facts); !s.ok()) return s;
  const MlaPrefillEntry* best = nullptr;
  // Blocks of four tokens leave part of the chip idle where tokens are few.
  const bool few = max_of(p.total_q, p.chunk()) < 8 * facts.compute_units;
  for (const MlaPrefillEntry* e : parts.layers) {
    if (e->arch != facts.id || !(e->spec == p.spec)) continue;
    if (best == nullptr || (e->policy.tokens < best->policy.tokens) == few) best = e;
  }
  if (best == nullptr) return {StatusCode::no_matching_entry, "no entry was built for this spec"};
  MlaPrefillPlan made;
  if (!mla_prefill_is_empty(p)) {
    if (Status s = detail::choose_mla_prefill_parts(p, parts, facts, made); !s.ok()) return s;
  }
  plan = made;
  plan.entry = best;
  return {};
}

}  // namespace tilewave
