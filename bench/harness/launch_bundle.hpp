// SPDX-License-Identifier: MIT
// --export-bundle writes one row of a benchmark as files that others can run: its launches as machine code of an AMD
// chip, its tensors, and their contents afterwards. docs/reference/bundle.md describes the format.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "bench/harness/device.hpp"
#include "tilewave/core/status.hpp"

namespace tilewave::bench {

/// The request of this process.
struct BundleRequest {
  std::string directory;                // "": no bundle is requested
  std::string config, policy, problem;  // the row's name, its entry, and its identity as JSON

  bool on() const { return !directory.empty(); }
};
inline BundleRequest bundle_request;

/// Runs the call on the emulated device and writes the bundle. Readers compare the elements of `outputs`; everything
/// else that the launches write is scratch. Throws if the call returns a bad Status, launches nothing, or a kernel does
/// not compile for the chip. Programs linked with launch_bundle.cpp have it.
using BundleExport = void (*)(const BundleRequest&, ArchId arch, const std::function<Status()>& call,
                              std::span<const TwinBuffer* const> outputs);
inline BundleExport export_launches = nullptr;

/// Returns the reason why there can be no bundle, or "" if there can be one.
inline std::string_view bundle_refusal(ArchId arch) {
  if (arch == ArchId::sm90) return "bundles hold AMD code objects: use --arch=gfx942 or gfx950";
  if (export_launches == nullptr) return "--export-bundle needs a build of the host preset with clang and llvm-objdump";
  return "";
}

}  // namespace tilewave::bench
