// SPDX-License-Identifier: MIT
// The files of a repro bundle (docs/reference/bundle.md).
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/tilewave/common/write_file.hpp"

namespace tilewave::bench {

using Bytes = std::vector<std::uint8_t>;

inline Bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path.string() + ": cannot read");
  if (!std::filesystem::is_regular_file(path)) return Bytes(std::istreambuf_iterator<char>(in), {});
  Bytes bytes(std::filesystem::file_size(path));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  return bytes;
}
inline void write_file(const std::filesystem::path& path, const void* data, std::size_t bytes) {
  const std::string why = tool::write_whole_file(path, {static_cast<const char*>(data), bytes});
  if (!why.empty()) throw std::runtime_error(path.string() + ": cannot write: " + why);
}

inline std::string hex_of(const Bytes& bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

/// Removes the files of a bundle, whole or not.
inline void clear_bundle(const std::filesystem::path& dir) {
  for (const std::filesystem::directory_entry& file : std::filesystem::directory_iterator(dir)) {
    const std::filesystem::path extension = file.path().extension();
    if (extension == ".bin" || extension == ".co" || file.path().filename() == "bundle.json") remove(file.path());
  }
}

/// Creates a directory that is to be written into. Throws where that cannot be done.
inline void create_directory_for_output(const std::filesystem::path& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!std::filesystem::is_directory(dir, error)) throw std::runtime_error(dir.string() + ": not a directory");
  if (::access(dir.c_str(), W_OK | X_OK) != 0) throw std::runtime_error(dir.string() + ": cannot write");
}

/// Does so for a bundle, and throws where the directory has anything else than an older bundle.
inline void check_bundle_directory(const std::filesystem::path& dir) {
  create_directory_for_output(dir);
  if (!std::filesystem::is_empty(dir) && !exists(dir / "bundle.json"))
    throw std::runtime_error(dir.string() + ": not empty, and no bundle");
}

/// Creates the directory, or empties it of an older bundle.
inline void prepare_bundle(const std::filesystem::path& dir) {
  check_bundle_directory(dir);
  clear_bundle(dir);
}

}  // namespace tilewave::bench
