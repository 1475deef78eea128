// SPDX-License-Identifier: MIT
// The entries of operations on tiles, and of an indexer's logits, that their tests run as machine code in the
// simulator: a
// few specs of each that cover types, gatings and outputs between them, with every policy. Compiled with ROOM, gfx942
// or
// gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/activation.hpp"
#include "entries/embedding.hpp"
#include "entries/moe_reduce.hpp"
#include "entries/mqa_logits.hpp"
#include "test/isa_sim/pointers_to.hpp"
#include "test/isa_sim/row_code_objects.hpp"

namespace tilewave {
namespace test {
ROW_CODE_OBJECTS(activation, Activation)
ROW_CODE_OBJECTS(embedding, Embedding)
ROW_CODE_OBJECTS(moe_reduce, MoeReduce)
ROW_CODE_OBJECTS(mqa_logits, MqaLogits)
}  // namespace test

namespace {

using Room = test::CodeObjects<ROOM::Backend>;

template <ActivationKind kind, Gating gating, DType x, DType out, Scaling scale = Scaling::none>
constexpr auto& activation_of = activation_entries<Room, ActivationSpec{kind, gating, x, out, scale}>;

// A chip without MX formats runs another one.
constexpr ActivationSpec mx_activation{.out = Room::facts.mx ? DType::fp4_e2m1 : DType::bf16,
                                       .scale = Room::facts.mx ? Scaling::mx : Scaling::none};

}  // namespace

std::span<const ActivationEntry* const> all_activation_entries() {
  using enum ActivationKind;
  constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, fp8 = Room::facts.fp8;
  static const auto entries = pointers_to<ActivationEntry>(
      activation_of<silu, Gating::halves, bf16, fp8, Scaling::per_token>,
      activation_of<swigluoai, Gating::interleaved, bf16, bf16>, activation_of<gelu, Gating::halves, f32, f32>,
      activation_of<relu, Gating::plain, f16, DType::i8, Scaling::per_tensor>, activation_entries<Room, mx_activation>);
  return entries;
}
std::span<const EmbeddingEntry* const> all_embedding_entries() {
  static const auto entries = pointers_to<EmbeddingEntry>(embedding_entries<Room, EmbeddingSpec{DType::bf16}>);
  return entries;
}
std::span<const MoeReduceEntry* const> all_moe_reduce_entries() {
  static const auto entries = pointers_to<MoeReduceEntry>(moe_reduce_entries<Room, MoeReduceSpec{DType::bf16}>,
                                                          moe_reduce_entries<Room, MoeReduceSpec{DType::f16}>);
  return entries;
}
std::span<const MqaLogitsEntry* const> all_mqa_logits_entries() {
  constexpr auto specs = mqa_logits_specs(Room::facts.id);  // the last is fp4 where there are MX formats
  static const auto entries =
      pointers_to<MqaLogitsEntry>(mqa_logits_entries<Room, specs[0]>, mqa_logits_entries<Room, specs[1]>,
                                  mqa_logits_entries<Room, specs[specs.size() - 1]>);
  return entries;
}

}  // namespace tilewave
