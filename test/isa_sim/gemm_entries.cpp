// SPDX-License-Identifier: MIT
// The entries that the tests of GEMM run as machine code in the simulator: every path, type and kind of scales, with
// preshuffled weights, groups, mx scales. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/gemm.hpp"
#include "test/isa_sim/pointers_to.hpp"

namespace tilewave {
namespace {

using Room = ROOM::Backend;
constexpr auto specs = gemm_specs(Room::facts.id);
constexpr auto features = gemm_feature_specs(Room::facts.id);
constexpr auto gated = gemm_gated_specs(Room::facts.id);
constexpr auto int4 = gemm_int4_specs(Room::facts.id);
constexpr auto mx = gemm_mx_specs(Room::facts.id);

}  // namespace

std::span<const GemmEntry* const> all_gemm_entries() {
  static const auto entries =
      pointers_to<GemmEntry>(gemm_entries<Room, specs[0]>, gemm_entries<Room, specs[2]>, gemm_entries<Room, specs[4]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_feature_entries() {
  static const auto entries =
      pointers_to<GemmEntry>(gemm_feature_entries<Room, features[0]>, gemm_feature_entries<Room, features[1]>,
                             gemm_feature_entries<Room, features[5]>, gemm_feature_entries<Room, features[6]>,
                             gemm_feature_entries<Room, features[8]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_gated_entries() {
  static const auto entries =
      pointers_to<GemmEntry>(gemm_gated_entries<Room, gated[2]>, gemm_gated_entries<Room, gated[4]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_int4_entries() {
  static const auto entries =
      pointers_to<GemmEntry>(gemm_int4_entries<Room, int4[1]>, gemm_int4_entries<Room, int4[2]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_mx_entries() {
  static const auto entries = pointers_to<GemmEntry>(gemm_mx_entries<Room, mx[0]>, gemm_mx_entries<Room, mx[2]>,
                                                     gemm_mx_entries<Room, mx[3]>, gemm_mx_entries<Room, mx[4]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_grouped_entries() { return {}; }  // the features have some

}  // namespace tilewave
