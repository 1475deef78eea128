// SPDX-License-Identifier: MIT
// GPUs of this host, as amd-smi, rocm-smi or nvidia-smi tell.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

struct GpuProcess {
  std::int64_t pid = 0;
  std::string name;
};

struct Gpu {
  int index = 0;
  std::string uuid, name;
  std::optional<double> use_pct, memory_pct;      // busy time of the compute units; of the memory controller
  std::optional<double> used_bytes, total_bytes;  // of its memory
  std::vector<GpuProcess> processes;
};

struct GpuList {
  std::string tool, variable;  // "rocm-smi", "HIP_VISIBLE_DEVICES"
  std::vector<Gpu> gpus;
  std::vector<GpuProcess> somewhere;  // rocm-smi does not tell on which GPU a process is
};

// Each refuses what is not the tool's output, or names no GPU; what a tool does not know (N/A) is nothing, never 0.
GpuList parse_nvidia_smi(std::string_view gpus, std::string_view apps);
GpuList parse_rocm_smi(std::string_view json);
GpuList parse_amd_smi(std::string_view metric, std::string_view process);

/// Asks the first of the three that is on PATH and knows a GPU. Throws Exit::no_gpu if none does.
GpuList ask_gpus();

/// Why a GPU is not idle; empty if it is: no process, compute units idle (or its memory is, since some firmware shows them
/// busy for ever), less than a twentieth of its memory in use. What is not known counts as not idle, but for one of the
/// two kinds of use.
std::string why_busy(const Gpu& gpu);

/// The idlest of those that are idle in both lists, taken some time apart, without growing in between; or nothing.
std::optional<Gpu> idlest(const GpuList& before, const GpuList& now, const std::vector<std::string>& allowed);

/// Returns the GPUs that the visibility variables of this environment allow (indices or UUIDs); nothing means all. On
/// AMD ROCR_VISIBLE_DEVICES hides GPUs from HIP and renumbers the others, and HIP_VISIBLE_DEVICES counts in those
/// numbers.
std::vector<std::string> allowed_gpus(const GpuList& list);

/// The GPU as the variable has to name it: its index, or its place among those that ROCR_VISIBLE_DEVICES leaves.
std::string bound_value(const GpuList& list, const Gpu& gpu);

}  // namespace tilewave::tool
