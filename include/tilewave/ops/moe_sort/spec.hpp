// SPDX-License-Identifier: MIT
// The spec of a sort of tokens by expert.
#pragma once

#include <string>

namespace tilewave {

/// Ids are i32 and weights f32; everything else is a value of the Problem.
struct MoeSortSpec {
  friend constexpr bool operator==(const MoeSortSpec&, const MoeSortSpec&) = default;
};

inline std::string name_of(const MoeSortSpec&) { return "i32"; }

inline constexpr int most_sorted_experts = 1024, most_sorted_choices = 16, most_sort_unit = 256;
inline constexpr int sorted_token_bits = 24;  // low bits of a sorted id; the slot is above them

}  // namespace tilewave
