// SPDX-License-Identifier: MIT
// Claims that every compiled row kernel must meet; an op's isa_claims.hpp adds its own.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tilewave/tile/row_output.hpp"

namespace tilewave::test {

using nlohmann::ordered_json;

/// Claims on the code of a row kernel, besides those of every kernel. docs/reference/isa.md says how tilewave isa
/// counts them.
struct RowUse {
  int inputs = 1;         // row tensors: x, and a residual
  int row_outputs = 1;    // row tensors written: the output, and a sum with the residual
  int exchanges = 1;      // between the waves of a row: one barrier each
  int values = 1;         // that they reduce over the row, all together
  int scalar_loads = 0;   // of 4 bytes: a tensor's scale, a row's length
  int scalar_stores = 0;  // of 4 bytes: statistics
};

/// Besides `use`, only the output's own type and scales matter.
template <ArchId arch>
ordered_json row_claims(RowUse use, DType x, DType out, Scaling mode, const RowPolicy& p) {
  constexpr int wave = facts_of(arch).wave_lanes;
  const auto steps = [](int lanes) {
    int n = 0;
    while (lanes >> (n + 1) != 0) ++n;
    return n;
  };
  const int unit = p.vec / size_of(x), waves_per_row = std::max(1, p.lanes / wave);
  use.exchanges += mode == Scaling::per_token;
  use.values += mode == Scaling::per_token;
  use.scalar_stores += mode == Scaling::per_token;
  use.scalar_loads += mode == Scaling::per_tensor;
  const int partials = waves_per_row > 1 ? use.values * p.rows * waves_per_row : 0;
  const int spans = p.chunks / p.span;
  int group_steps = 0;
  int scale_bytes = 0;  // of groups
  if (mode == Scaling::per_group || mode == Scaling::mx) {
    scale_bytes = spans * (mode == Scaling::mx ? 1 : 4);
    group_steps = spans * steps(group_of(mode) / (unit * p.span));
  }
  // The rows of one tile in accesses of 16 bytes. A narrow output joins chunks of a span, and needs one store for each
  // but the last of them where a row ends between two.
  const int joined = std::max(1, std::min(p.span, 16 / bytes_of(out, unit)));
  const int pieces = mode == Scaling::mx ? 0 : p.chunks / joined * (joined - 1);
  // 24 bytes of fp6, aligned to 8, of which LLVM makes one store of 16 bytes or none.
  const int sixes = is_fp6(out) ? bytes_of(out, p.chunks * unit) : 0;
  const int output_stores = sixes > 0 ? 0 : bytes_of(out, p.chunks * unit) / 16;
  // The residual of a row comes in parts where the row is long. Lanes of one wave with rows of their own mask x before
  // it.
  const bool beside = p.chunks <= 8 && p.lanes >= wave;
  return {{"vector", p.vec == 16},
          // clang joins single elements in registers, and waits for them, before it loads the next
          {"bytes_in_flight", p.held && p.vec == 16 ? p.chunks * p.vec * (beside ? use.inputs : 1) : 0},
          {"wide_loads", p.chunks * use.inputs},
          {"wide_stores", output_stores + p.chunks * (use.row_outputs - 1)},
          {"narrow_load_bytes", 4 * use.scalar_loads},
          {"narrow_store_bytes", 4 * use.scalar_stores + scale_bytes + pieces * bytes_of(out, unit) + sixes},
          {"dpp", use.values * (steps(std::min(p.lanes, wave)) + steps(waves_per_row)) + group_steps},
          {"barriers", waves_per_row > 1 ? use.exchanges : 0},
          {"lds_bytes", partials * int{sizeof(float)}}};
}

}  // namespace tilewave::test
