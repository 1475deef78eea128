// SPDX-License-Identifier: MIT
// Claims that compiled GEMM kernels of AMD must meet.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "test/isa/slice.hpp"
#include "tilewave/arch/host/backend.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::test {

using nlohmann::ordered_json;

/// Rows of fp8 are widened to f16 where weights have four bits, but for those that become fp8 on their way into LDS.
constexpr DType gemm_product_type(const GemmSpec& s, const GemmPolicy& p) {
  return s.four_bit() && is_fp8(s.a) && p.path != GemmPath::staged ? DType::f16 : s.a;
}

/// The matrix instruction of a GEMM, the full-rate one of its type and shape.
template <ArchId arch>
std::string gemm_mfma(const GemmSpec& spec, int side, const GemmPolicy& policy = {}) {
  if (spec.mx()) return side == 16 ? "scale_f32_16x16x128_f8f6f4" : "scale_f32_32x32x64_f8f6f4";
  const DType type = gemm_product_type(spec, policy);
  const bool fp8 = is_fp8(type), cdna4 = arch == ArchId::gfx950;
  const int k = (side == 16 ? 16 : 8) * (2 / size_of(type)) * (cdna4 ? (fp8 ? 4 : 2) : 1);
  const std::string name = fp8 ? (cdna4 ? "f8f6f4" : "fp8_fp8") : std::string(name_of(type));
  return (type == DType::i8 ? "i32_" : "f32_") + std::to_string(side) + "x" + std::to_string(side) + "x" +
         std::to_string(k) + "_" + name;
}

/// Vector instructions that a product of the steady loop may have beside it, on average.
template <class Kernel, GemmSpec spec>
constexpr double gemm_valu() {
  using W = typename Kernel::W;
  constexpr GemmPolicy policy = W::policy;
  if constexpr (policy.path == GemmPath::direct && policy.rows * policy.columns < 128 * 128 &&
                spec.scale != Scaling::per_block) {
    // Tiles this small take so many turns a round that the places of copies in LDS, two words each, wait in vector
    // registers.
    constexpr int a = Kernel::a_slots, b = Kernel::b_slots, turns = a == b ? a : a * b;
    constexpr int places = a * Kernel::RowsA::copies + b * Kernel::RowsB::copies;
    return 2.0 * places / (turns * Kernel::k_slices * W::tiles_m * W::tiles_n);
  }
  if constexpr (spec.mxfp4() && policy.path == GemmPath::staged) {
    // An item of two words is widened in one of two ways, which both stand in the loop: with its scale, or, where that
    // would be no normal number, by a multiplication of eight pairs. gfx942 makes a table for each scale.
    constexpr int item = W::Backend::facts.id == ArchId::gfx950 ? 106 : 140;
    return (Kernel::RowsB::copies * item + 10.0) / (W::tiles_m * W::tiles_n * Kernel::k_slices);
  } else if constexpr (spec.four_bit() && policy.path == GemmPath::staged) {
    // A step widens words of codes and takes zero points from them. For each group of steps, scales become f32 and
    // multiply sums in pairs; ten more are addresses.
    constexpr int words = 2 * Kernel::RowsB::copies * ((is_fp8(spec.a) ? 22 : 15) + 8 * spec.zero_points);
    constexpr int scales = W::tiles_n * W::Map::sums + W::tiles_m * W::tiles_n * W::Map::sums / 2;
    return (words + double{scales} / Kernel::Scales::period + 10) / (W::tiles_m * W::tiles_n * Kernel::k_slices);
  } else if constexpr (spec.four_bit()) {
    // Each step widens words of codes (and fp8 rows), takes zero points from them, converts scales to f32 and multiplies
    // sums in pairs; a few more are left. Where conversions of fp4 scale, a word is widened in one of two ways, which
    // both stand in the loop with products of their own: 45 for both. Sums need no scales.
    constexpr bool cdna4 = W::Backend::facts.id == ArchId::gfx950;
    constexpr int codes = 4 * W::tiles_n *
                          ((Kernel::scaled_codes    ? 22
                            : spec.a == DType::bf16 ? 15
                            : spec.mxfp4()          ? 13
                                                    : 12) +
                           8 * spec.zero_points);
    constexpr int rows = is_fp8(spec.a) ? 4 * W::tiles_m * (cdna4 ? 4 : 8) : 0;
    constexpr int scales = (spec.mxfp4() ? 12 : 4) + 2 * W::tiles_m;
    constexpr int sums = Kernel::step_scales * W::tiles_n * (Kernel::scaled_codes ? 4 : scales);
    return (codes + rows + sums + 8.0) / (4 * W::tiles_m * W::tiles_n * (8 / Kernel::k_per_lane));
  } else if constexpr (spec.mx()) {
    // Addresses of scales; in registers codes are brought to the low byte, too.
    constexpr int products = W::tiles_m * W::tiles_n * Kernel::k_slices,
                  words = (W::tiles_m + W::tiles_n) * Kernel::k_slices;
    if constexpr (policy.path == GemmPath::direct) {
      constexpr int copies = Kernel::RowsA::copies + Kernel::RowsB::copies + 2;  // whose places wait as above
      // Slots of fp6, of strips, and of more rows than 64 KiB end beyond what an instruction reaches from one address;
      // fp6's two products read from different ones.
      constexpr bool far_rows = policy.stages * policy.rows * policy.depth_bytes > 1 << 16;
      constexpr int far = is_fp6(spec.a) + is_fp6(spec.b) + (spec.weights == GemmWeights::preshuffled) + 2 * far_rows;
      return (4.0 + far + (policy.rows < 256 ? 2.0 * copies : 0)) / products;
    } else {
      return (2.0 * words + 4.0 * Kernel::k_slices) / products;
    }
  } else if constexpr (spec.scale == Scaling::per_block) {
    // Sums of a step are scaled in f32, in pairs; gates and ups have scales of their own.
    return W::Map::sums / 2 + 2 + (spec.gated ? 0.5 : 0);
  } else if constexpr (spec.layout != GemmLayout::nt && policy.path == GemmPath::direct) {
    return policy.rows < 256 ? 0.1 : 0;  // addresses of reads: a place in LDS for each product of a wave
  } else if constexpr (spec.layout != GemmLayout::nt) {  // 16 words of an operand are turned
    constexpr int products = W::tiles_m * W::tiles_n * Kernel::k_slices * 2;
    return 16.0 * (transposed_a(spec.layout) + transposed_b(spec.layout)) / products;
  }
  return 0;
}

/// What one kernel of GEMM claims. It is no template, since code that makes JSON takes longer to compile than what it says.
struct GemmClaims {
  std::string code_object;
  bool full;
  std::size_t index;  // of the policy
  int waves_per_simd, waves_per_block;
  std::size_t lds_bytes;
  std::string mfma;
  double valu_of_products;
};
inline ordered_json gemm_entry(ArchId arch, const GemmSpec& spec, const GemmPolicy& policy, const GemmClaims& claims) {
  return {{"code_object", claims.code_object},
          {"full", claims.full},
          {"symbol", "GemmEntryKernelILi" + std::to_string(claims.index) + "EE"},
          {"arch", std::string(name_of(arch))},
          {"kernel", "gemm"},
          {"spec", name_of(spec)},
          {"policy", name_of(policy)},
          {"waves_per_simd", claims.waves_per_simd},
          {"waves_per_block", claims.waves_per_block},
          {"lds_bytes", claims.lds_bytes},
          {"mfma", nullptr},
          {"gemm",
           {{"mfma", claims.mfma},
            {"writes_lds", policy.path == GemmPath::staged},
            {"valu_of_products", claims.valu_of_products}}}};
}

/// Every policy of a GEMM spec, at a place of the list: the i-th is the kernel GemmEntryKernel<i> of the spec's code
/// object.
template <ArchId arch, GemmSpec spec, GemmPolicies policies>
void add_gemm(ordered_json& file, const std::string& list, int index, std::size_t place) {
  const std::string object = list + "_" + std::string(name_of(arch)) + "_" + std::to_string(index) + ".co";
  static_for<policies.count>([&](auto i) {
    static constexpr GemmPolicy policy = policies[i];
    using Kernel = GemmKernel<host::Backend<arch>, spec, policy, GemmIdentity>;
    const int side = std::min(int{Kernel::W::Map::columns}, int{Kernel::W::side});
    const GemmClaims claims{object,
                            !has_turn(arch, place),
                            i,
                            Kernel::waves_per_simd,
                            Kernel::block_threads / facts_of(arch).wave_lanes,
                            sizeof(typename Kernel::Shared),
                            gemm_mfma<arch>(spec, side, policy),
                            gemm_valu<Kernel, spec>()};
    file["entries"].push_back(gemm_entry(arch, spec, policy, claims));
  });
}
template <ArchId arch, auto specs, auto policies_of, auto objects>
void add_gemms(ordered_json& file, const std::string& list) {
  static_for<objects.size()>([&](auto i) {
    static constexpr GemmSpec spec = specs[objects[i]];
    add_gemm<arch, spec, policies_of(arch, spec)>(file, list, objects[i], i);
  });
}

}  // namespace tilewave::test
