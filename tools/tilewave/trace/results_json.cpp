// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <cmath>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/trace/dispatches.hpp"

namespace tilewave::tool {

namespace {

/// The records of one process.
class Process {
 public:
  Process(const Json& tool, const std::string& source, Recording& to) : tool_(tool), source_(source), to_(to) {
    id_ = std::to_string(integer_member(member(tool, "metadata", source), "pid", source));
    for (const Json& symbol : list_member(tool, "kernel_symbols", source)) {
      if (symbol.contains("kernel_name") || symbol.contains("formatted_kernel_name"))
        symbols_[integer_member(symbol, "kernel_id", source)] = &symbol;
    }
    if (tool.contains("counters")) {
      for (const Json& counter : list_member(tool, "counters", source))
        counters_[handle(counter, "id")] = text_member(counter, "name", source);
    }
  }

  void read() {
    const Json& buffers = member(tool_, "buffer_records", source_);
    if (buffers.contains("kernel_dispatch")) {
      for (const Json& record : list_member(buffers, "kernel_dispatch", source_)) add_dispatch(record);
    }
    if (!tool_.contains("callback_records")) return;
    const Json& callbacks = tool_.at("callback_records");
    if (!callbacks.is_object() || !callbacks.contains("counter_collection")) return;
    for (const Json& record : list_member(callbacks, "counter_collection", source_)) add_counters(record);
  }

 private:
  std::int64_t handle(const Json& json, const char* key) const {
    const Json& handle = member(member(json, key, source_), "handle", source_);
    // Handles are addresses or larger: only told apart, never counted with.
    if (!handle.is_number_integer()) refuse(fmt::format("{}: the handle of '{}' is no integer", source_, key));
    return handle.get<std::int64_t>();
  }
  double count(const Json& json, const char* key) const {
    const std::int64_t value = integer_member(json, key, source_);
    if (value < 0 || value > std::int64_t{1} << 40) refuse(fmt::format("{}: {} is {}", source_, key, value));
    return static_cast<double>(value);
  }
  double product(const Json& info, const char* key) const {
    const Json& size = member(info, key, source_);
    return count(size, "x") * count(size, "y") * count(size, "z");
  }
  const Json& symbol_of(const Json& info) const {
    const auto found = symbols_.find(integer_member(info, "kernel_id", source_));
    if (found == symbols_.end()) refuse(source_ + ": a kernel_id that is none of its kernel_symbols");
    return *found->second;
  }
  std::string name_of(const Json& symbol) const {
    for (const char* key : {"formatted_kernel_name", "kernel_name"}) {
      if (symbol.contains(key) && symbol.at(key).is_string() && !symbol.at(key).get_ref<const std::string&>().empty())
        return symbol.at(key).get<std::string>();
    }
    refuse(source_ + ": a kernel without a name");
  }

  void add_dispatch(const Json& record) {
    const Json& info = member(record, "dispatch_info", source_);
    const Json& symbol = symbol_of(info);
    Dispatch d;
    d.kernel = name_of(symbol);
    d.begin_ns = integer_member(record, "start_timestamp", source_);
    d.end_ns = integer_member(record, "end_timestamp", source_);
    if (d.begin_ns < 0 || d.end_ns < d.begin_ns) refuse(source_ + ": timestamps that are no interval");
    d.queue = fmt::format("{}/{}/{}", id_, handle(info, "agent_id"), handle(info, "queue_id"));
    d.launch = {{"vgpr", count(symbol, "arch_vgpr_count")},
                {"accum_vgpr", count(symbol, "accum_vgpr_count")},
                {"sgpr", count(symbol, "sgpr_count")},
                {"lds_bytes", count(info, "group_segment_size")},
                {"scratch_bytes", count(info, "private_segment_size")},
                {"workgroup", product(info, "workgroup_size")},
                {"grid", product(info, "grid_size")}};
    to_.dispatches.push_back(std::move(d));
  }

  void add_counters(const Json& record) {
    const Json& info = member(member(record, "dispatch_data", source_), "dispatch_info", source_);
    CounterRow row;
    row.kernel = name_of(symbol_of(info)), row.process = id_;
    row.dispatch = std::to_string(integer_member(info, "dispatch_id", source_));
    // A counter comes once for each XCC, engine or channel that has it; CSV has the sum.
    std::map<std::string, double> sums;
    for (const Json& value : list_member(record, "records", source_)) {
      const auto counter = counters_.find(handle(value, "counter_id"));
      if (counter == counters_.end()) refuse(source_ + ": a counter_id that is none of its counters");
      const double counted = number_member(value, "value", source_);
      if (!std::isfinite(counted) || counted < 0) refuse(source_ + ": a counter below 0 or beyond all bounds");
      sums[counter->second] += counted;
    }
    for (const auto& [counter, value] : sums) {
      row.counter = counter, row.value = value;
      to_.counters.push_back(row);
    }
  }

  const Json& tool_;
  const std::string& source_;
  Recording& to_;
  std::string id_;
  std::map<std::int64_t, const Json*> symbols_;
  std::map<std::int64_t, std::string> counters_;
};

}  // namespace

Recording parse_results_json(std::string_view text, const std::string& source) {
  Recording recording;
  constexpr const char* key = "rocprofiler-sdk-tool";
  if (text.find(key) == text.npos) return recording;
  const Json json = parse_json(text, source);
  const Json& tools = member(json, key, source);
  if (!tools.is_array()) {
    Process(tools, source, recording).read();
  } else {
    for (const Json& tool : tools) Process(tool, source, recording).read();
  }
  return recording;
}

}  // namespace tilewave::tool
