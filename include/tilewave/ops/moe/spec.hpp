// SPDX-License-Identifier: MIT
// What a layer of experts computes. Changing the spec changes the answer.
#pragma once

#include <string>

#include "tilewave/core/status.hpp"
#include "tilewave/ops/gemm/check_spec.hpp"
#include "tilewave/ops/gemm/spec.hpp"

namespace tilewave {

/// Where the experts of a token come from.
/// - logits: the layer chooses them, as topk_gating does.
/// - given: the call has ids and weights.
/// - masked: tokens lie by expert already, [experts][capacity] with the rows that each expert has. So do the results.
enum class MoeRouting : int { logits, given, masked };
/// Where a choice's weight applies: to the expert's result, or to its input, that is to gates and ups before their
/// bias.
enum class MoeWeight : int { output, input };

constexpr const char* name_of(MoeRouting r) {
  constexpr const char* names[] = {"logits", "given", "masked"};
  return names[static_cast<int>(r)];
}
constexpr const char* name_of(MoeWeight w) { return w == MoeWeight::output ? "output" : "input"; }

/// An expert's result for a token is w2 h + bias2 with h = activation(gate) * up, where gates and ups are w1 x + bias1.
/// out[t] is the sum of the results of a token's choices, each times its weight, plus the residual. A choice whose
/// expert is not local is left out. Sums of products are f32. h is rounded to the type of the second product's
/// operand, results to out's type before they are summed.
///
/// - none: weights are of x's type.
/// - per_tensor, per_row, per_block: weights are the chip's fp8, and so are the operands x and h: with a given scale
///   for each, one that is found for each of their rows, or for each 128 columns of a row. x may come quantised.
/// - per_group: weights are i4, or fp4 with e8m0 scales (MXFP4), under rows of x's type, and preshuffled. Those of i4
///   may have zero points, as AWQ's and GPTQ's do.
/// - mx: x and h are the chip's fp8 with MX scales. x may come so, and does where tokens lie by expert. Weights are fp4
///   or fp8 with MX scales, and preshuffled.
struct MoeSpec {
  DType x = DType::bf16;        // bf16 or f16; the chip's fp8 where x comes quantised
  DType weights = DType::bf16;  // of w1 and w2
  DType out = DType::bf16;      // bf16 or f16
  Scaling scale = Scaling::none;
  int scale_k = 0;  // of per_group: values of K that share a scale; i4 32, 64 or 128, fp4 32
  ActivationKind activation = ActivationKind::silu;
  MoeRouting routing = MoeRouting::logits;
  DType logits = DType::bf16;  // f32, f16 or bf16
  MoeWeight weight = MoeWeight::output;
  bool shared = false;  // one more expert, behind the local ones, that every token has
  /// fp4 under bf16 on sm90: codes lie as fragments (GemmWeights::fragments), which take the least time to widen.
  bool fragments = false;
  bool zero_points = false;  // of weights of i4, one for each scale
  bool preshuffled = false;  // CDNA: weights of 16 bits or fp8, which others always are. Few rows take the least time

  friend constexpr bool operator==(const MoeSpec&, const MoeSpec&) = default;

  constexpr bool mx() const { return scale == Scaling::mx; }
  /// Says whether the products' operands are fp8 with scales in f32.
  constexpr bool quantised() const { return is_fp8(weights) && !mx(); }
  constexpr bool four_bit() const { return (weights == DType::i4 || weights == DType::fp4_e2m1) && !mx(); }
  /// Returns the type of the rows that products multiply.
  constexpr DType operand() const { return quantised() ? weights : mx() && !is_fp8(x) ? DType::fp8_e4m3fn : x; }
  /// Says whether the layer quantises x itself.
  constexpr bool quantises_x() const { return (quantised() || mx()) && !is_fp8(x); }
  /// Says whether h leaves the first product in 16 bits, to be quantised by a launch of its own.
  constexpr bool quantises_h() const { return scale == Scaling::per_row || mx(); }
  constexpr bool masked() const { return routing == MoeRouting::masked; }
};

/// Returns a name such as `bf16.fp8_e4m3fn.bf16.block.silu.logits`. What is not the default follows: `.f32_logits`,
/// `.input`, `.shared`, `.fragments`, `.zeros`, `.preshuffled`.
inline std::string name_of(const MoeSpec& s) {
  std::string name = std::string(name_of(s.x)) + "." + std::string(name_of(s.weights)) + "." +
                     std::string(name_of(s.out)) + "." + std::string(scale_word(s.scale)) +
                     (s.scale_k > 0 ? std::to_string(s.scale_k) : "") + "." + name_of(s.activation) + "." +
                     name_of(s.routing);
  if (s.logits != DType::bf16) name += "." + std::string(name_of(s.logits)) + "_logits";
  if (s.weight != MoeWeight::output) name += std::string(".") + name_of(s.weight);
  if (s.shared) name += ".shared";
  if (s.fragments) name += ".fragments";
  if (s.zero_points) name += ".zeros";
  if (s.preshuffled) name += ".preshuffled";
  return name;
}

/// Returns the spec of the second product. The first has its operands, weights and groups as well.
constexpr GemmSpec moe_second_spec(const MoeSpec& s) {
  GemmSpec g;
  g.a = s.operand();
  g.b = s.weights;
  g.scale = s.scale, g.scale_k = s.scale_k;
  g.out = s.out;
  if (s.four_bit() || s.mx() || s.preshuffled) g.weights = GemmWeights::preshuffled;
  if (s.fragments) g.weights = GemmWeights::fragments;
  g.zero_points = s.zero_points;
  g.groups = s.masked() ? GemmGroups::masked : GemmGroups::contiguous;
  return g;
}
/// Returns the spec of the first product: gates and ups of the rows of x, which are gathered.
constexpr GemmSpec moe_first_spec(const MoeSpec& s) {
  GemmSpec g = moe_second_spec(s);
  g.out = s.quantised() && !s.quantises_h() ? s.weights : is_fp8(s.x) ? s.out : s.x;
  g.out_scale = !s.quantised() || s.quantises_h() ? Scaling::none
                : s.scale == Scaling::per_block   ? Scaling::per_group
                                                  : Scaling::per_tensor;
  g.activation = s.activation, g.gated = true;
  g.gathered = !s.masked();
  return g;
}
/// Returns the scaling with which x and h are quantised.
constexpr Scaling moe_quant_scaling(const MoeSpec& s) {
  return s.scale == Scaling::per_block ? Scaling::per_group
         : s.mx()                      ? Scaling::mx
         : s.scale == Scaling::per_row ? Scaling::per_token
                                       : Scaling::per_tensor;
}

/// Checks whether an architecture computes a spec.
/// Errors: unsupported_dtype, unsupported_scaling, unsupported_layout or bad_value, with a reason.
constexpr Status moe_check_spec(const MoeSpec& s, const ArchFacts& facts) {
  constexpr StatusCode type = StatusCode::unsupported_dtype;
  if (!detail::in_range(s.routing, MoeRouting::masked) || !detail::in_range(s.weight, MoeWeight::input))
    return {StatusCode::bad_value, "routing or weight is out of its range"};
  if (s.x != DType::bf16 && s.x != DType::f16 && !(is_fp8(s.x) && (s.quantised() || s.mx())))
    return {type, "x is bf16 or f16, or beside fp8 weights or mx scales fp8"};
  if (s.out != DType::bf16 && s.out != DType::f16) return {type, "out is bf16 or f16"};
  if (s.preshuffled && (s.four_bit() || s.mx()))
    return {StatusCode::bad_value, "preshuffled is said of weights of 16 bits or fp8 alone"};
  if (s.preshuffled && facts.matrix == Matrix::mma)
    return {StatusCode::unsupported_layout, "layers of preshuffled weights of 16 bits or fp8 are CDNA's"};
  if (s.quantised() ? s.scale == Scaling::none : !s.four_bit() && !s.mx() && s.weights != s.x)
    return {type, "weights are of x's type, fp8 with scales, i4 or fp4"};
  if (!is_fp8(s.x) && s.x != s.out) return {type, "out is of x's type, but where x is fp8"};
  if (is_fp8(s.x) && !s.mx() && s.x != s.weights) return {type, "x in fp8 is of the weights' flavour"};
  if (!s.quantised() && !s.four_bit() && !s.mx() && s.scale != Scaling::none)
    return {StatusCode::unsupported_scaling, "weights of 16 bits have no scales"};
  if (s.logits != DType::f32 && s.logits != DType::f16 && s.logits != DType::bf16)
    return {type, "logits are f32, f16 or bf16"};
  if (s.masked() && (s.shared || s.weight == MoeWeight::input))
    return {StatusCode::bad_value, "tokens that lie by expert have no weights and no shared expert"};
  if (s.masked() && s.quantises_x()) return {type, "tokens that lie by expert come quantised"};
  if (s.masked() && s.quantises_h() && !s.mx())
    return {StatusCode::unsupported_scaling, "tokens that lie by expert have no scales of rows"};
  if (const Status status = gemm_check_spec(moe_first_spec(s), facts); !status.ok()) return status;
  return gemm_check_spec(moe_second_spec(s), facts);
}

}  // namespace tilewave
