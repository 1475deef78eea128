// SPDX-License-Identifier: MIT
#include <array>

#include "served.hpp"

namespace tilewave_torch {

using namespace tilewave;

namespace {

constexpr VecAddSpec add_bf16{bf16}, add_f32{f32};
using AddServed = Served<VecAddSpec, VecAddProblem, VecAddPlan>;

constexpr NormSpec rms{}, layer{.kind = NormKind::layer}, rms_fp8{.out = fp8, .scale = Scaling::per_token};
using NormServed = Served<NormSpec, NormProblem, NormPlan>;

constexpr SoftmaxSpec soft_bf16{}, soft_f32{.x = f32}, log_f32{.kind = SoftmaxKind::log_softmax, .x = f32},
    log_bf16{.kind = SoftmaxKind::log_softmax};
using SoftmaxServed = Served<SoftmaxSpec, SoftmaxProblem, SoftmaxPlan>;

constexpr QuantSpec per_token{bf16, fp8, Scaling::per_token}, per_tensor{bf16, fp8, Scaling::per_tensor},
    per_group{bf16, fp8, Scaling::per_group}, back{fp8, bf16, Scaling::per_token};
using QuantServed = Served<QuantSpec, QuantProblem, QuantPlan>;

constexpr ActivationSpec silu{}, silu_fp8{.out = fp8, .scale = Scaling::per_token};
using ActivationServed = Served<ActivationSpec, ActivationProblem, ActivationPlan>;

}  // namespace

Status run(const VecAddProblem& p, const Call& call) {
  return serve(
      p, call,
      std::array{AddServed{add_bf16, vec_add_plan<Room, add_bf16>}, AddServed{add_f32, vec_add_plan<Room, add_f32>}});
}
Status run(const NormProblem& p, const Call& call) {
  return serve(p, call,
               std::array{NormServed{rms, norm_plan<Room, rms>}, NormServed{layer, norm_plan<Room, layer>},
                          NormServed{rms_fp8, norm_plan<Room, rms_fp8>}});
}
Status run(const SoftmaxProblem& p, const Call& call) {
  return serve(p, call,
               std::array{SoftmaxServed{soft_bf16, softmax_plan<Room, soft_bf16>},
                          SoftmaxServed{soft_f32, softmax_plan<Room, soft_f32>},
                          SoftmaxServed{log_bf16, softmax_plan<Room, log_bf16>},
                          SoftmaxServed{log_f32, softmax_plan<Room, log_f32>}});
}
Status run(const QuantProblem& p, const Call& call) {
  return serve(
      p, call,
      std::array{QuantServed{per_token, quant_plan<Room, per_token>},
                 QuantServed{per_tensor, quant_plan<Room, per_tensor>},
                 QuantServed{per_group, quant_plan<Room, per_group>}, QuantServed{back, quant_plan<Room, back>}});
}
Status run(const ActivationProblem& p, const Call& call) {
  return serve(p, call,
               std::array{ActivationServed{silu, activation_plan<Room, silu>},
                          ActivationServed{silu_fp8, activation_plan<Room, silu_fp8>}});
}

}  // namespace tilewave_torch
