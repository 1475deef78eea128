// SPDX-License-Identifier: MIT
// A layer of experts as a library for moe_in_turns.py:
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -D__HIP_PLATFORM_NVIDIA__=1 -DMOE_WEIGHTS=0 -Iinclude
//        -shared -Xcompiler -fPIC bench/peers/moe_tilewave.cu -o moe_bf16.so
// MOE_WEIGHTS is that of MoeCall. The plan is the one that moe_plan makes.
#include <string>

#include "moe_call.hpp"
#include "tilewave/arch/sm90/backend.hpp"
#include "tilewave/ops/gemm/repack/launch.hpp"
#include "tilewave/ops/moe/registry.hpp"

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

/// The weights of a product as the spec takes them.
struct Weights {
  Bytes codes, scales, bias;

  const char* set(MoeWeights& w, const MoeCall& c, const void* data, const void* scale, const void* values, int rows,
                  int columns, bool interleaved) {
    if (MOE_WEIGHTS != 2) {
      w = MoeWeights::packed(spec, data, rows, columns);
      w.scale = static_cast<const float*>(scale);
      return nullptr;
    }
    const std::size_t elements = std::size_t(c.experts) * rows * columns;
    if (!codes.take(elements / 2) || !scales.take(elements / 32) || !bias.take(std::size_t(c.experts) * rows * 2))
      return "no memory";
    GemmRepackProblem p;
    p.codes = data, p.scales = scale, p.bias = values;
    p.out_codes = codes.data, p.out_scales = scales.data, p.out_bias = bias.data;
    p.layers = c.experts, p.n = rows, p.k = columns, p.interleaved = interleaved;
    p.weights = GemmWeights::fragments;
    if (const Status status = gemm_repack<Room>(p, nullptr); !status.ok()) return status.reason;
    w = MoeWeights::packed(spec, codes.data, rows, columns).with_bias(bias.data, rows);
    w.group_scale = scales.data;
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
    if (const char* wrong = w1.set(p.w1, c, c.w1, c.w1_scale, c.bias1, 2 * c.intermediate, c.hidden, true))
      return wrong;
    if (const char* wrong = w2.set(p.w2, c, c.w2, c.w2_scale, c.bias2, c.hidden, c.intermediate, false)) return wrong;
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
  if (call->weights != MOE_WEIGHTS) return "a library of other weights";
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
