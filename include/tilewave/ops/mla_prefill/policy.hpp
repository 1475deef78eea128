// SPDX-License-Identifier: MIT
// A policy says how prefill of latent attention gathers rows of the cache. It changes only the speed. The products and
// the attention have policies of their own.
#pragma once

#include <array>
#include <string>

#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/mla_prefill/spec.hpp"

namespace tilewave {

/// The tokens that a block of 256 lanes gathers. The lanes of a token copy its rotated dimensions to all heads. Few
/// tokens spread over more blocks if a block has one.
struct MlaPrefillPolicy {
  int tokens = 4;

  friend constexpr bool operator==(const MlaPrefillPolicy&, const MlaPrefillPolicy&) = default;
};

/// Returns the name of a policy, as `t4.gather`.
inline std::string name_of(const MlaPrefillPolicy& p) { return "t" + std::to_string(p.tokens) + ".gather"; }

constexpr std::array<MlaPrefillPolicy, 2> mla_prefill_policies(ArchId, const MlaPrefillSpec&) { return {{{4}, {1}}}; }

}  // namespace tilewave
