// SPDX-License-Identifier: MIT
// The resources of compiled kernels as tables: on a terminal, as JSON, and on the page docs/notebook/isa-table.md,
// which is compared with the code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/isa/gate.hpp"

namespace tilewave::tool {

struct Table {
  std::string title;
  std::vector<std::string> columns;  // the first two are the chip and the kernel
  std::vector<std::vector<std::string>> rows;
};

/// Titles of those that a page is held to.
inline constexpr const char* uses_title = "Resources and whole kernel";
inline constexpr const char* rows_title = "Row operations, the worst of all specs";

/// Returns tables of the resources of a kernel, its hot loop, the steady loop of a GEMM, the cost of a stream of K and
/// V for each KB, and the worst of the specs of row kernels. Tables that would be empty are left out.
std::vector<Table> tables_of(const std::vector<Judged>& kernels);
std::string tables_text(const std::vector<Table>& tables, bool markdown);

/// The JSON of `isa gate` and `isa table`, which `isa page` reads: one disassembly serves all.
struct IsaTables {
  std::string compiler;
  bool full = false;  // of all specs of row kernels
  std::vector<Table> tables;
};
Json tables_json(const IsaTables& all);
IsaTables parse_tables(std::string_view text, const std::string& source);

/// The page with its tables written anew, between the marks that it has for them. Refuses a page without.
std::string page_with(const std::string& page, const IsaTables& all, const std::string& source);

/// The differences between the page and the code, a line each. Kernels and their reserved resources are compared. If
/// another compiler made the page, only the list of kernels is. The same holds for row kernels where not all specs were
/// looked at.
struct PageCheck {
  bool same_compiler = false;
  std::vector<std::string> differences;
};
PageCheck check_page(const std::string& page, const IsaTables& all, const std::string& source);

}  // namespace tilewave::tool
