// SPDX-License-Identifier: MIT
// The entries that the tests of rotary embeddings and cache writes run as machine code in the simulator: a few specs
// that cover both pairs, both kinds of scale, norms and both layouts of what a lane holds, with every policy. Compiled
// with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/kv_cache_write.hpp"
#include "entries/rope.hpp"
#include "test/isa_sim/pointers_to.hpp"

namespace tilewave {
namespace {

using Room = ROOM::Backend;

}  // namespace

std::span<const RopeEntry* const> all_rope_entries() {
  static const auto entries =
      pointers_to<RopeEntry>(rope_entries<Room, RopeSpec{DType::bf16, DType::f32, RopePairs::halves}>,
                             rope_entries<Room, RopeSpec{DType::f16, DType::f16, RopePairs::neighbours}>);
  return entries;
}
std::span<const KvCacheWriteEntry* const> all_kv_cache_write_entries() {
  constexpr DType fp8 = Room::facts.fp8;
  constexpr KvCacheWriteSpec plain{.kv = fp8, .quant = Scaling::per_head};
  constexpr KvCacheWriteSpec fused{.kv = fp8, .quant = Scaling::per_token, .fused = true, .norm = true};
  constexpr KvCacheWriteSpec latent = kv_cache_write_latent_spec(Room::facts.id, 64, true);
  static const auto entries = pointers_to<KvCacheWriteEntry>(
      kv_cache_write_entries<Room, plain>, kv_cache_write_entries<Room, fused>, kv_cache_write_entries<Room, latent>);
  return entries;
}

}  // namespace tilewave
