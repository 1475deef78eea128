// SPDX-License-Identifier: MIT
#include "tools/tilewave/gpu/devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

std::string why_busy(const Gpu& gpu) {
  if (!gpu.processes.empty())
    return fmt::format("process {} ({})", gpu.processes[0].pid, printable(gpu.processes[0].name));
  if (!gpu.used_bytes || !gpu.total_bytes || !(*gpu.total_bytes > 0)) return "its memory use is not known";
  const double share = *gpu.used_bytes / *gpu.total_bytes;
  if (share > 0.05) return fmt::format("{:.0f} % of its memory is in use", share * 100);
  if (!gpu.use_pct && !gpu.memory_pct) return "its use is not known";
  const double use = gpu.use_pct.value_or(0), memory = gpu.memory_pct.value_or(use);
  if (std::min(use, memory) > 5) return fmt::format("{:.0f} % busy", use);
  if (use > 5 && !gpu.memory_pct) return fmt::format("{:.0f} % busy", use);
  return "";
}

namespace {

/// The words of a variable; nothing if it is not set.
std::optional<std::vector<std::string>> words_of(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return std::nullopt;
  return split(value, ',');
}

bool on_rocr(const GpuList& list) { return list.variable == "HIP_VISIBLE_DEVICES"; }

/// Indices of the GPUs that ROCR_VISIBLE_DEVICES leaves, in its order, which is HIP's; all where it is not set. As the
/// runtime does, nothing is taken behind a word that names no GPU.
std::vector<std::string> visible_to_hip(const GpuList& list) {
  std::vector<std::string> visible;
  const auto words = words_of("ROCR_VISIBLE_DEVICES");
  if (!words) {
    for (const Gpu& gpu : list.gpus) visible.push_back(std::to_string(gpu.index));
    return visible;
  }
  for (const std::string& word : *words) {
    const auto gpu = std::find_if(list.gpus.begin(), list.gpus.end(), [&](const Gpu& g) {
      return std::to_string(g.index) == word || (!g.uuid.empty() && lower(g.uuid) == lower(word));
    });
    if (gpu == list.gpus.end()) break;
    visible.push_back(std::to_string(gpu->index));
  }
  return visible;
}

}  // namespace

std::vector<std::string> allowed_gpus(const GpuList& list) {
  const auto words = words_of(list.variable.c_str());
  if (!on_rocr(list)) return words.value_or(std::vector<std::string>{});
  if (!words && !words_of("ROCR_VISIBLE_DEVICES")) return {};
  const auto visible = visible_to_hip(list);
  std::vector<std::string> allowed;
  for (const std::string& word : words.value_or(std::vector<std::string>{})) {
    const auto index = integer(word);
    if (index && *index >= 0 && *index < static_cast<std::int64_t>(visible.size())) {
      allowed.push_back(visible[static_cast<std::size_t>(*index)]);
    } else if (const auto gpu = std::find_if(list.gpus.begin(), list.gpus.end(),
                                             [&](const Gpu& g) { return !g.uuid.empty() && g.uuid == word; });
               gpu != list.gpus.end() && contains(visible, std::to_string(gpu->index))) {
      allowed.push_back(std::to_string(gpu->index));
    }
  }
  if (!words) allowed = visible;
  if (allowed.empty()) allowed.push_back("none");
  return allowed;
}

std::string bound_value(const GpuList& list, const Gpu& gpu) {
  const std::string index = std::to_string(gpu.index);
  if (!on_rocr(list) || !words_of("ROCR_VISIBLE_DEVICES")) return index;
  const auto visible = visible_to_hip(list);
  return std::to_string(std::find(visible.begin(), visible.end(), index) - visible.begin());
}

std::optional<Gpu> idlest(const GpuList& before, const GpuList& now, const std::vector<std::string>& allowed) {
  std::optional<Gpu> best;
  const auto load = [](const Gpu& g) { return *g.used_bytes / *g.total_bytes + g.use_pct.value_or(0) / 1e4; };
  for (const Gpu& gpu : now.gpus) {
    if (!allowed.empty() && !contains(allowed, std::to_string(gpu.index)) &&
        !(gpu.uuid != "" && contains(allowed, gpu.uuid)))
      continue;
    const auto earlier =
        std::find_if(before.gpus.begin(), before.gpus.end(), [&](const Gpu& g) { return g.index == gpu.index; });
    if (earlier == before.gpus.end() || !why_busy(*earlier).empty() || !why_busy(gpu).empty()) continue;
    if (*gpu.used_bytes > *earlier->used_bytes + (16 << 20)) continue;  // somebody is starting there
    if (!best || load(gpu) < load(*best)) best = gpu;
  }
  return best;
}

namespace {

/// Returns the output of a query; nothing if it fails or hangs.
std::optional<std::string> answer(const std::vector<std::string>& words) {
  ProcessOptions options;
  options.quiet = true, options.timeout_s = 60, options.max_bytes = std::size_t{1} << 24;
  const ProcessResult result = run_process(words, options);
  if (result.status != 0 || result.timed_out) return std::nullopt;
  return result.out;
}

std::optional<GpuList> ask(const std::string& tool) {
  if (tool == "amd-smi") {
    const auto metric = answer({tool, "metric", "--usage", "--mem-usage", "--json"});
    if (metric) return parse_amd_smi(*metric, answer({tool, "process", "--json"}).value_or(""));
  } else if (tool == "rocm-smi") {
    const auto json = answer(
        {tool, "--showuse", "--showmemuse", "--showmeminfo", "vram", "--showpids", "--showproductname", "--json"});
    if (json) return parse_rocm_smi(*json);
  } else {
    const auto gpus =
        answer({tool, "--query-gpu=index,uuid,name,utilization.gpu,utilization.memory,memory.used,memory.total",
                "--format=csv,noheader,nounits"});
    const auto apps = answer({tool, "--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader"});
    if (gpus && apps) return parse_nvidia_smi(*gpus, *apps);
  }
  return std::nullopt;
}

}  // namespace

GpuList ask_gpus() {
  std::string tried;
  for (const char* tool : {"amd-smi", "rocm-smi", "nvidia-smi"}) {
    if (!on_path(tool)) continue;
    try {
      if (const auto list = ask(tool)) return *list;
      tried += fmt::format("; {} failed", tool);
    } catch (const Error& error) {
      tried += fmt::format("; {}", error.what());
    }
  }
  throw Error(Exit::no_gpu, tried.empty() ? "no GPU: no amd-smi, rocm-smi or nvidia-smi on PATH" : "no GPU" + tried);
}

}  // namespace tilewave::tool
