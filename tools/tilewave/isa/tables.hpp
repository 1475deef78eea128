// SPDX-License-Identifier: MIT
// What compiled kernels use, as tables: on a terminal, as JSON, and on the page docs/notebook/isa-table.md, which is held to the code.
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

/// What a kernel uses, its hot loop, the steady loop of a GEMM, what a stream of K and V spends for each KB, and the worst of the
/// specs of row kernels. Without the tables that would be empty.
std::vector<Table> tables_of(const std::vector<Judged>& kernels);
std::string tables_text(const std::vector<Table>& tables, bool markdown);

/// What `isa gate` and `isa table` say as JSON, and `isa page` reads: one disassembly for all.
struct IsaTables {
  std::string compiler;
  bool full = false;  // of all specs of row kernels
  std::vector<Table> tables;
};
Json tables_json(const IsaTables& all);
IsaTables parse_tables(std::string_view text, const std::string& source);

/// The page with its tables written anew, between the marks that it has for them. Refuses a page without.
std::string page_with(const std::string& page, const IsaTables& all, const std::string& source);

/// What keeps the page from saying what the code is, a line each. Kernels and what they reserve are held to it; where another
/// compiler made the page only which kernels there are, and so of row kernels where not all specs were looked at.
struct PageCheck {
  bool same_compiler = false;
  std::vector<std::string> differences;
};
PageCheck check_page(const std::string& page, const IsaTables& all, const std::string& source);

}  // namespace tilewave::tool
