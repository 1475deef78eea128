// SPDX-License-Identifier: MIT
// The entries of flash attention that its tests run as machine code in the simulator: of the default spec, of f16, of a
// small head size, and of pages, with every policy. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/flash_attention.hpp"
#include "test/isa/flash_attention_slice.hpp"
#include "test/isa_sim/code_objects.hpp"
#include "test/isa_sim/pointers_to.hpp"

namespace tilewave {
namespace test {
template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
inline constexpr ObjectKernel object_kernel<FlashAttentionLds<B, S, P>> = [] {
  constexpr ArchId arch = B::facts.id;
  const auto specs = flash_attention_specs(arch);
  for (std::size_t s = 0; s < specs.size(); ++s) {
    const int i = static_cast<int>(s);
    if (specs[s] == S && flash_attention_policies(arch, S)[0] == P && in_slice(arch, S, s))
      return ObjectKernel{"flash_attention", i, "FlashAttentionEntryKernel", {i, -1}};
  }
  return ObjectKernel{};
}();
}  // namespace test

namespace {

using Room = test::CodeObjects<ROOM::Backend>;
constexpr FlashAttentionSpec small{.head_size = 64, .value_size = 64},
    halves{.q = DType::f16, .kv = DType::f16, .out = DType::f16}, pages{.storage = KvStorage::paged};
constexpr DType fp8 = Room::facts.fp8;
constexpr FlashAttentionSpec bytes{.q = fp8, .kv = fp8, .out = DType::bf16, .quant = Scaling::per_tensor},
    byte_pages{.q = fp8, .kv = fp8, .out = fp8, .quant = Scaling::per_head, .storage = KvStorage::paged};

}  // namespace

std::span<const FlashAttentionEntry* const> all_flash_attention_entries() {
  static const auto entries = pointers_to<FlashAttentionEntry>(
      flash_attention_entries<Room, FlashAttentionSpec{}>, flash_attention_entries<Room, halves>,
      flash_attention_entries<Room, small>, flash_attention_entries<Room, pages>, flash_attention_entries<Room, bytes>,
      flash_attention_entries<Room, byte_pages>);
  return entries;
}

}  // namespace tilewave
