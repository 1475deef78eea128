// SPDX-License-Identifier: MIT
// An architecture that is not in ArchId has no facts, no atom and no policies: none of them is another chip's.
#include <iterator>
#include <type_traits>
#include <utility>

#include "tilewave/arch/atom.hpp"
#include "tilewave/arch/lds.hpp"
#include "tilewave/ops/activation/registry.hpp"
#include "tilewave/ops/attention_combine/registry.hpp"
#include "tilewave/ops/embedding/registry.hpp"
#include "tilewave/ops/gemm/registry.hpp"
#include "tilewave/ops/kv_cache_write/registry.hpp"
#include "tilewave/ops/moe_reduce/registry.hpp"
#include "tilewave/ops/moe_sort/registry.hpp"
#include "tilewave/ops/mqa_logits/registry.hpp"
#include "tilewave/ops/norm/registry.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"
#include "tilewave/ops/quant/registry.hpp"
#include "tilewave/ops/rope/registry.hpp"
#include "tilewave/ops/sampling/registry.hpp"
#include "tilewave/ops/softmax/registry.hpp"
#include "tilewave/ops/topk_gating/registry.hpp"

namespace tilewave {
namespace {

/// True if `value(arch)` is a constant, as a kernel's template arguments have to be.
template <auto value, ArchId arch>
concept Known = requires {
  typename std::bool_constant<(value(arch), true)>;
};
template <auto value>
constexpr bool knows_all_chips = []<std::size_t... i>(std::index_sequence<i...>) {
  return (Known<value, all_archs[i]> && ...);
}
(std::make_index_sequence<std::size(all_archs)>());
template <auto value>
constexpr bool known_chips_alone =
    knows_all_chips<value> && !Known<value, ArchId{std::size(all_archs)}> && !Known<value, ArchId{-1}>;

/// The list of policies of a spec.
template <auto policies, auto spec>
constexpr bool has_policies_of_known_chips = known_chips_alone<[](ArchId arch) { return policies(arch, spec), 0; }>;

static_assert(known_chips_alone<[](ArchId arch) { return facts_of(arch).wave_lanes; }>);
static_assert(known_chips_alone<[](ArchId arch) { return atom_of(arch).lanes; }>);
static_assert(known_chips_alone<[](ArchId arch) { return lds_read_phase(arch, 3); }>);

static_assert(has_policies_of_known_chips<activation_policies, ActivationSpec{}>);
static_assert(has_policies_of_known_chips<activation_policies, ActivationSpec{.gating = Gating::plain}>);
static_assert(has_policies_of_known_chips<attention_combine_policies, AttentionCombineSpec{}>);
static_assert(has_policies_of_known_chips<embedding_policies, EmbeddingSpec{}>);
static_assert(has_policies_of_known_chips<gemm_policies, GemmSpec{}>);
static_assert(has_policies_of_known_chips<gemm_cdna_policies, GemmSpec{}>);
static_assert(has_policies_of_known_chips<kv_cache_write_policies, KvCacheWriteSpec{}>);
static_assert(has_policies_of_known_chips<moe_reduce_policies, MoeReduceSpec{}>);
static_assert(has_policies_of_known_chips<moe_sort_policies, MoeSortSpec{}>);
static_assert(has_policies_of_known_chips<mqa_logits_policies, MqaLogitsSpec{}>);
static_assert(has_policies_of_known_chips<norm_policies, NormSpec{}>);
static_assert(has_policies_of_known_chips<paged_attention_policies, PagedAttentionSpec{}>);
static_assert(has_policies_of_known_chips<quant_policies, QuantSpec{}>);
static_assert(has_policies_of_known_chips<rope_policies, RopeSpec{}>);
static_assert(has_policies_of_known_chips<sampling_policies, SamplingSpec{}>);
static_assert(has_policies_of_known_chips<softmax_policies, SoftmaxSpec{}>);
static_assert(has_policies_of_known_chips<topk_gating_policies, TopkGatingSpec{}>);

}  // namespace
}  // namespace tilewave
