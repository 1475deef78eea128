// SPDX-License-Identifier: MIT
// From a sum of products to an element of the output.
#pragma once

#include "tilewave/ops/gemm/args.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

/// Where an element of the output is: its matrix (batch or group), row of A, row of B.
struct GemmElement {
  std::int32_t layer, row, column;
};

/// Sums of products, rounded once where they are ints.
template <class Sum, int n>
TILEWAVE_DEVICE Vec<float, n> as_floats(const Vec<Sum, n>& sums) {
  Vec<float, n> values;
  TILEWAVE_UNROLL
  for (int i = 0; i < n; ++i) values[i] = static_cast<float>(sums[i]);
  return values;
}

/// What a user's own epilogue looks like: a trivially copyable struct, called on every element after what the Spec and
/// Problem ask for, before it is rounded to out's type. It may read memory, but changes nothing: what lies beyond
/// the matrix comes, too, as if it were the last row's or column's, and is dropped. This one returns what it gets.
struct GemmIdentity {
  TILEWAVE_DEVICE float operator()(float value, GemmElement) const { return value; }
};

/// The epilogue of one tile. Kernels bring sums; where they stand in a lane is theirs.
template <class B, GemmSpec S, class UserEpilogue>
struct GemmEpilogue {
  static constexpr int halves = S.gated ? 2 : 1;

  /// Turns a lane's sums, gated those of gates and those of ups, into values of the output: the first half. `at(i)`
  /// says where in the tile of C element i is; what lies beyond the matrix is computed as its last neighbour is, and
  /// must not be written. (Block scales are in the sums already.) `scale_of(i, half)`: the factor of its row of A and
  /// that of its row of B together. Without `extras` there is neither bias nor residual.
  template <bool extras = true, int n, class At, class Scale>
  TILEWAVE_DEVICE static void apply(const GemmArgs& a, const UserEpilogue& user, const GemmTile& tile,
                                    Vec<float, n> (&of_halves)[halves], const At& at, const Scale& scale_of) {
    Vec<float, n>& sums = of_halves[0];
    const auto element = [&](int i) TILEWAVE_INLINE_LAMBDA {
      const auto [row, column] = at(i);
      return GemmElement{tile.layer, min_of(tile.first_row + row, tile.row_end - 1),
                         min_of(tile.first_column + column, a.n - 1)};
    };
    const auto each = [&](const auto& body) TILEWAVE_INLINE_LAMBDA {
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) sums[i] = body(sums[i], element(i));
    };
    TILEWAVE_UNROLL
    for (int half = 0; half < halves; ++half) {
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) of_halves[half][i] *= scale_of(i, half);
      if (extras && a.bias != nullptr) {
        TILEWAVE_UNROLL
        for (int i = 0; i < n; ++i) {
          const std::int64_t row = gemm_row_of_b<S>(a, element(i).column, half);
          of_halves[half][i] += load_as_float(a.bias, tile.layer * a.bias_layer_stride + row);
        }
      }
    }
    if constexpr (S.gated) {
      TILEWAVE_UNROLL
      for (int i = 0; i < n; ++i) sums[i] = gate_of(a, sums[i], of_halves[1][i]);
    } else if constexpr (S.activation != ActivationKind::none) {
      each([&](float v, GemmElement)
               TILEWAVE_INLINE_LAMBDA { return ActivationOf<B>::template apply<S.activation>(v); });
    }
    if (extras && a.residual != nullptr) {
      each([&](float v, GemmElement e) TILEWAVE_INLINE_LAMBDA {
        return v +
               load_as_float(a.residual, tile.a_layer * a.residual_layer_stride + e.row * a.residual_stride + e.column);
      });
    }
    each([&](float v, GemmElement e) TILEWAVE_INLINE_LAMBDA { return user(v, e); });
  }

  /// The same with scales as they lie in device memory.
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

  /// What all elements are multiplied by.
  TILEWAVE_DEVICE static float tensor_scale(const GemmArgs& a) {
    if constexpr (S.scale == Scaling::per_tensor) return a.alpha * B::load(a.a_scale) * B::load(a.b_scale);
    if constexpr (S.int4() && S.a == DType::bf16) return a.alpha * (1.0f / B::i4_unit);
    return a.alpha;
  }
  /// Of a row or column of the tile under Scaling::per_row, of a row under Scaling::per_group.
  TILEWAVE_DEVICE static float row_scale(const GemmArgs& a, const GemmTile& tile, std::int32_t row) {
    return B::load(a.a_scale + tile.a_layer * a.a_scale_layer_stride + min_of(tile.first_row + row, tile.row_end - 1));
  }
  TILEWAVE_DEVICE static float column_scale(const GemmArgs& a, const GemmTile& tile, std::int32_t column, int half) {
    if constexpr (S.int4()) return 1.0f;  // codes have theirs already
    const std::int32_t row = gemm_row_of_b<S>(a, min_of(tile.first_column + column, a.n - 1), half);
    return B::load(a.b_scale + tile.layer * a.b_scale_layer_stride + row);
  }

  /// What values are multiplied by before they are rounded, with one scale for the whole output.
  TILEWAVE_DEVICE static float out_factor(const GemmArgs& a) {
    if constexpr (S.out_scale == Scaling::per_tensor) return 1.0f / B::load(a.out_scale);
    return 1.0f;
  }
  static constexpr bool per_group = S.out_scale == Scaling::per_group;
  /// The larger of `largest` and a value's magnitude, if its column is there.
  TILEWAVE_DEVICE static float amax(const GemmArgs& a, std::int32_t column, float largest, float value) {
    return column < a.n ? Max{}(largest, abs_of(value)) : largest;
  }
  /// Keeps the scale of a group of columns of which `largest` is the largest magnitude.
  TILEWAVE_DEVICE static void store_scale(const GemmArgs& a, const GemmTile& tile, std::int32_t row,
                                          std::int32_t column, float largest) {
    B::store(a.out_scale + tile.a_layer * a.out_scale_layer_stride + row * a.out_scale_stride + column / scale_group,
             quant_scale(S.out, largest));
  }

  /// Two neighbours of a row as a word of 16-bit elements.
  TILEWAVE_DEVICE static std::uint32_t pack(float low, float high) {
    static_assert(S.out == DType::bf16 || S.out == DType::f16, "two neighbours make a word of 16-bit outputs");
    return S.out == DType::bf16 ? B::round_bf16(low, high) : B::pack_f16(low, high);
  }
  /// n neighbours of a row, n of whose bytes are aligned.
  template <int n>
  TILEWAVE_DEVICE static void store(const GemmArgs& a, const GemmTile& tile, std::int32_t row, std::int32_t column,
                                    const Vec<float, n>& values) {
    const std::int64_t at = tile.a_layer * a.out_layer_stride + row * a.out_stride + column;
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
