// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/workspace.hpp"

#include <fmt/format.h>

#include "tools/tilewave/campaign/git.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/process.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {

ProcessResult attempt(const std::string& folder, const std::vector<std::string>& words) {
  ProcessOptions options;
  options.folder = folder, options.errors_too = true, options.variables = {{"LC_ALL", "C"}};
  options.without = Git::redirections();
  return run_process(words, options);
}

std::string must(const std::string& folder, const std::vector<std::string>& words) {
  const ProcessResult result = attempt(folder, words);
  if (result.status != 0)
    throw Error(Exit::failed, fmt::format("{} in {} failed ({}): {}", join({words[0], words[1]}, " "), folder,
                                          result.status, printable(trim(result.out), 300)));
  return result.out;
}

}  // namespace

void make_workspace(Manifest& m, const fs::path& folder, const WorkspaceParts& parts) {
  if (parts.src.empty()) refuse("workspace mode needs --source: what is taken out of the project");
  const fs::path stack = folder / "stack";
  if (fs::exists(stack)) throw Error(Exit::conflict, stack.string() + " is there already");
  m.upstream = trim(must(m.repository, {"git", "rev-parse", "--show-toplevel"}));
  m.upstream_commit = Git::head_of(m.upstream);
  std::string origin = fmt::format("repository: {}\ncommit: {}\n", m.upstream, m.upstream_commit);
  const std::pair<const char*, const std::vector<std::string>*> all[] = {
      {"src", &parts.src}, {"tests", &parts.tests}, {"bench", &parts.bench}};
  for (const auto& [part, paths] : all) {  // before anything is made
    for (const std::string& path : *paths) must(m.upstream, {"git", "cat-file", "-e", "HEAD:" + path});
  }
  const fs::path archive = folder / "stack.tar";
  m.kernel_source.clear();
  for (const auto& [part, paths] : all) {
    fs::create_directories(stack / part);
    for (const std::string& path : *paths) {
      must(m.upstream, {"git", "archive", "--format=tar", "--output=" + archive.string(), "HEAD", path});
      must(stack.string(), {"tar", "-xf", archive.string(), "-C", part});
      origin += fmt::format("{}: {}\n", part, path);
      if (part == std::string("src")) m.kernel_source.push_back("src/" + path);
    }
  }
  fs::remove(archive);
  write_atomically(stack / "UPSTREAM", origin);
  must(stack.string(), {"git", "init", "--quiet"});
  must(stack.string(), {"git", "add", "--all"});
  must(stack.string(), {"git", "commit", "--quiet", "-m", "taken from " + m.upstream_commit});
  m.execution_mode = "workspace", m.repository = stack.string();
  if (m.worktree.empty()) m.worktree = (folder / "worktree").string();
  m.fixed.push_back("UPSTREAM");
}

fs::path integrate(const Manifest& m, const State& s, const fs::path& folder) {
  if (m.execution_mode != "workspace" || m.upstream.empty())
    throw Error(Exit::conflict, "the campaign works in the project itself: its branch is " + branch_of(m));
  if (s.best_round < 2) throw Error(Exit::conflict, "nothing was kept");
  const fs::path patch = folder / "integrate.patch";
  write_atomically(patch, must(m.repository, {"git", "diff", "--binary", "--no-color", "--no-ext-diff",
                                              "--relative=src/", s.rounds[0].commit, s.best_commit}));
  const ProcessResult fits = attempt(m.upstream, {"git", "apply", "--check", patch.string()});
  if (fits.status != 0) {
    throw Error(Exit::conflict,
                fmt::format("{} does not apply to {}, which is not as at {} any more: {}", patch.string(), m.upstream,
                            m.upstream_commit.substr(0, 10), printable(trim(fits.out), 200)));
  }
  return patch;
}

}  // namespace tilewave::tool
