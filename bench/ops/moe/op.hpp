// SPDX-License-Identifier: MIT
// Layers of experts for the harness of row operations: their configs, tensors, work and what is right.
#pragma once

#include <cmath>
#include <memory>
#include <numeric>

#include "bench/ops/gemm/tensors.hpp"
#include "bench/ops/moe/case.hpp"
#include "entries/gemm.hpp"
#include "entries/moe.hpp"
#include "entries/moe_reduce.hpp"
#include "entries/moe_sort.hpp"
#include "entries/quant.hpp"
#include "entries/topk_gating.hpp"
#include "tilewave/reference/moe.hpp"

namespace tilewave::bench {

struct MoeTensors {
  TwinBuffer x, w1, w2, w1_scale, w2_scale;  // of four bits: [experts][columns / scale_k, rows]
  TwinBuffer w1_zero, w2_zero, logits, out;
};

/// A problem with its plan, which the first launch makes, and with its workspace.
struct MoeTimedProblem : MoeProblem {
  MoeStage stage = MoeStage::layer;
  struct Made {
    MoePlan plan;
    DeviceBuffer workspace;
  };
  std::shared_ptr<Made> made = std::make_shared<Made>();
};

/// The entries of layers and of their products that the program has.
struct MoeLists {
  bool wide = false;  // whether the sweep has layers of the wide list
  std::vector<const MoeEntry*> layers;
  std::vector<const GemmEntry*> products;

  template <class Entry>
  static void add(std::vector<const Entry*>& to, std::span<const Entry* const> list) {
    to.insert(to.end(), list.begin(), list.end());
  }
};
inline MoeLists& moe_lists() {
  static MoeLists lists = [] {
    MoeLists all;
    MoeLists::add(all.layers, all_moe_entries());
    for (const auto list : {all_gemm_moe_entries(), all_gemm_grouped_entries(), all_gemm_gated_entries()})
      MoeLists::add(all.products, list);
    return all;
  }();
  return lists;
}
/// Returns all entries that a layer's plan chooses among.
inline MoeParts moe_bench_parts() {
  return {moe_lists().layers,  all_topk_gating_entries(), all_moe_sort_entries(),
          all_quant_entries(), moe_lists().products,      all_moe_reduce_entries()};
}

/// A layer's entry as the harness launches it.
struct MoeTimedEntry : MoeEntry {
  Status launch(const MoeTimedProblem& problem, hipStream_t stream) const {
    return planned(problem, [&](const MoeProblem& p, const MoePlan& plan, bool first) {
      // What a stage reads is written by the stages before it.
      if (const Status s = first && !model_time.on ? plan.launch(p, stream) : Status{}; !s.ok()) return s;
      constexpr MoeLaunch launches[] = {MoeLaunch::gating, MoeLaunch::sort,   MoeLaunch::quant_x,
                                        MoeLaunch::first,  MoeLaunch::second, MoeLaunch::sum};
      const int stage = static_cast<int>(problem.stage);
      return stage == 0 ? plan.launch(p, stream) : plan.launch_one(p, launches[stage - 1], stream);
    });
  }
  /// Says whether layers of the policy have a stage.
  bool serves(MoeStage stage) const {
    if (stage == MoeStage::quant_x) return policy.choosing != MoeChoosing::beside_x;
    return policy.choosing == MoeChoosing::apart || (stage != MoeStage::gating && stage != MoeStage::sort);
  }
  /// Runs the launches whose results are addresses in others. The products of a whole layer would take the emulated
  /// device hours, and no address depends on them.
  Status launch_indexes(const MoeTimedProblem& problem, hipStream_t stream) const {
    return planned(problem, [&](const MoeProblem& p, const MoePlan& plan, bool) {
      for (const MoeLaunch l : {MoeLaunch::choose, MoeLaunch::gating, MoeLaunch::route, MoeLaunch::sort})
        if (const Status s = plan.launch_one(p, l, stream); !s.ok()) return s;
      return Status{};
    });
  }

 private:
  /// Calls body(problem with its workspace, plan, whether the plan was made for this call).
  template <class Body>
  Status planned(const MoeTimedProblem& problem, const Body& body) const {
    MoeTimedProblem::Made& made = *problem.made;
    MoeProblem p = problem;
    const bool first = made.plan.entry == nullptr;
    if (first) {
      const MoeEntry* const only = this;
      MoeParts parts = moe_bench_parts();
      parts.layers = {&only, 1};
      if (Status s = moe_select(p, parts, facts_of(arch), made.plan); !s.ok()) return s;
      for (const MoeEntry* e : moe_lists().layers)  // `parts` ends here
        if (e->arch == arch && e->spec == spec && e->policy == policy) made.plan.entry = e;
      made.workspace = DeviceBuffer(made.plan.workspace_bytes(p));
      if (!model_time.on) made.workspace.fill(0xff);
    }
    p.workspace = made.workspace.data(), p.workspace_bytes = made.workspace.bytes();
    return body(p, made.plan, first);
  }
};

struct MoeOp {
  using Case = MoeCase;
  using Problem = MoeTimedProblem;
  using Entry = MoeTimedEntry;
  using Tensors = MoeTensors;

  static std::span<const Entry* const> entries() {
    return timed_entries<Entry>(std::span<const MoeEntry* const>(moe_lists().layers));
  }
  static Status select(const Problem& p, std::span<const Entry* const> candidates, const ArchFacts& facts,
                       const Entry*& entry) {
    entry = nullptr;
    std::vector<const MoeEntry*> layers;
    for (const Entry* e : candidates)
      if (e->serves(p.stage)) layers.push_back(e);
    MoeParts parts = moe_bench_parts();
    parts.layers = layers;
    MoePlan plan;
    if (const Status s = moe_select(p, parts, facts, plan); !s.ok()) return s;
    for (const Entry* e : candidates)
      if (plan.entry == e) entry = e;
    return {};
  }
  static constexpr bool indexes_by_results = true;                           // products read rows where the sort says
  static std::vector<Case> default_sweep(ArchId arch);                       // bench/ops/moe/sweep.hpp
  static std::vector<Case> model_cases(ArchId arch, const ModelStep& step);  // the same

  template <class Address>
  static Problem problem_of(const Case& c, const Tensors& t, const Address& address) {
    Problem p;
    p.spec = c.spec;
    p.stage = c.stage;
    p.x = address(t.x), p.x_stride = c.columns;
    p.out = address(t.out), p.out_stride = c.columns;
    p.w1 = MoeWeights::packed(c.spec, address(t.w1), 2 * c.intermediate, c.columns);
    p.w2 = MoeWeights::packed(c.spec, address(t.w2), c.columns, c.intermediate);
    if (c.spec.quantised()) {
      p.w1.scale = static_cast<const float*>(address(t.w1_scale));
      p.w2.scale = static_cast<const float*>(address(t.w2_scale));
    }
    if (c.spec.four_bit()) p.w1.group_scale = address(t.w1_scale), p.w2.group_scale = address(t.w2_scale);
    if (c.spec.zero_points) {
      p.w1.group_zero = static_cast<const std::int8_t*>(address(t.w1_zero));
      p.w2.group_zero = static_cast<const std::int8_t*>(address(t.w2_zero));
    }
    p.logits = address(t.logits), p.logits_stride = c.experts;
    set_gating(c.spec, p);
    p.tokens = c.rows, p.hidden = c.columns, p.intermediate = c.intermediate;
    p.experts = p.local_experts = c.experts, p.topk = c.topk;
    return p;
  }

  /// Weights of results are renormalised softmax, and those of inputs sigmoid, as Llama 4 has them.
  template <class Routed>
  static void set_gating(const MoeSpec& s, Routed& p) {
    if (s.weight == MoeWeight::input) {
      p.score = GatingScore::sigmoid;
    } else {
      p.renormalise = true;
    }
  }

  /// Logits make each token choose the experts that the load says.
  static Tensors fill(const Case& c, int threads) {
    Tensors t;
    t.x = filled(c.spec.x, c.rows, c.columns, threads,
                 [&](std::int64_t r, std::int64_t column) { return drawn(c.seed, 'x', r, column); });
    const auto weights = [&](char name, std::int64_t rows, std::int32_t columns) {
      const DType type = c.spec.weights;
      const NormalElements normal(type, c.spec.quantised() ? deviation_of(type) : 1 / std::sqrt(float(columns)));
      const std::int64_t row_bytes = std::int64_t{columns} * size_of(type);
      TwinBuffer buffer(static_cast<std::size_t>(rows * row_bytes), name_of(type));
      if (!fills(buffer.bytes())) return buffer;
      reference::parallel_for(rows, threads, [&](std::int64_t r) {
        normal.fill(buffer.host() + r * row_bytes, columns,
                    random_bits({c.seed, static_cast<std::uint64_t>(name), static_cast<std::uint64_t>(r)}));
      });
      buffer.upload();
      return buffer;
    };
    if (c.spec.four_bit()) {
      fill_codes(c, threads, t);
    } else {
      t.w1 = weights('u', std::int64_t{c.experts} * 2 * c.intermediate, c.columns);
      t.w2 = weights('d', std::int64_t{c.experts} * c.columns, c.intermediate);
    }
    if (c.spec.quantised()) {
      const auto scales = [&](char name, std::int32_t rows, std::int32_t columns) {
        const float usual = 1 / (deviation_of(c.spec.weights) * std::sqrt(static_cast<float>(columns)));
        return filled(
            DType::f32, c.experts * ceil_div(rows, 128), ceil_div(columns, 128), threads,
            [&](std::int64_t r, std::int64_t column) { return usual * (1 + 0.5f * drawn(c.seed, name, r, column)); });
      };
      t.w1_scale = scales('s', 2 * c.intermediate, c.columns);
      t.w2_scale = scales('t', c.columns, c.intermediate);
    }
    const std::vector<std::int32_t> ids = c.choices();
    t.logits = filled(c.spec.logits, c.rows, c.experts, threads, [&](std::int64_t r, std::int64_t e) {
      const std::int32_t* const first = ids.data() + r * c.topk;
      const auto slot = std::find(first, first + c.topk, e) - first;
      return slot < c.topk ? 4.0f - 0.125f * static_cast<float>(slot) : -4.0f + drawn(c.seed, 'l', r, e);
    });
    t.out = poisoned(c.out(), std::int64_t{c.rows} * c.columns);
    return t;
  }
  /// Any bits are codes. Those of MXFP4 deviate by 3, those of int4 by 4.6, and scales make what a row's products add up
  /// to deviate by 1 or so. Zero points are within 2 of 0, as those of trained weights are.
  static void fill_codes(const Case& c, int threads, Tensors& t) {
    const auto codes = [&](char name, std::int64_t rows, std::int32_t columns) {
      TwinBuffer buffer(static_cast<std::size_t>(rows * columns / 2), "bytes");
      if (!fills(buffer.bytes())) return buffer;
      reference::parallel_for(rows, threads, [&](std::int64_t r) {
        for (std::int32_t i = 0; i < columns / 2; i += 8) {
          const std::uint64_t bits = random_bits({c.seed, std::uint64_t(name), std::uint64_t(r), std::uint64_t(i)});
          std::memcpy(buffer.host() + r * (columns / 2) + i, &bits, 8);
        }
      });
      buffer.upload();
      return buffer;
    };
    const bool mxfp4 = c.spec.weights == DType::fp4_e2m1;
    const auto of_groups = [&](DType type, std::int32_t rows, std::int32_t columns, const auto& value) {
      return filled(type, c.experts * (columns / c.spec.scale_k), rows, threads, value);
    };
    const auto scales = [&](char name, std::int32_t rows, std::int32_t columns) {
      const int exponent = 127 - 2 - std::ilogb(columns) / 2;
      const float usual = 1 / (deviation_of(DType::i4) * std::sqrt(static_cast<float>(columns)));
      return of_groups(mxfp4 ? DType::i8 : moe_first_spec(c.spec).group_scale(), rows, columns,
                       [&](std::int64_t r, std::int64_t row) {
                         const float v = drawn(c.seed, name, r, row);
                         return mxfp4 ? static_cast<float>(exponent + (v > 0.5f)) : usual * (1 + 0.5f * v);
                       });
    };
    const auto zeros = [&](char name, std::int32_t rows, std::int32_t columns) {
      return of_groups(DType::i8, rows, columns,
                       [&](std::int64_t r, std::int64_t row) { return std::round(2 * drawn(c.seed, name, r, row)); });
    };
    t.w1 = codes('u', std::int64_t{c.experts} * 2 * c.intermediate, c.columns);
    t.w2 = codes('d', std::int64_t{c.experts} * c.columns, c.intermediate);
    t.w1_scale = scales('s', 2 * c.intermediate, c.columns);
    t.w2_scale = scales('t', c.columns, c.intermediate);
    if (!c.spec.zero_points) return;
    t.w1_zero = zeros('z', 2 * c.intermediate, c.columns);
    t.w2_zero = zeros('y', c.columns, c.intermediate);
  }
  static std::vector<const TwinBuffer*> outputs(const Tensors& t) { return {&t.out}; }

  /// Weights of the experts that are hit once, and what a stage reads and writes of tokens and choices once.
  static Work work_of(const Case& c) {
    const std::int64_t tokens = c.rows, choices = tokens * c.topk, hit = c.experts_hit();
    const std::int64_t two = size_of(c.spec.x), h = c.spec.quantised() ? 1 : two;
    const std::int64_t products = std::int64_t{2} * c.columns * c.intermediate;  // operations of a choice of w2
    const std::int64_t values = hit * c.columns * c.intermediate;
    const GemmSpec second = moe_second_spec(c.spec);
    const std::int64_t of_group = c.spec.four_bit() ? size_of(second.group_scale()) + c.spec.zero_points : 0;  // bytes
    const std::int64_t w2 = c.spec.four_bit() ? values / 2 + values / c.spec.scale_k * of_group
                                              : values * size_of(c.spec.weights),
                       w1 = 2 * w2;
    const std::int64_t x = tokens * c.columns, logits = tokens * c.experts * size_of(c.spec.logits);
    const double rate = matrix_flops(facts_of(c.arch), c.spec.operand());
    switch (c.stage) {
      case MoeStage::layer:
        return {.bytes = logits + 2 * two * x + w1 + w2,
                .written = two * x,
                .flops = 3 * products * choices,
                .flops_per_second = rate};
      case MoeStage::gating:
        return {.bytes = logits + 8 * choices, .written = 8 * choices, .flops = tokens * c.experts};
      case MoeStage::sort: return {.bytes = 16 * choices, .written = 12 * choices, .flops = 2 * choices};
      case MoeStage::quant_x: return {.bytes = (two + 1) * x, .written = x, .flops = 2 * x};
      case MoeStage::first:
        return {.bytes = w1 + x * h + choices * c.intermediate * h,
                .written = choices * c.intermediate * h,
                .flops = 2 * products * choices,
                .flops_per_second = rate};
      case MoeStage::second:
        return {.bytes = w2 + choices * (c.intermediate * h + c.columns * two),
                .written = choices * c.columns * two,
                .flops = products * choices,
                .flops_per_second = rate};
      case MoeStage::sum:
        return {.bytes = (choices + tokens) * c.columns * two,
                .written = tokens * c.columns * two,
                .flops = 2 * choices * c.columns};
    }
    return {};
  }

  /// A token by itself, and of it one choice after the other: so few experts are decoded at a time.
  static void verify_row(const Problem& p, std::int32_t row, RowErrors& errors) {
    TopkGatingProblem gating;
    gating.spec = {p.spec.logits};
    gating.logits = p.logits, gating.logits_stride = p.logits_stride;
    set_gating(p.spec, gating);
    gating.tokens = p.tokens, gating.experts = p.experts, gating.topk = p.topk;
    const reference::GatedToken chosen = reference::gated_token(gating, row);
    std::vector<reference::MoeValue> wanted(p.hidden);
    const std::int32_t id = 0;
    for (std::int32_t slot = 0; slot < p.topk; ++slot) {
      const std::int32_t expert = chosen.chosen[slot];
      const bool weighs_input = p.spec.weight == MoeWeight::input;
      const float factor = weighs_input ? 1.0f : chosen.weights[slot], weight = weighs_input ? chosen.weights[slot] : 1;
      MoeProblem one = p;
      one.spec.routing = MoeRouting::given;
      one.x = static_cast<const char*>(p.x) + row * p.x_stride * size_of(p.spec.x);
      one.logits = nullptr, one.topk_ids = &id, one.topk_weights = &weight, one.ids_stride = one.weights_stride = 1;
      one.tokens = one.experts = one.local_experts = one.topk = 1;
      const auto of_expert = [&](const MoeWeights& w) {
        return static_cast<const char*>(w.data) + expert * w.expert_stride * size_of(p.spec.weights);
      };
      one.w1.data = of_expert(p.w1), one.w2.data = of_expert(p.w2);
      if (p.spec.four_bit()) {
        const int size = size_of(moe_second_spec(p.spec).group_scale());
        one.w1.group_scale = static_cast<const char*>(p.w1.group_scale) + expert * p.w1.scale_expert_stride * size;
        one.w2.group_scale = static_cast<const char*>(p.w2.group_scale) + expert * p.w2.scale_expert_stride * size;
      }
      if (p.spec.zero_points)
        one.w1.group_zero += expert * p.w1.scale_expert_stride, one.w2.group_zero += expert * p.w2.scale_expert_stride;
      if (p.spec.quantised())
        one.w1.scale += expert * p.w1.scale_expert_stride, one.w2.scale += expert * p.w2.scale_expert_stride;
      const reference::Moe result(one);
      for (std::int32_t column = 0; column < p.hidden; ++column) {
        wanted[column].value += factor * result.at(0, column).value;
        wanted[column].magnitude += factor * result.at(0, column).magnitude;
      }
    }
    // Values between the products may be rounded the other way than the reference rounds them.
    const double slack = p.spec.quantised() ? 0x1p-6 : 0x1p-9;
    for (std::int32_t column = 0; column < p.hidden; ++column) {
      const double got = reference::element(p.spec.out, p.out, row * p.out_stride + column);
      const double want = wanted[column].value;
      errors.out(std::abs(got - want) <= 0x1p-7 * std::abs(want) + slack * wanted[column].magnitude, row, column, got,
                 want);
    }
  }
};

}  // namespace tilewave::bench
