// SPDX-License-Identifier: MIT
// The entry that chooses experts: its lanes hold few of them where tokens are few.
#include "tilewave/ops/topk_gating/registry.hpp"

#include <algorithm>
#include <string>

#include "entries/topk_gating.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {
namespace {

/// Returns the entry for packed f32 logits and eight choices; only addresses are checked.
std::string chosen(ArchId arch, int tokens, int experts) {
  const auto at = [](std::uintptr_t tebibyte) { return reinterpret_cast<void*>(tebibyte << 40); };
  TopkGatingProblem p{.spec = {DType::f32},
                      .logits = at(1),
                      .weights = static_cast<float*>(at(2)),
                      .indices = static_cast<std::int32_t*>(at(3)),
                      .tokens = tokens,
                      .experts = experts,
                      .topk = 8,
                      .logits_stride = experts,
                      .weights_stride = 8,
                      .indices_stride = 8};
  const TopkGatingEntry* entry = nullptr;
  const Status status = topk_gating_select(p, all_topk_gating_entries(), facts_of(arch), entry);
  return status.ok() ? name_of(entry->policy) : status.reason;
}

TEST_CASE("many tokens share a wave, few have lanes with few experts each") {
  const auto built = [](ArchId arch) {
    return std::ranges::any_of(all_topk_gating_entries(), [&](const auto* e) { return e->arch == arch; });
  };
  if (built(ArchId::sm90)) {
    CHECK(chosen(ArchId::sm90, 16384, 256) == "l8.r32.c8.v16.k8");
    CHECK(chosen(ArchId::sm90, 64, 256) == "l16.r16.c4.v16.k8");
    CHECK(chosen(ArchId::sm90, 4096, 384) == "l16.r16.c8.v16.k8");
  }
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950}) {
    if (!built(arch)) continue;
    CHECK(chosen(arch, 4096, 384) == "l16.r16.c8.v16.k8");
    CHECK(chosen(arch, 64, 384) == "l64.r4.c4.v16.k8");
    CHECK(chosen(arch, 16384, 256) == "l16.r16.c4.v16.k8");
  }
}

}  // namespace
}  // namespace tilewave::test
