// SPDX-License-Identifier: MIT
#include "bench/harness/models.hpp"

#include <set>

#include "bench/ops/gemm/sweep.hpp"
#include "bench/ops/paged_attention/sweep.hpp"
#include "bench/ops/rope/sweep.hpp"
#include "bench/ops/topk_gating/sweep.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

std::set<std::pair<int, int>> products(std::string_view model, int tp) {
  std::set<std::pair<int, int>> shapes;  // n, k
  for (const GemmCase& c : gemm_model_cases(ArchId::sm90, {share_of(model, tp), {16}, {1024}})) {
    const GemmCase whole = launched(c);
    shapes.emplace(whole.config_n, whole.config_k);
  }
  return shapes;
}

TEST_CASE("products of a model's layer with experts are those of its weights") {
  using Shapes = std::set<std::pair<int, int>>;
  CHECK(products("deepseek-v3", 1) ==
        Shapes{{2112, 7168}, {24576, 1536}, {7168, 16384}, {4096, 7168}, {7168, 2048}, {256, 7168}, {129280, 7168}});
  CHECK(products("kimi-k2", 8).contains({1536, 1536}));  // 8 of 64 heads of 192
  CHECK(products("qwen3-235b-a22b", 1).contains({3072, 4096}));
  CHECK(products("mixtral-8x7b", 1).contains({28672, 4096}));
  CHECK(products("llama4-maverick", 8) ==
        Shapes{{896, 5120}, {5120, 640}, {2048, 5120}, {5120, 1024}, {128, 5120}, {25256, 5120}});
}

TEST_CASE("each model is shared out, and latent attention has the calls that are served") {
  for (const Model& m : models) {
    CAPTURE(std::string(m.name));
    CHECK(share_of(m.name, 2).gpus == 2);
    CHECK((m.experts == 0) == (m.experts_per_token == 0));
    const ModelStep step{share_of(m.name, 1), {1}, {1024}};
    CHECK(model_cases(ArchId::gfx950, step).empty() == m.latent.any());
    for (const RopeCase& c : RopeOp::model_cases(ArchId::gfx950, step)) CHECK(c.fault().empty());
    for (const TopkGatingCase& c : TopkGatingOp::model_cases(ArchId::gfx950, step)) CHECK(c.fault().empty());
    for (const GemmCase& c : gemm_model_cases(ArchId::gfx950, step)) CHECK(c.fault().empty());
  }
  CHECK(RopeOp::model_cases(ArchId::gfx950, {share_of("deepseek-v3", 1), {1}, {1}})[0].head_size == 64);
  CHECK(TopkGatingOp::model_cases(ArchId::gfx950, {share_of("deepseek-v3", 1), {1}, {1}})[0].kept_groups == 4);
}

}  // namespace
}  // namespace tilewave::bench
