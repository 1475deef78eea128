// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/git.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

ProcessResult call(const std::string& folder, std::vector<std::string> words, const std::string& ceiling) {
  words.insert(words.begin(), "git");
  ProcessOptions options;
  options.folder = folder, options.errors_too = true;
  if (!ceiling.empty()) options.variables = Git::environment(ceiling);
  options.variables["LC_ALL"] = "C", options.variables["GIT_TERMINAL_PROMPT"] = "0";
  options.without = Git::redirections();
  return run_process(words, options);
}

std::string succeed(const std::string& folder, const std::vector<std::string>& words, const std::string& ceiling) {
  const ProcessResult result = call(folder, words, ceiling);
  if (result.status != 0) {
    throw Error(Exit::failed, fmt::format("git {} in {} failed ({}): {}", words[0], folder, result.status,
                                          printable(trim(result.out), 300)));
  }
  return result.out;
}

/// Both folders exist and are the same one, by whatever links.
bool same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

}  // namespace

std::map<std::string, std::string> Git::environment(const std::string& worktree) {
  std::string ceilings = fs::weakly_canonical(fs::absolute(worktree)).parent_path().string();
  if (const char* before = std::getenv("GIT_CEILING_DIRECTORIES"); before != nullptr && *before != '\0')
    ceilings += std::string(":") + before;
  return {{"GIT_CEILING_DIRECTORIES", ceilings}};
}

const std::vector<std::string>& Git::redirections() {
  static const std::vector<std::string> list{"GIT_DIR",        "GIT_WORK_TREE", "GIT_INDEX_FILE",
                                             "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY",
                                             "GIT_PREFIX"};
  return list;
}

/// Asked each time: the link to the repository may go at any moment, and a reset of what git then finds cannot be undone.
void Git::guard() const {
  const auto refused = [&](const std::string& why) {
    throw Error(Exit::conflict,
                fmt::format("{} is no worktree of {}: {}; nothing was changed there", folder_, repository_, why));
  };
  if (!fs::is_directory(folder_)) refused("there is no such folder");
  const ProcessResult top = call(folder_, {"rev-parse", "--show-toplevel"}, folder_);
  if (top.status != 0) refused(printable(trim(top.out), 200));
  if (!same(std::string(trim(top.out)), folder_)) refused("git's top level is " + printable(trim(top.out), 200));
  const auto common = [&](const std::string& folder, const std::string& ceiling) {
    const ProcessResult dir = call(folder, {"rev-parse", "--git-common-dir"}, ceiling);
    return dir.status == 0 ? fs::path(folder) / std::string(trim(dir.out)) : fs::path();
  };
  const ProcessResult dir = call(folder_, {"rev-parse", "--git-dir"}, folder_);
  const fs::path shared = common(folder_, folder_);
  if (dir.status != 0 || same(fs::path(folder_) / std::string(trim(dir.out)), shared))
    refused("it is a repository of its own, not a linked worktree");
  if (!same(shared, common(repository_, ""))) refused("it belongs to another repository");
}

std::string Git::run(std::vector<std::string> words) const {
  guard();
  return succeed(folder_, words, folder_);
}

std::string Git::head() const { return std::string(trim(run({"rev-parse", "--verify", "HEAD"}))); }
bool Git::clean() const { return trim(run({"status", "--porcelain", "--untracked-files=all"})).empty(); }

std::string Git::patch_from(const std::string& commit) const {
  run({"add", "--all"});
  return run({"diff", "--cached", "--binary", "--no-color", "--no-ext-diff", commit});
}

namespace {
/// Between zero bytes, since a name may hold anything else.
std::vector<std::string> names(const std::string& text) {
  std::vector<std::string> list;
  for (const std::string& name : split(text, '\0')) {
    if (!name.empty()) list.push_back(name);
  }
  return list;
}
}  // namespace

std::vector<std::string> Git::files_from(const std::string& commit) const {
  run({"add", "--all"});
  return names(run({"diff", "--cached", "--name-only", "--no-renames", "-z", commit}));
}

std::vector<std::string> Git::tracked(const std::vector<std::string>& words) const {
  const auto all = names(run({"ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD"}));
  std::vector<std::string> found;
  for (const std::string& word : words) {
    const std::string path = fs::path(word).lexically_normal().string();
    if (contains(all, path) && !contains(found, path)) found.push_back(path);
  }
  return found;
}

void Git::reset_to(const std::string& commit) const {
  // HEAD alone is moved, so that no branch but the campaign's own is ever reset.
  if (branch_.empty()) {
    run({"update-ref", "--no-deref", "HEAD", commit});
  } else {
    run({"symbolic-ref", "HEAD", "refs/heads/" + branch_});
  }
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

std::string Git::head_of(const std::string& folder) {
  return std::string(trim(succeed(folder, {"rev-parse", "--verify", "HEAD"}, "")));
}

void Git::add_worktree(const std::string& repository, const std::string& path, const std::string& branch) {
  const fs::path top = std::string(trim(succeed(repository, {"rev-parse", "--show-toplevel"}, "")));
  const fs::path inside = fs::weakly_canonical(fs::absolute(path)).lexically_relative(fs::weakly_canonical(top));
  if (!inside.empty() && *inside.begin() != "..") {
    refuse(fmt::format("the worktree {} lies in the checkout {}: where its .git goes, git would work on the checkout",
                       path, top.string()));
  }
  if (branch.empty()) {
    succeed(repository, {"worktree", "add", "--quiet", "--detach", path, "HEAD"}, "");
  } else {
    succeed(repository, {"worktree", "add", "--quiet", "-b", branch, path, "HEAD"}, "");
  }
}

}  // namespace tilewave::tool
