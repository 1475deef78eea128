// SPDX-License-Identifier: MIT
// The worktree of a campaign.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tilewave::tool {

/// Git in the worktree of a campaign. Each call throws Exit::failed with git's own words where git fails. Git looks for a
/// repository in the folders above, too: so before each call the folder has to be the top level of a worktree of
/// `repository`, and not its checkout, or the call throws Exit::conflict and nothing is touched.
class Git {
 public:
  /// branch: what the worktree is on; empty: on none (detached).
  Git(std::string folder, std::string repository, std::string branch = {})
      : folder_(std::move(folder)), repository_(std::move(repository)), branch_(std::move(branch)) {}

  std::string head() const;
  bool clean() const;  // nothing changed, nothing untracked
  /// Everything that differs from the commit, new files included, as a patch that apply() takes.
  std::string patch_from(const std::string& commit) const;
  std::vector<std::string> files_from(const std::string& commit) const;
  /// Returns those of the words that are files of the commit.
  std::vector<std::string> tracked(const std::vector<std::string>& words) const;
  /// Exactly the commit, on the campaign's own branch; what git ignores (builds) stays. Another branch that somebody
  /// checked out there is left where it is.
  void reset_to(const std::string& commit) const;
  void apply(const std::string& patch_file) const;
  void commit_all(const std::string& message) const;

  /// HEAD of the checkout that a folder lies in.
  static std::string head_of(const std::string& folder);
  /// A new worktree of a checkout, at its HEAD: on a new branch, or detached if branch is empty. Refuses a path inside of
  /// the checkout.
  static void add_worktree(const std::string& repository, const std::string& path, const std::string& branch);

  /// Returns the environment of processes that are started in the worktree: their git finds no repository of the
  /// folders above.
  static std::map<std::string, std::string> environment(const std::string& worktree);
  /// Variables by which git would work elsewhere than in the folder it is started in.
  static const std::vector<std::string>& redirections();

 private:
  std::string run(std::vector<std::string> words) const;  // after guard()
  void guard() const;
  std::string folder_, repository_, branch_;
};

}  // namespace tilewave::tool
