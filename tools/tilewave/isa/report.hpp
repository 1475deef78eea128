// SPDX-License-Identifier: MIT
// The properties of compiled kernels as text and as JSON, and the differences between two of them.
#pragma once

#include <string>
#include <vector>

#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/isa/limits.hpp"
#include "tools/tilewave/isa/listing.hpp"

namespace tilewave::tool {

struct Compiled {
  std::string file, arch, label;  // label: spec and policy of the entry that has it, else the readable name
  KernelNeeds needs;
  Waves waves;
  bool listed = false;  // whether there are instructions
  Mix whole, path;      // of the steady path
  Listing loop, steady;
};

struct InspectOptions {
  std::string kernels;  // regular expression, searched in symbol and label; empty: all
  std::string entries;  // entries.json of the build: labels; empty: the one beside the files, if there is one
  bool resources = false;
  int extra_lds = 0;
};

/// Kernels of files and of folders' *.co, *.cubin. Refuses what matches none.
std::vector<Compiled> inspect(const std::vector<std::string>& paths, const InspectOptions& options);

/// The files among the paths, and folders' *.co, *.cubin by name. Refuses a folder without.
std::vector<std::string> code_files(const std::vector<std::string>& paths);

/// "2x f32_16x16x32_bf16", and "18x16B 7x4B".
std::string shapes_text(const std::map<std::string, std::int64_t>& matrix);
std::string widths_text(const std::map<int, std::int64_t>& accesses);

std::string isa_text(const std::vector<Compiled>& kernels, bool loops);
Json isa_json(const std::vector<Compiled>& kernels);

/// Pairs by arch and label, or the one of each side. Refuses sides with nothing in common.
struct KernelPair {
  const Compiled* a;
  const Compiled* b;
};
std::vector<KernelPair> pairs_of(const std::vector<Compiled>& a, const std::vector<Compiled>& b);
/// `columns`: the steady loops side by side, as wide.
std::string diff_text(const std::vector<KernelPair>& pairs, int columns);
Json diff_json(const std::vector<KernelPair>& pairs);

/// Steps from one list of words to another with the fewest changes: of each line its place in `a` and in `b`, -1 where it has none.
std::vector<std::pair<int, int>> aligned(const std::vector<std::string>& a, const std::vector<std::string>& b);

}  // namespace tilewave::tool
