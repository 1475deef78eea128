// SPDX-License-Identifier: MIT
// Parses the output of the three tools.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/gpu/devices.hpp"

namespace tilewave::tool {

namespace {

/// A share or an amount; nothing for N/A and the like, or what cannot be.
std::optional<double> amount(std::string_view word, double scale = 1) {
  const auto value = number(word);
  if (!value || !std::isfinite(*value) || *value < 0) return std::nullopt;
  return *value * scale;
}

int gpu_index(std::optional<std::int64_t> value, const std::string& source) {
  if (!value || *value < 0 || *value > 4096) refuse(source + ": a GPU without an index");
  return static_cast<int>(*value);
}

void check(const GpuList& list) {
  if (list.gpus.empty()) refuse(list.tool + " names no GPU");
  for (std::size_t i = 0; i < list.gpus.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (list.gpus[i].index == list.gpus[j].index)
        refuse(fmt::format("{}: GPU {} comes twice", list.tool, list.gpus[i].index));
    }
  }
}

double bytes_of_unit(const std::string& unit) {
  return unit == "B" ? 1 : unit == "KB" ? 1024 : unit == "GB" ? double(1 << 30) : double(1 << 20);
}

/// amd-smi: {"value": 3, "unit": "%"}, or 3, or "3", or "N/A".
std::optional<double> leaf(const Json& object, const char* key, bool bytes) {
  if (!object.is_object() || !object.contains(key)) return std::nullopt;
  const Json* value = &object.at(key);
  double scale = bytes ? double(1 << 20) : 1;
  if (value->is_object()) {
    if (bytes && value->contains("unit") && value->at("unit").is_string())
      scale = bytes_of_unit(value->at("unit").get<std::string>());
    if (!value->contains("value")) return std::nullopt;
    value = &value->at("value");
  }
  if (value->is_string()) return amount(value->get<std::string>(), scale);
  if (!value->is_number() || !(value->get<double>() >= 0)) return std::nullopt;
  return value->get<double>() * scale;
}

/// A partition tells its use by parts, {"gfx_busy_inst": {"xcp_0": [{"value": 3, "unit": "%"}, "N/A"]}}: the busiest of those known.
std::optional<double> busiest_part(const Json& usage) {
  std::optional<double> most;
  if (!usage.is_object() || !usage.contains("gfx_busy_inst") || !usage.at("gfx_busy_inst").is_object()) return most;
  for (const auto& [partition, parts] : usage.at("gfx_busy_inst").items()) {
    if (!partition.starts_with("xcp_") || !parts.is_array()) continue;
    for (const Json& part : parts) {
      const auto use = leaf(Json{{"part", part}}, "part", false);
      if (use && (!most || *use > *most)) most = use;
    }
  }
  return most;
}

std::string text_of(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object.at(key).is_string() ? object.at(key).get<std::string>()
                                                                                  : "";
}

/// A list, or the list in {"gpu_data": [...]}.
const Json& gpu_data(const Json& json, const std::string& source) {
  if (json.is_array()) return json;
  return list_member(json, "gpu_data", source);
}

}  // namespace

GpuList parse_nvidia_smi(std::string_view gpus, std::string_view apps) {
  GpuList list{"nvidia-smi", "CUDA_VISIBLE_DEVICES", {}, {}};
  for (const std::string& line : lines_of(gpus)) {
    if (trim(line).empty()) continue;
    const auto cells = split(line, ',');
    if (cells.size() != 7) refuse(fmt::format("nvidia-smi: '{}' has {} fields, not 7", printable(line), cells.size()));
    Gpu gpu;
    gpu.index = gpu_index(integer(cells[0]), "nvidia-smi");
    gpu.uuid = cells[1], gpu.name = cells[2];
    gpu.use_pct = amount(cells[3]), gpu.memory_pct = amount(cells[4]);
    gpu.used_bytes = amount(cells[5], 1 << 20), gpu.total_bytes = amount(cells[6], 1 << 20);
    list.gpus.push_back(gpu);
  }
  check(list);
  for (const std::string& line : lines_of(apps)) {
    if (trim(line).empty()) continue;
    const auto cells = split(line, ',');
    const auto pid = cells.size() >= 2 ? integer(cells[1]) : std::nullopt;
    const auto gpu = std::find_if(list.gpus.begin(), list.gpus.end(), [&](const Gpu& g) { return g.uuid == cells[0]; });
    if (!pid || gpu == list.gpus.end())
      refuse(fmt::format("nvidia-smi: '{}' is no process on one of its GPUs", printable(line)));
    gpu->processes.push_back({*pid, cells.size() > 2 ? cells[2] : ""});
  }
  return list;
}

GpuList parse_rocm_smi(std::string_view text) {
  GpuList list{"rocm-smi", "HIP_VISIBLE_DEVICES", {}, {}};
  const Json json = parse_json_in_talk(text, "rocm-smi");
  if (!json.is_object()) refuse("rocm-smi: no object of cards");
  for (const auto& [key, card] : json.items()) {
    if (key.starts_with("card")) {
      Gpu gpu;
      gpu.index = gpu_index(integer(key.substr(4)), "rocm-smi");
      gpu.name = text_of(card, "Card Series");
      gpu.use_pct = amount(text_of(card, "GPU use (%)"));
      gpu.memory_pct = amount(text_of(card, "GPU Memory Read/Write Activity (%)"));
      gpu.used_bytes = amount(text_of(card, "VRAM Total Used Memory (B)"));
      gpu.total_bytes = amount(text_of(card, "VRAM Total Memory (B)"));
      list.gpus.push_back(gpu);
    } else if (key == "system" && card.is_object()) {
      for (const auto& [pid, about] : card.items()) {
        const auto id = pid.starts_with("PID") ? integer(pid.substr(3)) : std::nullopt;
        if (id && about.is_string()) list.somewhere.push_back({*id, split(about.get<std::string>(), ',').front()});
      }
    }
  }
  check(list);
  if (list.gpus.size() == 1) list.gpus[0].processes = list.somewhere, list.somewhere.clear();
  return list;
}

GpuList parse_amd_smi(std::string_view metric, std::string_view process) {
  GpuList list{"amd-smi", "HIP_VISIBLE_DEVICES", {}, {}};
  const Json metrics = parse_json_in_talk(metric, "amd-smi metric");
  for (const Json& card : gpu_data(metrics, "amd-smi metric")) {
    Gpu gpu;
    gpu.index = gpu_index(integer_member(card, "gpu", "amd-smi metric"), "amd-smi metric");
    const Json usage = card.contains("usage") ? card.at("usage") : Json();
    const Json memory = card.contains("mem_usage") ? card.at("mem_usage") : Json();
    gpu.use_pct = leaf(usage, "gfx_activity", false);
    if (!gpu.use_pct) gpu.use_pct = busiest_part(usage);
    gpu.memory_pct = leaf(usage, "umc_activity", false);
    gpu.used_bytes = leaf(memory, "used_vram", true), gpu.total_bytes = leaf(memory, "total_vram", true);
    list.gpus.push_back(gpu);
  }
  check(list);
  if (trim(process).empty()) return list;  // amd-smi process wants rights that not everybody has
  const Json processes = parse_json_in_talk(process, "amd-smi process");
  for (const Json& card : gpu_data(processes, "amd-smi process")) {
    const int index = gpu_index(integer_member(card, "gpu", "amd-smi process"), "amd-smi process");
    const auto gpu = std::find_if(list.gpus.begin(), list.gpus.end(), [&](const Gpu& g) { return g.index == index; });
    if (gpu == list.gpus.end()) refuse(fmt::format("amd-smi process: no GPU {}", index));
    if (!card.contains("process_list") || !card.at("process_list").is_array())
      continue;  // "No running processes detected"
    for (const Json& entry : card.at("process_list")) {
      const Json& about = entry.is_object() && entry.contains("process_info") ? entry.at("process_info") : entry;
      if (!about.is_object() || !about.contains("pid") || !about.at("pid").is_number_integer()) continue;
      gpu->processes.push_back({about.at("pid").get<std::int64_t>(), text_of(about, "name")});
    }
  }
  return list;
}

}  // namespace tilewave::tool
