// SPDX-License-Identifier: MIT
// One step of a model on random weights: the engine of docs/examples/engine, of which all launches, or those of one part,
// are queued.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/column.hpp"
#include "bench/harness/models.hpp"
#include "bench/harness/work.hpp"
#include "docs/examples/engine/model.hpp"

namespace tilewave::bench {

/// A decode step has one new token a sequence, and `context` tokens with it. A prefill step has `context` new tokens.
enum class StepPhase : int { decode, prefill };
constexpr const char* name_of(StepPhase p) { return p == StepPhase::decode ? "decode" : "prefill"; }

/// What a row is about: the whole step, the launches of one part, or what is left of the step without all parts: the
/// gaps between launches, or less than nothing where launches overlap.
enum class StepPart : int { step, embedding, norm, qkv, cache, attention, out, gate_up, down, logits, sampling, gaps };
inline constexpr std::array all_step_parts{StepPart::step,  StepPart::embedding, StepPart::norm,     StepPart::qkv,
                                           StepPart::cache, StepPart::attention, StepPart::out,      StepPart::gate_up,
                                           StepPart::down,  StepPart::logits,    StepPart::sampling, StepPart::gaps};
constexpr const char* name_of(StepPart p) {
  constexpr const char* names[] = {"step", "embedding", "norm", "qkv",    "cache",    "attention",
                                   "out",  "gate_up",   "down", "logits", "sampling", "gaps"};
  return names[static_cast<int>(p)];
}

struct StepCase {
  ArchId arch = ArchId::gfx950;
  std::string model;
  StepPhase phase = StepPhase::decode;
  int batch = 1, context = 8192;
  engine::WeightFormat weights = engine::WeightFormat::bf16;
  bool fp8_cache = false;
  bool overlap = true;  // overlap_launches
  std::uint64_t seed = 123;

  friend bool operator==(const StepCase&, const StepCase&) = default;

  std::string name() const {
    return model + "/" + name_of(phase) + word_of(weights) + (fp8_cache ? "/kv_fp8" : "") + "/b" +
           std::to_string(batch) + "/c" + std::to_string(context) + (overlap ? "" : "/apart");
  }
  static constexpr const char* word_of(engine::WeightFormat format) {
    return format == engine::WeightFormat::fp8 ? "/w_fp8" : format == engine::WeightFormat::int4 ? "/w_int4" : "";
  }
  Columns columns() const {
    ColumnWriter visit;
    visit("arch", arch);
    visit("model", model);
    visit("phase", phase);
    visit("weight_dtype", weight_type());
    visit("kv_dtype", fp8_cache ? facts_of(arch).fp8 : DType::bf16);
    visit("batch_size", batch);
    visit("context_length", context);
    visit("overlap", overlap);
    visit("seed", seed);
    return visit.columns;
  }
  DType weight_type() const {
    return weights == engine::WeightFormat::fp8    ? facts_of(arch).fp8
           : weights == engine::WeightFormat::int4 ? DType::i4
                                                   : DType::bf16;
  }
  /// Launches that gather rows: of embeddings, and of those that need logits, where not all do.
  int gathers() const { return new_tokens() == batch ? 1 : 2; }
  int new_tokens() const { return phase == StepPhase::decode ? batch : batch * context; }
};

/// Makes the engine's kernels for each architecture of the build.
using StepKernels = std::map<ArchId, std::unique_ptr<engine::Kernels> (*)(const engine::ModelConfig&,
                                                                          const engine::CacheShape&, hipStream_t)>;
StepKernels& step_kernels();

/// The layers of a model of bench/harness/models.hpp, which has no number of them. Throws where the engine does not
/// serve the model.
int layers_of(const Model& model);

/// Returns the least that a part, or the step, has to do: weights, and K and V of all tokens that are attended, are read
/// once.
Work step_work(const engine::ModelConfig& config, const StepCase& c, StepPart part);

class StepModel {
 public:
  /// `layers`: of the model, of which fewer are enough where launches are modelled. Cut: the emulated device runs a model
  /// whose extents are small.
  StepModel(const StepCase& c, int layers, bool cut);

  const engine::ModelConfig& config() const { return config_; }
  /// Queues the launches of a part; counts them.
  int queue(StepPart part);
  hipStream_t stream() const { return model_->stream().get(); }
  /// Captures a part and returns its number of calls; replay() launches what was captured.
  int capture(StepPart part);
  void replay(hipStream_t stream) const { graph_->launch(stream); }
  /// The logits of the last whole step that was queued.
  std::vector<float> logits() const;
  /// A layer's weights or cache by name, or the model's where `layer` is negative; null for an unknown name.
  const engine::Buffer* tensor(int layer, std::string_view name) const;

 private:
  engine::ModelConfig config_;
  std::unique_ptr<engine::Model> model_;
  engine::Model::Step step_;
  std::optional<engine::Graph> graph_;
};

}  // namespace tilewave::bench
