// SPDX-License-Identifier: MIT
// Runs one config with one plan: fills the tensors, times the plan, and verifies what the timed buffers hold
// afterwards.
#pragma once

#include <algorithm>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/measurement.hpp"
#include "bench/ops/paged_attention/plan.hpp"
#include "bench/ops/paged_attention/tensors.hpp"
#include "bench/ops/paged_attention/verify.hpp"

namespace tilewave::bench {

struct RunnerOptions : MeasureOptions {
  int check_pairs = 0;  // (sequence, kv head) pairs verified per row; 0: all
};

/// `count` pairs spread evenly over all pairs, the first and the last included. If count is 0 or too large, all pairs.
inline std::vector<reference::PagedAttentionPair> sampled_pairs(const PagedAttentionProblem& p, int count) {
  const std::vector<reference::PagedAttentionPair> all = reference::all_pairs(p);
  if (count <= 0 || static_cast<std::size_t>(count) >= all.size()) return all;
  std::vector<reference::PagedAttentionPair> pairs{all.front()};
  for (int i = 1; i < count; ++i) pairs.push_back(all[i * (all.size() - 1) / (count - 1)]);
  return pairs;
}

class PagedAttentionRunner {
 public:
  PagedAttentionRunner(const RunnerOptions& options, Meter::Log log)
      : options_(options), pools_(options.threads), meter_(options, std::move(log)) {}

  /// Never throws. A row that could not be run, or is wrong, comes back with ok false, and the reason is logged.
  Measurement run(const PagedAttentionCase& c, const PagedAttentionPlan& plan) {
    return meter_.fill(c.arch, [&](Measurement& row) {
      if (plan.entry == nullptr) {
        const std::vector<std::int32_t> lengths = lengths_of(c);
        row.work = work_of(c, lengths, table_of(c, lengths));
        meter_.log("no entry serves this config");
      } else {
        run(c, plan, row);
      }
    });
  }

 private:
  void run(const PagedAttentionCase& c, const PagedAttentionPlan& plan, Measurement& row) {
    CaseTensors tensors(c, pools_);
    row.work = work_of(c, tensors.lengths(), tensors.table());
    if (c.stage_starts) {
      const Status status = tensors.set_stage_starts(plan.entry->policy);
      if (!status.ok()) return meter_.log(std::string(name_of(status.code)) + ": " + status.reason);
    }
    tensors.set_workspace(plan.workspace_bytes(tensors.problem()));
    tensors.poison_outputs();

    const auto launch = [&](hipStream_t stream) { return plan.launch(tensors.problem(), stream); };
    if (!meter_.run(c.arch, launch, row.timing, {})) return;
    tensors.download_outputs();
    if (options_.inject_error) tensors.out()[0] ^= 0x4000;  // top exponent bit

    const std::vector<reference::PagedAttentionPair> pairs = sampled_pairs(tensors.problem(), options_.check_pairs);
    const Verdict verdict = verify(tensors.host_problem(), expected(c, tensors.host_problem(), pairs), tensors.out(),
                                   tensors.lse(), tolerance_of(c), pairs);
    row.ok = verdict.pass;
    row.max_abs_err = verdict.max_abs_err;
    row.max_rel_err = verdict.max_rel_err;
    if (!verdict.pass)
      meter_.log(std::to_string(verdict.bad) + " values outside the tolerance; the first: " + verdict.reason);
  }

  // The layout of the cache changes no value, so configs that differ in the layout alone share their answer.
  const reference::PagedAttentionResult& expected(PagedAttentionCase c, const PagedAttentionProblem& p,
                                                  const std::vector<reference::PagedAttentionPair>& pairs) {
    constexpr std::size_t kept = 4;
    c.trans_v = true;
    c.layout = KvLayout::units;
    c.split_tokens = 0;
    c.stage_starts = false;
    const auto hit =
        std::find_if(answers_.begin(), answers_.end(), [&](const auto& answer) { return answer.first == c; });
    if (hit != answers_.end()) return hit->second;
    if (answers_.size() == kept) answers_.pop_back();
    answers_.emplace_front(c, reference::paged_attention(p, options_.threads, pairs));
    return answers_.front().second;
  }

  RunnerOptions options_;
  KvPoolCache pools_;
  Meter meter_;
  std::list<std::pair<PagedAttentionCase, reference::PagedAttentionResult>> answers_;
};

}  // namespace tilewave::bench
