// SPDX-License-Identifier: MIT
// Measures the rows of a step: the whole of it, its parts, and the gaps that are left.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/measurement.hpp"
#include "bench/harness/model_time.hpp"
#include "bench/step/step.hpp"

namespace tilewave::bench {

struct StepRow {
  StepCase config;
  StepPart part;
  int config_id;
  std::string name;
  std::string refusal{};

  std::string entry_name() const { return "engine"; }
  Columns identity() const {
    Columns columns = config.columns();
    columns.push_back({"part", cell_of(part)});
    return columns;
  }
  /// Calls of the part in a step, and its share of the step's time.
  static Columns results(int calls = 0, double step_us = NAN, double us = NAN) {
    ColumnWriter visit;
    visit("calls", calls);
    visit("step_us", step_us);
    visit("share_pct", us / step_us * 100);
    return visit.columns;
  }
};

/// Rows of one step follow each other, and share its model.
class StepRunner {
 public:
  StepRunner(const MeasureOptions& options, Meter::Log log) : options_(options), meter_(options, std::move(log)) {}

  Measurement run(const StepRow& row) {
    return meter_.fill(row.config.arch, [&](Measurement& measured) {
      if (!model_ || !(config_ == row.config)) begin(row.config);
      calls_ = 0;
      measured.work = step_work(whole_config(), row.config, row.part);
      const DType weights = row.config.weight_type();  // int4 is multiplied as bf16
      measured.work.flops_per_second =
          matrix_flops(device_of(row.config.arch).facts, weights == DType::i4 ? DType::bf16 : weights);
      if (row.part == StepPart::gaps) {
        gaps(measured);
      } else if (model_time.on) {
        modelled(row, measured);
      } else {
        timed(row, measured);
      }
      const double us = model_time.on ? measured.timing.modelled.us : measured.timing.main.own.cold.median;
      us_[row.part] = us;
      const double step_us = us_.contains(StepPart::step) ? us_[StepPart::step] : NAN;
      measured.results = StepRow::results(calls_, step_us, us);
    });
  }

 private:
  int layers() const { return layers_of(share_of(config_.model, 1)); }
  /// The config with all layers, also where a launch of each is enough.
  engine::ModelConfig whole_config() const {
    engine::ModelConfig config = model_->config();
    if (!cuts_configs()) config.layers = layers();
    return config;
  }

  void begin(const StepCase& c) {
    model_.reset();  // two models are more than a device holds
    config_ = c;
    us_.clear();
    StepCase cut = c;
    if (cuts_configs()) cut.batch = std::min(c.batch, 3), cut.context = std::min(c.context, 70);
    model_ = std::make_unique<StepModel>(cut, model_time.on || cuts_configs() ? 1 : layers(), cuts_configs());
    if (model_time.on) return;
    overlap_launches = false;
    static_cast<void>(model_->queue(StepPart::step));  // makes plans and finds its workspace
    static_cast<void>(model_->queue(StepPart::step));
    expected_ = model_->logits();
    overlap_launches = c.overlap;
  }

  /// A step is right if its logits are finite and have the bits that they had when no launches overlapped. The answers of
  /// the ops are what the tests of docs/examples/engine hold against transformers. Parts leave the activations as they
  /// find them or spoil them, so the step is run once more behind them.
  void timed(const StepRow& row, Measurement& measured) {
    calls_ = model_->capture(row.part);
    if (calls_ == 0) {  // another part does its work
      measured.ok = true, measured.max_abs_err = measured.max_rel_err = 0;
      return set(measured, 0);
    }
    const auto launch = [&](hipStream_t stream) -> Status {
      model_->replay(stream);
      return {};
    };
    if (!meter_.run(config_.arch, launch, measured.timing, {})) return;
    static_cast<void>(model_->queue(StepPart::step));
    const std::vector<float> logits = model_->logits();
    if (options_.inject_error) expected_.front() += 1.0f;
    bool same = logits.size() == expected_.size();
    for (std::size_t i = 0; same && i < logits.size(); ++i)
      same = std::isfinite(logits[i]) && std::memcmp(&logits[i], &expected_[i], sizeof(float)) == 0;
    measured.max_abs_err = measured.max_rel_err = same ? 0.0 : INFINITY;
    measured.ok = same;
    if (!same) meter_.log("the logits are not those of the same launches one after the other");
  }

  /// Launches of a layer are alike: those of one are modelled, and counted as often as there are layers.
  void modelled(const StepRow& row, Measurement& measured) {
    ModelledTime all;
    for (const StepPart part : all_step_parts) {
      if (part == StepPart::step || part == StepPart::gaps) continue;
      if (row.part != StepPart::step && row.part != part) continue;
      if (!modelled_.contains({row.config.name(), part})) {
        Timing timing;
        // Its second launch takes addresses from the results of the first, which a model leaves out.
        if (part == StepPart::sampling) static_cast<void>(model_->queue(part));
        static_cast<void>(meter_.run(config_.arch, [&](hipStream_t) { return queue_part(part); }, timing, {}));
        modelled_[{row.config.name(), part}] = timing.modelled;
      }
      ModelledTime one = modelled_[{row.config.name(), part}];
      if (!one.known()) throw std::runtime_error(std::string("no time of ") + name_of(part));
      // Of a model of one layer. Two of its three norms are the layer's, or belong to products that quantise rows.
      const bool only_last = part == StepPart::norm && row.config.weights == engine::WeightFormat::fp8;
      const bool once =
          part == StepPart::embedding || part == StepPart::logits || part == StepPart::sampling || only_last;
      const double times = once ? 1 : part == StepPart::norm ? (2.0 * layers() + 1) / 3 : layers();
      calls_ += static_cast<int>(std::lround(times * (only_last                     ? 1
                                                      : part == StepPart::norm      ? 3
                                                      : part == StepPart::embedding ? row.config.gathers()
                                                                                    : 1)));
      one.us *= times, one.clk *= times;
      if (!all.known()) {
        all = one;
        continue;
      }
      if (one.us > all.us) all.bound = one.bound;
      all.mhz = (all.mhz * all.clk + one.mhz * one.clk) / (all.clk + one.clk);
      all.error = std::max(all.error, one.error);
      all.us += one.us, all.clk += one.clk;
    }
    measured.timing.modelled = all;
  }
  Status queue_part(StepPart part) {
    static_cast<void>(model_->queue(part));
    return {};
  }

  void gaps(Measurement& measured) {
    double left = 0;
    for (const StepPart part : all_step_parts) {
      if (part == StepPart::gaps) continue;
      if (!us_.contains(part)) throw std::runtime_error("gaps need the rows of the step and of all parts");
      left += (part == StepPart::step ? 1 : -1) * us_[part];
    }
    if (std::abs(left) < 1e-6) left = 0;  // a modelled step is the sum of its parts
    measured.ok = !model_time.on;
    if (model_time.on) {
      measured.timing.modelled = {left, 0, 0, NAN, "launch", chip_modelled(config_.arch)};
    } else {
      set(measured, left);
    }
  }
  /// A time that follows from others.
  static void set(Measurement& measured, double us) {
    SampleStats& cold = measured.timing.main.own.cold;
    if (!emulated_device) cold.median = cold.min = cold.q1 = cold.q3 = cold.mean = us, cold.count = 1;
  }

  MeasureOptions options_;
  Meter meter_;
  StepCase config_;
  std::unique_ptr<StepModel> model_;
  std::vector<float> expected_;
  std::map<StepPart, double> us_;
  int calls_ = 0;  // of the row
  std::map<std::pair<std::string, StepPart>, ModelledTime> modelled_;
};

}  // namespace tilewave::bench
