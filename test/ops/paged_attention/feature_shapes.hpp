// SPDX-License-Identifier: MIT
// The shapes that feature specs are tested with.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "test/ops/paged_attention/each_entry.hpp"

namespace tilewave::test {

struct FeatureShape {
  int block_size, group, mtp;
  bool other_layout;  // plain V, or HND
  int splits;
};
inline constexpr std::array whole_units{FeatureShape{16, 5, 3, false, 1}, FeatureShape{48, 1, 8, true, 2},
                                        FeatureShape{64, 11, 1, true, 7}, FeatureShape{1024, 3, 5, false, 3}};
inline constexpr std::array any_size{FeatureShape{1, 5, 3, false, 1},  FeatureShape{8, 1, 8, true, 2},
                                     FeatureShape{17, 11, 1, true, 7}, FeatureShape{48, 3, 5, false, 3},
                                     FeatureShape{16, 2, 2, true, 1},  FeatureShape{1024, 4, 1, false, 2}};

inline PagedAttentionCase case_of(const PagedAttentionEntry& e, const FeatureShape& shape,
                                  const std::vector<std::int32_t>& lengths) {
  PagedAttentionCase c = case_for(e, lengths);
  c.block_size = shape.block_size;
  c.mtp = shape.mtp;
  c.num_kv_heads = shape.group <= 5 ? 2 : 1;
  c.num_q_heads = shape.group * c.num_kv_heads;
  if (c.layout != bench::KvLayout::units && shape.other_layout) c.layout = bench::KvLayout::hnd;
  c.trans_v = !shape.other_layout || e.spec.native;  // bulk entries take no plain V
  c.inputs = bench::Inputs::varied;
  return c;
}

inline std::span<const FeatureShape> shapes_of(const PagedAttentionEntry& e) {
  if (e.spec.any_block_size) return any_size;
  return whole_units;
}

}  // namespace tilewave::test
