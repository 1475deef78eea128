// SPDX-License-Identifier: MIT
// One row of bench_pa: every counter of the CSV contract, whatever happened to the row.
#pragma once

#include <vector>

#include "bench/harness/measurement.hpp"
#include "bench/harness/paged_attention_case.hpp"
#include "bench/harness/verify.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::bench {

struct PagedAttentionRow : Measurement {
  PagedAttentionRow(const PagedAttentionCase& c, const PagedAttentionPlan& p, int id)
      : config(c), plan(p), config_id(id) {}

  PagedAttentionCase config;
  PagedAttentionPlan plan;  // entry null: no entry serves the config
  int config_id;

  std::vector<Counter> counters() const {
    const PagedAttentionCase& c = config;
    const PagedAttentionPolicy policy = plan.entry != nullptr ? plan.entry->policy : PagedAttentionPolicy{};
    const bool has_plan = plan.entry != nullptr;
    return Measurement::counters({{"block_size", c.block_size},
                                  {"mtp", c.mtp},
                                  {"head_size", c.head_size},
                                  {"batch_size", c.batch},
                                  {"context_length", c.context_length},
                                  {"num_q_heads", c.num_q_heads},
                                  {"num_kv_heads", c.num_kv_heads},
                                  {"kv_dtype", static_cast<double>(c.kv)},
                                  {"quant_mode", static_cast<double>(c.quant)},
                                  {"trans_v", c.trans_v},
                                  {"kv_varlen", c.kv_varlen},
                                  {"sliding_window", c.sliding_window},
                                  {"num_splits", has_plan ? plan.num_splits : 0},
                                  {"tile", has_plan ? policy.block_tokens(plan.entry->spec) : 0},
                                  {"waves", has_plan ? policy.waves_per_block() : 0},
                                  {"stages", has_plan ? policy.prefetch.stages : 0},
                                  {"config_id", config_id},
                                  {"arch", static_cast<double>(c.arch)},
                                  {"seed", static_cast<double>(c.seed)}});
  }
};

}  // namespace tilewave::bench
