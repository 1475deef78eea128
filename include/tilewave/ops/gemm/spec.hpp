// SPDX-License-Identifier: MIT
// What a GEMM computes: changing any of it changes the answer.
#pragma once

#include <string>
#include <string_view>

#include "tilewave/core/dtype.hpp"
#include "tilewave/tile/activation.hpp"
#include "tilewave/tile/quant_scale.hpp"

namespace tilewave {

/// Which dimension of A and of B is contiguous: n is [M, K] and [K, N], t is [K, M] and [N, K]. Weights of models are
/// nt.
enum class GemmLayout : int { nt, nn, tn, tt };

/// Whether rows of A (of B), over which k runs, are columns in memory: k is not the contiguous dimension.
TILEWAVE_HOST_DEVICE constexpr bool transposed_a(GemmLayout l) { return l == GemmLayout::tn || l == GemmLayout::tt; }
TILEWAVE_HOST_DEVICE constexpr bool transposed_b(GemmLayout l) { return l == GemmLayout::nn || l == GemmLayout::tn; }

/// How B lies in memory. Preshuffled: row n, value k of B[N, K] is value (n / 16 * (K / u) + k / u) * 16 u + n % 16
/// * u + k % u with u values in 16 bytes; N is a multiple of 16, K of 32. Of i4 u is 16, and values 8 w to
/// 8 w + 7 of that order are four bytes: the first four are the low halves, the others the high ones.
enum class GemmWeights : int { row_major, preshuffled };

/// One product, or many that share N and K in one launch. Contiguous: rows of A and C are sorted by group, and group g
/// is rows group_offsets[g] to group_offsets[g + 1]. Masked: each group has room for M rows, of which the first
/// group_rows[g] count. Both tables are on the device.
enum class GemmGroups : int { one, contiguous, masked };

/// How sums of fp8 products with scaling none, per_tensor or per_row are kept, where the chip's matrix unit keeps fewer
/// bits than f32 (sm90). promoted: they are added up in f32 every 128 k. fast: they stay in the unit over all of K,
/// which takes less time and loses more with K (docs/reference/numerics.md). Units that keep f32 do the same for both.
enum class GemmSums : int { promoted, fast };

constexpr const char* name_of(GemmLayout l) {
  constexpr const char* names[] = {"nt", "nn", "tn", "tt"};
  return names[static_cast<int>(l)];
}
constexpr const char* name_of(GemmWeights w) { return w == GemmWeights::row_major ? "row_major" : "preshuffled"; }
/// The word for the scaling of operands in names of specs and of benchmark rows: per_row is `row`. What out is scaled
/// by keeps its whole name there, so the two cannot be taken for each other.
constexpr std::string_view scale_word(Scaling s) {
  const std::string_view name = name_of(s);
  return name.starts_with("per_") ? name.substr(4) : name;
}
constexpr const char* name_of(GemmGroups g) {
  constexpr const char* names[] = {"one", "contiguous", "masked"};
  return names[static_cast<int>(g)];
}

constexpr const char* name_of(GemmSums s) { return s == GemmSums::promoted ? "promoted" : "fast"; }

inline constexpr int gemm_scale_block = 128;  // of k, and of n for B, under Scaling::per_block

/// out[m, n] = activation(alpha * sum over k of a[m, k] b[n, k] * scales + bias[n]) + residual[m, n]; sums in f32.
/// Scales, alpha, bias and residual are values of the Problem. Sums of i8 are exact, and then rounded to f32.
/// Gated: rows of B are pairs of a gate and an up row, as GemmProblem::interleaved says, and out has half as many
/// columns: out[m, c] = activation(gate) * up + residual[m, c], where gate and up are alpha * sum + bias of each.
/// Quantised outputs are scaled as `out_scale` says: per_tensor, by a given number, or per_group, by one found for each
/// 128 columns of a row. Per token would need rows that no block has as a whole.
struct GemmSpec {
  // Both bf16, both f16, both the chip's fp8, or both i8; or b i4 and a any of these but i8. With mx scales both of the
  // chip's fp8, fp6_e2m3, fp6_e3m2 or fp4, or b fp4 and a any of these.
  DType a = DType::bf16, b = DType::bf16;
  DType out = DType::bf16;  // bf16, f16 or f32; quantised: the chip's fp8 or i8
  // Scales multiply sums of products, which are f32 (exact integers with i8). Operands take none, per_tensor, per_row;
  // fp8 also per_block, whose scales multiply that block's part of the sum. int4 weights always have per_group, and a
  // scale for each row of A if A is fp8. MX types have mx, whose scales multiply the products.
  Scaling scale = Scaling::none;
  GemmLayout layout = GemmLayout::nt;
  GemmWeights weights = GemmWeights::row_major;
  GemmGroups groups = GemmGroups::one;
  ActivationKind activation = ActivationKind::none;
  bool gated = false;
  Scaling out_scale = Scaling::none;
  int scale_k = 0;  // values of K with one scale of int4 weights: 32, 64 or 128
  GemmSums sums = GemmSums::promoted;

  friend constexpr bool operator==(const GemmSpec&, const GemmSpec&) = default;

  constexpr bool mx() const { return scale == Scaling::mx; }
  /// Weights of four bits, and the type of scales of their groups.
  TILEWAVE_HOST_DEVICE constexpr bool int4() const { return b == DType::i4; }
  TILEWAVE_HOST_DEVICE constexpr DType group_scale() const { return a == DType::f16 ? DType::f16 : DType::bf16; }
  /// Whether `sums` is to choose: fp8 sums of which nothing is scaled on the way.
  TILEWAVE_HOST_DEVICE constexpr bool has_sums_to_choose() const {
    return is_fp8(a) && (scale == Scaling::none || scale == Scaling::per_tensor || scale == Scaling::per_row);
  }
  /// Of bias and residual.
  constexpr DType extra() const { return size_of(out) == 1 ? DType::bf16 : out; }
};

/// `fp8_e4m3fn.fp4_e2m1.bf16.mx.nt`, `bf16.i4.bf16.group128.nt`, and what else is not the default: `.preshuffled`,
/// `.masked`, `.silu`, `.gated`, `.per_group` (of out), `.fast`.
inline std::string name_of(const GemmSpec& s) {
  const std::string group = s.scale_k > 0 ? std::to_string(s.scale_k) : "";
  std::string name = std::string(name_of(s.a)) + "." + std::string(name_of(s.b)) + "." + std::string(name_of(s.out)) +
                     "." + std::string(scale_word(s.scale)) + group + "." + name_of(s.layout);
  if (s.weights != GemmWeights::row_major) name += std::string(".") + name_of(s.weights);
  if (s.groups != GemmGroups::one) name += std::string(".") + name_of(s.groups);
  if (s.activation != ActivationKind::none) name += std::string(".") + name_of(s.activation);
  if (s.gated) name += ".gated";
  if (s.out_scale != Scaling::none) name += std::string(".") + name_of(s.out_scale);
  if (s.sums != GemmSums::promoted) name += std::string(".") + name_of(s.sums);
  return name;
}

}  // namespace tilewave
