// SPDX-License-Identifier: MIT
#include "tools/tilewave/isa/entries.hpp"

#include <fmt/format.h>

#include "tilewave/arch/facts.hpp"
#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

/// The facts that the build wrote beside the claims: occupancy is computed with the library's own.
void same_facts(const Json& archs, const std::string& source) {
  if (!archs.is_object()) refuse(source + ": 'archs' is no object");
  for (const auto& [name, given] : archs.items()) {
    const ArchFacts* const known = facts_named(name);
    if (known == nullptr || known->family != Family::cdna)
      refuse(fmt::format("{}: {}: no chip of the gate", source, printable(name)));
    const ArchFacts& facts = *known;
    for (const auto& [key, fact] : {std::pair{"lds_bytes", facts.lds_bytes},
                                    {"simds_per_cu", facts.simds_per_cu},
                                    {"max_waves_per_simd", facts.max_waves_per_simd},
                                    {"register_file_lanes", facts.register_file_lanes},
                                    {"register_granule", facts.register_granule}})
      if (given.contains(key) && integer_member(given, key, source) != fact)
        refuse(fmt::format("{}: {} {} is {}, this command has {}", source, name, key,
                           integer_member(given, key, source), fact));
  }
}

RowClaims row_of(const Json& json, const std::string& source) {
  const auto count = [&](const char* key) { return integer_member(json, key, source); };
  RowClaims row{.vector = bool_member(json, "vector", source),
                .bytes_in_flight = count("bytes_in_flight"),
                .dpp = count("dpp"),
                .barriers = count("barriers"),
                .exchanges = json.contains("exchanges") ? count("exchanges") : 0,
                .wave_lds = json.contains("wave_lds") ? count("wave_lds") : 0};
  if (row.vector) {
    row.wide_loads = count("wide_loads"), row.wide_stores = count("wide_stores");
    row.narrow_load_bytes = count("narrow_load_bytes"), row.narrow_store_bytes = count("narrow_store_bytes");
  }
  return row;
}

KvClaims kv_of(const Json& json, const std::string& source) {
  KvClaims kv;
  for (const Json& name : list_member(json, "mfma", source)) {
    if (!name.is_string()) refuse(source + ": 'mfma' holds no names");
    kv.mfma.push_back(name.get<std::string>());
  }
  kv.mfma_per_load = number_member(json, "mfma_per_load", source);
  if (!(kv.mfma_per_load > 0)) refuse(source + ": 'mfma_per_load' is not above 0");
  if (json.contains("kv_widths")) {
    kv.widths.clear();
    for (const Json& width : list_member(json, "kv_widths", source)) {
      if (!width.is_number_integer()) refuse(source + ": 'kv_widths' holds no integers");
      kv.widths.push_back(width.get<int>());
    }
  }
  return kv;
}

Entry named(const Json& json, const std::string& source) {
  const auto word = [&](const char* key) { return json.contains(key) ? text_member(json, key, source) : ""; };
  return {word("code_object"), word("symbol"), word("kernel"), word("spec"), word("policy")};
}

Claims claims_of(const Json& json, const std::string& source) {
  const Entry entry = named(json, source);
  Claims c{.file = text_member(json, "code_object", source),
           .symbol = entry.symbol,
           .arch = text_member(json, "arch", source),
           .label = entry.label(),
           .family = entry.kernel + " " + entry.policy,
           .full = json.contains("full") && bool_member(json, "full", source),
           .waves_per_simd = integer_member(json, "waves_per_simd", source),
           .waves_per_block = integer_member(json, "waves_per_block", source),
           .lds_bytes = integer_member(json, "lds_bytes", source)};
  const auto has = [&](const char* key) { return json.contains(key) && !json[key].is_null(); };
  if (has("mfma")) c.kv = kv_of(json, source);
  if (has("steady"))
    c.steady = SteadyClaims{.valu = number_member(json["steady"], "steady_valu", source),
                            .matrix_clocks = number_member(json["steady"], "steady_matrix", source),
                            .kb_in_flight = number_member(json["steady"], "steady_flight", source)};
  if (has("row")) c.row = row_of(json["row"], source);
  if (has("gemm"))
    c.gemm = GemmClaims{.mfma = text_member(json["gemm"], "mfma", source),
                        .valu_of_products = number_member(json["gemm"], "valu_of_products", source),
                        .writes_lds = bool_member(json["gemm"], "writes_lds", source),
                        .drains = json["gemm"].contains("drains") && bool_member(json["gemm"], "drains", source)};
  return c;
}

}  // namespace

std::string Entry::label() const {
  std::string text;
  for (const std::string& word : {kernel, spec, policy}) text += (text.empty() || word.empty() ? "" : " ") + word;
  return text;
}

std::vector<Entry> parse_entries(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  const Json& list = json.is_object() && json.contains("entries") ? list_member(json, "entries", source) : json;
  if (!list.is_array()) refuse(source + ": no list of entries");
  std::vector<Entry> entries;
  for (const Json& one : list) {
    if (!one.is_object() || !(one.contains("symbol") || one.contains("code_object"))) continue;
    entries.push_back(named(one, source));
  }
  return entries;
}

std::vector<Entry> entries_of(const std::string& path) { return parse_entries(read_file(path), path); }

const Entry* entry_of(const std::vector<Entry>& entries, std::string_view file, std::string_view symbol) {
  for (const Entry& entry : entries)
    if ((entry.file.empty() || entry.file == file) && symbol.find(entry.symbol) != symbol.npos) return &entry;
  return nullptr;
}

std::vector<Claims> parse_claims(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  if (text_member(json, "schema", source) != "tilewave-isa-entries/1")
    refuse(source + ": not a tilewave-isa-entries/1 file");
  same_facts(member(json, "archs", source), source);
  std::vector<Claims> claims;
  for (const Json& entry : list_member(json, "entries", source)) claims.push_back(claims_of(entry, source));
  if (claims.empty()) refuse(source + ": no entries");
  return claims;
}

}  // namespace tilewave::tool
