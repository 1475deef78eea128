// SPDX-License-Identifier: MIT
// A row of bench_gemm, and how it is run: fill the tensors, time the launch, verify what the timed buffer then holds.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/measurement.hpp"
#include "bench/ops/gemm/tensors.hpp"
#include "bench/ops/gemm/vendor.hpp"
#include "bench/ops/gemm/verify.hpp"
#include "bench/ops/gemm/widened.hpp"
#include "tilewave/ops/gemm/registry.hpp"

namespace tilewave::bench {

/// Visits the columns of a plan. Without an entry, all of them are 0.
template <class Visit>
void each_column(const GemmPlan& plan, Visit& visit) {
  const bool has = plan.entry != nullptr;
  const GemmPolicy p = has ? plan.entry->policy : GemmPolicy{0, 0, 0, 0, 0, 0, {}, false, 0, 0, 0, 0, 0};
  visit("tile_rows", p.rows);
  visit("tile_columns", p.columns);
  visit("depth", p.depth_bytes);
  visit("stages", p.stages);
  visit("waves_rows", p.waves_rows);
  visit("waves_columns", p.waves_columns);
  visit("path", has ? name_of(p.path) : "none");
  visit("swapped", p.swapped);
  visit("cluster", p.cluster);
  visit("cluster_columns", p.cluster_columns);
  visit("splits", has ? plan.splits : 0);
  visit("most_splits", p.splits);
  visit("waves_per_simd", p.waves_per_simd);
  visit("waves_k", p.waves_k);
  visit("stream", p.stream);
  visit("pingpong", p.pingpong);
  visit("late", p.late);
}

/// A config with the plan that is timed.
struct GemmRow {
  GemmCase config;
  GemmPlan plan;  // Its entry is null if no entry serves the config.
  int config_id;
  std::string name;
  std::string refusal;  // why the library has no plan for the config; empty if it has

  std::string entry_name() const {
    return plan.entry != nullptr ? name_of(plan.entry->spec) + "/" + name_of(plan.entry->policy) : "none";
  }
  Columns identity() const {
    ColumnWriter visit;
    GemmCase::each_column(config, visit);
    visit.policy = true;
    each_column(plan, visit);
    return visit.columns;
  }
};

struct GemmOptions : MeasureOptions {
  bool vendor = false;                  // beside each row the vendor's library
  std::optional<std::int64_t> rotated;  // bytes of weights that calls take in turns; else rotated_bytes()
};

/// Rows of A up to which weights are rotated and compared with a read: a decode step never finds its weights in a cache.
inline constexpr std::int32_t most_rotated_rows = 128;

/// Four times the last-level cache for few rows, else none.
inline std::int64_t rotated_bytes(const GemmCase& c) {
  return c.m <= most_rotated_rows && !c.grouped() ? 4 * facts_of(c.arch).last_level_cache_bytes : 0;
}

/// Copies of the weights on the device, which calls take in turns. The tensor itself is the first.
class RotatedWeights {
 public:
  RotatedWeights(const TwinBuffer& b, std::int64_t bytes) : pointers_{b.device()} {
    constexpr std::int64_t most = 256;
    const auto one = static_cast<std::int64_t>(b.bytes());
    for (std::int64_t i = 1; one > 0 && i < std::min(most, ceil_div(bytes, one)); ++i) {
      copies_.emplace_back(b.bytes());
      check_hip(hipMemcpy(copies_.back().data(), b.device(), b.bytes(), hipMemcpyDeviceToDevice), "copying weights");
      pointers_.push_back(copies_.back().data());
    }
  }
  std::span<const void* const> pointers() const { return pointers_; }

 private:
  std::vector<DeviceBuffer> copies_;
  std::vector<const void*> pointers_;
};

/// Runs rows one after the other, and keeps the tensors of a config for all of its plans.
class GemmRunner {
 public:
  GemmRunner(const GemmOptions& options, Meter::Log log) : options_(options), meter_(options, std::move(log)) {}

  /// Runs a row, and never throws. If it could not be run or is wrong, ok is false and the reason is logged.
  Measurement run(const GemmRow& row) {
    return meter_.fill(row.config.arch, [&](Measurement& measured) {
      measured.work = work_of(row.config);
      if (row.plan.entry == nullptr) {
        meter_.log("no entry serves this config");
      } else {
        run(row, measured);
      }
    });
  }

 private:
  /// The tensors of a config, which all of its plans share, and the output that is expected.
  struct Prepared {
    std::string config;
    GemmTensors tensors;
    std::vector<GemmWanted> wanted;
  };

  const Prepared& prepared(const GemmCase& c) {
    if (prepared_ && prepared_->config == name_of(c)) return *prepared_;
    prepared_.reset();  // The old tensors go first, since the new ones may fill the device.
    prepared_.emplace(Prepared{name_of(c), fill(c, options_.threads), {}});
    return *prepared_;
  }
  static GemmProblem on_host(const GemmCase& c, const GemmTensors& t) {
    return problem_of(c, t, [](const TwinBuffer& b) -> void* { return b.host(); });
  }

  void run(const GemmRow& row, Measurement& measured) {
    const GemmCase& c = row.config;
    const GemmTensors& tensors = prepared(c).tensors;
    poison_output(c, tensors);
    GemmProblem p = problem_of(c, tensors, [](const TwinBuffer& b) -> void* { return b.device(); });
    const DeviceBuffer workspace(row.plan.workspace_bytes(p));
    workspace.fill(0xff);
    p.workspace = workspace.data();
    p.workspace_bytes = workspace.bytes();

    const bool timed = !emulated_device && !model_time.on && options_.max_seconds > 0;
    const RotatedWeights weights(tensors.b, timed ? options_.rotated.value_or(rotated_bytes(c)) : 0);
    std::size_t turn = 0;
    const auto launch = [&](hipStream_t stream) {
      p.b = weights.pointers()[turn++ % weights.pointers().size()];
      return row.plan.launch(p, stream);
    };
    Beside beside;
    if (timed && c.m <= most_rotated_rows) beside.floor_bytes = measured.work.bytes - measured.work.written;
    PeerTensors peer;
    const std::unique_ptr<VendorGemm> vendor =
        timed && options_.vendor ? beside_vendor(c, p, weights.pointers(), peer, beside) : nullptr;
    if (!meter_.run(c.arch, launch, measured.timing, std::array{&tensors.out, &tensors.out_scale}, beside)) return;
    tensors.out.download();
    if (c.out_scales() > 0) tensors.out_scale.download();
    const GemmProblem host = on_host(c, tensors);
    if (prepared_->wanted.empty()) prepared_->wanted = wanted_rows(host, matrix_unit_of(c), options_.threads);
    if (options_.inject_error) damage(c, host);
    conclude(verify(host, prepared_->wanted, tolerance_of(c), options_.threads), meter_, measured);
    if (measured.timing.peer != "none") verify_peer(c, host, peer.out, measured);
  }

  /// What the peer has of its own: its out, and 16-bit operands where the weights have four bits.
  struct PeerTensors {
    TwinBuffer out;
    WidenedOperands widened;
    std::optional<RotatedWeights> weights;
  };
  /// The vendor's library with an out of its own, poisoned before it is timed; null where it has nothing for the config.
  std::unique_ptr<VendorGemm> beside_vendor(const GemmCase& c, GemmProblem p, std::span<const void* const> weights,
                                            PeerTensors& own, Beside& beside) const {
    TwinBuffer& out = own.out;
    out = TwinBuffer(prepared_->tensors.out.bytes(), name_of(c.spec.out));
    p.out = out.device();
    if (c.spec.four_bit() && !c.grouped() && c.batch == 1) {
      own.widened = widened_operands(on_host(c, prepared_->tensors), p, options_.threads);
      own.weights.emplace(own.widened.b, options_.rotated.value_or(rotated_bytes(c)));
      p = own.widened.problem;
      weights = own.weights->pointers();
    }
    std::string reason;
    std::unique_ptr<VendorGemm> vendor = vendor_gemm(p, weights, reason);
    if (vendor == nullptr) {
      meter_.log("no peer: " + reason);
      return nullptr;
    }
    beside.peers = vendor->sides();
    beside.prepare_peer = [&c, &out] {
      std::memset(out.host(), poison_byte(c.spec.out), out.bytes());
      out.upload();
    };
    return vendor;
  }

  /// The peer's largest error of a row, which leaves its times where they are if it is no larger than peer_tolerance.
  void verify_peer(const GemmCase& c, GemmProblem host, const TwinBuffer& out, Measurement& measured) const {
    constexpr double peer_tolerance = 2e-2;  // of the l2 norm: its sums are not ours
    out.download();
    host.out = out.host();
    double error = 0;
    const std::vector<RowErrors> found = verify(host, prepared_->wanted, tolerance_of(c), options_.threads);
    for (const RowErrors& row : found) {
      const bool unwritten = row.reason.starts_with("what was not written");
      error = std::max(error, unwritten ? std::numeric_limits<double>::infinity() : row.relative());
    }
    measured.peer_rel_err = error;
    if (error <= peer_tolerance) return;
    meter_.log(measured.timing.peer + " is wrong: a row is off by " + std::to_string(error) + " of itself");
    measured.timing.main.peer = measured.timing.sustained.peer = {};
  }

  /// Flips the top bit of the exponent of an element that is verified.
  void damage(const GemmCase& c, const GemmProblem& host) const {
    if (prepared_->wanted.empty()) return;
    const GemmWanted& wanted = prepared_->wanted.front();
    const std::int64_t at = wanted.a_layer * host.out_batch_stride + wanted.rows.front() * host.out_stride;
    static_cast<std::byte*>(host.out)[(at + 1) * size_of(c.spec.out) - 1] ^= std::byte{0x40};
  }

  GemmOptions options_;
  Meter meter_;
  std::optional<Prepared> prepared_;
};

}  // namespace tilewave::bench
