// SPDX-License-Identifier: MIT
// A layer of experts as a library for moe_in_turns.py:
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -D__HIP_PLATFORM_NVIDIA__=1 -DMOE_WEIGHTS=0 -Iinclude
//        -shared -Xcompiler -fPIC bench/peers/moe_tilewave.cu -o moe_bf16.so
// MOE_WEIGHTS is that of MoeCall, and of int4 MOE_SCALE_K and MOE_ZEROS (1: with zero points) say the rest. The plan is
// the one that moe_plan makes.
#include <string>

#include "moe_call.hpp"
#include "tilewave/arch/sm90/backend.hpp"
#include "tilewave/ops/gemm/repack/launch.hpp"
#include "tilewave/ops/moe/registry.hpp"

#ifndef MOE_SCALE_K
#define MOE_SCALE_K 0
#endif
#ifndef MOE_ZEROS
#define MOE_ZEROS 0
#endif

namespace {

using namespace tilewave;
using Room = sm90::Backend;

constexpr MoeSpec spec_of(int weights) {
  MoeSpec s;
  if (weights == 1) s.weights = DType::fp8_e4m3fn, s.scale = Scaling::per_block;
  if (weights == 2) {
    s.weights = DType::fp4_e2m1, s.scale = Scaling::per_group, s.scale_k = 32;
    s.activation = ActivationKind::swigluoai, s.fragments = true;
  }
  if (weights == 3) {
    s.weights = DType::i4, s.scale = Scaling::per_group, s.scale_k = MOE_SCALE_K;
    s.zero_points = MOE_ZEROS == 1;
  }
  return s;
}
constexpr MoeSpec spec = spec_of(MOE_WEIGHTS);

/// Device memory that ends with its plan.
struct Bytes {
  void* data = nullptr;
  Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { cudaFree(data); }
  bool take(std::size_t bytes) { return bytes == 0 || cudaMalloc(&data, bytes) == cudaSuccess; }
};

/// The weights of a product as they are handed over.
struct Shipped {
  const void *data, *scale, *zero, *bias;
  int rows, columns;
};

/// The weights of a product as the spec takes them.
struct Weights {
  Bytes codes, scales, zeros, bias;

  const char* set(MoeWeights& w, int experts, const Shipped& from, bool gated) {
    if (!spec.four_bit()) {
      w = MoeWeights::packed(spec, from.data, from.rows, from.columns);
      w.scale = static_cast<const float*>(from.scale);
      return nullptr;
    }
    const std::size_t rows = std::size_t(experts) * from.rows, elements = rows * from.columns;
    const std::size_t groups = elements / spec.scale_k;
    GemmRepackProblem p;
    p.codes = from.data, p.scales = from.scale, p.zeros = from.zero, p.bias = from.bias;
    p.layers = experts, p.n = from.rows, p.k = from.columns, p.scale_k = spec.scale_k;
    p.weights = moe_second_spec(spec).weights;
    if (spec.weights == DType::i4) {
      p.shipped = GemmShipped::gptq, p.scale = p.out_scale = DType::bf16;
    } else {
      p.interleaved = gated;
    }
    if (!codes.take(elements / 2) || !scales.take(groups * size_of(p.out_scale)) ||
        !zeros.take(from.zero != nullptr ? groups : 0) || !bias.take(from.bias != nullptr ? rows * 2 : 0))
      return "no memory";
    p.out_codes = codes.data, p.out_scales = scales.data, p.out_zeros = zeros.data, p.out_bias = bias.data;
    if (const Status status = gemm_repack<Room>(p, nullptr); !status.ok()) return status.reason;
    w = MoeWeights::packed(spec, codes.data, from.rows, from.columns);
    if (from.bias != nullptr) w = w.with_bias(bias.data, from.rows);
    w.group_scale = scales.data, w.group_zero = static_cast<const std::int8_t*>(zeros.data);
    return cudaDeviceSynchronize() == cudaSuccess ? nullptr : "the repack failed";
  }
};

struct Plan {
  MoeProblem problem;
  MoePlan plan;
  Weights w1, w2;
  Bytes workspace;
  std::string name;

  const char* make(const MoeCall& c) {
    MoeProblem& p = problem;
    p.spec = spec;
    p.x = c.x, p.logits = c.logits, p.out = c.out, p.renormalise = true;
    p.tokens = c.tokens, p.hidden = c.hidden, p.intermediate = c.intermediate;
    p.experts = p.local_experts = c.experts, p.topk = c.topk;
    p = MoeProblem::dense(p);
    const Shipped first{c.w1, c.w1_scale, c.w1_zero, c.bias1, 2 * c.intermediate, c.hidden};
    const Shipped second{c.w2, c.w2_scale, c.w2_zero, c.bias2, c.hidden, c.intermediate};
    if (const char* wrong = w1.set(p.w1, c.experts, first, true)) return wrong;
    if (const char* wrong = w2.set(p.w2, c.experts, second, false)) return wrong;
    if (const Status status = moe_plan<Room, spec>(p, plan); !status.ok()) return status.reason;
    p.workspace_bytes = plan.workspace_bytes(p);
    if (!workspace.take(p.workspace_bytes)) return "no memory";
    p.workspace = workspace.data;
    name = plan.name();
    return nullptr;
  }
};

}  // namespace

const char* moe_prepare(const MoeCall* call, void** plan) {
  const bool zeros = call->w1_zero != nullptr;
  if (call->weights != MOE_WEIGHTS || call->scale_k != MOE_SCALE_K || zeros != spec.zero_points)
    return "a library of other weights";
  auto* const made = new Plan;
  if (const char* wrong = made->make(*call)) {
    delete made;
    return wrong;
  }
  *plan = made;
  return nullptr;
}

const char* moe_run(void* plan, void* stream) {
  const auto& made = *static_cast<const Plan*>(plan);
  const Status status = made.plan.launch(made.problem, static_cast<hipStream_t>(stream));
  return status.ok() ? nullptr : status.reason;
}

const char* moe_name(void* plan) { return static_cast<const Plan*>(plan)->name.c_str(); }
void moe_free(void* plan) { delete static_cast<const Plan*>(plan); }
