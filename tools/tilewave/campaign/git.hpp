// SPDX-License-Identifier: MIT
// The worktree of a campaign.
#pragma once

#include <string>
#include <vector>

namespace tilewave::tool {

/// Git in one folder. Each call throws Exit::failed with git's own words where git fails.
class Git {
 public:
  explicit Git(std::string folder) : folder_(std::move(folder)) {}

  std::string head() const;
  bool clean() const;  // nothing changed, nothing untracked
  /// Everything that differs from the commit, new files included, as a patch that apply() takes.
  std::string patch_from(const std::string& commit) const;
  std::vector<std::string> files_from(const std::string& commit) const;
  /// Exactly the commit; what git ignores (builds) stays.
  void reset_to(const std::string& commit) const;
  void apply(const std::string& patch_file) const;
  void commit_all(const std::string& message) const;
  /// A new worktree at HEAD: on a new branch, or detached if branch is empty.
  void add_worktree(const std::string& path, const std::string& branch) const;

 private:
  std::string run(std::vector<std::string> words) const;
  std::string folder_;
};

}  // namespace tilewave::tool
