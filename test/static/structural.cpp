// SPDX-License-Identifier: MIT
// The plain structs are template arguments, and what does not fit is refused at compile time.
#include <string_view>
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

// paged_attention_policy_status takes the defaults and refuses each way of being wrong.
constexpr PagedAttentionSpec spec{.head_size = 128};
constexpr bool fits(PagedAttentionPolicy policy) {
  return paged_attention_policy_status(ArchId::gfx950, spec, policy).ok();
}
constexpr bool fits_spec(PagedAttentionSpec s, PagedAttentionPolicy policy) {
  return paged_attention_policy_status(ArchId::gfx950, s, policy).ok();
}
static_assert(fits({}));
static_assert(!fits({.row_tiles = 0}));
static_assert(!fits({.waves = {.rows = 0}}));
static_assert(!fits({.waves = {.tokens = 3}}));
static_assert(std::string_view(paged_attention_policy_status(ArchId::gfx950, spec, {.waves = {1, 3}}).reason) ==
              "waves.tokens is 1, 2, 4 or 8: their partials are merged in pairs");
static_assert(!fits({.waves = {.tokens = 16}}));
static_assert(!fits({.prefetch = {.slices = 0}}));
static_assert(!fits({.prefetch = {.slices = 3}}));
static_assert(!fits({.prefetch = {.stages = 0}}));
static_assert(!fits_spec(PagedAttentionSpec{.head_size = 100}, {}));
static_assert(fits_spec(PagedAttentionSpec{.head_size = 80}, {}));
static_assert(!fits_spec(PagedAttentionSpec{.head_size = 80}, {.prefetch = {.slices = 2}}));  // 5 tiles
constexpr PagedAttentionSpec token_major{.head_size = 128, .values = ValueLayout::token_major};
static_assert(fits_spec(token_major, {}));
static_assert(!fits_spec(token_major, {.prefetch = {.slices = 2}}));  // one block of 8 tiles

// Tiles of V: whole blocks, the last of which may pass the head's end, of words at least.
constexpr bool tiles_are(const AtomFacts& atom, PagedAttentionSpec spec, int count, int width) {
  const ValueTiles tiles = value_tiles(atom, spec.value_shape());
  return tiles.count == count && tiles.width == width;
}
static_assert(tiles_are(gfx942_atom, {.head_size = 80}, 5, 1));
static_assert(tiles_are(gfx942_atom, token_major, 8, 8));
static_assert(tiles_are(sm90_atom, token_major, 16, 8));
static_assert(tiles_are(gfx942_atom, {.head_size = 80, .values = ValueLayout::token_major}, 8, 8));
static_assert(tiles_are(gfx942_atom, {.head_size = 64, .values = ValueLayout::token_major}, 4, 4));
static_assert(tiles_are(sm90_atom, {.head_size = 192, .values = ValueLayout::token_major}, 24, 8));

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
