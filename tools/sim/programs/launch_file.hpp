// SPDX-License-Identifier: MIT
// A launch of any kernel of any file with AMD machine code, described by JSON (docs/reference/isa_sim.md, "Any kernel").
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/machine/machine.hpp"

namespace tilewave::sim {

/// Memory of a launch that costs nothing until it is touched: zero pages of the operating system.
class Pages {
 public:
  explicit Pages(std::size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::uint8_t* data_;
  std::size_t size_;
};

struct FileLaunch {
  CodeObject object;
  Launch launch;
  Memory memory;
  std::vector<std::pair<std::string, std::unique_ptr<Pages>>> buffers;

  /// FNV-1a of a buffer's bytes, to compare runs.
  std::uint64_t hash(std::size_t buffer) const;
  void write(std::size_t buffer, const std::string& path) const;
};

/// The kernel argument segment with its hidden arguments set as the ABI says; the caller's are zero.
std::vector<std::uint8_t> hidden_arguments(const CodeObject& object, const Launch& launch);

/// Returns one line for every kernel of the file: name and arguments.
std::string list_kernels(const CodeObject& object);

/// Throws Error with one line. Relative paths are from `directory`.
FileLaunch read_launch(const nlohmann::json& description, const std::string& directory, const std::string& objdump);

/// Returns one command-line argument (`NAME=VALUE` or `VALUE`) as the JSON that read_launch takes.
nlohmann::json argument_from_text(const std::string& text);

}  // namespace tilewave::sim
