// SPDX-License-Identifier: MIT
// The entries that the tests of row operations run as machine code in the simulator: a few specs of each op that cover
// every type, output and reduction between them, and every policy. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/moe_sort.hpp"
#include "entries/norm.hpp"
#include "entries/quant.hpp"
#include "entries/sampling.hpp"
#include "entries/softmax.hpp"
#include "entries/topk_gating.hpp"
#include "test/isa_sim/pointers_to.hpp"
#include "test/isa_sim/row_code_objects.hpp"

namespace tilewave {
namespace test {
ROW_CODE_OBJECTS(norm, Norm)
ROW_CODE_OBJECTS(quant, Quant)
ROW_CODE_OBJECTS(sampling, Sampling)
ROW_CODE_OBJECTS(softmax, Softmax)
ROW_CODE_OBJECTS(topk_gating, TopkGating)
ROW_CODE_OBJECTS(moe_sort, MoeSort)
/// Both kernels of a sampling whose rows blocks share; the first policy has none.
template <class B, SamplingPolicy P, SamplingLaunch L>
requires(L !=
         SamplingLaunch::whole) inline constexpr ObjectKernel object_kernel<Sampling<B, SamplingSpec{}, P, L>> = [] {
  const auto policies = sampling_policies(B::facts.id, SamplingSpec{});
  for (std::size_t p = 1; p < policies.size(); ++p) {
    if (policies[p] == P) {
      const char* const name = L == SamplingLaunch::weigh ? "WeighEntryKernel" : "DrawEntryKernel";
      return ObjectKernel{"shared_sampling", -1, name, {static_cast<int>(p) - 1, -1}, 'm'};
    }
  }
  return ObjectKernel{};
}();
}  // namespace test

namespace {

using Room = test::CodeObjects<ROOM::Backend>;

template <std::size_t first, NormSpec spec>
constexpr auto& norm_share = entry_share<NormRegistry, Room, spec, first>;
template <std::size_t first, NormKind kind, DType x, DType weight, DType out, Scaling scale>
constexpr auto& norm_of = norm_share<first, NormSpec{kind, x, weight, out, scale}>;
template <std::size_t first, QuantSpec spec>
constexpr auto& quant_share = entry_share<QuantRegistry, Room, spec, first>;
template <std::size_t first, DType x, DType out, Scaling scale>
constexpr auto& quant_of = quant_share<first, QuantSpec{x, out, scale}>;
template <std::size_t first, SoftmaxKind kind, DType x>
constexpr auto& softmax_of = entry_share<SoftmaxRegistry, Room, SoftmaxSpec{kind, x}, first>;

// A chip without MX formats runs another one.
constexpr bool mx = Room::facts.mx;
constexpr NormSpec mx_norm{.out = mx ? DType::fp4_e2m1 : DType::bf16, .scale = mx ? Scaling::mx : Scaling::none};
constexpr QuantSpec mx_quant{.out = mx ? DType::fp4_e2m1 : Room::facts.fp8,
                             .scale = mx ? Scaling::mx : Scaling::per_token};
constexpr QuantSpec mx_fp8_quant{.out = Room::facts.fp8, .scale = mx ? Scaling::mx : Scaling::per_token};

}  // namespace

std::span<const NormEntry* const> all_norm_entries() {
  constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16, i8 = DType::i8, fp8 = Room::facts.fp8;
  static const auto entries =
      pointers_to<NormEntry>(norm_of<0, NormKind::rms, bf16, bf16, bf16, Scaling::none>,
                             norm_of<1, NormKind::layer, f16, f32, f16, Scaling::none>,
                             norm_of<2, NormKind::rms, f32, f32, fp8, Scaling::per_token>,
                             norm_of<0, NormKind::layer, bf16, bf16, fp8, Scaling::per_group>,
                             norm_of<1, NormKind::rms, bf16, bf16, i8, Scaling::per_tensor>, norm_share<2, mx_norm>);
  return entries;
}
std::span<const QuantEntry* const> all_quant_entries() {
  constexpr DType bf16 = DType::bf16, f16 = DType::f16, i8 = DType::i8, fp8 = Room::facts.fp8;
  static const auto entries = pointers_to<QuantEntry>(
      quant_of<0, bf16, fp8, Scaling::per_token>, quant_of<1, f16, i8, Scaling::per_group>,
      quant_of<2, f16, fp8, Scaling::per_tensor>, quant_of<0, fp8, bf16, Scaling::per_group>,
      quant_of<1, i8, DType::f32, Scaling::per_token>, quant_share<2, mx_quant>, quant_share<0, mx_fp8_quant>);
  return entries;
}
std::span<const SamplingEntry* const> all_sampling_entries() {
  static const auto entries = pointers_to<SamplingEntry>(sampling_entries<Room, SamplingSpec{DType::bf16}>,
                                                         sampling_entries<Room, SamplingSpec{DType::f32}>);
  return entries;
}
std::span<const SoftmaxEntry* const> all_softmax_entries() {
  static const auto entries = pointers_to<SoftmaxEntry>(softmax_of<0, SoftmaxKind::softmax, DType::bf16>,
                                                        softmax_of<1, SoftmaxKind::softmax, DType::f32>,
                                                        softmax_of<2, SoftmaxKind::log_softmax, DType::f16>);
  return entries;
}

std::span<const TopkGatingEntry* const> all_topk_gating_entries() {
  static const auto entries = pointers_to<TopkGatingEntry>(topk_gating_entries<Room, TopkGatingSpec{DType::bf16}>,
                                                           topk_gating_entries<Room, TopkGatingSpec{DType::f32}>);
  return entries;
}

std::span<const MoeSortEntry* const> all_moe_sort_entries() {
  static const auto entries = pointers_to<MoeSortEntry>(moe_sort_entries<Room, MoeSortSpec{}>);
  return entries;
}

}  // namespace tilewave
