// SPDX-License-Identifier: MIT
// MoeCall makes a layer of experts on the device of a few numbers, runs it and says what is wrong with its output.
#pragma once

#include <map>

#include "entries/gemm.hpp"
#include "entries/moe.hpp"
#include "entries/moe_reduce.hpp"
#include "entries/moe_sort.hpp"
#include "entries/quant.hpp"
#include "entries/topk_gating.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/reference/moe.hpp"

namespace tilewave::test {

/// The numbers of a layer.
struct MoeShape {
  std::int32_t tokens = 9, experts = 8, topk = 2, hidden = 256, intermediate = 128;
  std::int32_t first_expert = 0, local_experts = -1;  // -1: all
  std::int32_t capacity = 24;                         // masked
  bool bias = false, residual = false, interleaved = false, renormalise = true, batch_invariant = false;
  bool map = false;  // local experts are the odd ones, in falling order
  int gap = 0;       // elements of 16 bytes between rows of x, and elements between those of out
  /// Returns the id of a choice, for routing that is given.
  std::int32_t (*id)(std::int32_t token, std::int32_t slot, std::int32_t experts) = nullptr;
  /// Returns a logit.
  float (*logit)(std::int32_t token, std::int32_t expert) = nullptr;
  /// Returns the rows of an expert, for tokens that lie by expert.
  std::int32_t (*rows)(std::int32_t expert, std::int32_t capacity) = nullptr;
  GatingScore score = GatingScore::softmax;
  bool gating_bias = false;
  int seed = 0;
};

/// Returns all entries among which a layer's plan chooses.
inline MoeParts all_moe_parts() {
  static const std::vector<const GemmEntry*> products = [] {
    std::vector<const GemmEntry*> all;
    for (const auto list : {all_gemm_moe_entries(), all_gemm_grouped_entries()})
      all.insert(all.end(), list.begin(), list.end());
    return all;
  }();
  return {all_moe_entries(), all_topk_gating_entries(), all_moe_sort_entries(), all_quant_entries(),
          products,          all_moe_reduce_entries()};
}

class MoeCall {
 public:
  MoeCall(const MoeSpec& spec, const MoeShape& s) : spec_(spec), s_(s) {
    locals_ = s.map ? s.experts / 2 : s.local_experts < 0 ? s.experts : s.local_experts;
    const std::int32_t resident = locals_ + spec.shared;
    const bool masked = spec.masked();
    const std::int32_t x_rows = masked ? resident * s.capacity : s.tokens;
    x_stride_ = s.hidden + s.gap * 16, out_stride_ = s.hidden + s.gap;
    make("x", spec.x, x_rows, s.hidden, x_stride_, 'x');
    make("w1", spec.weights, resident * 2 * s.intermediate, s.hidden, s.hidden, 'u');
    make("w2", spec.weights, resident * s.hidden, s.intermediate, s.intermediate, 'd');
    const std::int32_t h_blocks = ceil_div(s.hidden, 128), i_blocks = ceil_div(s.intermediate, 128);
    make("x_scale", DType::f32, x_rows, h_blocks, h_blocks, 's');
    make("w1_scale", DType::f32, resident * ceil_div(2 * s.intermediate, 128), h_blocks, h_blocks, 't');
    make("w2_scale", DType::f32, resident * h_blocks, i_blocks, i_blocks, 'z');
    make("bias1", spec.out, resident, 2 * s.intermediate, 2 * s.intermediate, 'i');
    make("bias2", spec.out, resident, s.hidden, s.hidden, 'j');
    make("residual", spec.out, s.tokens, s.hidden, s.hidden, 'r');
    make("logits", spec.logits, s.tokens, s.experts, s.experts, 'l');
    make("gating_bias", DType::f32, 1, s.experts, s.experts, 'g');
    make("weights", DType::f32, s.tokens, s.topk, s.topk, 'w');
    if (s.logit != nullptr) at("logits").set(s.tokens, s.experts, s.logit);
    tensors_.emplace("out", Tensor(spec.out, x_rows, s.hidden, 1, {out_stride_, 0}));
    ids_ = words(s.tokens * s.topk, [&](std::int32_t i) {
      const std::int32_t token = i / s.topk, slot = i % s.topk;
      if (s.id != nullptr) return s.id(token, slot, s.experts);
      return static_cast<std::int32_t>((static_cast<std::uint32_t>(token * 5 + s.seed) * 2654435761u / 4096 + slot) %
                                       s.experts);
    });
    map_ = words(s.experts, [&](std::int32_t e) { return e % 2 == 1 ? locals_ - 1 - e / 2 : -1 - e; });
    expert_rows_ = words(locals_, [&](std::int32_t e) { return s.rows != nullptr ? s.rows(e, s.capacity) : e % 7; });
    device_ids_ = uploaded(ids_), device_map_ = uploaded(map_), device_rows_ = uploaded(expert_rows_);
  }

  MoeProblem on_device() {
    return problem([](Tensor& t) { return t.device(); }, static_cast<const std::int32_t*>(device_ids_.data()),
                   static_cast<const std::int32_t*>(device_map_.data()),
                   static_cast<const std::int32_t*>(device_rows_.data()));
  }
  MoeProblem on_host() {
    return problem([](Tensor& t) { return const_cast<void*>(t.host()); }, ids_.data(), map_.data(),
                   expert_rows_.data());
  }

  /// Plans and launches the layer with poison in its workspace. Returns what was refused, or "".
  std::string launch(const ArchFacts& facts, const MoeParts& parts = all_moe_parts()) {
    MoeProblem p = on_device();
    if (const Status s = moe_select(p, parts, facts, plan_); !s.ok())
      return std::string(tilewave::name_of(s.code)) + ": " + s.reason;
    workspace_ = bench::DeviceBuffer(plan_.workspace_bytes(p));
    workspace_.fill(unread_byte);
    p.workspace = workspace_.data(), p.workspace_bytes = workspace_.bytes();
    if (const Status s = plan_.launch(p, {}); !s.ok()) return std::string(tilewave::name_of(s.code)) + ": " + s.reason;
    bench::check_hip(hipDeviceSynchronize(), "running a layer");
    at("out").download();
    return "";
  }
  /// The same, and what is wrong with out by the reference.
  std::string run(const ArchFacts& facts, const MoeParts& parts = all_moe_parts()) {
    if (std::string refused = launch(facts, parts); refused != "") return refused;
    return wrong();
  }
  std::string wrong() {
    const MoeProblem p = on_host();
    const reference::Moe wanted(p);
    // Between the products and behind them a value may be rounded the other way than the reference rounds it. A code of
    // fp8 that is the next one is off by an eighth of itself, and of so few columns one may be a tenth of the sum.
    const double slack = spec_.quantised() ? 0x1p-6 : 0x1p-9;
    const std::int32_t rows = spec_.masked() ? locals_ * s_.capacity : s_.tokens;
    for (std::int32_t row = 0; row < rows; ++row) {
      const bool written = !spec_.masked() || row % s_.capacity < expert_rows_[row / s_.capacity];
      for (std::int32_t column = 0; column < s_.hidden; ++column) {
        if (!written) {
          if (!at("out").untouched(row, column)) return "wrote row " + std::to_string(row) + ", which does not count";
          continue;
        }
        const reference::MoeValue want = wanted.at(row, column);
        const double got = at("out").at(row, column);
        if (std::isnan(want.value) && std::isnan(got)) continue;
        if (!(std::abs(got - want.value) <= 0x1p-7 * std::abs(want.value) + slack * want.magnitude))
          return "row " + std::to_string(row) + ", column " + std::to_string(column) + ": " + std::to_string(got) +
                 ", not " + std::to_string(want.value) + ", of " + std::to_string(want.magnitude);
      }
    }
    return at("out").gaps_kept(rows, s_.hidden) ? "" : "wrote between rows of out";
  }

  Tensor& at(const std::string& name) { return tensors_.at(name); }
  const MoePlan& plan() const { return plan_; }
  const bench::DeviceBuffer& workspace() const { return workspace_; }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  void set_ids(const std::vector<std::int32_t>& ids) {
    ids_ = ids;
    bench::check_hip(hipMemcpy(device_ids_.data(), ids_.data(), device_ids_.bytes(), hipMemcpyHostToDevice), "ids");
  }

 private:
  float value(char name, std::int32_t r, std::int32_t c) const {
    const float v = drawn(name, r + 1000 * s_.seed, c);
    switch (name) {
      case 's':
      case 't':
      case 'z': return 0.5f + 0.125f * v;
      case 'u':
      case 'd': return spec_.quantised() ? v : v / 8;
      case 'l': return 2 * v;
      case 'w': return 0.5f + 0.25f * v;
      default: return v;
    }
  }
  void make(const std::string& name, DType type, std::int32_t rows, std::int32_t columns, std::int64_t stride,
            char values) {
    Tensor& t = tensors_.emplace(name, Tensor(type, rows, columns, 1, {stride, 0})).first->second;
    t.set(rows, columns, [&](int r, int c) { return value(values, r, c); });
  }
  template <class F>
  static std::vector<std::int32_t> words(std::int32_t count, const F& f) {
    std::vector<std::int32_t> all;
    for (std::int32_t i = 0; i < count; ++i) all.push_back(f(i));
    return all;
  }
  static bench::DeviceBuffer uploaded(const std::vector<std::int32_t>& words) {
    bench::DeviceBuffer buffer(words.size() * 4);
    if (!words.empty())
      bench::check_hip(hipMemcpy(buffer.data(), words.data(), buffer.bytes(), hipMemcpyHostToDevice), "copying words");
    return buffer;
  }

  template <class Address>
  MoeProblem problem(const Address& address, const std::int32_t* ids, const std::int32_t* map,
                     const std::int32_t* rows) {
    const auto floats = [&](const char* name) { return static_cast<const float*>(address(at(name))); };
    MoeProblem p;
    p.spec = spec_;
    p.x = address(at("x")), p.x_stride = x_stride_;
    p.out = const_cast<void*>(static_cast<const void*>(address(at("out")))), p.out_stride = out_stride_;
    p.hidden = s_.hidden, p.intermediate = s_.intermediate;
    p.local_experts = locals_;
    p.w1 = MoeWeights::packed(spec_, address(at("w1")), 2 * s_.intermediate, s_.hidden);
    p.w2 = MoeWeights::packed(spec_, address(at("w2")), s_.hidden, s_.intermediate);
    if (s_.bias) {
      p.w1 = p.w1.with_bias(address(at("bias1")), 2 * s_.intermediate);
      p.w2 = p.w2.with_bias(address(at("bias2")), s_.hidden);
    }
    if (spec_.quantised()) p.w1.scale = floats("w1_scale"), p.w2.scale = floats("w2_scale");
    const std::int64_t blocks = ceil_div(s_.hidden, 128);
    if (is_fp8(spec_.x)) p.x_scale = floats("x_scale"), p.x_scale_stride = blocks, p.x_scale_k_stride = 1;
    p.interleaved = s_.interleaved;
    p.batch_invariant = s_.batch_invariant;
    if (spec_.masked()) {
      p.capacity = s_.capacity;
      p.tokens = s_.tokens;
      p.expert_rows = rows;
      p.x_expert_stride = s_.capacity * x_stride_, p.out_expert_stride = s_.capacity * out_stride_;
      if (is_fp8(spec_.x)) p.x_scale_expert_stride = s_.capacity * blocks;
      return p;
    }
    p.tokens = s_.tokens, p.experts = s_.experts, p.topk = s_.topk;
    p.first_expert = s_.first_expert;
    if (s_.map) p.expert_map = map;
    if (s_.residual) p.residual = address(at("residual")), p.residual_stride = s_.hidden;
    if (spec_.routing == MoeRouting::logits) {
      p.logits = address(at("logits")), p.logits_stride = s_.experts;
      p.renormalise = s_.renormalise, p.score = s_.score, p.weight_scale = 1.5f;
      if (s_.gating_bias) p.gating_bias = floats("gating_bias");
    } else {
      p.topk_ids = ids, p.ids_stride = s_.topk;
      p.topk_weights = floats("weights"), p.weights_stride = s_.topk;
    }
    if (spec_.shared) p.shared_weight = 0.75f;
    return p;
  }

  MoeSpec spec_;
  MoeShape s_;
  std::int32_t locals_ = 0;
  std::int64_t x_stride_ = 0, out_stride_ = 0;
  std::map<std::string, Tensor> tensors_;
  std::vector<std::int32_t> ids_, map_, expert_rows_;
  bench::DeviceBuffer device_ids_, device_map_, device_rows_, workspace_;
  MoePlan plan_;
};

}  // namespace tilewave::test
