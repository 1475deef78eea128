// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/git.hpp"

#include <fmt/format.h>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

std::string Git::run(std::vector<std::string> words) const {
  words.insert(words.begin(), "git");
  ProcessOptions options;
  options.folder = folder_, options.errors_too = true,
  options.variables = {{"LC_ALL", "C"}, {"GIT_TERMINAL_PROMPT", "0"}};
  const ProcessResult result = run_process(words, options);
  if (result.status != 0) {
    throw Error(Exit::failed, fmt::format("git {} in {} failed ({}): {}", words[1], folder_, result.status,
                                          printable(trim(result.out), 300)));
  }
  return result.out;
}

std::string Git::head() const { return std::string(trim(run({"rev-parse", "--verify", "HEAD"}))); }
bool Git::clean() const { return trim(run({"status", "--porcelain", "--untracked-files=all"})).empty(); }

std::string Git::patch_from(const std::string& commit) const {
  run({"add", "--all"});
  return run({"diff", "--cached", "--binary", "--no-color", "--no-ext-diff", commit});
}

std::vector<std::string> Git::files_from(const std::string& commit) const {
  run({"add", "--all"});
  // Between zero bytes, since a name may hold anything else.
  std::vector<std::string> files;
  for (const std::string& file : split(run({"diff", "--cached", "--name-only", "--no-renames", "-z", commit}), '\0')) {
    if (!file.empty()) files.push_back(file);
  }
  return files;
}

void Git::reset_to(const std::string& commit) const {
  run({"reset", "--quiet", "--hard", commit});
  run({"clean", "--quiet", "-f", "-d"});
}

void Git::apply(const std::string& patch_file) const {
  run({"apply", "--index", "--binary", "--whitespace=nowarn", patch_file});
}

void Git::commit_all(const std::string& message) const {
  run({"add", "--all"});
  run({"commit", "--quiet", "--no-verify", "-m", message});
}

void Git::add_worktree(const std::string& path, const std::string& branch) const {
  if (branch.empty()) {
    run({"worktree", "add", "--quiet", "--detach", path, "HEAD"});
  } else {
    run({"worktree", "add", "--quiet", "-b", branch, path, "HEAD"});
  }
}

}  // namespace tilewave::tool
