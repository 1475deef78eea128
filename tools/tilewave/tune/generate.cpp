// SPDX-License-Identifier: MIT
// Candidates that nobody wrote into the registry: one step away from the best of those that were tried, built as a list of
// entries of their own (TILEWAVE_GENERATED_ENTRIES), in a build folder that has no others.
#include "tools/tilewave/tune/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/tune/words.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

/// A number of a policy, its column, and the steps from it: values that make no sense do not fit, which the header finds out.
struct Knob {
  const char* column;
  std::vector<std::int64_t> (*steps)(std::int64_t);
};
std::vector<std::int64_t> doubled_or_halved(std::int64_t v) {
  return v > 1 ? std::vector{v / 2, v * 2} : std::vector{v * 2};
}
std::vector<std::int64_t> one_more_or_less(std::int64_t v) {
  return v > 1 ? std::vector{v - 1, v + 1} : std::vector{v + 1};
}
std::vector<std::int64_t> the_other(std::int64_t v) { return {v == 0}; }

struct Space {
  const char *op, *header, *law;
  std::vector<Knob> knobs;
  std::vector<std::pair<const char*, const char*>> together;  // doubled and halved at once
  std::string (*spec)(const Csv&, std::size_t row);
  std::string (*policy)(const Csv&, std::size_t row);
};

const Space& space_of(const std::string& op) {
  static const std::vector<Space> spaces{{"gemm",
                                          "policy_status.hpp",
                                          "gemm_policy_status",
                                          {{"tile_rows", doubled_or_halved},
                                           {"tile_columns", doubled_or_halved},
                                           {"stages", one_more_or_less},
                                           {"waves_rows", doubled_or_halved},
                                           {"waves_columns", doubled_or_halved},
                                           {"waves_per_simd", one_more_or_less}},
                                          {{"tile_rows", "tile_columns"},
                                           {"waves_rows", "waves_columns"},
                                           {"tile_rows", "stages"},
                                           {"tile_columns", "stages"}},
                                          gemm_spec_text,
                                          gemm_policy_text},
                                         {"paged_attention",
                                          "policy.hpp",
                                          "paged_attention_tuner_status",
                                          {{"row_tiles", doubled_or_halved},
                                           {"wave_rows", doubled_or_halved},
                                           {"wave_tokens", doubled_or_halved},
                                           {"slices", doubled_or_halved},
                                           {"stages", doubled_or_halved},
                                           {"q_shared", the_other},
                                           {"waves_per_simd", one_more_or_less}},
                                          {{"wave_rows", "wave_tokens"}, {"slices", "stages"}},
                                          paged_attention_spec_text,
                                          paged_attention_policy_text}};
  for (const Space& space : spaces)
    if (op == space.op) return space;
  refuse("--generate knows gemm and paged_attention, not '" + printable(op) + "'");
}

/// Policies that differ from a row's in one knob, or in two at once, as rows of the same columns.
std::vector<std::vector<std::string>> neighbours(const Csv& csv, std::size_t row, const Space& space) {
  std::vector<std::vector<std::string>> found;
  const auto value = [&](const char* column) { return tried_count(csv, row, column); };
  const auto add = [&](std::vector<std::pair<const char*, std::int64_t>> changes) {
    std::vector<std::string> cells = csv.rows[row];
    for (const auto& [column, to] : changes) cells[csv.need(column)] = std::to_string(to);
    found.push_back(std::move(cells));
  };
  for (const Knob& knob : space.knobs)
    for (const std::int64_t to : knob.steps(value(knob.column))) add({{knob.column, to}});
  for (const auto& [a, b] : space.together) {
    const std::int64_t of_a = value(a), of_b = value(b);
    add({{a, of_a * 2}, {b, of_b / 2}});
    add({{a, of_a / 2}, {b, of_b * 2}});
  }
  return found;
}

std::string camel(const std::string& op) {
  std::string out;
  for (const std::string& word : split(op, '_'))
    out += std::string(1, static_cast<char>(word[0] - 'a' + 'A')) + word.substr(1);
  return out;
}

}  // namespace

Generated generate(const Csv& tried, const Tuned& tuned, const std::string& op, int around) {
  const Space& space = space_of(op);
  std::set<std::string> known;  // spec and policy
  for (std::size_t r = 0; r < tried.rows.size(); ++r) known.insert(space.spec(tried, r) + space.policy(tried, r));
  std::vector<std::pair<std::string, std::vector<std::string>>> specs;  // and policies
  Generated out;
  for (const TunedConfig& config : tuned.configs) {
    int taken = 0;
    std::set<std::string> starts;
    for (const Tried& t : config.tried) {
      if (!t.right || taken == around || !starts.insert(space.policy(tried, t.row)).second) continue;
      ++taken;
      const std::string spec = space.spec(tried, t.row);
      auto of = std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.first == spec; });
      if (of == specs.end()) of = specs.insert(of, {spec, {}});
      Csv one = tried;
      for (auto& cells : neighbours(tried, t.row, space)) {
        one.rows = {std::move(cells)}, one.lines = {tried.lines[t.row]};
        const std::string policy = space.policy(one, 0);
        if (known.insert(spec + policy).second) of->second.push_back(policy), ++out.policies;
      }
    }
  }
  const std::string type = camel(op);
  out.header = fmt::format(
      "// SPDX-License-Identifier: MIT\n// Made by `tilewave tune run --generate`: around the best of {} candidates.\n#pragma once\n\n"
      "#include <algorithm>\n#include <array>\n\n#include \"tilewave/ops/{}/{}\"\n#include \"tilewave/ops/{}/registry.hpp\"\n\nnamespace tilewave {{\n\n"
      "constexpr std::array<{}Spec, {}> {}_generated_specs(ArchId) {{\n  return {{{{",
      tried.rows.size(), op, space.header, op, type, specs.size(), op);
  for (std::size_t i = 0; i < specs.size(); ++i) out.header += (i > 0 ? ",\n           " : "") + specs[i].first;
  out.header += fmt::format(
      "}}}};\n}}\n\n/// As many of those that fit as a list holds.\nconstexpr {0}Policies {1}_generated_policies(ArchId arch, const {0}Spec& s) {{\n  {0}Policies all;\n"
      "  const auto add = [&](const {0}Policy& p) {{\n    if (!all.full() && {2}(arch, s, p).ok()) all.add(p);\n  }};\n",
      type, op, space.law);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    out.header += fmt::format("  if (s == {}_generated_specs(arch)[{}]) {{\n", op, i);
    for (const std::string& policy : specs[i].second) out.header += "    add(" + policy + ");\n";
    out.header += "  }\n";
  }
  out.header += fmt::format(
      "  return all;\n}}\n\ntemplate <class B, {0}Spec S>\ninline constexpr auto {1}_generated_entries = {1}_entries_of<B, S, {1}_generated_policies>();\n\n}}  // namespace tilewave\n",
      type, op);
  return out;
}

std::string with_program(const std::string& command, const std::string& op, const std::string& program) {
  std::vector<std::string> words = split(command, ' ');
  const auto own = [&](const std::string& word) {
    const std::string name = fs::path(word).filename().string();
    return name == "bench_" + op || (op == "paged_attention" && name == "bench_pa");
  };
  const auto at = std::find_if(words.begin(), words.end(), own);
  if (at == words.end()) refuse("--generate needs a --benchmark that runs bench_" + op);
  *at = shell_word(program);
  return join(words, " ");
}

std::string build_generated(const fs::path& folder, const std::string& header, const GenerateOptions& o) {
  fs::create_directories(folder);
  const fs::path file = folder / (o.op + "_generated.hpp"), build = folder / "build";
  if (!fs::exists(file) || read_file(file.string()) != header) write_atomically(file, header);
  const std::string command = fmt::format(
      "cmake --preset {} -S {} -B {} -D TILEWAVE_GENERATED_ENTRIES={} -D TILEWAVE_FOCUS={}_generated/{} -D TILEWAVE_BUILD_TESTS=OFF && "
      "cmake --build {} --target bench_{} -j {}",
      shell_word(o.preset), shell_word(o.sources), shell_word(build.string()),
      shell_word(fs::absolute(folder).string()), o.op, o.arch, shell_word(build.string()), o.op, o.jobs);
  ProcessOptions p;
  p.out_path = (folder / "build.log").string(), p.errors_too = true;
  if (const ProcessResult result = run_shell(command, p); result.status != 0)
    throw Error(Exit::failed, fmt::format("the generated candidates do not build: see {}", p.out_path));
  return (build / "bench" / ("bench_" + o.op)).string();
}

}  // namespace tilewave::tool
