// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstdio>

#include "sim/trace/wave_trace.hpp"

namespace tilewave::sim {
namespace {

constexpr int columns = 1400, row = 11, left = 130, top = 54;
constexpr std::array<const char*, 5> colours{"#ffffff", "#d9d9d9", "#2b8a3e", "#f2a93b", "#c92a2a"};
constexpr std::array<const char*, 5> names{"", "idle", "executes", "waits (s_waitcnt, s_barrier)", "stalls"};

std::string text(double x, double y, const std::string& what, const char* more = "") {
  std::string out = "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" " + more + ">";
  for (const char c : what) out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out + "</text>\n";
}

/// Returns, for each column of the picture, the state that takes most of its time: pictures of all launches have the
/// same size.
std::array<std::uint8_t, columns> drawn(const TracedWave& wave, double clk_per_column) {
  std::vector<std::array<double, 5>> time(columns);
  for (const StateRun& run : wave.states()) {
    auto from = static_cast<double>(run.from);
    const auto to = static_cast<double>(run.to);
    for (auto c = static_cast<std::size_t>(from / clk_per_column); c < columns && from < to; ++c) {
      const double end = std::min(to, (static_cast<double>(c) + 1) * clk_per_column);
      time[c][static_cast<std::size_t>(run.state)] += end - from;
      from = end;
    }
  }
  std::array<std::uint8_t, columns> states{};
  for (std::size_t c = 0; c < columns; ++c)
    states[c] = static_cast<std::uint8_t>(std::max_element(time[c].begin(), time[c].end()) - time[c].begin());
  return states;
}

}  // namespace

std::string timeline_svg(const WaveTrace& trace, const TraceOrigin& origin) {
  double end = 1;
  std::vector<const TracedWave*> waves;
  for (const TracedWave& w : trace.waves()) waves.push_back(&w), end = std::max(end, w.end);
  std::stable_sort(waves.begin(), waves.end(), [](const TracedWave* a, const TracedWave* b) {
    return std::tuple(a->cu, a->simd, a->slot, a->number) < std::tuple(b->cu, b->simd, b->slot, b->number);
  });
  // Waves that follow one another in a slot share a line.
  std::vector<std::pair<std::string, std::vector<const TracedWave*>>> lines;
  for (const TracedWave* w : waves) {
    const std::string name = "SE " + std::to_string(w->cu % shader_engines) + " SIMD " + std::to_string(w->simd) +
                             " slot " + std::to_string(w->slot);
    if (lines.empty() || lines.back().first != name) lines.push_back({name, {}});
    lines.back().second.push_back(w);
  }
  const int height = top + row * static_cast<int>(lines.size()) + 24;
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(left + columns + 20) + "\" height=\"" +
      std::to_string(height) +
      "\" font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  char title[128];
  std::snprintf(title, sizeof title, "modelled on %s, not measured: %.0f clk at %.0f MHz are shown; ",
                origin.chip.c_str(), end, origin.mhz);
  out += text(8, 16, title + origin.symbol.substr(0, origin.symbol.size() - 3), "font-size=\"12\"");
  double x = left;
  for (std::size_t s = 1; s < names.size(); ++s) {
    out += "<rect x=\"" + std::to_string(x) + "\" y=\"26\" width=\"10\" height=\"10\" fill=\"" + colours[s] + "\"/>\n";
    out += text(x + 14, 35, names[s]);
    x += 40 + 6 * static_cast<double>(std::string(names[s]).size());
  }
  for (std::size_t l = 0; l < lines.size(); ++l) {
    const int y = top + row * static_cast<int>(l);
    out += text(8, y + 9, lines[l].first);
    for (const TracedWave* w : lines[l].second) {
      const auto states = drawn(*w, end / columns);
      for (std::size_t c = 0, n = 0; c < columns; c += n) {
        for (n = 1; c + n < columns && states[c + n] == states[c];) ++n;
        if (states[c] == 0) continue;
        out += "<rect x=\"" + std::to_string(left + c) + "\" y=\"" + std::to_string(y) + "\" width=\"" +
               std::to_string(n) + "\" height=\"" + std::to_string(row - 1) + "\" fill=\"" + colours[states[c]] +
               "\"/>\n";
      }
    }
  }
  for (int i = 0; i <= 10; ++i)
    out += text(left + columns * i / 10.0, height - 8, std::to_string(static_cast<long long>(end * i / 10)) + " clk",
                "text-anchor=\"middle\"");
  return out + "</svg>\n";
}

}  // namespace tilewave::sim
