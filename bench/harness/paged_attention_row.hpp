// SPDX-License-Identifier: MIT
// One row of bench_pa: every counter of the CSV contract, whatever happened to the row.
#pragma once

#include <array>
#include <limits>
#include <utility>

#include "bench/harness/paged_attention_case.hpp"
#include "bench/harness/sampler.hpp"
#include "bench/harness/verify.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::bench {

inline constexpr int schema_version = 1;

/// A counter's name carries its unit; docs/benchmarking.md describes each.
using Counter = std::pair<const char*, double>;

struct PagedAttentionRow {
  PagedAttentionRow(const PagedAttentionCase& c, const PagedAttentionPlan& p, int id)
      : config(c), plan(p), config_id(id) {}

  PagedAttentionCase config;
  PagedAttentionPlan plan;  // entry null: no entry serves the config
  int config_id;
  bool ok = false;  // launched and verified
  double max_abs_err = std::numeric_limits<double>::quiet_NaN();
  double max_rel_err = std::numeric_limits<double>::quiet_NaN();
  Timing timing;  // empty on the emulated device
  PagedAttentionWork work;
  double ceiling = std::numeric_limits<double>::quiet_NaN();  // bytes per second

  std::array<Counter, 39> counters() const {
    const double us = timing.cold.median, roof_us = work.bytes / ceiling * 1e6;
    const PagedAttentionCase& c = config;
    const PagedAttentionPolicy policy = plan.entry != nullptr ? plan.entry->policy : PagedAttentionPolicy{};
    const bool has_plan = plan.entry != nullptr;
    return {{{"ok", ok},
             {"err", !ok},
             {"max_abs_err", max_abs_err},
             {"max_rel_err", max_rel_err},
             {"us", us},
             {"us_min", timing.cold.min},
             {"us_q1", timing.cold.q1},
             {"us_q3", timing.cold.q3},
             {"us_cold", us},
             {"us_hot", timing.hot.median},
             {"cv_pct", timing.cold.noise * 100},
             {"samples", static_cast<double>(timing.cold.count)},
             {"gbps", work.bytes / us * 1e-3},
             {"tflops", work.flops / us * 1e-6},
             {"bytes_ideal", work.bytes},
             {"flops", work.flops},
             {"roof_us", roof_us},
             {"roof_pct", roof_us / us * 100},
             {"block_size", c.block_size},
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
             {"emulated", emulated_device},
             {"arch", static_cast<double>(c.arch)},
             {"seed", static_cast<double>(c.seed)},
             {"schema_version", schema_version}}};
  }
};

}  // namespace tilewave::bench
