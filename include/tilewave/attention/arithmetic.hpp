// SPDX-License-Identifier: MIT
// The arithmetic that all attention kernels of a spec share, however they hold their rows: scales, ranges of
// probabilities, and conversions.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/attention/cache.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"

namespace tilewave {

/// `quant`: how K and V were scaled. `out`: type of the output, bf16 or f16. `native`: products of fp8 without
/// widening.
template <class B, Scaling quant, DType out, bool native>
struct AttentionArithmetic {
  static constexpr float minus_infinity = -__builtin_inff();

  /// How far a score may exceed the row's reference maximum before sums and outputs are scaled down, in log2 units.
  /// With 8, probabilities stay below 2^8: exact in f32 and harmless in bf16. Most steps then need a vote and no
  /// exchange of maxima. fp8 has little range to spare, hence 2.
  static constexpr float max_slack = native ? 2.0f : 8.0f;

  /// What probabilities are multiplied by before they become `type`; outputs are divided by it. f16 ends at 2^-24,
  /// where many tokens of little weight would lose theirs. 128 keeps probabilities below 2^15. It is 1 for per-token
  /// scales, since a token's own scale of V could then take a probability beyond f16. fp8 has three bits down to 2^-6
  /// and ends at 2^-9, so 64 takes its probabilities up to 2^8.
  static constexpr float probability_scale_of(DType type) {
    if (native) return 64.0f;
    return type == DType::f16 && quant != Scaling::per_token ? 128.0f : 1.0f;
  }

  TILEWAVE_DEVICE static float larger(float x, float y) { return Max{}(x, y); }
  TILEWAVE_DEVICE static float sum(float x, float y) { return x + y; }

  /// The scale of K, or of V, that is common to all tokens of a KV head; 1 if there is none, or each token has its own.
  /// `a` has scale_head_stride, in elements.
  template <class Args>
  TILEWAVE_DEVICE static float common_scale(const Args& a, const float* scales, std::int32_t kv_head) {
    if constexpr (quant == Scaling::per_tensor) return B::load(scales);
    if constexpr (quant == Scaling::per_head) return B::load(scales + kv_head * a.scale_head_stride);
    return 1.0f;
  }

  /// Rounds two floats to a word of the output, `low` in its low half.
  TILEWAVE_DEVICE static std::uint32_t round_out(float low, float high) {
    if constexpr (out == DType::f16) {
      return B::pack_f16(low, high);
    } else {
      return B::round_bf16(low, high);
    }
  }
  /// Rounds two probabilities to a word of `type`, bf16 or f16, `low` in its low half.
  template <DType type>
  TILEWAVE_DEVICE static std::uint32_t pack_probabilities(float low, float high) {
    if constexpr (type == DType::f16) {
      return B::pack_f16(low, high);
    } else {
      return B::pack_bf16(low, high);
    }
  }
};

}  // namespace tilewave
