// SPDX-License-Identifier: MIT
// --export-bundle: one row of a benchmark as files that others can run: its launches as machine code of an AMD chip, its
// tensors, and what they hold afterwards. docs/reference/bundle.md is the format.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "bench/harness/device.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave::bench {

/// Of this process.
struct BundleRequest {
  std::string directory;                // "": none is asked for
  std::string config, policy, problem;  // of the row: its name, its entry, its identity as JSON

  bool on() const { return !directory.empty(); }
};
inline BundleRequest bundle_request;

/// Runs the call on the emulated device and writes the bundle. The elements of `outputs` are compared by who reads it; what
/// else the launches write is scratch. Throws if the call answers with a bad Status, launches nothing, or a kernel does not
/// compile for the chip. Programs linked with launch_bundle.cpp have it.
using BundleExport = void (*)(const BundleRequest&, ArchId arch, const std::function<Status()>& call,
                              std::span<const TwinBuffer* const> outputs);
inline BundleExport export_launches = nullptr;

/// Why there can be no bundle, "" if there can.
inline std::string_view bundle_refusal(ArchId arch) {
  if (arch == ArchId::sm90) return "bundles hold AMD code objects: use --arch=gfx942 or gfx950";
  if (export_launches == nullptr) return "--export-bundle needs a build of the host preset with clang and llvm-objdump";
  return "";
}

}  // namespace tilewave::bench
