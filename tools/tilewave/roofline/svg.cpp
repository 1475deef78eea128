// SPDX-License-Identifier: MIT
#include "tools/tilewave/common/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/roofline/roofline.hpp"

namespace tilewave::tool {

namespace {

constexpr double width = 860, height = 520, left = 80, right = 20, top = 40, bottom = 60;

/// A logarithmic axis over whole decades.
struct Axis {
  double low, high;  // exponents
  double from, to;   // pixels
  double at(double value) const { return from + (std::log10(value) - low) / (high - low) * (to - from); }
};

Axis axis(double least, double most, double from, double to) {
  const double low = std::floor(std::log10(least)), high = std::ceil(std::log10(most));
  return {low, high > low ? high : low + 1, from, to};
}

std::string grid(const Axis& x, const Axis& y) {
  std::string out;
  for (double e = x.low; e <= x.high; ++e) {
    const double at = x.at(std::pow(10, e));
    out += fmt::format(
        "<line class='grid' x1='{0:.1f}' y1='{1}' x2='{0:.1f}' y2='{2}'/><text x='{0:.1f}' y='{3}' text-anchor='middle'>{4:g}</text>\n",
        at, top, height - bottom, height - bottom + 18, std::pow(10, e));
  }
  for (double e = y.low; e <= y.high; ++e) {
    const double at = y.at(std::pow(10, e));
    out += fmt::format(
        "<line class='grid' x1='{1}' y1='{0:.1f}' x2='{2}' y2='{0:.1f}'/><text x='{3}' y='{4:.1f}' text-anchor='end'>{5:g}</text>\n",
        at, left, width - right, left - 6, at + 4, std::pow(10, e));
  }
  return out;
}

}  // namespace

std::string roofline_svg(const Roof& roof, const std::vector<Point>& all) {
  std::vector<Point> points = all;
  std::erase_if(points, [](const Point& p) { return p.work.flops == 0; });
  double least_x = roof.ridge() / 100, most_x = roof.ridge() * 10, least_y = roof.flops_per_s * 1e-12 / 100;
  for (const Point& p : points) {
    const double intensity = p.work.flops / p.work.bytes;
    least_x = std::min(least_x, intensity), most_x = std::max(most_x, intensity);
    least_y = std::min(least_y, p.work.flops / p.us * 1e-6);
  }
  const Axis x = axis(least_x, most_x, left, width - right);
  const Axis y = axis(least_y, roof.flops_per_s * 1e-12, height - bottom, top);
  std::string out = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' role='img' aria-label='roofline of {2}'>\n"
      "<style>text{{font:12px sans-serif;fill:#333}}.grid{{stroke:#ddd}}.roof{{stroke:#222;stroke-width:2;fill:none}}</style>\n"
      "<rect width='{0}' height='{1}' fill='white'/>\n{3}",
      width, height, escaped(roof.chip), grid(x, y));
  const double start = std::pow(10, x.low), end = std::pow(10, x.high);
  const auto roof_at = [&](double intensity) {
    return std::min(roof.flops_per_s, intensity * roof.bytes_per_s) * 1e-12;
  };
  // Below the first decade of the y axis the slanted roof is cut where it enters the picture.
  const double enter = std::max(start, std::pow(10, y.low) * 1e12 / roof.bytes_per_s);
  out +=
      fmt::format("<polyline class='roof' points='{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}'/>\n", x.at(enter),
                  y.at(roof_at(enter)), x.at(roof.ridge()), y.at(roof_at(roof.ridge())), x.at(end), y.at(roof_at(end)));
  out += fmt::format("<text x='{}' y='20'>{}: {:.3g} TB/s{}, {:.4g} TFLOP/s ({}), ridge {:.0f} FLOP/B</text>\n", left,
                     escaped(roof.chip), roof.bytes_per_s * 1e-12, roof.measured ? " measured" : " data sheet",
                     roof.flops_per_s * 1e-12, escaped(roof.peak_key), roof.ridge());
  out += fmt::format("<text x='{}' y='{}' text-anchor='middle'>FLOP per byte</text>\n", (left + width - right) / 2,
                     height - 14);
  out += fmt::format("<text transform='translate(18,{}) rotate(-90)' text-anchor='middle'>TFLOP/s</text>\n",
                     (top + height - bottom) / 2);
  std::map<std::string, std::size_t> groups;
  for (const Point& p : points) {
    const std::size_t colour = groups.try_emplace(p.group, groups.size()).first->second;
    const double intensity = p.work.flops / p.work.bytes, rate = p.work.flops / p.us * 1e-6;
    out += fmt::format(
        "<circle cx='{:.1f}' cy='{:.1f}' r='4' fill='{}' fill-opacity='0.8'><title>{}: {:.3g} us{}, {:.1f} % of the roof</title></circle>\n",
        x.at(intensity), y.at(rate), colour_of(colour), escaped(p.name), p.us,
        p.cycles.clk > 0 ? fmt::format(" ({:.0f} clk at {:.0f} MHz)", p.cycles.clk, p.cycles.mhz) : "",
        100 * roof.floor_us(p.work) / p.us);
  }
  std::size_t line = 0;
  for (const auto& [name, colour] : groups) {
    if (name.empty() || line >= 20) continue;  // more classes than that have no colours of their own either
    const double at = top + 16 + 16 * static_cast<double>(line++);
    out += fmt::format("<circle cx='{}' cy='{}' r='4' fill='{}'/><text x='{}' y='{}'>{}</text>\n", left + 14, at,
                       colour_of(colour), left + 24, at + 4, escaped(name));
  }
  return out + "</svg>\n";
}

}  // namespace tilewave::tool
