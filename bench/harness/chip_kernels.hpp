// SPDX-License-Identifier: MIT
// Kernels of the emulated room as machine code of an AMD chip.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <typeinfo>

#include "sim/machine/machine.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/launch.hpp"

namespace tilewave::bench {

/// Kernels of an AMD room by their types, compiled when they are first needed. Code objects lie in the build folder
/// under a hash of their type and of every header that they may include. Members throw std::runtime_error with the
/// reason.
class ChipKernels {
 public:
  /// `options` are compiler options, besides those of every code object.
  explicit ChipKernels(ArchId arch, const std::string& options = "");

  /// Returns the code object of `type`, a kernel of the emulated room. A code object holds one kernel.
  std::filesystem::path file_of(const std::type_info& type);
  const tilewave::sim::CodeObject& object_of(const std::type_info& type);

 private:
  std::filesystem::path headers();
  void compile(const std::filesystem::path& file, const std::string& text, const std::string& options) const;

  std::string arch_, options_;
  std::filesystem::path headers_folder_, folder_;  // whatever the options are, headers are precompiled without them
  std::map<std::string, tilewave::sim::CodeObject> objects_;  // by file name
};

/// Returns the kernel argument segment of a launch that was seen: its arguments with the addresses that they have here,
/// and the hidden ones.
tilewave::sim::Launch chip_launch(const tilewave::sim::CodeObject& object, const host::SeenLaunch& seen);

}  // namespace tilewave::bench
