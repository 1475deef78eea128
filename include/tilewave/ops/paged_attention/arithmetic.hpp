// SPDX-License-Identifier: MIT
// What all decode kernels of a spec have in common, however they hold their rows.
#pragma once

#include "tilewave/ops/paged_attention/args.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S>
struct PagedAttentionArithmetic {
  static constexpr float minus_infinity = -__builtin_inff();

  // Rescaling waits until a score exceeds the reference maximum by this much (log2 units): probabilities stay below
  // 2^8, exact in f32 and harmless in bf16, and the steady loop needs a vote instead of exchanges. fp8 has no range to
  // spare.
  static constexpr float max_slack = S.native ? 2.0f : 8.0f;
  // f16 ends at 2^-24, where many tokens of little weight would lose theirs: probabilities are multiplied by this
  // before they become f16, then below 2^15, and outputs divided by it. A token's own scale of V could take them
  // beyond f16. In fp8 they are up to 2^8; it has three bits down to 2^-6 and ends at 2^-9.
  static constexpr float probability_scale_of(DType type) {
    if (S.native) return 64.0f;
    return type == DType::f16 && S.quant != Scaling::per_token ? 128.0f : 1.0f;
  }

  TILEWAVE_DEVICE static float larger(float x, float y) { return __builtin_fmaxf(x, y); }
  TILEWAVE_DEVICE static float sum(float x, float y) { return x + y; }

  /// One scale of K, or of V, for all that a block reads; 1 where tokens have their own.
  TILEWAVE_DEVICE static float common_scale(const PagedAttentionArgs& a, const float* scales, std::int32_t kv_head) {
    if constexpr (S.quant == Scaling::per_tensor) return B::load(scales);
    if constexpr (S.quant == Scaling::per_head) return B::load(scales + kv_head * a.scale_head_stride);
    return 1.0f;
  }

  /// Two floats as a word of the output.
  TILEWAVE_DEVICE static std::uint32_t round_out(float low, float high) {
    if constexpr (S.out == DType::f16) {
      return B::pack_f16(low, high);
    } else {
      return B::round_bf16(low, high);
    }
  }
  /// Two probabilities as a word of `type`, bf16 or f16.
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
