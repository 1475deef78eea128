// SPDX-License-Identifier: MIT
// How a layer of experts is computed. A policy changes the speed, never the answer.
#pragma once

#include <string>

#include "tilewave/core/value_list.hpp"
#include "tilewave/ops/moe/spec.hpp"

namespace tilewave {

/// Where results lie between the second product and the sums.
/// - rows: in the order of their experts, and the sums look up the row of each choice.
/// - slots: the second product scatters them to [tokens][slots], where the sums expect them.
enum class MoeResults : int { rows, slots };

/// How rows of x come to the first product.
/// - gathered: the first product gathers them.
/// - copied: a launch before copies them into the order of experts, so that the copy engine brings them. Every choice
///   is written and read once more, and many rows of an expert then take less time
///   (docs/notebook/2026-11-28-groups.md).
enum class MoeRows : int { gathered, copied };

/// How a layer that chooses experts does so.
/// - apart: by launches of their own, topk_gating, ids made local, and moe_sort.
/// - together: one block chooses the experts of few tokens and sorts the choices (MoeChoose).
/// - beside_x: the same, and the other blocks of that launch quantise x, which depends on no choice.
enum class MoeChoosing : int { apart, together, beside_x };

/// How h that has block scales leaves the first product.
/// - quantised: by the product, whose tiles then have the gates and ups of whole blocks of 128 columns.
/// - f32: as it is, to be quantised by a launch of its own. Tiles of few tokens may then be half as wide, two blocks an
///   SM, of which one reads while the other begins or ends.
enum class MoeH : int { quantised, f32 };

struct MoePolicy {
  MoeResults results = MoeResults::rows;
  MoeRows rows = MoeRows::gathered;
  MoeChoosing choosing = MoeChoosing::apart;
  MoeH h = MoeH::quantised;

  friend constexpr bool operator==(const MoePolicy&, const MoePolicy&) = default;
};

/// Returns a name such as `rows`, `slots.copied` or `rows.beside_x.f32_h`.
inline std::string name_of(const MoePolicy& p) {
  constexpr const char* choosing[] = {"", ".together", ".beside_x"};
  return std::string(p.results == MoeResults::rows ? "rows" : "slots") + (p.rows == MoeRows::copied ? ".copied" : "") +
         choosing[static_cast<int>(p.choosing)] + (p.h == MoeH::f32 ? ".f32_h" : "");
}

/// Says whether a room copies rows: where the copy engine is, and no weight goes with a row. Rows are of 16 bits, or
/// have block scales.
constexpr bool moe_may_copy(ArchId arch, const MoeSpec& s) {
  const bool scaled = s.quantised() && s.scale == Scaling::per_block;
  return arch == ArchId::sm90 && (scaled || s.scale == Scaling::none || s.fragments) && !s.masked() &&
         s.weight == MoeWeight::output;
}
/// Says whether h may leave the first product in f32.
constexpr bool moe_may_keep_h(ArchId arch, const MoeSpec& s) {
  return arch == ArchId::sm90 && s.quantised() && s.scale == Scaling::per_block && !s.masked();
}
/// Returns how few tokens choose their experts.
constexpr MoeChoosing moe_few_choosing(ArchId arch, const MoeSpec& s) {
  const bool quantises = arch == ArchId::sm90 && s.quantises_x() && s.scale == Scaling::per_block;
  return quantises ? MoeChoosing::beside_x : MoeChoosing::together;
}
using MoePolicies = ValueList<MoePolicy, 5>;

/// Returns the policies of a spec, the usual one first. Results of tokens that lie by expert stay where they are.
constexpr MoePolicies moe_policies(ArchId arch, const MoeSpec& s) {
  const MoeChoosing few = s.routing == MoeRouting::logits ? moe_few_choosing(arch, s) : MoeChoosing::apart;
  MoePolicies all;
  all.add({});
  all.add({.results = MoeResults::slots});
  if (few != MoeChoosing::apart) all.add({.choosing = few});
  if (moe_may_keep_h(arch, s)) all.add({.choosing = few, .h = MoeH::f32});
  if (moe_may_copy(arch, s)) all.add({.rows = MoeRows::copied});
  return all;
}

/// Says whether h is quantised by a launch of its own.
constexpr bool moe_quantises_h(const MoeSpec& s, const MoePolicy& p) { return s.quantises_h() || p.h == MoeH::f32; }
/// Returns the specs of the products of a policy.
constexpr GemmSpec moe_first_spec(const MoeSpec& s, const MoePolicy& p) {
  GemmSpec g = moe_first_spec(s);
  g.gathered = g.gathered && p.rows == MoeRows::gathered;
  if (p.h == MoeH::f32) g.out = DType::f32, g.out_scale = Scaling::none;
  return g;
}
constexpr GemmSpec moe_second_spec(const MoeSpec& s, const MoePolicy& p) {
  GemmSpec g = moe_second_spec(s);
  g.scattered = !s.masked() && p.results == MoeResults::slots;
  return g;
}

}  // namespace tilewave
