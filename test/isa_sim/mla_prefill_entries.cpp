// SPDX-License-Identifier: MIT
// The entries of latent prefill, and of the ops that it consists of, that its tests run as machine code in the simulator:
// caches of bf16 and of scaled groups, with every policy. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/attention_combine.hpp"
#include "entries/flash_attention.hpp"
#include "entries/gemm.hpp"
#include "entries/mla_prefill.hpp"
#include "test/isa_sim/pointers_to.hpp"

namespace tilewave {

using Room = ROOM::Backend;

std::span<const MlaPrefillEntry* const> all_mla_prefill_entries() {
  constexpr auto specs = mla_prefill_specs(Room::facts.id);
  static const auto entries =
      pointers_to<MlaPrefillEntry>(mla_prefill_entries<Room, specs[0]>, mla_prefill_entries<Room, specs[2]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_grouped_entries() {
  static const auto entries = pointers_to<GemmEntry>(gemm_entries<Room, mla_prefill_up_spec()>);
  return entries;
}
std::span<const FlashAttentionEntry* const> all_flash_attention_entries() {
  static const auto entries =
      pointers_to<FlashAttentionEntry>(flash_attention_entries<Room, mla_prefill_attention_spec()>);
  return entries;
}
std::span<const AttentionCombineEntry* const> all_attention_combine_entries() {
  static const auto entries =
      pointers_to<AttentionCombineEntry>(attention_combine_entries<Room, mla_prefill_merge_spec()>);
  return entries;
}

}  // namespace tilewave
