// SPDX-License-Identifier: MIT
// The entries that the tests of GEMM run as machine code in the simulator: every path, type and kind of scales, with
// preshuffled weights and groups. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include <vector>

#include "entries/gemm.hpp"

namespace tilewave {
namespace {

using Room = ROOM::Backend;
constexpr auto specs = gemm_specs(Room::facts.id);
constexpr auto features = gemm_feature_specs(Room::facts.id);

template <class... Lists>
std::vector<const GemmEntry*> pointers_to_all(const Lists&... lists) {
  std::vector<const GemmEntry*> all;
  const auto add = [&](const auto& list) {
    for (const GemmEntry& entry : list) all.push_back(&entry);
  };
  (add(lists), ...);
  return all;
}

}  // namespace

std::span<const GemmEntry* const> all_gemm_entries() {
  static const auto entries =
      pointers_to_all(gemm_entries<Room, specs[0]>, gemm_entries<Room, specs[2]>, gemm_entries<Room, specs[4]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_feature_entries() {
  static const auto entries =
      pointers_to_all(gemm_feature_entries<Room, features[0]>, gemm_feature_entries<Room, features[1]>,
                      gemm_feature_entries<Room, features[5]>, gemm_feature_entries<Room, features[6]>,
                      gemm_feature_entries<Room, features[8]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_grouped_entries() { return {}; }  // the features have some

}  // namespace tilewave
