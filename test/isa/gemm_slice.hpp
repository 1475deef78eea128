// SPDX-License-Identifier: MIT
// The code objects of GEMM. Those of a chip's turns gate every change; the others wait for the label full.
#pragma once

#include <array>
#include <string_view>

#include "tilewave/arch/facts.hpp"

namespace tilewave::test {

/// Neighbours in a list take turns: one is gated on gfx950, the next on gfx942.
constexpr bool has_turn(ArchId arch, std::size_t place) { return place % 2 == (arch == ArchId::gfx942); }

/// The specs of each list of GEMM that have a code object, with all their policies.
inline constexpr std::array gemm_objects{0, 2, 4, 5};
inline constexpr std::array gemm_feature_objects{0, 1, 2, 7};
inline constexpr std::array gemm_gated_objects{1, 2, 4, 6};
inline constexpr std::array gemm_int4_objects{0, 1, 2, 4, 5, 3};  // int4, then MXFP4, zero points, MXFP4 gated
inline constexpr std::array gemm_mx_objects{0, 1, 9, 2, 4, 3, 6, 5, 7};
inline constexpr std::array gemm_moe_objects{0, 2, 3};  // gathered; gathered fp8; scattered fp8
#define GEMM_LISTS(each) each(gemm) each(gemm_feature) each(gemm_gated) each(gemm_int4) each(gemm_mx) each(gemm_moe)
/// True if the architecture has the list.
constexpr bool has_list(ArchId arch, std::string_view list) { return list != "gemm_mx" || facts_of(arch).mx; }

}  // namespace tilewave::test
