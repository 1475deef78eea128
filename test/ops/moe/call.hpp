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
#include "test/ops/gemm/call.hpp"
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
  /// Experts' weights, and rows of out and of the residual, are more than 2^31 elements apart; with far_x those of x.
  bool far = false, far_x = false;
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
    for (const auto list : {all_gemm_moe_entries(), all_gemm_grouped_entries(), all_gemm_gated_entries()})
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
    x_stride_ = s.far_x ? far_elements : s.hidden + s.gap * 16, out_stride_ = s.far ? far_elements : s.hidden + s.gap;
    make("x", spec.x, x_rows, s.hidden, x_stride_, 'x');
    make_weights("w1", resident, 2 * s.intermediate, s.hidden, 'u');
    make_weights("w2", resident, s.hidden, s.intermediate, 'd');
    const std::int32_t h_blocks = ceil_div(s.hidden, 128), i_blocks = ceil_div(s.intermediate, 128);
    make("x_scale", DType::f32, x_rows, h_blocks, h_blocks, 's');
    if (spec.scale == Scaling::per_row) {
      make("w1_scale", DType::f32, resident, 2 * s.intermediate, 2 * s.intermediate, 't');
      make("w2_scale", DType::f32, resident, s.hidden, s.hidden, 'z');
    } else {  // of a tensor: the first
      make("w1_scale", DType::f32, resident * ceil_div(2 * s.intermediate, 128), h_blocks, h_blocks, 't');
      make("w2_scale", DType::f32, resident * h_blocks, i_blocks, i_blocks, 'z');
    }
    if (spec.four_bit()) {
      const DType type = stored(moe_first_spec(spec).group_scale());
      make_scales("w1_groups", type, resident * (s.hidden / spec.scale_k), 2 * s.intermediate, 't');
      make_scales("w2_groups", type, resident * (s.intermediate / spec.scale_k), s.hidden, 'z');
      if (spec.zero_points) {
        make_zeros("w1_zeros", resident * (s.hidden / spec.scale_k), 2 * s.intermediate);
        make_zeros("w2_zeros", resident * (s.intermediate / spec.scale_k), s.hidden);
      }
    }
    if (spec.mx()) {
      make_mx("x_mx", masked ? resident : 1, masked ? s.capacity : s.tokens, s.hidden, 's');
      make_mx("w1_groups", resident, 2 * s.intermediate, s.hidden, 't');
      make_mx("w2_groups", resident, s.hidden, s.intermediate, 'z');
    }
    make("given", DType::f32, 1, 2, 2, 'q');
    make("bias1", spec.out, resident, 2 * s.intermediate, 2 * s.intermediate, 'i');
    make("bias2", spec.out, resident, s.hidden, s.hidden, 'j');
    make("residual", spec.out, s.tokens, s.hidden, s.far ? far_elements : s.hidden, 'r');
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
    MoeProblem p = problem([](Tensor& t) { return t.device(); }, static_cast<const std::int32_t*>(device_ids_.data()),
                           static_cast<const std::int32_t*>(device_map_.data()),
                           static_cast<const std::int32_t*>(device_rows_.data()));
    // The host has far tensors without gaps.
    if (s_.far_x) p.x_stride = far_elements;
    if (s_.far) {
      p.out_stride = far_elements;
      p.w1.expert_stride = p.w2.expert_stride = far_expert();
      if (s_.residual) p.residual_stride = far_elements;
    }
    return p;
  }
  MoeProblem on_host() {
    return problem([](Tensor& t) { return const_cast<void*>(t.host()); }, ids_.data(), map_.data(),
                   expert_rows_.data());
  }

  /// Plans and launches the layer with poison in its workspace. Returns what was refused, or "".
  std::string launch(const ArchFacts& facts, const MoeParts& parts = all_moe_parts()) {
    return launch([&](const MoeProblem& p, MoePlan& plan) { return moe_select(p, parts, facts, plan); });
  }
  /// The same with a plan that select(problem, plan) makes.
  template <class Select>
  std::string launch(const Select& select) {
    MoeProblem p = on_device();
    if (const Status s = select(p, plan_); !s.ok()) return std::string(tilewave::name_of(s.code)) + ": " + s.reason;
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
    const Tensor& out = at("out");
    const MoeEntry* const entry = plan_.entry;
    const reference::Moe wanted(p, entry == nullptr
                                       ? reference::GemmUnit{}
                                       : reference::gemm_unit(entry->arch, entry->emulated, moe_second_spec(spec_)));
    // In 16 bits, h and results may be rounded the other way than the reference rounds them. Which codes of fp8 may be
    // the next ones, an eighth away, the reference knows.
    constexpr double slack = 0x1p-9;
    const std::int32_t rows = spec_.masked() ? locals_ * s_.capacity : s_.tokens;
    for (std::int32_t row = 0; row < rows; ++row) {
      const bool written = !spec_.masked() || row % s_.capacity < expert_rows_[row / s_.capacity];
      for (std::int32_t column = 0; column < s_.hidden; ++column) {
        if (!written) {
          if (!out.untouched(row, column)) return "wrote row " + std::to_string(row) + ", which does not count";
          continue;
        }
        const reference::MoeValue want = wanted.at(row, column);
        const double got = out.at(row, column);
        if (std::isnan(want.value) && std::isnan(got)) continue;
        if (!(std::abs(got - want.value) <= 0x1p-7 * std::abs(want.value) + slack * want.magnitude + want.unsure))
          return "row " + std::to_string(row) + ", column " + std::to_string(column) + ": " + std::to_string(got) +
                 ", not " + std::to_string(want.value) + ", of " + std::to_string(want.magnitude) + " and " +
                 std::to_string(want.unsure);
      }
    }
    return out.gaps_kept(rows, s_.hidden) ? "" : "wrote between rows of out";
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
  /// Values are first + factor * drawn(name, row, column), but scales of x and of h are given.
  struct Affine {
    float factor, first;
  };
  Affine affine(char name) const {
    switch (name) {
      case 's':
      case 't':
      case 'z': return {0.125f, 0.5f};
      case 'u':
      case 'd': return {spec_.scale == Scaling::none ? 0.125f : 1.0f, 0};
      case 'l': return {2, 0};
      case 'w': return {0.25f, 0.5f};
      default: return {1, 0};
    }
  }
  float value(char name, std::int32_t r, std::int32_t c) const {
    if (name == 'q') return c == 0 ? 0x1p-7f : 4.0f;  // of x and of h
    const Affine of = affine(name);
    return of.first + of.factor * drawn(name, r + 1000 * s_.seed, c);
  }
  void set(Tensor& t, std::int32_t rows, std::int32_t columns, char values) {
    if (values == 'q') return t.set(rows, columns, [&](int r, int c) { return value(values, r, c); });
    const Affine of = affine(values);
    t.draw(rows, columns, values, 1000 * s_.seed, of.factor, of.first);
  }
  void make(const std::string& name, DType type, std::int32_t rows, std::int32_t columns, std::int64_t stride,
            char values) {
    set(tensors_.emplace(name, Tensor(type, rows, columns, 1, {stride, 0})).first->second, rows, columns, values);
  }
  /// Scales of groups: values, or the codes of powers of two.
  void make_scales(const std::string& name, DType type, std::int32_t rows, std::int32_t columns, char values) {
    Tensor& t = tensors_.emplace(name, Tensor(type, rows, columns, 1, {columns, 0})).first->second;
    t.set(rows, columns, [&](int r, int c) {
      const float v = value(values, r, c);
      return type == DType::i8 ? static_cast<float>(static_cast<std::int8_t>(127 + std::ilogb(v))) : v;
    });
  }
  /// Zero points: -8 to 8.
  void make_zeros(const std::string& name, std::int32_t rows, std::int32_t columns) {
    Tensor& t = tensors_.emplace(name, Tensor(DType::i8, rows, columns, 1, {columns, 0})).first->second;
    t.set(rows, columns, [](int r, int c) { return static_cast<float>((5 * r + 3 * c) % 17 - 8); });
  }
  void make_mx(const std::string& name, std::int32_t layers, std::int32_t rows, std::int32_t columns, char values) {
    const std::int32_t bytes = mx_scale_bytes(rows, columns);
    Tensor& t = tensors_.emplace(name, Tensor(DType::i8, layers, bytes, 1, {bytes, 0})).first->second;
    set_mx_scales(t, layers, rows, columns,
                  [&](std::int64_t row, int group) { return value(values, static_cast<std::int32_t>(row), group); });
  }
  void make_weights(const std::string& name, std::int32_t experts, std::int32_t rows, std::int32_t columns,
                    char values) {
    if (spec_.mx() || spec_.preshuffled) {
      const std::int32_t row_bytes = columns / packing_of(spec_.weights), bytes = rows * row_bytes;
      Tensor& t = tensors_.emplace(name, Tensor(stored(spec_.weights), experts, bytes, 1, {bytes, 0})).first->second;
      t.set(experts, bytes, [&](int e, int at) {
        return preshuffled_byte(spec_.weights, at, row_bytes, [&](std::int64_t r, std::int64_t c) {
          return value(values, static_cast<std::int32_t>(e * rows + r), static_cast<std::int32_t>(c));
        });
      });
      return;
    }
    if (!spec_.four_bit()) {
      const RowStrides strides = s_.far ? RowStrides{far_expert(), columns} : RowStrides{columns, 0};
      Tensor& t = tensors_.emplace(name, Tensor(spec_.weights, experts * rows, columns, s_.far ? rows : 1, strides))
                      .first->second;
      set(t, experts * rows, columns, values);
      return;
    }
    const std::int32_t bytes = rows * columns / 2;
    const RowStrides strides{s_.far ? far_expert() : bytes, 0};
    Tensor& t = tensors_.emplace(name, Tensor(DType::i8, experts, bytes, 1, strides)).first->second;
    std::vector<std::vector<std::uint8_t>> codes;
    for (std::int32_t e = 0; e < experts; ++e)
      codes.push_back(four_bit_weights(spec_.weights, moe_second_spec(spec_).weights, rows, columns,
                                       [&](std::int64_t r, std::int64_t c) { return value(values, e * rows + r, c); }));
    t.set(experts, bytes, [&](int e, int at) { return static_cast<std::int8_t>(codes[e][at]); });
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
    p.x = address(at("x")), p.x_stride = s_.far_x ? s_.hidden : x_stride_;
    p.out = const_cast<void*>(static_cast<const void*>(address(at("out")))),
    p.out_stride = s_.far ? s_.hidden : out_stride_;
    p.hidden = s_.hidden, p.intermediate = s_.intermediate;
    p.local_experts = locals_;
    p.w1 = MoeWeights::packed(spec_, address(at("w1")), 2 * s_.intermediate, s_.hidden);
    p.w2 = MoeWeights::packed(spec_, address(at("w2")), s_.hidden, s_.intermediate);
    if (s_.bias) {
      p.w1 = p.w1.with_bias(address(at("bias1")), 2 * s_.intermediate);
      p.w2 = p.w2.with_bias(address(at("bias2")), s_.hidden);
    }
    if (spec_.quantised()) p.w1.scale = floats("w1_scale"), p.w2.scale = floats("w2_scale");
    if (spec_.four_bit() || spec_.mx())
      p.w1.group_scale = address(at("w1_groups")), p.w2.group_scale = address(at("w2_groups"));
    if (spec_.zero_points) {
      p.w1.group_zero = static_cast<const std::int8_t*>(address(at("w1_zeros")));
      p.w2.group_zero = static_cast<const std::int8_t*>(address(at("w2_zeros")));
    }
    if (spec_.mx() && is_fp8(spec_.x)) p.x_mx_scale = static_cast<const std::uint8_t*>(address(at("x_mx")));
    if (spec_.scale == Scaling::per_tensor) p.x_scale = floats("given"), p.h_scale = floats("given") + 1;
    const std::int64_t blocks = ceil_div(s_.hidden, 128);
    const bool x_scales = is_fp8(spec_.x) && !spec_.mx();
    if (x_scales) p.x_scale = floats("x_scale"), p.x_scale_stride = blocks, p.x_scale_k_stride = 1;
    p.interleaved = s_.interleaved;
    p.batch_invariant = s_.batch_invariant;
    if (spec_.masked()) {
      p.capacity = s_.capacity;
      p.tokens = s_.tokens;
      p.expert_rows = rows;
      p.x_expert_stride = s_.capacity * x_stride_, p.out_expert_stride = s_.capacity * out_stride_;
      if (x_scales) p.x_scale_expert_stride = s_.capacity * blocks;
      if (spec_.mx()) p.x_scale_expert_stride = mx_scale_bytes(s_.capacity, s_.hidden);
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

  static constexpr std::int64_t far_elements = (std::int64_t{1} << 31) + 640;
  /// From one expert's weights to the next's. Those of four bits are whole strips of sixteen rows apart.
  std::int64_t far_expert() const {
    const std::int64_t strip = std::max(s_.hidden, s_.intermediate) * 16 / 2;
    return spec_.four_bit() ? align_up(far_elements, strip) : far_elements;
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
