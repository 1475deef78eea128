// SPDX-License-Identifier: MIT
// The plain structs are template arguments, and what does not fit is refused at compile time.
#include <type_traits>

#include "tilewave/arch/atom.hpp"
#include "tilewave/arch/backend.hpp"
#include "tilewave/ops/paged_attention/policy.hpp"
#include "tilewave/ops/paged_attention/problem.hpp"
#include "tilewave/ops/paged_attention/spec.hpp"
#include "tilewave/version.hpp"

namespace tilewave {
namespace {

// Structural: usable as a template argument, and equal values name the same type.
template <auto Value>
struct Key {};
static_assert(std::is_same_v<Key<PagedAttentionSpec{.head_size = 64}>, Key<PagedAttentionSpec{.head_size = 64}>>);
static_assert(!std::is_same_v<Key<PagedAttentionSpec{.head_size = 64}>, Key<PagedAttentionSpec{.head_size = 128}>>);
static_assert(std::is_same_v<Key<PagedAttentionPolicy{}>, Key<PagedAttentionPolicy{}>>);
static_assert(!std::is_same_v<Key<gfx942_atom>, Key<gfx950_atom>>);
static_assert(std::is_same_v<decltype(gfx942_facts), const ArchFacts>);

// Problems cross to the device by value.
static_assert(std::is_trivially_copyable_v<PagedAttentionProblem>);
static_assert(std::is_standard_layout_v<PagedAttentionProblem>);

// policy_fits takes the defaults and refuses each way of being wrong.
constexpr PagedAttentionSpec spec{.head_size = 128};
constexpr bool fits(PagedAttentionPolicy policy) { return policy_fits(gfx950_atom, spec, policy); }
static_assert(fits({}));
static_assert(!fits({.row_tiles = 0}));
static_assert(!fits({.waves = {.rows = 0}}));
static_assert(!fits({.waves = {.tokens = 3}}));
static_assert(!fits({.waves = {.tokens = 16}}));
static_assert(!fits({.prefetch = {.slices = 0}}));
static_assert(!fits({.prefetch = {.slices = 3}}));
static_assert(!fits({.prefetch = {.stages = 0}}));
static_assert(!policy_fits(gfx950_atom, PagedAttentionSpec{.head_size = 100}, {}));

// A room that lacks primitives is no Backend.
struct EmptyRoom {
  static constexpr ArchFacts facts = gfx950_facts;
  static constexpr AtomFacts atom = gfx950_atom;
};
static_assert(!Backend<EmptyRoom>);

static_assert(TILEWAVE_VERSION ==
              TILEWAVE_VERSION_MAJOR * 10000 + TILEWAVE_VERSION_MINOR * 100 + TILEWAVE_VERSION_PATCH);

}  // namespace
}  // namespace tilewave
