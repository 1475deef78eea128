// SPDX-License-Identifier: MIT
#include "tools/tilewave/campaign/proposal.hpp"

#include <fmt/format.h>

#include "tools/tilewave/common/error.hpp"
#include "tools/tilewave/common/json.hpp"
#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

Proposal parse_proposal(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  Proposal p;
  p.hypothesis = text_member(json, "hypothesis", source);
  p.bucket = text_member(json, "bucket", source);
  for (char& c : p.hypothesis) c = c == '\n' ? ' ' : c;
  for (const auto& [key, value] : json.items()) {
    if (key == "hypothesis" || key == "bucket") continue;
    if (key == "target") {
      p.target = text_member(json, "target", source);
    } else if (key == "direction") {
      p.direction = text_member(json, "direction", source);
    } else if (key == "tip") {
      p.tip = text_member(json, "tip", source);
    } else if (key == "lesson") {
      p.lesson = text_member(json, "lesson", source);
    } else if (key == "pitfalls_and_fixes") {
      for (const Json& item : list_member(json, "pitfalls_and_fixes", source)) {
        if (!item.is_string()) refuse(source + ": 'pitfalls_and_fixes' is no list of words");
        p.pitfalls.push_back(item.get<std::string>());
      }
    } else if (key == "real_gain_pct") {
      p.real_gain_pct = number_member(json, "real_gain_pct", source);
    } else if (key == "hit_rate") {
      p.hit_rate = number_member(json, "hit_rate", source);
    } else {
      refuse(fmt::format("{}: '{}' is no key of a proposal", source, printable(key)));
    }
  }
  for (std::string* line : {&p.tip, &p.lesson})
    for (char& c : *line) c = c == '\n' ? ' ' : c;
  return p;
}

}  // namespace tilewave::tool
