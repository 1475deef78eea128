// SPDX-License-Identifier: MIT
// What an indexer computes: logits of queries on keys.
#pragma once

#include <string>

#include "tilewave/core/dtype.hpp"

namespace tilewave {

/// Whose keys a query sees. paged: those of its sequence, through a block table, up to its own (decode). ranges: keys
/// [start, end) of one list that all queries share (prefill).
enum class MqaKeys : int { paged, ranges };

constexpr const char* name_of(MqaKeys k) { return k == MqaKeys::paged ? "paged" : "ranges"; }

/// logits[query, t] = scale[t] * sum over heads h of weights[query, h] * max(0, q[query, h] . k[t]), with one key for
/// all heads. The logit of a key that the query does not see is -infinity. Dot products and sums are in f32. If q and k
/// are fp4, each 32 neighbouring dimensions of a head or a key have an e8m0 scale, and scale[t] is 1.
struct MqaLogitsSpec {
  DType type = DType::fp8_e4m3fn;  // of q and k: the chip's fp8; or fp4 if keys are paged and the chip has MX formats
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
