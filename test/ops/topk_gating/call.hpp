// SPDX-License-Identifier: MIT
// A choice of experts on host and device, and what is wrong with its answer.
#pragma once

#include <functional>
#include <set>

#include "entries/topk_gating.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/reference/topk_gating.hpp"

namespace tilewave::test {

struct GatingShape {
  std::int32_t tokens = 5, experts = 128, topk = 6;
  GatingScore score = GatingScore::softmax;
  bool renormalise = false;
  float scale = 1.0f;
  std::int32_t groups = 1, kept_groups = 1;
  GroupScore group_score = GroupScore::best;
  std::int64_t gap = 0;                                         // elements between tokens of every tensor
  bool pairs = true;                                            // token_expert_indices
  std::function<float(int token, int expert)> logit = nullptr;  // instead of random ones
  std::function<float(int expert)> bias = nullptr;
};

class GatingCall {
 public:
  GatingCall(const TopkGatingSpec& spec, const GatingShape& s)
      : logits_(spec.x, s.tokens, s.experts, 1, {s.experts + s.gap, 0}),
        bias_(DType::f32, s.bias ? s.experts : 0),
        weights_(DType::f32, s.tokens, s.topk, 1, {s.topk + s.gap, 0}),
        indices_(DType::f32, s.tokens, s.topk, 1, {s.topk + s.gap, 0}),
        pairs_(DType::f32, s.tokens, s.topk, 1, {s.topk + s.gap, 0}) {
    logits_.set(s.tokens, s.experts, [&](int t, int e) { return s.logit ? s.logit(t, e) : 2.0f * drawn('x', t, e); });
    if (s.bias) bias_.set(1, s.experts, [&](int, int e) { return s.bias(e); });
    p.spec = spec;
    p.logits = logits_.device();
    p.bias = s.bias ? static_cast<const float*>(bias_.device()) : nullptr;
    p.weights = static_cast<float*>(weights_.device());
    p.indices = static_cast<std::int32_t*>(indices_.device());
    p.token_expert_indices = s.pairs ? static_cast<std::int32_t*>(pairs_.device()) : nullptr;
    p.score = s.score;
    p.renormalise = s.renormalise;
    p.scale = s.scale;
    p.tokens = s.tokens;
    p.experts = s.experts;
    p.topk = s.topk;
    p.groups = s.groups;
    p.kept_groups = s.kept_groups;
    p.group_score = s.group_score;
    p.logits_stride = s.experts + s.gap;
    p.weights_stride = p.indices_stride = s.topk + s.gap;
    if (s.pairs) p.token_expert_stride = s.topk + s.gap;
  }

  /// Runs this entry, or the selected one if null. Returns "", or the reason why it was not run.
  std::string run(const ArchFacts& facts, const TopkGatingEntry* entry = nullptr) {
    if (entry == nullptr) {
      const Status chosen = topk_gating_select(p, all_topk_gating_entries(), facts, entry);
      if (!chosen.ok()) return std::string(name_of(chosen.code)) + ": " + chosen.reason;
    }
    const Status status = entry->launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    weights_.download();
    indices_.download();
    pairs_.download();
    return "";
  }
  float weight(int token, int slot) const { return static_cast<float>(weights_.at(token, slot)); }
  std::int32_t index(int token, int slot) const { return word(indices_, token, slot); }
  std::vector<std::int32_t> indices(int token) const {
    std::vector<std::int32_t> all;
    for (int slot = 0; slot < p.topk; ++slot) all.push_back(index(token, slot));
    return all;
  }

  /// The first thing that is not as the reference has it.
  std::string wrong() const {
    TopkGatingProblem host = p;
    host.logits = logits_.host();
    host.logits_stride = logits_.host_strides().outer;
    host.bias = p.bias != nullptr ? static_cast<const float*>(bias_.host()) : nullptr;
    for (const Tensor* out : {&weights_, &indices_, &pairs_}) {
      const bool written = out != &pairs_ || p.token_expert_indices != nullptr;
      if (!out->gaps_kept(written ? p.tokens : 0, p.topk)) return "wrote where no element is";
    }
    for (int t = 0; t < p.tokens; ++t) {
      const reference::GatedToken wanted = reference::gated_token(host, t);
      std::set<std::int32_t> seen;
      for (int slot = 0; slot < p.topk; ++slot) {
        const std::int32_t got = index(t, slot), want = wanted.chosen[slot];
        const std::string where = " of token " + std::to_string(t) + ", slot " + std::to_string(slot) + ": ";
        if (got < 0 || got >= p.experts || !seen.insert(got).second) return "index" + where + std::to_string(got);
        // Scores of f32 may be in another order where those of double are next to each other.
        const bool by_logit = p.bias == nullptr && (p.groups == 1 || p.group_score == GroupScore::best);
        if (got != want && (by_logit || std::abs(wanted.choice[got] - wanted.choice[want]) > 1e-6)) {
          return "index" + where + std::to_string(got) + ", not " + std::to_string(want);
        }
        const double weight_got = weight(t, slot), weight_want = wanted.weights[slot];
        const bool same = std::isnan(weight_want) ? std::isnan(weight_got)
                                                  : std::abs(weight_got - weight_want) <= 3e-6 * std::abs(p.scale);
        if (!same) return "weight" + where + std::to_string(weight_got) + ", not " + std::to_string(weight_want);
        if (p.token_expert_indices != nullptr && word(pairs_, t, slot) != slot * p.tokens + t) return "pair" + where;
      }
    }
    return "";
  }

  TopkGatingProblem p;

 private:
  static std::int32_t word(const Tensor& of, int token, int slot) {
    return static_cast<const std::int32_t*>(of.host())[token * of.host_strides().outer + slot];
  }
  Tensor logits_, bias_, weights_, indices_, pairs_;
};

/// Calls f(entry) for every entry; what it returns is an error.
template <class F>
void each_gating_entry(const F& f) {
  for (const TopkGatingEntry* e : all_topk_gating_entries()) {
    const std::string error = f(*e);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ": " << error);
    CHECK(error == "");
  }
}
/// The same, and on each spec of each architecture by the entry that is selected.
inline std::string error_of(const ArchFacts& facts, const TopkGatingSpec& spec, const TopkGatingEntry* entry,
                            const GatingShape& s) {
  GatingCall call(spec, s);
  if (entry != nullptr && !topk_gating_takes(entry->policy, call.p)) {
    return entry->launch(call.p, {}).code == StatusCode::no_matching_entry ? "" : "took what it does not take";
  }
  const std::string error = call.run(facts, entry);
  return error != "" ? error : call.wrong();
}

}  // namespace tilewave::test
