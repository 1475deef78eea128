// SPDX-License-Identifier: MIT
// Tests of layers that no list of entries has: a program compiles them with moe_plan.
#include ROOM_HEADER

#include "test/ops/moe/call.hpp"

namespace tilewave::test {
namespace {

constexpr MoeSpec spec_of(DType x, DType weights, Scaling scale) {
  MoeSpec s;
  s.x = s.out = x, s.weights = weights, s.scale = scale;
  return s;
}
template <class B>
constexpr MoeSpec rows_of_fp8 = spec_of(DType::bf16, B::facts.fp8, Scaling::per_row);
template <class B>
constexpr MoeSpec tensors_of_fp8 = spec_of(DType::bf16, B::facts.fp8, Scaling::per_tensor);
template <class B>
constexpr MoeSpec codes_of_i4 = [] {
  MoeSpec s = spec_of(DType::bf16, DType::i4, Scaling::per_group);
  s.scale_k = 128;
  return s;
}();
/// As AWQ has it: a zero point for each scale.
template <class B>
constexpr MoeSpec codes_of_awq = [] {
  MoeSpec s = spec_of(DType::bf16, DType::i4, Scaling::per_group);
  s.scale_k = 64, s.zero_points = true;
  return s;
}();
/// MXFP4 in the order in which the chip takes it fastest: preshuffled, or on sm90 as fragments.
template <class B>
constexpr MoeSpec mxfp4_of_gpt_oss = [] {
  MoeSpec s = spec_of(DType::bf16, DType::fp4_e2m1, Scaling::per_group);
  s.scale_k = 32;
  s.activation = ActivationKind::swigluoai;
  s.fragments = B::facts.matrix == Matrix::mma;
  return s;
}();
/// The same weights, preshuffled on every chip, under rows of f16.
template <class B>
constexpr MoeSpec mxfp4_under_f16 = [] {
  MoeSpec s = spec_of(DType::f16, DType::fp4_e2m1, Scaling::per_group);
  s.scale_k = 32;
  s.activation = ActivationKind::swigluoai;
  s.routing = MoeRouting::given;
  return s;
}();
template <class B>
constexpr MoeSpec gates_of_gpt_oss = [] {
  MoeSpec s = spec_of(DType::f16, DType::f16, Scaling::none);
  s.activation = ActivationKind::swigluoai;
  s.routing = MoeRouting::given;
  return s;
}();

/// Weights of fp8 blocks and of bf16 in strips, which CDNA has.
template <class B, bool blocks>
constexpr MoeSpec in_strips = [] {
  MoeSpec s = spec_of(DType::bf16, DType::bf16, Scaling::none);
  if (blocks) s = spec_of(DType::bf16, B::facts.fp8, Scaling::per_block);
  s.preshuffled = true;
  return s;
}();

/// Tokens that lie by expert come with MX scales; of others the layer finds them, or they come so, too.
template <class B, bool fp4, MoeRouting routing>
constexpr MoeSpec mx_of = [] {
  MoeSpec s = spec_of(DType::bf16, fp4 ? DType::fp4_e2m1 : B::facts.fp8, Scaling::mx);
  if (routing != MoeRouting::logits) s.x = B::facts.fp8;
  s.routing = routing;
  return s;
}();

template <class B, MoeSpec S>
void check(MoeShape shape) {
  INFO(name_of(B::facts.id) << " " << name_of(S));
  for (const std::int32_t tokens : {1, 45}) {
    shape.tokens = tokens;
    MoeCall call(S, shape);
    REQUIRE(call.launch([](const MoeProblem& p, MoePlan& plan) { return moe_plan<B, S>(p, plan); }) == "");
    CHECK(call.wrong() == "");
  }
}
/// Runs a layer with each of the entries that its products may have.
template <class B, MoeSpec S>
void check_entries(const MoeShape& shape) {
  INFO(name_of(B::facts.id) << " " << name_of(S));
  for (const GemmEntry* e : detail::MoePartsOf<B, S>::products) {
    INFO(name_of(e->spec) << " " << name_of(e->policy));
    MoeCall call(S, shape);
    const auto select = [&](const MoeProblem& p, MoePlan& plan) {
      const Status status = moe_plan<B, S>(p, plan);
      (e->spec == moe_first_spec(S) ? plan.first : plan.second) = {e, 1};
      return status;
    };
    REQUIRE(call.launch(select) == "");
    CHECK(call.wrong() == "");
  }
}
/// MX scales are CDNA4's alone.
template <class B>
void check_mx() {
  if constexpr (B::facts.mx) {
    const MoeShape shape{.experts = 4,
                         .hidden = 512,
                         .intermediate = 256,
                         .capacity = 96,
                         .bias = true,
                         .rows = [](std::int32_t expert, std::int32_t capacity) {
                           return expert == 0 ? capacity : expert == 1 ? 0 : expert == 2 ? 37 : capacity + 9;
                         }};
    check<B, mx_of<B, true, MoeRouting::masked>>(shape);
    check<B, mx_of<B, false, MoeRouting::masked>>(shape);
    // K of 288 and 160 ends within a step, and within a tile of scales.
    const MoeShape sorted{.tokens = 45, .topk = 3, .hidden = 288, .intermediate = 160, .bias = true, .residual = true};
    check_entries<B, mx_of<B, true, MoeRouting::logits>>(sorted);
    check_entries<B, mx_of<B, false, MoeRouting::given>>(sorted);
  }
}
template <class B>
void check_strips() {
  if constexpr (B::facts.matrix != Matrix::mma) {
    check<B, in_strips<B, true>>({.bias = true});
    check<B, in_strips<B, false>>({.residual = true, .interleaved = true});
  } else {
    CHECK(moe_check_spec(in_strips<B, false>, B::facts).code == StatusCode::unsupported_layout);
  }
}
template <class... B>
struct Rooms {
  static void run() {
    (check<B, rows_of_fp8<B>>({.bias = true}), ...);
    (check<B, tensors_of_fp8<B>>({.residual = true}), ...);
    (check<B, codes_of_i4<B>>({.bias = true}), ...);
    (check<B, codes_of_awq<B>>({.residual = true}), ...);
    (check<B, mxfp4_of_gpt_oss<B>>({.bias = true}), ...);
    (check<B, mxfp4_under_f16<B>>({.topk = 3, .bias = true, .residual = true}), ...);
    (check<B, gates_of_gpt_oss<B>>({.bias = true, .interleaved = true}), ...);
    (check_mx<B>(), ...);
    (check_strips<B>(), ...);
  }
};

TEST_CASE(
    "layers of rows and tensors of fp8, of four bits, of f16, in strips and with mx scales are compiled and right") {
  Rooms<ROOM_BACKENDS>::run();
}

}  // namespace
}  // namespace tilewave::test
