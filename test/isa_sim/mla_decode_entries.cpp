// SPDX-License-Identifier: MIT
// The entries of latent decode, and of writes into its cache, that their tests run as machine code in the simulator:
// bf16, fp8 q, and on each chip one layout of scaled groups, with every policy. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/latent_cache_write.hpp"
#include "entries/mla_decode.hpp"
#include "test/isa_sim/pointers_to.hpp"

namespace tilewave {

std::span<const MlaDecodeEntry* const> all_mla_decode_entries() {
  using Room = ROOM::Backend;
  constexpr auto specs = mla_decode_specs(Room::facts.id);
  static const auto entries = pointers_to<MlaDecodeEntry>(mla_decode_entries<Room, specs[0]>,
                                                          mla_decode_entries<Room, specs[Room::facts.mx ? 2 : 3]>,
                                                          mla_decode_entries<Room, specs[4]>);
  return entries;
}
std::span<const LatentCacheWriteEntry* const> all_latent_cache_write_entries() {
  using Room = ROOM::Backend;
  constexpr auto specs = latent_cache_write_specs(Room::facts.id);
  static const auto entries = pointers_to<LatentCacheWriteEntry>(
      latent_cache_write_entries<Room, specs[0]>, latent_cache_write_entries<Room, specs[1]>,
      latent_cache_write_entries<Room, specs[3]>, latent_cache_write_entries<Room, specs[4]>);
  return entries;
}

}  // namespace tilewave
