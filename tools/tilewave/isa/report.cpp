// SPDX-License-Identifier: MIT
#include "tools/tilewave/isa/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/isa/entries.hpp"

namespace tilewave::tool {

namespace {

namespace fs = std::filesystem;

std::string limit_text(const Limit& limit) {
  const char* unit = limit.what == "LDS" ? " bytes" : "";
  if (limit.what == "hardware") return fmt::format("the hardware holds {} waves", limit.waves);
  std::string text = fmt::format("{} {}{}: {} waves", limit.needed, limit.what, unit, limit.waves);
  if (limit.wanted > 0)
    text += fmt::format("; {} with {}{} or fewer, {} less", limit.wanted, limit.at_most, unit,
                        limit.needed - limit.at_most);
  return text;
}

Json json_of(const Mix& mix) {
  Json loads = Json::object(), stores = Json::object();
  for (const auto& [bytes, n] : mix.loads) loads[std::to_string(bytes)] = n;
  for (const auto& [bytes, n] : mix.stores) stores[std::to_string(bytes)] = n;
  return {{"instructions", mix.instructions}, {"kinds", mix.kinds},        {"matrix", mix.matrix},
          {"loads_by_bytes", loads},          {"stores_by_bytes", stores}, {"left_by_waits", mix.waits}};
}

Json json_of(const Compiled& c) {
  Json limits = Json::array();
  for (const Limit& l : c.waves.limits) {
    Json one = {{"what", l.what}, {"needed", l.needed}, {"waves", l.waves}};
    if (l.wanted > 0) one["next"] = {{"waves", l.wanted}, {"at_most", l.at_most}};
    limits.push_back(one);
  }
  const KernelNeeds& n = c.needs;
  Json json = {{"file", c.file},
               {"arch", c.arch},
               {"label", c.label},
               {"symbol", n.symbol},
               {"vgprs", n.vgprs},
               {"agprs", n.agprs},
               {"sgprs", n.sgprs},
               {"allocated", n.allocated},
               {"lds_bytes", n.lds_bytes},
               {"scratch_bytes", n.scratch_bytes},
               {"spills", n.spills()},
               {"block_lanes", n.block_lanes},
               {"code_bytes", n.code_bytes},
               {"waves_per_simd", c.waves.per_simd},
               {"limits", limits}};
  if (c.listed) {
    json["whole"] = json_of(c.whole);
    json["loop"] = json_of(mix_of(c.loop));
    json["steady"] = json_of(c.path);
  }
  return json;
}

/// Numbers of a kernel by name, as diff compares them.
std::vector<std::pair<std::string, std::string>> facts_of(const Compiled& c) {
  const KernelNeeds& n = c.needs;
  std::vector<std::pair<std::string, std::string>> facts;
  const auto add = [&](const std::string& what, auto value) { facts.emplace_back(what, fmt::format("{}", value)); };
  add("VGPRs", n.vgprs), add("AGPRs", n.agprs), add("SGPRs", n.sgprs), add("allocated registers", n.allocated);
  add("LDS bytes", n.lds_bytes), add("scratch bytes", n.scratch_bytes), add("spills", n.spills());
  add("lanes of a block", n.block_lanes), add("code bytes", n.code_bytes), add("waves per SIMD", c.waves.per_simd);
  add("limited by", c.waves.limits.front().what);
  if (!c.listed) return facts;
  const auto mix = [&](const std::string& where, const Mix& m) {
    add(where + ": instructions", m.instructions);
    add(where + ": matrix instructions", shapes_text(m.matrix));
    add(where + ": loads", widths_text(m.loads));
    for (const char* kind : {"vector", "scalar", "store", "lds", "exchange", "wait", "barrier", "acc_move", "lane_move",
                             "scratch", "call", "nop"})
      add(where + ": " + kind, m.of(kind));
  };
  mix("kernel", c.whole);
  mix("steady path", c.path);
  return facts;
}

}  // namespace

std::vector<std::string> code_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string kind = entry.path().extension().string();
      if (kind == ".co" || kind == ".cubin") inside.push_back(entry.path().string());
    }
    if (inside.empty()) refuse(path + ": no .co and no .cubin in it");
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

std::string shapes_text(const std::map<std::string, std::int64_t>& matrix) {
  std::vector<std::string> words;
  for (const auto& [shape, n] : matrix) words.push_back(fmt::format("{}x {}", n, shape));
  return words.empty() ? "none" : join(words, " ");
}

std::string widths_text(const std::map<int, std::int64_t>& accesses) {
  std::vector<std::string> words;
  for (auto it = accesses.rbegin(); it != accesses.rend(); ++it)
    words.push_back(fmt::format("{}x{}B", it->second, it->first));
  return words.empty() ? "0" : join(words, " ");
}

std::vector<Compiled> inspect(const std::vector<std::string>& paths, const InspectOptions& o) {
  std::regex wanted;
  try {
    wanted = std::regex(o.kernels);
  } catch (const std::regex_error&) {
    refuse("--kernel: '" + printable(o.kernels) + "' is no regular expression");
  }
  std::vector<Compiled> all;
  for (const std::string& file : code_files(paths)) {
    std::string entries = o.entries;
    const fs::path beside = fs::path(file).parent_path() / "entries.json";
    if (entries.empty() && fs::exists(beside)) entries = beside.string();
    const std::vector<Entry> names = entries.empty() ? std::vector<Entry>{} : entries_of(entries);
    for (const DeviceCode& code : parse_binary(read_file(file), file)) {
      std::map<std::string, Listing> listings;
      const std::size_t before = all.size();
      for (const KernelNeeds& needs : code.kernels) {
        Compiled c;
        c.file = file, c.arch = code.arch, c.label = demangled(needs.symbol), c.needs = needs;
        const Entry* entry = entry_of(names, fs::path(file).filename().string(), needs.symbol);
        if (entry != nullptr && !entry->label().empty()) c.label = entry->label();
        if (!std::regex_search(needs.symbol, wanted) && !std::regex_search(c.label, wanted)) continue;
        c.waves = waves_of(needs, code.arch, o.extra_lds);
        all.push_back(std::move(c));
      }
      if (o.resources || all.size() == before) continue;
      listings = listings_of(code);
      for (std::size_t i = before; i < all.size(); ++i) {
        Compiled& c = all[i];
        const auto found = listings.find(c.needs.symbol);
        if (found == listings.end()) refuse(file + ": no listing of " + c.needs.symbol);
        c.listed = true;
        c.whole = mix_of(found->second);
        c.loop = steady_loop(found->second);
        c.steady = steady_path(c.loop);
        c.path = mix_of(c.steady);
      }
    }
  }
  if (all.empty()) refuse("no kernel matches --kernel " + printable(o.kernels));
  return all;
}

std::string isa_text(const std::vector<Compiled>& kernels, bool loops) {
  std::string text;
  for (const Compiled& c : kernels) {
    const KernelNeeds& n = c.needs;
    text += fmt::format("{} {}\n", c.arch, c.label);
    text += fmt::format(
        "  VGPRs {}, AGPRs {}, SGPRs {}, allocated {}; LDS {} B; scratch {} B, {} spills; {} lanes; {} B of code\n",
        n.vgprs, n.agprs, n.sgprs, n.allocated, n.lds_bytes, n.scratch_bytes, n.spills(),
        n.block_lanes == 0 ? std::string("unknown") : std::to_string(n.block_lanes), n.code_bytes);
    text += fmt::format("  {} waves per SIMD\n", c.waves.per_simd);
    for (const Limit& limit : c.waves.limits) text += "    " + limit_text(limit) + "\n";
    if (!c.listed) continue;
    const auto mix = [&](const char* what, const Mix& m) {
      std::vector<std::string> kinds;
      for (const auto& [kind, count] : m.kinds) kinds.push_back(fmt::format("{} {}", kind, count));
      text += fmt::format("  {}: {} instructions ({}); products {}; loads {}\n", what, m.instructions,
                          join(kinds, ", "), shapes_text(m.matrix), widths_text(m.loads));
    };
    mix("kernel", c.whole);
    if (c.loop.empty()) {
      text += "  no loop that multiplies or loads\n";
    } else {
      mix("steady loop", mix_of(c.loop));
      mix("steady path", c.path);
    }
    if (loops)
      for (const AsmLine& line : c.steady)
        text += fmt::format("    {:06x}  {} {}\n", line.address, line.mnemonic, line.operands);
  }
  return text;
}

Json isa_json(const std::vector<Compiled>& kernels) {
  Json list = Json::array();
  for (const Compiled& c : kernels) list.push_back(json_of(c));
  return {{"schema", "tilewave.isa/1"}, {"kernels", list}};
}

std::vector<KernelPair> pairs_of(const std::vector<Compiled>& a, const std::vector<Compiled>& b) {
  std::vector<KernelPair> pairs;
  if (a.size() == 1 && b.size() == 1) return {{&a[0], &b[0]}};
  for (const Compiled& one : a)
    for (const Compiled& other : b)
      if (one.arch == other.arch && (one.needs.symbol == other.needs.symbol || one.label == other.label)) {
        pairs.push_back({&one, &other});
        break;
      }
  if (pairs.empty())
    throw Error(Exit::refused, fmt::format("{} and {} kernels have no name in common: choose one of each by --kernel, "
                                           "--kernel-a, --kernel-b",
                                           a.size(), b.size()));
  return pairs;
}

std::vector<std::pair<int, int>> aligned(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const std::size_t rows = a.size(), columns = b.size();
  if (rows * columns > std::size_t{1} << 26) refuse("loops of more than 8192 instructions are not set side by side");
  std::vector<std::vector<int>> common(rows + 1, std::vector<int>(columns + 1, 0));
  for (std::size_t i = rows; i-- > 0;)
    for (std::size_t j = columns; j-- > 0;)
      common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  std::vector<std::pair<int, int>> steps;
  std::size_t i = 0, j = 0;
  while (i < rows || j < columns) {
    if (i < rows && j < columns && a[i] == b[j]) {
      steps.emplace_back(static_cast<int>(i++), static_cast<int>(j++));
    } else if (j == columns || (i < rows && common[i + 1][j] >= common[i][j + 1])) {
      steps.emplace_back(static_cast<int>(i++), -1);
    } else {
      steps.emplace_back(-1, static_cast<int>(j++));
    }
  }
  return steps;
}

std::string diff_text(const std::vector<KernelPair>& pairs, int columns) {
  std::string text;
  std::size_t same = 0;
  for (const auto& [a, b] : pairs) {
    std::vector<std::vector<std::string>> table{{"", "A", "B"}};
    const auto left = facts_of(*a), right = facts_of(*b);
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (left[i].second != right[i].second) table.push_back({left[i].first, left[i].second, right[i].second});
    const auto words = [](const Compiled& c) {
      std::vector<std::string> list;
      for (const AsmLine& line : c.steady) list.push_back(line.mnemonic);
      return list;
    };
    const auto one = words(*a), other = words(*b);
    if (table.size() == 1 && one == other) {
      ++same;
      continue;
    }
    text += fmt::format("{} {}\n", a->arch, a->label);
    if (b->label != a->label || b->arch != a->arch) text += fmt::format("against {} {}\n", b->arch, b->label);
    text += table.size() > 1 ? text_table(table) : "the steady path has other instructions of the same kinds\n";
    text += "limits of A: " + limit_text(a->waves.limits.front()) +
            "\nlimits of B: " + limit_text(b->waves.limits.front()) + "\n";
    if (columns > 0) {
      const auto cell = [&](const Compiled& c, int at) {
        if (at < 0) return std::string();
        const AsmLine& line = c.steady[static_cast<std::size_t>(at)];
        return printable(line.mnemonic + " " + line.operands, static_cast<std::size_t>(columns));
      };
      for (const auto& [i, j] : aligned(one, other))
        text += fmt::format("{:<{}} {} {}\n", cell(*a, i), columns, i < 0 ? '>' : j < 0 ? '<' : '|', cell(*b, j));
    }
    text += "\n";
  }
  return text + fmt::format("{} kernels compared, {} the same in all of this\n", pairs.size(), same);
}

Json diff_json(const std::vector<KernelPair>& pairs) {
  Json list = Json::array();
  for (const auto& [a, b] : pairs) {
    Json differs = Json::object();
    const auto left = facts_of(*a), right = facts_of(*b);
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (left[i].second != right[i].second) differs[left[i].first] = {left[i].second, right[i].second};
    list.push_back({{"a", json_of(*a)}, {"b", json_of(*b)}, {"differs", differs}});
  }
  return {{"schema", "tilewave.isa_diff/1"}, {"pairs", list}};
}

}  // namespace tilewave::tool
