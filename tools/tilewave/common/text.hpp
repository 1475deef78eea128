// SPDX-License-Identifier: MIT
// Files, numbers and words, with errors that say what was wrong where.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

/// Returns all of a file; "-" is stdin. A file larger than max_bytes is an error, so that it does not fill memory.
std::string read_file(const std::string& path, std::uint64_t max_bytes = std::uint64_t{1} << 30);

/// Another process, or this one after a kill at any moment, sees the file as before or as after, never in between. A device, a
/// fifo and what a link points to are written through.
void write_atomically(const std::filesystem::path& path, std::string_view content);

inline constexpr std::string_view utf8_mark = "\xef\xbb\xbf";

/// Returns the text behind a byte order mark of UTF-8, if there is one. Refuses UTF-16 and UTF-32, which PowerShell's
/// `>` writes, by name.
std::string_view utf8_of(std::string_view text, const std::string& source);

/// The whole word is a number (nan and inf are), or nothing.
std::optional<double> number(std::string_view word);
std::optional<std::int64_t> integer(std::string_view word);

std::vector<std::string> split(std::string_view text, char separator);
std::vector<std::string> lines_of(std::string_view text);
std::string join(const std::vector<std::string>& words, std::string_view separator);
std::string_view trim(std::string_view text);
std::string lower(std::string_view text);
bool contains(const std::vector<std::string>& list, std::string_view word);

/// Returns text for a message: at most max bytes, with '?' for control characters and for everything outside ASCII.
std::string printable(std::string_view text, std::size_t max = 60);

/// Returns text as one word of /bin/sh.
std::string shell_word(std::string_view word);

/// Local time, to the minute: YYYY-MM-DD HH:MM.
std::string now_minute();

/// Left-aligned columns, two spaces apart; cells that are numbers are right-aligned.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace tilewave::tool
