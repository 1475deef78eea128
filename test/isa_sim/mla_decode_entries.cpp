// SPDX-License-Identifier: MIT
// The entries of latent decode, and of writes into its cache, that their tests run as machine code in the simulator:
// bf16, fp8 q, and on each chip one layout of scaled groups. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/latent_cache_write.hpp"
#include "entries/mla_decode.hpp"
#include "test/isa_sim/pointers_to.hpp"

namespace tilewave {

using Room = ROOM::Backend;

/// Path lds is one kernel for all of its numbers of rows, which are its spec's first policies, but on gfx942, where
/// blocks of 64 rows have waves of their own that fetch. One of them is taken, and beside it two that take all
/// problems: the last one, and one of path token_waves, so many places before. Other specs have all.
template <MlaDecodeSpec S, std::size_t of_lds, std::size_t before>
constexpr auto some_entries() {
  using Entries = OpEntries<MlaDecodeRegistry, Room, S>;
  constexpr auto policies = mla_decode_policies(Room::facts.id, S);
  if constexpr (policies[0].path == MlaDecodePath::lds && ENTRY_SHARES > 1) {
    return Entries::all(std::index_sequence<of_lds, policies.size() - 1 - before, policies.size() - 1>{});
  } else {
    return Entries::all(std::make_index_sequence<policies.size()>{});
  }
}
template <MlaDecodeSpec S, std::size_t of_lds, std::size_t before>
inline constexpr auto some_of = some_entries<S, of_lds, before>();

std::span<const MlaDecodeEntry* const> all_mla_decode_entries() {
  constexpr auto specs = mla_decode_specs(Room::facts.id);
  static const auto entries =
      pointers_to<MlaDecodeEntry>(some_of<specs[0], 1, 1>, mla_decode_entries<Room, specs[Room::facts.mx ? 2 : 3]>,
                                  some_of < specs[4], Room::facts.direct_copies ? 1 : 0, 2 >);
  return entries;
}
std::span<const LatentCacheWriteEntry* const> all_latent_cache_write_entries() {
  constexpr auto specs = latent_cache_write_specs(Room::facts.id);
  static const auto entries = pointers_to<LatentCacheWriteEntry>(
      latent_cache_write_entries<Room, specs[0]>, latent_cache_write_entries<Room, specs[1]>,
      latent_cache_write_entries<Room, specs[3]>, latent_cache_write_entries<Room, specs[4]>);
  return entries;
}

}  // namespace tilewave
