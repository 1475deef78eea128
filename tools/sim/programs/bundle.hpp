// SPDX-License-Identifier: MIT
// Runs a repro bundle (schema tilewave-bundle/1, docs/reference/bundle.md): maps its buffers, patches the pointers into each
// launch's kernel arguments, executes the launches in order and compares the outputs.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "sim/machine/machine.hpp"

namespace tilewave::sim {

nlohmann::ordered_json to_json(const Counts& counts);

struct LaunchReport {
  std::string name, kernel;
  Counts counts;
  double seconds = 0;  // of simulation
};

struct OutputReport {
  std::string file;
  std::uint64_t elements = 0;
  std::uint64_t outside = 0;       // elements beyond atol + rtol * |expected|
  std::uint64_t rows_outside = 0;  // rows (last dimension) whose l2 error is beyond row_rtol of the row's norm
  double max_abs_err = 0;          // inf if something is not a number
  double max_row_err = 0;          // l2 norm of a row's error / l2 norm of the row
  std::string first;               // the first finding, empty if there is none
};

struct BundleReport {
  std::string arch;
  std::vector<LaunchReport> launches;
  std::vector<OutputReport> outputs;

  bool pass() const;
  nlohmann::ordered_json to_json() const;
};

/// Code objects that were disassembled, by their bytes: for who runs many bundles of the same kernels.
using LoadedObjects = std::map<std::vector<std::uint8_t>, CodeObject>;

struct BundleOptions {
  std::string objdump;
  std::string write_outputs;  // directory for what the kernels wrote, empty for nowhere
  MachineOptions machine;
  LoadedObjects* loaded = nullptr;  // to be kept from bundle to bundle; a few are
};

/// Throws Error with one line: a bad bundle, or the instruction that went wrong and why.
BundleReport run_bundle(const std::string& directory, const BundleOptions& options);

}  // namespace tilewave::sim
