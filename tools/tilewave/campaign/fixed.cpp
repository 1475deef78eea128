// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/fixed.hpp"

#include <fnmatch.h>

namespace tilewave::tool {

const std::vector<std::string>& default_fixed() {
  static const std::vector<std::string> list{"bench",
                                             "test",
                                             "tests",
                                             "tools",
                                             "cmake",
                                             ".ci",
                                             ".github",
                                             "docs/reference/hardware",
                                             "docs/notebook/campaigns",
                                             "include/tilewave/reference",
                                             "include/tilewave/arch/host",
                                             "include/tilewave/arch/facts.hpp",
                                             "include/tilewave/core/dtype.hpp",
                                             "include/tilewave/ops/*/problem.hpp",
                                             "CMakeLists.txt",
                                             "*/CMakeLists.txt",
                                             "*.cmake",
                                             "CMakePresets.json",
                                             "CMakeUserPresets.json",
                                             ".clang-format",
                                             ".gitignore",
                                             "*/.gitignore",
                                             ".gitattributes",
                                             "*/.gitattributes",
                                             ".gitmodules"};
  return list;
}

bool is_fixed(const std::string& fixed, const std::string& file) {
  if (fixed.empty()) return false;
  const std::string path = fixed.ends_with('/') ? fixed.substr(0, fixed.size() - 1) : fixed;
  return file == path || file.starts_with(path + "/") || ::fnmatch(path.c_str(), file.c_str(), 0) == 0;
}

std::vector<std::string> paths_in(const std::vector<std::string>& commands) {
  std::vector<std::string> words;
  for (const std::string& command : commands) {
    std::string word;
    for (const char c : command + " ") {
      const bool path = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        std::string_view("_-./+@").find(c) != std::string_view::npos;
      if (path) {
        word += c;
      } else if (!word.empty()) {
        words.push_back(word);
        word.clear();
      }
    }
  }
  return words;
}

}  // namespace tilewave::tool
