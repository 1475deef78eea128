// SPDX-License-Identifier: MIT
// The epilogue: what becomes of a sum of products before it is an element of the output.
#pragma once

#include "tilewave/ops/gemm/args.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// The place of an element in the output: its layer (batch or group), its row and its column.
struct GemmElement {
  std::int32_t layer, row, column;
};

/// Returns sums of products as f32. Integer sums are rounded once.
template <class Sum, int n>
TILEWAVE_DEVICE Vec<float, n> as_floats(const Vec<Sum, n>& sums) {
  Vec<float, n> values;
  TILEWAVE_UNROLL
  for (int i = 0; i < n; ++i) values[i] = static_cast<float>(sums[i]);
  return values;
}

/// The default for a user's own epilogue, which returns what it gets. Such an epilogue is a trivially copyable struct.
/// It is called on every element after what Spec and Problem ask for, before the element is rounded to out's type. It
/// may read memory, but must not write: it is also called for elements beyond the matrix, as if they were in the last
/// row or column, and these are dropped.
struct GemmIdentity {
  TILEWAVE_DEVICE float operator()(float value, GemmElement) const { return value; }
};

/// The epilogue of one tile. It does not know which element a lane's sum is: kernels pass that as a function.
template <class B, GemmSpec S, class UserEpilogue>
struct GemmEpilogue {
  static constexpr int halves = S.gated ? 2 : 1;

  /// Makes values of the output of a lane's sums, and puts them in the first half. A gated spec has two halves, sums of
  /// gates and sums of ups. `at(i)` gives the row and column of element i in the tile of C. Elements beyond the matrix
  /// are computed as the last row or column is, and must not be written. `scale_of(i, half)` is the product of the
  /// scales of the element's rows of A and of B; block scales are in the sums already. Without `extras` bias and
  /// residual are left out.
  template <bool extras = true, int n, class At, class Scale>
  TILEWAVE_DEVICE static void apply(const GemmArgs& a, const UserEpilogue& user, const GemmTile& tile,
                                    Vec<float, n> (&half_sums)[halves], const At& at, const Scale& scale_of) {
    Vec<float, n>& sums = half_sums[0];
    const auto element = [&](int i) TILEWAVE_INLINE_LAMBDA {
      const auto [row, column] = at(i);
      return GemmElement{tile.layer, min_of(tile.first_row + row, tile.row_end - 1),
                         min_of(tile.first_column + column, a.n - 1)};
    };
    const auto for_each = [&](const auto& body) TILEWAVE_INLINE_LAMBDA {
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) sums[i] = body(sums[i], element(i));
    };
    TILEWAVE_UNROLL
    for (int half = 0; half < halves; ++half) {
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) half_sums[half][i] *= scale_of(i, half);
      if constexpr (S.gathered) {
        if (extras && a.row_weights != nullptr) {
          TILEWAVE_UNROLL
          for (int i = 0; i < n; ++i) half_sums[half][i] *= B::load(a.row_weights + element(i).row);
        }
      }
      if (extras && a.bias != nullptr) {
        TILEWAVE_UNROLL
        for (int i = 0; i < n; ++i) {
          const std::int64_t row = gemm_row_of_b<S>(a, element(i).column, half);
          half_sums[half][i] += load_as_float(a.bias, tile.layer * a.bias_layer_stride + row);
        }
      }
    }
    if constexpr (S.gated) {
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) sums[i] = gate_of(a, sums[i], half_sums[1][i]);
    } else if constexpr (S.activation != ActivationKind::none) {
      for_each([&](float v, GemmElement)
                   TILEWAVE_INLINE_LAMBDA { return ActivationOf<B>::template apply<S.activation>(v); });
    }
    if constexpr (S.scattered && !S.gathered) {
      if (extras && a.row_weights != nullptr)
        for_each([&](float v, GemmElement e) TILEWAVE_INLINE_LAMBDA { return v * B::load(a.row_weights + e.row); });
    }
    if (extras && a.residual != nullptr) {
      for_each([&](float v, GemmElement e) TILEWAVE_INLINE_LAMBDA {
        return v +
               load_as_float(a.residual, tile.a_layer * a.residual_layer_stride + e.row * a.residual_stride + e.column);
      });
    }
    for_each([&](float v, GemmElement e) TILEWAVE_INLINE_LAMBDA { return user(v, e); });
  }

  /// The same with the scales of tensors, rows and columns from device memory.
  template <int n, class At>
  TILEWAVE_DEVICE static void apply(const GemmArgs& a, const UserEpilogue& user, const GemmTile& tile,
                                    Vec<float, n> (&sums)[halves], const At& at) {
    const float factor = tensor_scale(a);
    apply(a, user, tile, sums, at, [&](int i, int half) TILEWAVE_INLINE_LAMBDA {
      if constexpr (S.scale == Scaling::per_group && is_fp8(S.a)) return factor * row_scale(a, tile, at(i).row);
      if constexpr (S.scale != Scaling::per_row) return factor;
      return factor * row_scale(a, tile, at(i).row) * column_scale(a, tile, at(i).column, half);
    });
  }

  /// Returns the factor of all elements: alpha and scales of tensors.
  TILEWAVE_DEVICE static float tensor_scale(const GemmArgs& a) {
    if constexpr (S.scale == Scaling::per_tensor) return a.alpha * B::load(a.a_scale) * B::load(a.b_scale);
    if constexpr (S.b == DType::i4 && S.a == DType::bf16) return a.alpha * (1.0f / B::i4_unit);
    return a.alpha;
  }
  /// Returns the scale of a row or column of the tile. Scaling::per_row has both, Scaling::per_group with fp8 rows of A
  /// only.
  TILEWAVE_DEVICE static float row_scale(const GemmArgs& a, const GemmTile& tile, std::int32_t row) {
    const std::int32_t of_a = gemm_row_of_a<B, S>(a, min_of(tile.first_row + row, tile.row_end - 1));
    return B::load(a.a_scale + tile.a_layer * a.a_scale_layer_stride + of_a);
  }
  TILEWAVE_DEVICE static float column_scale(const GemmArgs& a, const GemmTile& tile, std::int32_t column, int half) {
    if constexpr (S.four_bit()) return 1.0f;  // Scales of weights are in the sums already.
    const std::int32_t row = gemm_row_of_b<S>(a, min_of(tile.first_column + column, a.n - 1), half);
    return B::load(a.b_scale + tile.layer * a.b_scale_layer_stride + row);
  }

  /// Returns the factor of values before they are rounded, where the whole output has one scale.
  TILEWAVE_DEVICE static float out_factor(const GemmArgs& a) {
    if constexpr (S.out_scale == Scaling::per_tensor) return 1.0f / B::load(a.out_scale);
    return 1.0f;
  }
  static constexpr bool per_group = S.out_scale == Scaling::per_group;
  /// Returns the larger of `largest` and a value's magnitude. A value beyond the last column does not count.
  TILEWAVE_DEVICE static float amax(const GemmArgs& a, std::int32_t column, float largest, float value) {
    return column < a.n ? Max{}(largest, abs_of(value)) : largest;
  }
  /// Stores the scale of 128 columns whose largest magnitude is `largest`.
  TILEWAVE_DEVICE static void store_scale(const GemmArgs& a, const GemmTile& tile, std::int32_t row,
                                          std::int32_t column, float largest) {
    B::store(a.out_scale + tile.a_layer * a.out_scale_layer_stride + row * a.out_scale_stride + column / scale_group,
             quant_scale(S.out, largest));
  }

  /// Returns two neighbours of a row as a word of two 16-bit elements.
  TILEWAVE_DEVICE static std::uint32_t pack(float low, float high) {
    static_assert(S.out == DType::bf16 || S.out == DType::f16, "two neighbours make a word of 16-bit outputs");
    return S.out == DType::bf16 ? B::round_bf16(low, high) : B::pack_f16(low, high);
  }
  /// Stores n neighbours of a row. Their address is aligned to the bytes of n elements.
  template <int n>
  TILEWAVE_DEVICE static void store(const GemmArgs& a, const GemmTile& tile, std::int32_t row, std::int32_t column,
                                    const Vec<float, n>& values) {
    const std::int32_t of_out = gemm_row_of_out<B, S>(a, row);
    if (S.scattered && of_out < 0) return;
    store_in_row(a, tile, of_out, column, values);
  }
  /// The same to a row of out.
  template <int n>
  TILEWAVE_DEVICE static void store_in_row(const GemmArgs& a, const GemmTile& tile, std::int32_t of_out,
                                           std::int32_t column, const Vec<float, n>& values) {
    const std::int64_t at = tile.a_layer * a.out_layer_stride + of_out * a.out_stride + column;
    B::store(reinterpret_cast<Packed<S.out, n>*>(static_cast<Storage<S.out>*>(a.out) + at),
             narrow<B, S.out, n>(values));
  }

 private:
  static constexpr DType extra = S.extra();

  TILEWAVE_DEVICE static float gate_of(const GemmArgs& a, float gate, float up) {
    if constexpr (S.activation == ActivationKind::swigluoai)
      return ActivationOf<B>::swigluoai(gate, up, a.swiglu_alpha, a.swiglu_limit);
    return ActivationOf<B>::template apply<S.activation>(gate) * up;
  }
  TILEWAVE_DEVICE static float load_as_float(const void* from, std::int64_t at) {
    if constexpr (extra == DType::f32) return B::load(static_cast<const float*>(from) + at);
    const std::uint16_t bits = B::load(static_cast<const std::uint16_t*>(from) + at);
    return extra == DType::bf16 ? bf16_to_f32(bits) : B::widen_f16(bits)[0];
  }
};

}  // namespace tilewave
