// SPDX-License-Identifier: MIT
// The number of registers that a kernel of CDNA reserves, where the profiler reports too few.
#pragma once

#include <string>
#include <vector>

#include "tools/tilewave/isa/binary.hpp"
#include "tools/tilewave/trace/kernel_times.hpp"
#include "tools/tilewave/trace/thread_trace.hpp"

namespace tilewave::tool {

/// The highest that instructions name, plus one: what a kernel reserves is as much, or more.
struct UsedRegisters {
  int vgprs = 0, agprs = 0;
  /// Returns the registers of a lane, as CDNA3 and CDNA4 reserve them: AGPRs begin at a multiple of 4, and the sum is a
  /// multiple of 8.
  int reserved() const;
};
UsedRegisters registers_of(const ThreadTrace& trace);

/// A name as readers know it: demangled, without parameters, ".kd" and the like.
std::string plain_kernel_name(std::string name);

/// rocprofv3 up to 1.1.0 takes gfx950 for an older chip (ROCm/rocm-systems pull request 5862): VGPR_Count is half of what a lane
/// reserves and Accum_VGPR_Count 0. The code beside it knows better; without it, a sum that is no multiple of 8 gives all
/// kernels of that profiler away, and an AGPR anywhere clears it. Where nothing tells, registers_halved is set.
void correct_registers(std::vector<KernelTime>& kernels, const std::vector<ThreadTrace>& traces,
                       const std::vector<DeviceCode>& objects);

}  // namespace tilewave::tool
