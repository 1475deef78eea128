// SPDX-License-Identifier: MIT
// The sweep of bench_ceiling: which configs, in which order. The order is part of the CSV contract.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/ops/vec_add/ceiling_row.hpp"

namespace tilewave::bench {

/// Nothing; every kind over buffers inside and far beyond the caches; vector additions of FlyDSL's default count
/// (tests/kernels/test_vec_add.py), of such buffers, and of the other types.
inline std::vector<CeilingCase> ceiling_sweep(ArchId arch) {
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  std::vector<CeilingCase> cases;
  const auto add = [&](CeilingKind kind, std::int64_t bytes, DType x = DType::f32) {
    const std::int64_t launched = cuts_configs() ? std::min(bytes, emulated_bytes) : bytes;
    cases.push_back({arch, kind, x, launched, bytes});
  };
  add(CeilingKind::nothing, 0);
  for (const CeilingKind kind : {CeilingKind::read, CeilingKind::copy, CeilingKind::write})
    for (const std::int64_t size : {16, 64, 256, 1024, 4096}) add(kind, size * mib);
  add(CeilingKind::vec_add, 4 * 10'240'000);
  for (const std::int64_t size : {16, 64, 256, 1024}) add(CeilingKind::vec_add, size * mib);
  for (const DType x : {DType::f16, DType::bf16}) add(CeilingKind::vec_add, 256 * mib, x);
  return cases;
}

}  // namespace tilewave::bench
