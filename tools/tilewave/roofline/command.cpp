// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/roofline/roofline.hpp"

namespace tilewave::tool {

namespace {

struct Options {
  std::string op, shape, arch, peak = "bf16", csv, by, svg, folder, time = "us";
  bool json = false;
};

constexpr double target = 0.9;  // of the roof: what the documents aim at

Json json_of(const Roof& roof) {
  return {{"chip", roof.chip},
          {"peak", roof.peak_key},
          {"flops_per_s", roof.flops_per_s},
          {"flops_source", roof.flops_source},
          {"bytes_per_s", roof.bytes_per_s},
          {"bytes_source", roof.bytes_source},
          {"bytes_measured", roof.measured},
          {"ridge", roof.ridge()}};
}

std::string head(const Roof& roof) {
  return fmt::format("{}\nmemory: {} TB/s ({}) <- {}\n{}: {} TFLOP/s <- {}\nridge: {:.1f} FLOP/B\n", roof.chip,
                     roof.bytes_per_s * 1e-12, roof.measured ? "measured" : "data sheet", roof.bytes_source,
                     roof.peak_key, roof.flops_per_s * 1e-12, roof.flops_source, roof.ridge());
}

int of_op(const Options& o, const Roof& roof) {
  const Work work = work_of(o.op, o.shape);
  const double floor = roof.floor_us(work);
  const bool memory = roof.memory_bound(work);
  const double wanted = target * (memory ? roof.bytes_per_s : roof.flops_per_s) * 1e-12;
  if (o.json) {
    fmt::print("{}", dump({{"schema", "tilewave.roofline/1"},
                           {"op", o.op},
                           {"shape", o.shape},
                           {"roof", json_of(roof)},
                           {"flops", work.flops},
                           {"bytes", work.bytes},
                           {"bytes_are", work.how},
                           {"intensity", work.flops / work.bytes},
                           {"bound", memory ? "memory" : "compute"},
                           {"floor_us", floor},
                           {"target_us", floor / target},
                           {"target_rate", wanted},
                           {"target_unit", memory ? "TB/s" : "TFLOP/s"}}));
  } else {
    fmt::print(
        "{}{} {}\nFLOPs: {:.6g}\nbytes: {:.6g} ({})\nintensity: {:.3f} FLOP/B\nbound: {}\nfloor: {:.3f} us\n"
        "target: {:.0f} % = {:.4g} {}, {:.3f} us\n",
        head(roof), o.op, o.shape, work.flops, work.bytes, work.how, work.flops / work.bytes,
        memory ? "memory" : "compute", floor, target * 100, wanted, memory ? "TB/s" : "TFLOP/s", floor / target);
  }
  if (!o.svg.empty()) {
    Point goal{.name = "floor", .group = o.op, .work = work, .us = floor};
    write_atomically(o.svg, roofline_svg(roof, {goal}));
  }
  return 0;
}

int of_csv(const Options& o, const std::vector<Chip>& chips) {
  std::size_t untimed = 0;
  const Csv csv = read_csv(o.csv, o.time);
  const Roof roof = roof_of(chip_of_rows(chips, o.arch, csv, o.time), o.peak);
  const auto points = points_of(csv, o.by.empty() ? std::vector<std::string>{} : split(o.by, ','), untimed, o.time);
  std::vector<std::vector<std::string>> table{{"row", "FLOP/B", "bound", o.time, "floor us", "of roof"}};
  const bool cycles = std::any_of(points.begin(), points.end(), [](const Point& p) { return p.cycles.clk > 0; });
  if (cycles) table.front().insert(table.front().begin() + 4, {"model_clk", "model_mhz"});
  Json list = Json::array();
  std::size_t reached = 0;
  for (const Point& p : points) {
    const double floor = roof.floor_us(p.work), share = floor / p.us;
    const char* bound = roof.memory_bound(p.work) ? "memory" : "compute";
    reached += share >= target;
    table.push_back({p.name, fmt::format("{:.2f}", p.work.flops / p.work.bytes), bound, fmt::format("{:.3f}", p.us),
                     fmt::format("{:.3f}", floor), fmt::format("{:.1f} %", share * 100)});
    list.push_back({{"row", p.name},
                    {"class", p.group},
                    {"intensity", p.work.flops / p.work.bytes},
                    {"bound", bound},
                    {"us", p.us},
                    {"floor_us", floor},
                    {"share", share}});
    if (!cycles) continue;
    const bool known = p.cycles.clk > 0;
    table.back().insert(table.back().begin() + 4, {known ? fmt::format("{:.0f}", p.cycles.clk) : "-",
                                                   known ? fmt::format("{:.0f}", p.cycles.mhz) : "-"});
    list.back()["model_clk"] = known ? Json(p.cycles.clk) : Json();
    list.back()["model_mhz"] = known ? Json(p.cycles.mhz) : Json();
  }
  if (!o.svg.empty()) write_atomically(o.svg, roofline_svg(roof, points));
  fmt::print("{}", o.json ? dump({{"schema", "tilewave.roofline/1"},
                                  {"roof", json_of(roof)},
                                  {"time", o.time},
                                  {"untimed_rows", untimed},
                                  {"target", target},
                                  {"rows", list}})
                          : head(roof) + text_table(table) +
                                fmt::format("{} of {} rows reach {:.0f} %, {} have no time\n", reached, points.size(),
                                            target * 100, untimed));
  return 0;
}

}  // namespace

void add_roofline(Command& tilewave) {
  auto o = std::make_shared<Options>();
  Command sub = tilewave.add(
      "roofline", "FLOPs, bytes, intensity, bound, floor and the 90 % target of an op, or of the rows of a CSV");
  sub.option("--arch", o->arch,
             "gfx942, gfx950, sm90, or a chip: MI300X, MI300A, MI308X, MI325X, MI350X, MI355X, H20, H100, H200")
      .required();
  sub.option("--op", o->op, known_ops(false));
  sub.option("--shape", o->shape, "of the op, key=value,...: the keys are below");
  sub.option("--csv", o->csv, "a benchmark's CSV instead of an op: rows with flops, bytes_ideal and us");
  sub.option("--time", o->time, "column of the times (default: us); model_us: modelled ones");
  sub.option("--peak", o->peak, "which matrix peak: bf16 (default), fp8 or fp4").one_of({"bf16", "fp8", "fp4"});
  sub.option("--by", o->by, "columns whose values share a colour");
  sub.option("--svg", o->svg, "draw it into this file");
  sub.option("--hardware", o->folder, "folder to read instead of the docs/reference/hardware this was built with");
  sub.flag("--json", o->json, "the report as JSON");
  sub.example(
      "  tilewave roofline --arch gfx950 --op paged_attention --shape batch=64,context=8192,q_heads=32,kv_heads=8,kv=fp8\n"
      "  tilewave roofline --arch H200 --csv decode.csv --svg roofline.svg\n\nShapes, in [] what has a default:\n" +
      known_ops(true));
  sub.run([o] {
    if (o->op.empty() == o->csv.empty()) throw Error(Exit::usage, "roofline takes either --op with --shape or --csv");
    const auto chips = all_chips(o->folder);
    return o->csv.empty() ? of_op(*o, roof_of(chip_of(chips, o->arch), o->peak)) : of_csv(*o, chips);
  });
}

}  // namespace tilewave::tool
