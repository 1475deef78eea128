// SPDX-License-Identifier: MIT
// What an indexer's logits of queries on keys are.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// Whose keys a query sees. Paged: those of its sequence, through a block table, up to its own (decode). Ranges: keys
/// [start, end) of one list that all queries share (prefill).
enum class MqaKeys : int { paged, ranges };

constexpr const char* name_of(MqaKeys k) { return k == MqaKeys::paged ? "paged" : "ranges"; }

/// logits[query, t] = scale[t] * sum over heads h of weights[query, h] * max(0, q[query, h] . k[t]), one key for all
/// heads; -infinity for a key that the query does not see. Dot products and sums in f32. Of fp4 32 neighbouring
/// dimensions of a head or a key have an e8m0 scale, and scale[t] is 1.
struct MqaLogitsSpec {
  DType type = DType::fp8_e4m3fn;  // of q and k: the chip's fp8, or where it has MX formats and keys are paged fp4
  MqaKeys keys = MqaKeys::paged;
  int heads = 64;  // 32 or 64
  int head_size = 128;

  friend constexpr bool operator==(const MqaLogitsSpec&, const MqaLogitsSpec&) = default;
};

/// `fp8_e4m3fn.paged.h64.d128`.
inline std::string name_of(const MqaLogitsSpec& s) {
  return std::string(name_of(s.type)) + "." + name_of(s.keys) + ".h" + std::to_string(s.heads) + ".d" +
         std::to_string(s.head_size);
}

}  // namespace tilewave
