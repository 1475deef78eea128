// SPDX-License-Identifier: MIT
// The time that a chip allows an op, and how far measured rows are from it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tilewave/common/csv.hpp"
#include "tools/tilewave/compare/columns.hpp"
#include "tools/tilewave/specs/chips.hpp"

namespace tilewave::tool {

struct Work {
  double flops = 0, bytes = 0;
  std::string how;  // the sum that bytes are, in words
};

/// Returns the work of one call from "batch=64,context=8192,...": flops and bytes as the op's benchmark counts them.
/// Refuses an unknown op, key or type, and a shape that lacks one.
Work work_of(std::string_view op, std::string_view shape);
/// Their names; or a line for each, with the keys of its shape.
std::string known_ops(bool shapes);

struct Roof {
  std::string chip, peak_key;  // bf16_flops or fp8_flops
  double flops_per_s = 0, bytes_per_s = 0;
  std::string flops_source, bytes_source;  // "docs/reference/hardware/MI350X.md:27"
  bool measured = false;                   // bytes_per_s is a measured ceiling, not the data sheet's
  double ridge() const { return flops_per_s / bytes_per_s; }
  double floor_us(const Work& work) const;
  bool memory_bound(const Work& work) const { return work.flops < work.bytes * ridge(); }
};

/// peak: bf16 or fp8. A measured ceiling is preferred to the data sheet's.
Roof roof_of(const Chip& chip, std::string_view peak);

/// Returns the named chip, or for a named architecture the chip that the rows name (in model_chip for modelled times,
/// else in device). Refuses (Exit::refused) rows of another chip: an MI355X never stands in for an MI350X.
const Chip& chip_of_rows(const std::vector<Chip>& chips, const std::string& named, const Csv& rows,
                         const std::string& metric);

struct Point {
  std::string name, group;
  Work work;
  double us = 0;
  Cycles cycles{};  // of a modelled time
};

/// Rows that have flops, bytes_ideal and a time in column `metric`; refuses a CSV without any such row. Untimed rows
/// (emulated) are counted.
std::vector<Point> points_of(const Csv& csv, const std::vector<std::string>& by, std::size_t& untimed,
                             const std::string& metric = "us");

/// A log-log picture of the roofs and the points, each with its name on hovering; copies, of no operation, have no place.
std::string roofline_svg(const Roof& roof, const std::vector<Point>& points);

}  // namespace tilewave::tool
