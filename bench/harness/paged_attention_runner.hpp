// SPDX-License-Identifier: MIT
// Runs one config with one plan: fill, time, verify what the timed buffers then hold.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/case_tensors.hpp"
#include "bench/harness/ceiling.hpp"
#include "bench/harness/paged_attention_row.hpp"
#include "bench/harness/sampler.hpp"
#include "bench/harness/verify.hpp"

namespace tilewave::bench {

struct RunnerOptions {
  int threads = 0;                     // of generator and reference; 0: one per core
  int check_pairs = 0;                 // (sequence, kv head) pairs verified per row; 0: all
  double max_seconds = 0.3;            // of cold samples per row
  std::optional<double> ceiling_gbps;  // instead of the measured or data-sheet one
  bool inject_error = false;           // damage one element before it is verified: the checks must notice
};

/// `count` pairs spread evenly over all pairs, first and last included; 0 or more than there are: all.
inline std::vector<reference::PagedAttentionPair> sampled_pairs(const PagedAttentionProblem& p, int count) {
  const std::vector<reference::PagedAttentionPair> all = reference::all_pairs(p);
  if (count <= 0 || static_cast<std::size_t>(count) >= all.size()) return all;
  std::vector<reference::PagedAttentionPair> pairs{all.front()};
  for (int i = 1; i < count; ++i) pairs.push_back(all[i * (all.size() - 1) / (count - 1)]);
  return pairs;
}

class PagedAttentionRunner {
 public:
  PagedAttentionRunner(const RunnerOptions& options, std::function<void(const std::string&)> log)
      : options_(options), log_(std::move(log)), pools_(options.threads) {
    check_hip(hipStreamCreate(&stream_), "creating a stream");
  }
  PagedAttentionRunner(PagedAttentionRunner&&) = delete;
  ~PagedAttentionRunner() { (void)hipStreamDestroy(stream_); }

  /// Never throws: a row that could not be run or is wrong comes back with ok false, and why is logged.
  PagedAttentionRow run(const PagedAttentionCase& c, const PagedAttentionPlan& plan, int config_id) {
    PagedAttentionRow row(c, plan, config_id);
    try {
      row.ceiling = ceiling(c.arch);
      if (plan.entry == nullptr) {
        const std::vector<std::int32_t> lengths = lengths_of(c);
        row.work = work_of(c, lengths, table_of(c, lengths));
        log_("no entry serves this config");
      } else {
        run(row);
      }
    } catch (const std::exception& error) {
      row.ok = false;
      log_(error.what());
    }
    return row;
  }

 private:
  void run(PagedAttentionRow& row) {
    CaseTensors tensors(row.config, pools_);
    row.work = work_of(row.config, tensors.lengths(), tensors.table());
    tensors.set_workspace(paged_attention_workspace_size(tensors.problem(), row.plan.num_splits));
    tensors.poison_outputs();

    const auto launch = [&] { return row.plan.entry->launch(tensors.problem(), row.plan.num_splits, stream_); };
    const Status status = emulated_device ? launch() : sampler(row.config.arch).measure(launch, row.timing);
    if (!status.ok()) {
      log_(std::string(name_of(status.code)) + ": " + status.reason);
      return;
    }
    check_hip(hipStreamSynchronize(stream_), "running the kernels");
    tensors.download_outputs();
    if (options_.inject_error) tensors.out()[0] ^= 0x4000;  // top exponent bit

    const std::vector<reference::PagedAttentionPair> pairs = sampled_pairs(tensors.problem(), options_.check_pairs);
    const Verdict verdict = verify(tensors.host_problem(), expected(row.config, tensors.host_problem(), pairs),
                                   tensors.out(), tensors.lse(), tolerance_of(row.config), pairs);
    row.ok = verdict.pass;
    row.max_abs_err = verdict.max_abs_err;
    row.max_rel_err = verdict.max_rel_err;
    if (!verdict.pass)
      log_(std::to_string(verdict.bad) + " values outside the tolerance; the first: " + verdict.reason);
  }

  // The layout of V changes no value, so configs that differ in nothing else share their answer.
  const reference::PagedAttentionResult& expected(PagedAttentionCase c, const PagedAttentionProblem& p,
                                                  const std::vector<reference::PagedAttentionPair>& pairs) {
    constexpr std::size_t kept = 4;
    c.trans_v = true;
    const auto hit =
        std::find_if(answers_.begin(), answers_.end(), [&](const auto& answer) { return answer.first == c; });
    if (hit != answers_.end()) return hit->second;
    if (answers_.size() == kept) answers_.pop_back();
    answers_.emplace_front(c, reference::paged_attention(p, options_.threads, pairs));
    return answers_.front().second;
  }

  double ceiling(ArchId arch) {
    if (!ceiling_) {
      ceiling_ = options_.ceiling_gbps ? *options_.ceiling_gbps * 1e9 : read_ceiling(arch, stream_);
      log_("read ceiling " + std::to_string(*ceiling_ * 1e-9) + " GB/s (" +
           (options_.ceiling_gbps ? "given"
            : emulated_device     ? "data sheet"
                                  : "measured") +
           ")");
    }
    return *ceiling_;
  }
  Sampler& sampler(ArchId arch) {
    if (!sampler_) sampler_.emplace(facts_of(arch), StopRule{.max_seconds = options_.max_seconds}, stream_);
    return *sampler_;
  }

  RunnerOptions options_;
  std::function<void(const std::string&)> log_;
  KvPoolCache pools_;
  hipStream_t stream_{};
  std::optional<Sampler> sampler_;
  std::optional<double> ceiling_;
  std::list<std::pair<PagedAttentionCase, reference::PagedAttentionResult>> answers_;
};

}  // namespace tilewave::bench
