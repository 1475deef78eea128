// SPDX-License-Identifier: MIT
// The ladder of docs/reference/gemm.md as entries of bench_gemm. A build with TILEWAVE_GENERATED_ENTRIES=bench/ladder
// has them.
#pragma once

#include "bench/ladder/kernels.hpp"

namespace tilewave {

/// Returns the one spec of the ladder: bf16.
constexpr std::array<GemmSpec, 1> gemm_generated_specs(ArchId) { return {}; }

/// Returns the rungs above those of kernels.hpp: policies that the library has, and some between them.
constexpr GemmPolicies gemm_generated_policies(ArchId arch, const GemmSpec& s) {
  GemmPolicies all;
  if (facts_of(arch).tensor_copies) {
    const auto ring = [&](GemmPolicy p, int stages) {
      p.stages = stages > 0 ? stages : detail::gemm_stages(s, p);
      all.add(p);
    };
    ring({.rows = 64, .columns = 128, .waves_rows = 1}, 2);  // the copy engine, wgmma: one group, a ring of two
    ring({.rows = 64, .columns = 128, .waves_rows = 1}, 0);  // as many stages as there is room for
    ring({.rows = 64, .columns = 256, .waves_rows = 1}, 0);  // twice the columns
    ring({.rows = 128, .columns = 128}, 0);                  // two groups, one's epilogue below the other's products
    ring({.rows = 128, .columns = 256}, 0);                  // and twice the columns
    ring({.rows = 128, .columns = 256, .cluster = 2}, 0);    // and B's boxes by multicast
    ring({.rows = 128, .columns = 256, .stream = true}, 0);  // and the last round dealt to all
    ring({.rows = 128, .columns = 176, .waves_rows = 1, .pingpong = true}, 0);  // wave groups take whole tiles in turn
    ring({.rows = 16, .columns = 64, .waves_rows = 1, .swapped = true, .splits = 8}, 0);  // few rows; K shared
    return all;
  }
  const auto tile = [&](int rows, int columns, int stages, int waves_rows, int waves_columns, GemmPath path,
                        int splits = 1) {
    GemmPolicy p{.rows = rows, .columns = columns, .stages = stages, .waves_rows = waves_rows};
    p.waves_columns = waves_columns;
    p.path = path;
    p.splits = splits;
    if (rows * columns <= 128 * 128 && path != GemmPath::weights_in_registers) p.waves_per_simd = 2;
    all.add(p);
  };
  tile(128, 128, 1, 2, 2, GemmPath::staged, 16);  // steps interleaved by hand, 16 x 16 x 32 by 32 x 32 x 16
  tile(256, 256, 1, 2, 4, GemmPath::staged);
  if (facts_of(arch).direct_copies) {  // straight into LDS
    tile(128, 128, 2, 2, 2, GemmPath::direct, 16);
    tile(256, 256, 2, 2, 4, GemmPath::direct);
    tile(64, 32, 6, 2, 2, GemmPath::direct, 16);
  }
  tile(16, 64, 4, 1, 4, GemmPath::weights_in_registers, 16);  // few rows: B straight to registers; K shared
  return all;
}

template <class B, GemmSpec S>
inline constexpr auto gemm_generated_entries = [] {
  constexpr auto low = ladder::entries<B, S>();
  constexpr auto high = gemm_entries_of<B, S, gemm_generated_policies>();
  std::array<GemmEntry, low.size() + high.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i < low.size() ? low[i] : high[i - low.size()];
  return all;
}();

}  // namespace tilewave
