// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/quick.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/compare/columns.hpp"

namespace tilewave::tool {

std::string config_words(const Csv& csv, std::size_t row) {
  const auto marked = marked_policy(csv);
  std::vector<std::string> words;
  for (std::size_t c = 0; c < csv.columns.size(); ++c) {
    const std::string& value = csv.rows[row][c];
    if (role_of(csv.columns[c], marked) == Role::identity && !value.empty() && value.find('/') == std::string::npos)
      words.push_back(csv.columns[c] + "=" + value);
  }
  return join(words, "/");
}

std::optional<std::string> quick_form(const std::string& command) {
  if (command.find_first_of("|&;<>()$`\\\"'*?[]#~\n") != std::string::npos) return std::nullopt;
  std::vector<std::string> words;
  bool program = false;
  for (const std::string& word : split(command, ' ')) {
    if (word.empty()) continue;
    const auto is = [&](std::string_view option) { return word.starts_with(option); };
    if (is("--sweep") || is("--shapes") || is("--model=") || is("--tp=") || is("--batch=") || is("--context=") ||
        is("--config") || is("--every") || is("--benchmark_filter"))
      continue;
    program = program || std::filesystem::path(word).filename().string().starts_with("bench_");
    words.push_back(word);
  }
  if (!program) return std::nullopt;
  return join(words, " ") + " --config=\"$1\"";
}

std::string quick_script(const std::string& command, const std::vector<std::string>& configs) {
  std::string out =
      "#!/bin/sh\n# Of each class of the baseline the slowest config: correctness and time. Made by `tilewave campaign`.\n"
      "set -e\n";
  const auto form = quick_form(command);
  if (!form) {
    return out + fmt::format(
                     "# The benchmark is none of ours: say here how it runs one config, $1, and exits with other "
                     "than 0 if that is wrong.\n# {}\n",
                     command);
  }
  out += fmt::format("one() {{\n  {}\n}}\n", *form);
  for (const std::string& config : configs) out += fmt::format("one {}\n", shell_word(config));
  return configs.empty() ? out + "# The baseline fills the configs in.\n" : out;
}

}  // namespace tilewave::tool
