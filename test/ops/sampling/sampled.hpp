// SPDX-License-Identifier: MIT
// A sampling in its tests: rows whose parameters are arrays on the device, run by an entry.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "entries/sampling.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/ops/sampling/registry.hpp"
#include "tilewave/reference/sampling.hpp"

namespace tilewave::test {

/// Settings that a row may have of its own.
struct RowSettings {
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
  std::uint64_t seed = 1, offset = 0;
};

struct SamplingShape {
  std::int32_t rows = 1, columns = 1;
  int gap = 0;                          // elements between two rows
  std::vector<RowSettings> settings{};  // row r has the (r % size)-th; none: as RowSettings says, and a seed for all
  bool raw_logprobs = false, logprobs = true;
  float (*value)(int row, int column) = nullptr;  // instead of random ones
  float amplitude = 4;
  bool workspace = false;  // as much as is asked for; poisoned
};

template <class T>
struct DeviceArray {
  explicit DeviceArray(std::vector<T> values) : host(std::move(values)), device(host.size() * sizeof(T)) { upload(); }
  void upload() {
    if (!host.empty())
      bench::check_hip(hipMemcpy(device.data(), host.data(), device.bytes(), hipMemcpyHostToDevice), "copying");
  }
  void download() {
    if (!host.empty())
      bench::check_hip(hipMemcpy(host.data(), device.data(), device.bytes(), hipMemcpyDeviceToHost), "copying back");
  }
  T* data() { return static_cast<T*>(device.data()); }

  std::vector<T> host;
  bench::DeviceBuffer device;
};

/// The tensors of a shape, and its problem over those on the device or on the host.
class Sampled {
 public:
  Sampled(const SamplingSpec& spec, const SamplingShape& s)
      : shape(s),
        x_(spec.x, s.rows, s.columns, 1, {s.columns + s.gap, 0}),
        tokens(std::vector<std::int32_t>(s.rows, unwritten_word)),
        logprobs(std::vector<float>(s.rows, __builtin_bit_cast(float, unwritten_word))),
        temperature_(of_rows(&RowSettings::temperature)),
        top_p_(of_rows(&RowSettings::top_p)),
        min_p_(of_rows(&RowSettings::min_p)),
        top_k_(of_rows(&RowSettings::top_k)),
        seed_(of_rows(&RowSettings::seed)),
        offset_(of_rows(&RowSettings::offset)) {
    x_.set(s.rows, s.columns, [&](int r, int c) { return s.value ? s.value(r, c) : s.amplitude * drawn('x', r, c); });
    problem.spec = spec;
    problem.x = x_.device();
    problem.tokens = tokens.data();
    if (s.logprobs) problem.logprobs = logprobs.data();
    problem.raw_logprobs = s.raw_logprobs;
    problem.rows = s.rows;
    problem.columns = s.columns;
    problem.row_stride = s.columns + s.gap;
    problem.seed.value = 1;
    if (!s.settings.empty()) {
      problem.temperature.data = temperature_.data();
      problem.top_p.data = top_p_.data();
      problem.min_p.data = min_p_.data();
      problem.top_k.data = top_k_.data();
      problem.seed.data = seed_.data();
      problem.offset.data = offset_.data();
    }
    on_host = problem;
    on_host.x = x_.host();
    if (!s.settings.empty()) {
      on_host.temperature.data = temperature_.host.data();
      on_host.top_p.data = top_p_.host.data();
      on_host.min_p.data = min_p_.host.data();
      on_host.top_k.data = top_k_.host.data();
    }
  }

  /// Runs the entry, or the selected one if null; what is wrong with its answers.
  std::string run(const SamplingEntry* entry, const ArchFacts& facts) {
    if (shape.workspace) give_workspace(facts);
    if (entry == nullptr) {
      if (!sampling_select(problem, all_sampling_entries(), facts, entry).ok()) return "no entry selected";
    }
    const Status status = entry->launch(problem, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    tokens.download();
    logprobs.download();
    return "";
  }
  void give_workspace(const ArchFacts& facts) {
    problem.workspace_bytes = sampling_workspace_size(problem, facts);
    workspace_ = std::make_unique<bench::DeviceBuffer>(static_cast<std::size_t>(problem.workspace_bytes));
    if (problem.workspace_bytes > 0) workspace_->fill(unread_byte);
    problem.workspace = problem.workspace_bytes > 0 ? workspace_->data() : nullptr;
  }
  /// Tokens that the filters exclude, log probabilities that are off, of any row.
  std::string wrong() const {
    for (std::int32_t r = 0; r < shape.rows; ++r) {
      const reference::SampledRow wanted = reference::sampled_row(on_host, r, 1e-6);
      const std::int32_t token = tokens.host[r];
      const auto what = [&](const std::string& of, double got) {
        return "row " + std::to_string(r) + ": " + of + " " + std::to_string(got);
      };
      const bool none = *std::max_element(wanted.probabilities.begin(), wanted.probabilities.end()) == 0;
      if (none ? token != -1 : token < 0 || token >= shape.columns) return what("token", token);
      if (!none && !(wanted.probabilities[token] > 0)) return what("excluded token", token);
      if (!shape.logprobs) continue;
      const double want = none ? -std::numeric_limits<double>::infinity() : wanted.logprobs[token];
      const double got = logprobs.host[r];
      if (!(got == want || std::abs(got - want) <= 2e-5 + 1e-6 * std::abs(want)))
        return what("log probability", got) + ", not " + std::to_string(want);
    }
    return "";
  }

  SamplingShape shape;

 private:
  Tensor x_;

 public:
  DeviceArray<std::int32_t> tokens;
  DeviceArray<float> logprobs;
  SamplingProblem problem, on_host;

 private:
  template <class T>
  std::vector<T> of_rows(T RowSettings::*member) const {
    std::vector<T> values;
    for (std::int32_t r = 0; r < (shape.settings.empty() ? 0 : shape.rows); ++r)
      values.push_back(shape.settings[r % shape.settings.size()].*member);
    return values;
  }
  DeviceArray<float> temperature_, top_p_, min_p_;
  DeviceArray<std::int32_t> top_k_;
  DeviceArray<std::uint64_t> seed_, offset_;
  std::unique_ptr<bench::DeviceBuffer> workspace_;
};

}  // namespace tilewave::test
