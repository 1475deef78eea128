// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/gpu/wait.hpp"

namespace tilewave::tool {

namespace {

std::string shown(const std::optional<double>& value, double scale, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value / scale) : "unknown";
}
Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json json_of(const std::vector<GpuProcess>& processes) {
  Json list = Json::array();
  for (const GpuProcess& p : processes) list.push_back({{"pid", p.pid}, {"name", p.name}});
  return list;
}

int list_gpus(bool json) {
  const GpuList list = ask_gpus();
  const auto best = idlest(list, list, allowed_gpus(list));
  std::vector<std::vector<std::string>> table{{"GPU", "name", "use", "memory", "processes", "idle"}};
  Json gpus = Json::array();
  for (const Gpu& g : list.gpus) {
    const std::string busy = why_busy(g);
    std::vector<std::string> pids;
    for (const GpuProcess& p : g.processes) pids.push_back(fmt::format("{} {}", p.pid, printable(p.name)));
    table.push_back({std::to_string(g.index), printable(g.name), shown(g.use_pct, 1, "{:.0f} %"),
                     shown(g.used_bytes, 1 << 30, "{:.1f}") + " of " + shown(g.total_bytes, 1 << 30, "{:.0f} GiB"),
                     join(pids, ", "),
                     best && best->index == g.index ? "yes, the idlest"
                     : busy.empty()                 ? "yes"
                                                    : "no: " + busy});
    gpus.push_back({{"index", g.index},
                    {"uuid", g.uuid},
                    {"name", g.name},
                    {"use_pct", json_of(g.use_pct)},
                    {"memory_pct", json_of(g.memory_pct)},
                    {"used_bytes", json_of(g.used_bytes)},
                    {"total_bytes", json_of(g.total_bytes)},
                    {"processes", json_of(g.processes)},
                    {"idle", busy.empty()},
                    {"why", busy}});
  }
  if (json) {
    fmt::print("{}", dump({{"schema", "tilewave.gpu/1"},
                           {"tool", list.tool},
                           {"gpus", gpus},
                           {"processes_somewhere", json_of(list.somewhere)},
                           {"idlest", best ? Json(best->index) : Json()}}));
  } else {
    fmt::print("{}", text_table(table));
    if (!list.somewhere.empty())
      fmt::print("{} processes use some of them; {} does not tell which\n", list.somewhere.size(), list.tool);
  }
  return 0;
}

int wait_and_run(const GpuWait& wait, const std::vector<std::string>& words) {
  const BoundGpu bound = wait_for_gpu(wait);
  fmt::print(stderr, "tilewave: {}={}\n", bound.variable, bound.value);
  ::setenv(bound.variable.c_str(), bound.value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());  // its exit status is ours, and the lock is its
  throw Error(Exit::failed, fmt::format("cannot run {}: {}", words[0], std::strerror(errno)));
}

struct Options {
  bool json = false;
  std::string retry = "10m", limit = "1h", gap = "1s";
  std::vector<std::string> command;
};

}  // namespace

void add_gpu(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command gpu =
      tilewave.add("gpu", "GPUs of this host by amd-smi, rocm-smi or nvidia-smi, and waiting for an idle one");
  gpu.flag("--json", o->json, "the list as JSON");
  gpu.example("  tilewave gpu\n  tilewave gpu wait --retry 10m --limit 1h -- bench_pa --benchmark_format=csv");
  Command wait = gpu.add(
      "wait",
      "run a command on an idle GPU, bound by HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES; exit status 20 if none became idle");
  wait.option("--retry", o->retry, "time between tries (default: 10m)");
  wait.option("--limit", o->limit, "give up after this (default: 1h)");
  wait.option("--gap", o->gap, "time between the two looks of a try (default: 1s)");
  wait.option("COMMAND", o->command, "after --").required();
  wait.example("  tilewave gpu wait --retry 10m --limit 1h -- bench_pa --benchmark_format=csv >out.csv");
  wait.run([o] { return wait_and_run({seconds_of(o->retry), seconds_of(o->limit), seconds_of(o->gap)}, o->command); });
  gpu.run_alone([o] { return list_gpus(o->json); });
}

}  // namespace tilewave::tool
