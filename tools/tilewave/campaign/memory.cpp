// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/memory.hpp"

#include <fmt/format.h>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace fs = std::filesystem;

namespace {
fs::path file_of(const fs::path& folder, int version) { return folder / fmt::format("v{}.json", version); }
}  // namespace

bool is_masked(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  integer_member(json, "version", source);
  return bool_member(json, "masked", source);
}

void write_memory(const fs::path& folder, int version, const Round& r, const std::vector<std::string>& pitfalls) {
  const fs::path file = file_of(folder, version);
  if (fs::exists(file)) {
    is_masked(read_file(file.string()), file.string());
    return;
  }
  Json classes = Json::object();
  for (const auto& [name, us] : r.classes) classes[name] = us;
  write_atomically(file, dump({{"version", version},
                               {"masked", false},
                               {"round", r.number},
                               {"commit", r.commit},
                               {"date", r.date},
                               {"hypothesis", r.proposal.hypothesis},
                               {"bucket", r.proposal.bucket},
                               {"direction", r.proposal.direction},
                               {"us", r.us},
                               {"gpu_us", r.gpu_us},
                               {"score", r.score},
                               {"total", r.total},
                               {"kernel", r.kernel},
                               {"files", r.files},
                               {"classes", classes},
                               {"launch", Json(r.launch)},
                               {"bottlenecks", Json(r.bottlenecks)},
                               {"pitfalls_and_fixes", Json(pitfalls)}}));
}

void mask_memory(const fs::path& folder, int version, bool masked) {
  const fs::path file = file_of(folder, version);
  if (!fs::exists(file)) refuse(fmt::format("there is no {}", file.string()));
  const std::string text = read_file(file.string());
  is_masked(text, file.string());
  Json json = parse_json(text, file.string());
  json["masked"] = masked;
  write_atomically(file, dump(json));
}

void write_if_other(const fs::path& path, std::string_view content) {
  if (fs::exists(path) && read_file(path.string()) == content) return;
  write_atomically(path, content);
}

}  // namespace tilewave::tool
