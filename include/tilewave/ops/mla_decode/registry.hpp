// SPDX-License-Identifier: MIT
// One list of specs and policies for each architecture. It feeds dispatch, tests, benchmarks, the tuner and the ISA
// gate.
#pragma once

#include "tilewave/ops/mla_decode/choice/policies.hpp"
#include "tilewave/ops/mla_decode/launch.hpp"
#include "tilewave/tile/registry.hpp"

namespace tilewave {

/// Returns the specs that every architecture serves: bf16, fp8 with one scale, DeepSeek's two layouts of scaled groups,
/// and fp8 throughout. Callers name others themselves.
constexpr ValueList<MlaDecodeSpec> mla_decode_specs(ArchId arch) {
  const DType fp8 = facts_of(arch).fp8;
  ValueList<MlaDecodeSpec> specs;
  specs.add({});
  specs.add({.kv = fp8});
  specs.add({.kv = fp8, .layout = LatentLayout::groups_128});
  specs.add({.kv = fp8, .layout = LatentLayout::groups_64, .head_size = 512});
  specs.add({.q = fp8, .kv = fp8});
  return specs;
}

struct MlaDecodeRegistry {
  using Spec = MlaDecodeSpec;
  using Problem = MlaDecodeProblem;
  using Policy = MlaDecodePolicy;
  static constexpr auto check_spec = mla_decode_check_spec;
  static constexpr auto check = mla_decode_check;
  static constexpr auto policies = mla_decode_policies;
  static constexpr auto takes = mla_decode_takes;

  /// Returns true if policy a is better for the problem than b. Path tensor comes first, then a balanced schedule. Up
  /// to 16 rows path token_waves is the fastest, and twice up to 32 where path lds has no blocks of them. Of two other
  /// blocks the larger one is better, and one of path lds, unless the rows leave half of it without work. A wave of
  /// path lds has no less work for fewer rows, so its smallest block is never too large. Path tensor
  /// has blocks of their own for up to 32 rows, and for up to 16, which short calls take as well.
  static bool better(const Policy& a, const Policy& b, const Problem& p, const ArchFacts& facts) {
    const auto of_path = [&](MlaDecodePath path) { return (a.path == path) != (b.path == path); };
    if (of_path(MlaDecodePath::tensor)) return a.path == MlaDecodePath::tensor;
    if (a.gathered != b.gathered) return b.gathered;
    if (a.balanced() != b.balanced()) return a.balanced();
    if (a.path == MlaDecodePath::tensor && a.rows != b.rows) {
      if (is_short(p, facts)) return a.rows < b.rows;
      const bool a_fits = p.sequence_rows() <= a.rows, b_fits = p.sequence_rows() <= b.rows;
      return a_fits != b_fits ? a_fits : (a.rows < b.rows) == a_fits;
    }
    if (of_path(MlaDecodePath::token_waves)) {
      const Policy& other = a.path == MlaDecodePath::token_waves ? b : a;
      const bool lds_fits = other.path == MlaDecodePath::lds && other.rows <= 32;
      const bool best = p.sequence_rows() <= (lds_fits ? 16 : 32);
      return (a.path == MlaDecodePath::token_waves) == best;
    }
    const auto idle = [&](const Policy& of) {
      if (of.path == MlaDecodePath::lds && of.rows == mla_lds_least_rows(facts)) return false;
      return of.rows >= 2 * max_of(p.sequence_rows(), 9);
    };
    if (idle(a) != idle(b)) return idle(b);
    if (of_path(MlaDecodePath::lds)) return a.path == MlaDecodePath::lds;
    return a.rows > b.rows;
  }
  /// Returns whether a multiprocessor has so few tiles that what begins and ends a block takes most of the time. Then
  /// the smallest blocks are the fastest, however many rows there are.
  static bool is_short(const Problem& p, const ArchFacts& facts) {
    constexpr std::int64_t tokens = 64, rows = 16, tiles_of_unit = 20;
    return p.batch * ceil_div<std::int64_t>(p.capacity(), tokens) * ceil_div<std::int64_t>(p.sequence_rows(), rows) <=
           tiles_of_unit * facts.compute_units;
  }
  static std::size_t workspace_bytes(const Problem& p, const Policy& policy, const ArchFacts& facts, int) {
    return detail::check_mla_extents(p).ok() ? mla_decode_workspace_size(p, policy, facts) : 0;
  }
  template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
  static constexpr auto launch() {
    return &mla_decode_launch<B, S, P>;
  }
};

using MlaDecodeEntry = OpEntry<MlaDecodeRegistry>;
using MlaDecodePlan = OpPlan<MlaDecodeRegistry>;

/// These are all entries of one spec on one backend, the choice among entries, and the plan for one spec. See
/// tile/registry.hpp.
template <class B, MlaDecodeSpec S>
inline constexpr auto& mla_decode_entries = op_entries<MlaDecodeRegistry, B, S>;
inline constexpr auto mla_decode_select = select_entry<MlaDecodeRegistry>;
template <class B, MlaDecodeSpec S>
inline constexpr auto mla_decode_plan = plan_entry<MlaDecodeRegistry, B, S>;

}  // namespace tilewave
