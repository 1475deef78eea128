// SPDX-License-Identifier: MIT
// flash_attention as a library for prefill_in_turns.py:
//   nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -D__HIP_PLATFORM_NVIDIA__=1 -Iinclude -shared
//        -Xcompiler -fPIC bench/peers/prefill_tilewave.cu -o prefill_tilewave.so
// The entry is the one that the choice takes among those of the specs below.
#include <string>
#include <vector>

#include "prefill_call.hpp"
#include "tilewave/arch/sm90/backend.hpp"
#include "tilewave/ops/flash_attention/registry.hpp"

namespace {

using namespace tilewave;
using Entries = std::vector<const FlashAttentionEntry*>;

template <FlashAttentionSpec S>
void add(Entries& all) {
  for (const auto& entry : flash_attention_entries<sm90::Backend, S>) all.push_back(&entry);
}
constexpr FlashAttentionSpec heads_of(int size) { return {.head_size = size, .value_size = size}; }
constexpr FlashAttentionSpec codes_of(int size) {
  return {.q = DType::fp8_e4m3fn,
          .kv = DType::fp8_e4m3fn,
          .out = DType::bf16,
          .quant = Scaling::per_tensor,
          .head_size = size,
          .value_size = size};
}
const Entries& entries() {
  static const Entries all = [] {
    Entries list;
    add<heads_of(64)>(list);
    add<heads_of(128)>(list);
    add<codes_of(64)>(list);
    add<codes_of(128)>(list);
    add<FlashAttentionSpec{.storage = KvStorage::paged}>(list);
    return list;
  }();
  return all;
}

struct Plan {
  const FlashAttentionEntry* entry = nullptr;
  FlashAttentionProblem problem;
  std::string name;
};

FlashAttentionProblem problem_of(const PrefillCall& c) {
  FlashAttentionProblem p{.q = c.q, .k = c.k, .v = c.v, .out = c.out};
  p.spec = c.fp8 ? codes_of(c.head_size) : heads_of(c.head_size);
  if (c.table != nullptr) p.spec.storage = KvStorage::paged;
  if (c.fp8) p.q_scale = p.k_scale = p.v_scale = c.one;
  p.batch = c.batch, p.q_heads = c.q_heads, p.kv_heads = c.kv_heads;
  p.q_length = c.q_length, p.causal = c.causal != 0;
  if (c.window > 0) p.window_left = c.window - 1;
  if (c.table == nullptr) {
    p.kv_length = c.kv_length;
    return FlashAttentionProblem::bshd(p);
  }
  p.block_table = c.table, p.kv_lengths = c.lengths, p.block_size = c.block_size;
  p.table_columns = c.kv_length / c.block_size;
  p.num_pages = std::int64_t{c.batch} * p.table_columns;
  return FlashAttentionProblem::nhd(p);
}

}  // namespace

const char* prefill_prepare(const PrefillCall* call, void** plan) {
  FlashAttentionProblem p = problem_of(*call);
  const FlashAttentionEntry* best = nullptr;
  for (const FlashAttentionEntry* entry : entries()) {
    if (!(entry->spec == p.spec) || !flash_attention_takes(entry->policy, p).ok()) continue;
    if (best == nullptr || FlashAttentionRegistry::better(entry->policy, best->policy, p, sm90_facts)) best = entry;
  }
  if (best == nullptr) return "no entry was built for this spec, or none takes the call";
  const std::size_t bytes = FlashAttentionRegistry::workspace_bytes(p, best->policy, sm90_facts, 0);
  if (bytes > 0 && cudaMalloc(&p.workspace, bytes) != cudaSuccess) return "no memory";
  p.workspace_bytes = bytes;
  *plan = new Plan{best, p, name_of(best->policy)};
  return nullptr;
}

const char* prefill_run(void* plan, void* stream) {
  const auto& made = *static_cast<const Plan*>(plan);
  const Status status = made.entry->launch(made.problem, static_cast<hipStream_t>(stream));
  return status.ok() ? nullptr : status.reason;
}

const char* prefill_name(void* plan) { return static_cast<const Plan*>(plan)->name.c_str(); }
