// SPDX-License-Identifier: MIT
// A row of bench_pa before it has run: a config, and what the library does with it.
#pragma once

#include <string>

#include "bench/harness/column.hpp"
#include "bench/ops/paged_attention/case.hpp"
#include "tilewave/ops/paged_attention/registry.hpp"

namespace tilewave::bench {

/// The columns of a plan. Without an entry all are 0.
template <class Visit>
void each_column(const PagedAttentionPlan& plan, Visit& visit) {
  const bool has = plan.entry != nullptr;
  const PagedAttentionPolicy p =
      has ? plan.entry->policy
          : PagedAttentionPolicy{.row_tiles = 0, .waves = {0, 0}, .prefetch = {0, 0, 0, 0}, .waves_per_simd = 0};
  visit("num_splits", has ? plan.splits : 0);
  visit("tile", has ? p.block_tokens(plan.entry->spec) : 0);
  visit("row_tiles", p.row_tiles);
  visit("wave_rows", p.waves.rows);
  visit("wave_tokens", p.waves.tokens);
  visit("slices", p.prefetch.slices);
  visit("stages", p.prefetch.stages);
  visit("stage_tokens", p.prefetch.stage_tokens);
  visit("fetch_waves", p.prefetch.waves);
  visit("groups", p.bulk() ? p.wave_groups() : 0);
  visit("q_shared", p.q_shared);
  visit("balanced", p.balanced());
  visit("waves_per_simd", p.waves_per_simd);
}

struct PagedAttentionBenchPlan {
  PagedAttentionCase config;
  PagedAttentionPlan plan;  // entry null: no entry serves the config
  int config_id;
  std::string name;
  std::string refusal;  // why the library has no plan for the config; empty if it has

  std::string entry_name() const {
    return plan.entry != nullptr ? name_of(plan.entry->spec) + "/" + plan.name() : "none";
  }
  Columns identity() const {
    ColumnWriter visit;
    PagedAttentionCase::each_column(config, visit);
    visit.policy = true;
    each_column(plan, visit);
    return visit.columns;
  }
};

}  // namespace tilewave::bench
