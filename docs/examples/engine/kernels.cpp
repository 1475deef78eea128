// SPDX-License-Identifier: MIT
// Part 8 of the tutorial: the kernels of the chip that room.hpp names, and what it does while weights are loaded.
#include <cmath>
#include <tilewave/ops/gemm/repack/launch.hpp>

#include "room.hpp"
#include "room_kernels.hpp"

namespace engine {

// plans.cpp has these.
extern template Status plan_product<Room, WeightFormat::bf16>(const GemmProblem&, GemmPlan&);
extern template Status plan_product<Room, WeightFormat::fp8>(const GemmProblem&, GemmPlan&);
extern template Status plan_product<Room, WeightFormat::int4>(const GemmProblem&, GemmPlan&);
extern template Status plan_decode<Room, DType::bf16>(const PagedAttentionProblem&, PagedAttentionPlan&);
extern template Status plan_decode<Room, Room::facts.fp8>(const PagedAttentionProblem&, PagedAttentionPlan&);
extern template Status plan_mixed<Room, DType::bf16>(const FlashAttentionProblem&, FlashAttentionPlan&);
extern template Status plan_mixed<Room, Room::facts.fp8>(const FlashAttentionProblem&, FlashAttentionPlan&);
extern template Status plan_experts<Room, WeightFormat::bf16>(const MoeProblem&, MoePlan&);
extern template Status plan_experts<Room, WeightFormat::fp8>(const MoeProblem&, MoePlan&);
extern template Status plan_experts<Room, WeightFormat::int4>(const MoeProblem&, MoePlan&);
extern template Status plan_experts<Room, WeightFormat::mxfp4>(const MoeProblem&, MoePlan&);

std::unique_ptr<Kernels> make_kernels(const ModelConfig& config, const CacheShape& cache, hipStream_t stream) {
  return std::make_unique<RoomKernels<Room>>(config, cache, stream);
}

static void done(const Status& status, const char* what) {
  served(status, what);
  must(hipDeviceSynchronize(), what);
}

static void repack(const GemmRepackProblem& problem) {
  GemmRepackProblem p = problem;
  if (p.shipped == GemmShipped::mxfp4 && experts_spec<Room>(WeightFormat::mxfp4).fragments)
    p.weights = GemmWeights::fragments;
  done(gemm_repack<Room>(p, nullptr), "repacking weights");
}

static void quantise(const std::vector<std::uint16_t>& values, std::int32_t experts, std::int32_t n, std::int32_t k,
                     WeightFormat format, Buffer& codes, Buffer& scales) {
  if (format == WeightFormat::int4) {  // by the device
    const Buffer rows = on_device(values);
    GemmRepackProblem p{.shipped = GemmShipped::bf16, .codes = rows.data(), .out_codes = codes.data()};
    p.out_scales = scales.data(), p.layers = experts, p.n = n, p.k = k, p.scale_k = 128, p.out_scale = DType::bf16;
    return repack(p);
  }
  // fp8: the scale brings a row's largest magnitude to the largest code. The op quant would multiply by its reciprocal.
  constexpr DType fp8 = Room::facts.fp8;
  std::vector<std::uint8_t> all_codes(values.size());
  std::vector<float> all_scales(values.size() / k);
  for (std::size_t row = 0; row < all_scales.size(); ++row) {
    const std::size_t first = row * k, end = first + k;
    float most = 0.0f;
    for (std::size_t i = first; i < end; ++i) most = std::fmax(most, abs_of(bf16_to_f32(values[i])));
    const float scale = all_scales[row] = most > 0.0f ? most / fp8_max(fp8) : 1.0f;
    for (std::size_t i = first; i < end; ++i) all_codes[i] = f32_to_fp8(fp8, bf16_to_f32(values[i]) / scale);
  }
  codes = on_device(all_codes), scales = on_device(all_scales);
}

Loader room_loader() {
  return {quantise, repack, RoomKernels<Room>::norms_in_weights, RoomKernels<Room>::pairs_of_neighbours};
}

}  // namespace engine
