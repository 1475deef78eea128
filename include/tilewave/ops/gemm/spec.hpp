// SPDX-License-Identifier: MIT
// What a GEMM computes. Every field of the spec changes the answer.
#pragma once

#include <string>
#include <string_view>

#include "tilewave/core/dtype.hpp"
#include "tilewave/tile/activation.hpp"
#include "tilewave/tile/quant_scale.hpp"

namespace tilewave {

/// The contiguous dimensions of A (first letter) and of B (second letter). For A, n is [M, K] and t is [K, M]. For B, n
/// is [K, N] and t is [N, K]. Weights of models are nt.
enum class GemmLayout : int { nt, nn, tn, tt };

/// Says whether A (or B) is transposed: its rows are columns in memory, since k is not the contiguous dimension.
TILEWAVE_HOST_DEVICE constexpr bool transposed_a(GemmLayout l) { return l == GemmLayout::tn || l == GemmLayout::tt; }
TILEWAVE_HOST_DEVICE constexpr bool transposed_b(GemmLayout l) { return l == GemmLayout::nn || l == GemmLayout::tn; }

/// How B lies in memory. Preshuffled weights have u values in 16 bytes. Value k of row n of B[N, K] is value
/// (n / 16 * (K / u) + k / u) * 16 u + n % 16 * u + k % u. N is a multiple of 16, and K of 32. For weights of four bits
/// with scales of groups u is 16, and values 8 w to 8 w + 7 of that order are four bytes: the first four are the low
/// halves, the others the high ones.
///
/// Fragments are MXFP4 under bf16 on sm90, in the order in which lanes hold the operand of a product: sixteen rows by
/// 32 k are 256 bytes, of which lane l has the words 2 l and 2 l + 1, one for each 16 k. gemm_fragment (fragments.hpp)
/// says which codes a word has, and where their bits are.
enum class GemmWeights : int { row_major, preshuffled, fragments };

/// One product (or a batch), or a group for each expert, all with the same N and K in one launch. Tables are on the
/// device.
/// - contiguous: rows of A and C are sorted by group. Group g has rows group_offsets[g] to group_offsets[g + 1].
/// - masked: each group has room for M rows, of which the first group_rows[g] count.
enum class GemmGroups : int { one, contiguous, masked };

/// How sums of fp8 products are kept on sm90, whose matrix unit keeps fewer bits than f32. It applies to scaling none,
/// per_tensor and per_row. Chips whose unit keeps f32 sums do the same for both (docs/reference/numerics.md).
/// - promoted: every 128 k the unit's sum is added to one in f32.
/// - fast: sums stay in the unit over all of K. This takes less time, and the error grows with K.
/// Weights of i4 are exact under their scales unless sums are fast: then each is multiplied by its scale first, and
/// rounded to bf16, as a product of widened weights has them (sm90).
enum class GemmSums : int { promoted, fast };

constexpr const char* name_of(GemmLayout l) {
  constexpr const char* names[] = {"nt", "nn", "tn", "tt"};
  return names[static_cast<int>(l)];
}
constexpr const char* name_of(GemmWeights w) {
  constexpr const char* names[] = {"row_major", "preshuffled", "fragments"};
  return names[static_cast<int>(w)];
}
/// Returns the word for the scaling of operands in names of specs and of benchmark rows, such as `row` for per_row. The
/// scaling of out keeps its whole name there, so the two cannot be taken for each other.
constexpr std::string_view scale_word(Scaling s) {
  const std::string_view name = name_of(s);
  return name.starts_with("per_") ? name.substr(4) : name;
}
constexpr const char* name_of(GemmGroups g) {
  constexpr const char* names[] = {"one", "contiguous", "masked"};
  return names[static_cast<int>(g)];
}

constexpr const char* name_of(GemmSums s) { return s == GemmSums::promoted ? "promoted" : "fast"; }

inline constexpr int gemm_token_bits = 24;    // low bits of a row's id; the slot is above them
inline constexpr int gemm_scale_block = 128;  // k, and for B also n, of a scale of Scaling::per_block

/// out[m, n] = activation(alpha * sum over k of a[m, k] b[n, k] * scales + bias[n]) + residual[m, n], with sums in f32.
/// Scales, alpha, bias and residual are values of the Problem. Sums of i8 are exact, and then rounded to f32.
///
/// In a gated spec, rows of B are pairs of a gate and an up row, in the order that GemmProblem::interleaved says. Then
/// out has half as many columns: out[m, c] = activation(gate) * up + residual[m, c], where gate and up are alpha * sum
/// + bias.
///
/// Quantised outputs are scaled as `out_scale` says: per_tensor by a given number, or per_group by one found for each
/// 128 columns of a row. per_token is not possible, since no block has a whole row.
struct GemmSpec {
  // Without MX scales, a and b are both bf16, both f16, both the chip's fp8 or both i8, or b is i4 or fp4 and a any of
  // these but i8. With MX scales, both are the chip's fp8, fp6_e2m3, fp6_e3m2 or fp4, or b is fp4 and a any of these.
  DType a = DType::bf16, b = DType::bf16;
  DType out = DType::bf16;  // bf16, f16 or f32; quantised: the chip's fp8 or i8
  // Scales multiply sums of products, which are f32, or exact integers with i8. Operands take none, per_tensor or
  // per_row, and fp8 also per_block, whose scales multiply that block's part of the sum. Weights of four bits under
  // rows of 16 bits or fp8 always have per_group: one scale for every scale_k values of K in a row of B. If A is fp8,
  // each row of A then has a scale as well. int4 weights have scales of A's type, bf16 under fp8. fp4 weights are those
  // of MXFP4, with an e8m0 scale for 32 k. MX types have mx, whose scales multiply the products.
  Scaling scale = Scaling::none;
  GemmLayout layout = GemmLayout::nt;
  GemmWeights weights = GemmWeights::row_major;
  GemmGroups groups = GemmGroups::one;
  ActivationKind activation = ActivationKind::none;
  bool gated = false;
  Scaling out_scale = Scaling::none;
  int scale_k = 0;  // values of K that share a scale of per_group: 32, 64 or 128, of fp4 32; 0 for other scalings
  GemmSums sums = GemmSums::promoted;
  // Contiguous groups alone, as a layer of experts has them. Row r of the groups has the id row_ids[r] of the Problem,
  // which names a token and one of its slots.
  bool gathered = false;   // row r takes the token's row of A, and its scales
  bool scattered = false;  // row r goes to the row of out that the slot has
  /// int4 weights under rows of 16 bits: a value is the code less its zero point, of which each scale has one.
  bool zero_points = false;

  friend constexpr bool operator==(const GemmSpec&, const GemmSpec&) = default;

  /// Says whether rows of the groups have ids.
  TILEWAVE_HOST_DEVICE constexpr bool has_ids() const { return gathered || scattered; }
  constexpr bool mx() const { return scale == Scaling::mx; }
  /// Says whether B is in strips of sixteen rows, whose order is that of `weights`.
  constexpr bool in_strips() const { return weights != GemmWeights::row_major; }
  /// four_bit() says whether B is weights of four bits with scales of groups, mxfp4() whether they are fp4, and
  /// group_scale() is the type of their scales.
  TILEWAVE_HOST_DEVICE constexpr bool four_bit() const { return b == DType::i4 || mxfp4(); }
  TILEWAVE_HOST_DEVICE constexpr bool mxfp4() const { return b == DType::fp4_e2m1 && scale == Scaling::per_group; }
  TILEWAVE_HOST_DEVICE constexpr DType group_scale() const {
    return mxfp4() ? DType::e8m0 : a == DType::f16 ? DType::f16 : DType::bf16;
  }
  /// Returns the type of B's operand of products: weights of four bits are widened.
  TILEWAVE_HOST_DEVICE constexpr DType product_b() const { return four_bit() ? a : b; }
  /// Says whether `sums` may be chosen: for fp8 sums that are scaled only as a whole.
  TILEWAVE_HOST_DEVICE constexpr bool has_sums_to_choose() const {
    return is_fp8(a) && (scale == Scaling::none || scale == Scaling::per_tensor || scale == Scaling::per_row);
  }
  /// Says whether weights of i4 are rounded to A's type with their scales.
  TILEWAVE_HOST_DEVICE constexpr bool rounds_weights() const { return b == DType::i4 && sums == GemmSums::fast; }
  /// Says whether weights of four bits are multiplied by their scales before the products on sm90.
  TILEWAVE_HOST_DEVICE constexpr bool scales_in_weights() const {
    return (mxfp4() && a == DType::bf16) || rounds_weights();
  }
  /// Returns the type of bias and residual.
  constexpr DType extra() const { return size_of(out) == 1 ? DType::bf16 : out; }
};

/// Says whether a spec takes GemmProblem::rms_norm.
constexpr bool gemm_spec_takes_norm(const GemmSpec& s) {
  return (s.a == DType::bf16 || s.a == DType::f16) && s.b == s.a && s.scale == Scaling::none &&
         s.layout == GemmLayout::nt && s.groups == GemmGroups::one;
}

/// Returns a name such as `fp8_e4m3fn.fp4_e2m1.bf16.mx.nt` or `bf16.i4.bf16.group128.nt`. What is not the default
/// follows: `.preshuffled`, `.fragments`, `.masked`, `.silu`, `.gated`, `.per_group` (of out), `.fast`, `.gathered`,
/// `.scattered`, `.zeros`.
inline std::string name_of(const GemmSpec& s) {
  const std::string scale_k = s.scale_k > 0 ? std::to_string(s.scale_k) : "";
  std::string name = std::string(name_of(s.a)) + "." + std::string(name_of(s.b)) + "." + std::string(name_of(s.out)) +
                     "." + std::string(scale_word(s.scale)) + scale_k + "." + name_of(s.layout);
  if (s.weights != GemmWeights::row_major) name += std::string(".") + name_of(s.weights);
  if (s.groups != GemmGroups::one) name += std::string(".") + name_of(s.groups);
  if (s.activation != ActivationKind::none) name += std::string(".") + name_of(s.activation);
  if (s.gated) name += ".gated";
  if (s.out_scale != Scaling::none) name += std::string(".") + name_of(s.out_scale);
  if (s.sums != GemmSums::promoted) name += std::string(".") + name_of(s.sums);
  if (s.gathered) name += ".gathered";
  if (s.scattered) name += ".scattered";
  if (s.zero_points) name += ".zeros";
  return name;
}

}  // namespace tilewave
