// SPDX-License-Identifier: MIT
// A code object of gfx950, made here.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tools/tilewave/common/json.hpp"

namespace tilewave::test {

template <class T>
inline void put(std::string& bytes, std::size_t at, T value) {
  if (bytes.size() < at + sizeof(T)) bytes.resize(at + sizeof(T), '\0');
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

/// An ELF with one segment of its whole, a note, and dynamic symbols of one kernel `k`.
inline std::string amd_object(int vgprs, int lds) {
  const tool::Json note = {{"amdhsa.target", "amdgcn-amd-amdhsa--gfx950"},
                           {"amdhsa.kernels",
                            {{{".name", "k"},
                              {".vgpr_count", vgprs},
                              {".agpr_count", 0},
                              {".sgpr_count", 40},
                              {".group_segment_fixed_size", lds},
                              {".private_segment_fixed_size", 0},
                              {".max_flat_workgroup_size", 256}}}}};
  const std::vector<std::uint8_t> packed = nlohmann::json::to_msgpack(nlohmann::json::parse(note.dump()));
  std::string o("\177ELF\2\1", 6);
  put<std::uint16_t>(o, 18, 224);
  put<std::uint64_t>(o, 32, 64);   // program headers
  put<std::uint64_t>(o, 40, 256);  // section headers
  put<std::uint16_t>(o, 56, 2);
  put<std::uint16_t>(o, 60, 4);
  put<std::uint16_t>(o, 62, 3);
  const auto segment = [&](int i, std::uint32_t type, std::uint64_t at, std::uint64_t size) {
    const std::size_t p = 64 + 56 * static_cast<std::size_t>(i);
    put(o, p, type), put(o, p + 8, at), put(o, p + 16, at), put(o, p + 32, size), put(o, p + 40, size);
  };
  const std::size_t note_at = 1024;
  segment(0, 1, 0, 2048), segment(1, 4, note_at, 20 + packed.size());
  const auto section = [&](int i, std::uint32_t name, std::uint32_t type, std::uint32_t link, std::uint64_t at,
                           std::uint64_t size) {
    const std::size_t s = 256 + 64 * static_cast<std::size_t>(i);
    put(o, s, name), put(o, s + 4, type), put(o, s + 24, at), put(o, s + 32, size), put(o, s + 40, link);
  };
  const std::string names(".comment\0k\0k.kd\0clang 22\0", 26);
  section(0, 8, 0, 0, 0, 0), section(1, 8, 11, 3, 600, 72), section(2, 0, 1, 0, 716, 9), section(3, 8, 3, 0, 700, 26);
  o.resize(2048, '\0');
  o.replace(700, names.size(), names);
  const auto symbol = [&](int i, std::uint32_t name, std::uint64_t value, std::uint64_t size) {
    const std::size_t y = 600 + 24 * static_cast<std::size_t>(i);
    put(o, y, name), put(o, y + 8, value), put(o, y + 16, size);
  };
  symbol(1, 9, 1900, 16), symbol(2, 11, 800, 64);
  put<std::uint64_t>(o, 816, 1100);                                             // entry, from the descriptor
  put<std::uint32_t>(o, 848, static_cast<std::uint32_t>((vgprs + 7) / 8 - 1));  // granules of registers
  put<std::uint32_t>(o, note_at, 7), put(o, note_at + 4, static_cast<std::uint32_t>(packed.size()));
  put<std::uint32_t>(o, note_at + 8, 32);
  std::memcpy(o.data() + note_at + 12, "AMDGPU", 7);
  std::memcpy(o.data() + note_at + 20, packed.data(), packed.size());
  return o;
}

}  // namespace tilewave::test
