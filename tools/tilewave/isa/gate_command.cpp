// SPDX-License-Identifier: MIT
// isa gate, isa table, isa page.
#include "tools/tilewave/isa/gate_command.hpp"

#include <fmt/format.h>

#include <memory>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/text.hpp"
#include "tools/tilewave/isa/tables.hpp"

namespace tilewave::tool {

namespace {

struct GateOptions {
  std::string folder, entries, tables, page;
  std::vector<std::string> paths;
  bool full = false, json = false, markdown = false, update = false;
};

std::vector<Claims> claims_in(const std::string& path) { return parse_claims(read_file(path), path); }

int gate(const GateOptions& o) {
  const std::vector<Judged> kernels = judge(claims_in(o.entries), o.folder, o.full);
  const IsaTables tables{kernels.front().compiler, o.full, tables_of(kernels)};
  if (!o.tables.empty()) write_atomically(o.tables, dump(tables_json(tables)));
  std::vector<Violation> bad;
  for (const Judged& k : kernels)
    for (Violation& v : violations_of(k)) bad.push_back(std::move(v));
  if (o.json) {
    Json list = Json::array();
    for (const Violation& v : bad)
      list.push_back({{"file", v.file}, {"rule", v.rule}, {"kernel", v.kernel}, {"what", v.what}});
    fmt::print("{}", dump({{"schema", "tilewave.isa_gate/1"},
                           {"kernels", kernels.size()},
                           {"violations", list},
                           {"tables", tables_json(tables)}}));
  } else {
    for (const Violation& v : bad) fmt::print("violation: {}: {}: {}: {}\n", v.file, v.rule, v.kernel, v.what);
    fmt::print("{} kernels, {} violations\n", kernels.size(), bad.size());
  }
  return static_cast<int>(bad.empty() ? Exit::ok : Exit::violated);
}

int table(const GateOptions& o) {
  const std::vector<Judged> kernels =
      judge_files(o.paths, o.entries.empty() ? std::vector<Claims>{} : claims_in(o.entries));
  const IsaTables tables{kernels.front().compiler, true, tables_of(kernels)};
  fmt::print("{}", o.json ? dump(tables_json(tables)) : tables_text(tables.tables, o.markdown));
  return 0;
}

int page(const GateOptions& o) {
  const IsaTables tables = parse_tables(read_file(o.tables), o.tables);
  const std::string text = read_file(o.page);
  if (o.update) {
    if (!tables.full) refuse(o.tables + ": a page has all kernels: isa gate --full");
    write_atomically(o.page, page_with(text, tables, o.page));
    return 0;
  }
  const PageCheck check = check_page(text, tables, o.page);
  if (o.json) {
    fmt::print("{}", dump({{"schema", "tilewave.isa_page/1"},
                           {"same_compiler", check.same_compiler},
                           {"differences", check.differences}}));
  } else {
    for (const std::string& line : check.differences) fmt::print("{}: {}\n", o.page, line);
    if (!check.differences.empty()) {
      fmt::print("isa page --update writes the tables anew\n");
    } else if (!check.same_compiler) {
      fmt::print("{}: not compiled by {}: only the list of kernels was compared\n", o.page, tables.compiler);
    }
  }
  return static_cast<int>(check.differences.empty() ? Exit::ok : Exit::violated);
}

}  // namespace

void add_isa_gate(Command& isa) {
  auto o = std::make_shared<GateOptions>();
  Command sub =
      isa.add("gate", "Hold the AMD kernels of a build to rules and to what their entries claim; 15: one is broken");
  sub.option("folder", o->folder, "where the code objects are").required();
  sub.option("--entries", o->entries, "entries.json of the build").required();
  sub.flag("--full", o->full, "also the specs that only tests labelled full look at");
  sub.option("--tables", o->tables, "file for what the kernels use, as JSON: isa page takes it");
  sub.flag("--json", o->json, "violations and tables as JSON");
  sub.example(
      "  tilewave isa gate build/host/code_objects --entries build/host/code_objects/entries.json\n"
      "Exit statuses: 0 every rule holds, 15 one is broken, a line each, 2 bad usage or file, 1 no disassembler.");
  sub.run([o] { return gate(*o); });

  Command all = isa.add("table", "What AMD kernels use and what their hot loops are made of, a line for each");
  all.option("files", o->paths, "code objects, offload bundles, programs, or folders of them").required();
  all.option("--entries", o->entries, "entries.json of a build: names kernels by spec and policy");
  all.flag("--markdown", o->markdown, "as on a page");
  all.flag("--json", o->json, "the tables as JSON");
  all.example(
      "  tilewave isa table any_code_object.co\n"
      "  tilewave isa table build/host/code_objects --entries build/host/code_objects/entries.json --markdown");
  all.run([o] { return table(*o); });

  Command text = isa.add("page", "Hold a page of tables to the code, or write it anew; 15: they differ");
  text.option("page", o->page, "docs/notebook/isa-table.md").required();
  text.option("--tables", o->tables, "what isa gate wrote").required();
  text.flag("--update", o->update, "write the tables into the page");
  text.flag("--json", o->json, "the differences as JSON");
  text.example(
      "  tilewave isa gate build/host/code_objects --entries build/host/code_objects/entries.json --full --tables t.json\n"
      "  tilewave isa page docs/notebook/isa-table.md --tables t.json --update");
  text.run([o] { return page(*o); });
}

}  // namespace tilewave::tool
