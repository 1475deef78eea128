// SPDX-License-Identifier: MIT
// Compiled device code: what a file holds, and what each kernel says it needs. Formats: LLVM, "User Guide for AMDGPU Backend"
// (code object v5, kernel descriptor), "Clang Offload Bundler"; NVIDIA, "CUDA Binary Utilities", and what nvdisasm says of the
// sections of a cubin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

/// The resources that a kernel reserves, as the code object states them.
struct KernelNeeds {
  std::string symbol;                   // mangled
  int vgprs = 0, agprs = 0, sgprs = 0;  // of a lane and of a wave; sm90 has neither AGPRs nor SGPRs
  int allocated = 0;                    // registers of a lane, rounded as the hardware reserves them
  int lds_bytes = 0;                    // of a block, what a launch adds left out
  int scratch_bytes = 0;                // of a lane
  bool dynamic_stack = false;           // scratch of a size that only runs tell
  int vgpr_spills = 0, sgpr_spills = 0;
  int block_lanes = 0;  // largest block; 0: not stated
  std::uint64_t address = 0, code_bytes = 0;

  int spills() const { return vgpr_spills + sgpr_spills; }
};

/// One code object for one chip.
struct DeviceCode {
  std::string file, arch, image, compiler;
  std::vector<KernelNeeds> kernels;
};

/// Returns the code for gfx942, gfx950 and sm90 in a code object, a cubin, an offload bundle, or a program that holds
/// bundles. Refuses anything else, naming the source.
std::vector<DeviceCode> parse_binary(std::string_view bytes, const std::string& source);

/// Readable, without parameters; what is not mangled stays.
std::string demangled(const std::string& symbol);

}  // namespace tilewave::tool
