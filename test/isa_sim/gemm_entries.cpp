// SPDX-License-Identifier: MIT
// The entries that the tests of GEMM run as machine code in the simulator: every path, type and kind of scales, with
// preshuffled weights, groups, rows with ids, mx scales. Of a spec's policies the slice has every second one, and specs take turns; the label
// full, with ENTRY_SHARES 1, has all of all specs. Compiled with ROOM, gfx942 or gfx950.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

#include "entries/gemm.hpp"
#include "test/isa_sim/gemm_code_objects.hpp"
#include "test/isa_sim/pointers_to.hpp"

namespace tilewave {
namespace {

using Room = test::CodeObjects<ROOM::Backend>;
constexpr auto specs = gemm_specs(Room::facts.id);
constexpr auto features = gemm_feature_specs(Room::facts.id);
constexpr auto gated = gemm_gated_specs(Room::facts.id);
constexpr auto int4 = gemm_int4_specs(Room::facts.id);
constexpr auto mx = gemm_mx_specs(Room::facts.id);
constexpr auto grouped = gemm_grouped_specs(Room::facts.id);
constexpr auto moe = gemm_moe_specs(Room::facts.id);
/// The gathered form of a spec that the slice has as well, whose bits it must have.
constexpr GemmSpec gathered_gates = [] {
  GemmSpec s = gated[2];
  s.gathered = true;
  return s;
}();

template <GemmPolicies (*policies_of)(ArchId, const GemmSpec&), int first>
constexpr GemmPolicies some_policies(ArchId arch, const GemmSpec& spec) {
  constexpr int shares = ENTRY_SHARES == 1 ? 1 : 2;
  const GemmPolicies all = policies_of(arch, spec);
  GemmPolicies some;
  for (int i = first % shares; i < all.count; i += shares) some.add(all[i]);
  return some;
}
template <GemmPolicies (*policies_of)(ArchId, const GemmSpec&), int first, GemmSpec spec>
constexpr auto share = gemm_entries_of<Room, spec, some_policies<policies_of, first>>();

/// All policies of all specs of a list.
template <GemmPolicies (*policies_of)(ArchId, const GemmSpec&), const auto& list>
auto whole() {
  return []<std::size_t... i>(std::index_sequence<i...>) {
    return pointers_to<GemmEntry>(share<policies_of, 0, list[i]>...);
  }
  (std::make_index_sequence<list.size()>{});
}

}  // namespace

#if ENTRY_SHARES == 1

#define LIST(name, specs)                                        \
  std::span<const GemmEntry* const> all_##name##_entries() {     \
    static const auto entries = whole<name##_policies, specs>(); \
    return entries;                                              \
  }
LIST(gemm, specs)
LIST(gemm_feature, features)
LIST(gemm_gated, gated)
LIST(gemm_int4, int4)
LIST(gemm_mx, mx)
LIST(gemm_moe, moe)
std::span<const GemmEntry* const> all_gemm_grouped_entries() {
  static const auto entries = whole<gemm_policies, grouped>();
  return entries;
}

#else

std::span<const GemmEntry* const> all_gemm_entries() {
  static const auto entries = pointers_to<GemmEntry>(
      share<gemm_policies, 1, specs[0]>, share<gemm_policies, 0, specs[2]>, share<gemm_policies, 0, specs[4]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_feature_entries() {
  static const auto entries =
      pointers_to<GemmEntry>(share<gemm_feature_policies, 0, features[0]>, share<gemm_feature_policies, 1, features[1]>,
                             share<gemm_feature_policies, 0, features[5]>, share<gemm_feature_policies, 1, features[6]>,
                             share<gemm_feature_policies, 0, features[8]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_gated_entries() {
  static const auto entries =
      pointers_to<GemmEntry>(share<gemm_gated_policies, 1, gated[2]>, share<gemm_gated_policies, 0, gated[4]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_int4_entries() {
  static const auto entries =
      pointers_to<GemmEntry>(share<gemm_int4_policies, 1, int4[1]>, share<gemm_int4_policies, 1, int4[2]>,
                             share<gemm_int4_policies, 0, int4[4]>, share<gemm_int4_policies, 1, int4[5]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_mx_entries() {
  static const auto entries = pointers_to<GemmEntry>(
      share<gemm_mx_policies, 0, mx[0]>, share<gemm_mx_policies, 1, mx[2]>, share<gemm_mx_policies, 0, mx[3]>,
      share<gemm_mx_policies, 0, mx[4]>, share<gemm_mx_policies, 1, mx[5]>, share<gemm_mx_policies, 1, mx[6]>,
      share<gemm_mx_policies, 1, mx[7]>, share<gemm_mx_policies, 0, mx[8]>, share<gemm_mx_policies, 0, mx[9]>);
  return entries;
}
std::span<const GemmEntry* const> all_gemm_grouped_entries() { return {}; }  // the features have some
std::span<const GemmEntry* const> all_gemm_moe_entries() {
  static const auto entries =
      pointers_to<GemmEntry>(share<gemm_gated_policies, 1, gathered_gates>, share<gemm_moe_policies, 1, moe[0]>,
                             share<gemm_moe_policies, 1, moe[3]>);
  return entries;
}

#endif

}  // namespace tilewave
