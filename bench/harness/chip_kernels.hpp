// SPDX-License-Identifier: MIT
// The emulated room's kernels as machine code of an AMD chip.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <typeinfo>

#include "sim/machine/machine.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/launch.hpp"

namespace tilewave::bench {

/// Kernels of an AMD room by their types, compiled when they are first asked for. Code objects lie in the build folder by
/// what they were made of: the type, and every header it may include. Members throw std::runtime_error with the reason.
class ChipKernels {
 public:
  /// `options`: of the compiler, besides those of every code object.
  explicit ChipKernels(ArchId arch, const std::string& options = "");

  /// `type` is a kernel of the emulated room. A code object holds one kernel.
  std::filesystem::path file_of(const std::type_info& type);
  const tilewave::sim::CodeObject& object_of(const std::type_info& type);

 private:
  std::filesystem::path headers();
  void compile(const std::filesystem::path& file, const std::string& text, const std::string& options) const;

  std::string arch_, command_;
  std::filesystem::path folder_;
  std::map<std::string, tilewave::sim::CodeObject> objects_;  // by file
};

/// The kernel argument segment of a launch that was seen: its arguments with the addresses they have here, and hidden ones.
tilewave::sim::Launch chip_launch(const tilewave::sim::CodeObject& object, const host::SeenLaunch& seen);

}  // namespace tilewave::bench
