// SPDX-License-Identifier: MIT
// Rules that a fast kernel must keep, checked on its compiled code and its entry's claims. docs/reference/isa.md
// explains each.
#pragma once

#include <string>
#include <vector>

#include "tools/tilewave/isa/entries.hpp"
#include "tools/tilewave/isa/limits.hpp"
#include "tools/tilewave/isa/listing.hpp"

namespace tilewave::tool {

/// The way once round a loop that streams K and V: what it spends for each KB, 1024 bytes of them that a wave loads.
struct SteadyCost {
  Mix mix{};
  double kb = 0, kb_in_flight = 0;  // in flight behind the wait that leaves the least
  std::int64_t matrix_clocks = 0;   // of a SIMD

  double per_kb(double count) const { return kb > 0 ? count / kb : 0; }
};
SteadyCost steady_cost(const Listing& path, const std::vector<int>& kv_widths);

/// One kernel as the rules look at it.
struct Judged {
  std::string file{}, arch{}, compiler{}, label{}, family{};
  KernelNeeds needs{};
  int waves_per_simd = 0;
  std::optional<Claims> claims{};
  Mix whole{}, loops{}, hot{};  // loops: all that multiply; hot: the one of them with the most products
  SteadyCost steady{};          // of hot
  std::int64_t row_bytes = 0;   // of rows that a lane asks for before it waits for vector memory
};
Judged judged(const DeviceCode& code, const KernelNeeds& needs, const Listing& listing, std::optional<Claims> claims);

/// Share of the K and V that the loops' products need that their loads of the claimed widths can have brought, at most 1: loads of
/// block tables and scales, which are narrow, are not blamed.
double kv_share(const Judged& kernel);
/// Instructions of the hot loop, waits and barriers left out, for each four clocks that its products take.
double issue_share(const Judged& kernel);
/// Returns the clocks of a SIMD for an instruction's shape: the ISA guides' passes, of 4 clocks each. Refuses one that
/// it does not know.
int matrix_clocks(const std::string& mfma);

struct Violation {
  std::string file, rule, kernel, what;
};
/// Returns the violations of a kernel with claims.
std::vector<Violation> violations_of(const Judged& kernel);

/// Judges every kernel of the entries in their order; each code object in `folder` is disassembled once. `full`
/// includes those that only tests labelled full look at. Refuses code objects with other kernels than their entries'.
std::vector<Judged> judge(const std::vector<Claims>& claims, const std::string& folder, bool full);
/// Returns every AMD kernel of files and of folders' code objects, with the claims that name it.
std::vector<Judged> judge_files(const std::vector<std::string>& paths, const std::vector<Claims>& claims);

}  // namespace tilewave::tool
