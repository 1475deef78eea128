// SPDX-License-Identifier: MIT
// Parts that pictures and pages share.
#pragma once

#include <string>
#include <string_view>

namespace tilewave::tool {

/// Returns text that is safe as text or attribute of XML and HTML.
inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 32 && c != '\n' && c != '\t' ? '?' : c;
    }
  }
  return out;
}

/// Okabe and Ito's colours, which people with any colour vision can tell apart.
inline const char* colour_of(std::size_t index) {
  static constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                            "#e69f00", "#56b4e9", "#000000", "#999999"};
  return colours[index % 8];
}

}  // namespace tilewave::tool
