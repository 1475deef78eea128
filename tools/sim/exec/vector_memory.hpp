// SPDX-License-Identifier: MIT
// Parts that global, flat, scratch and buffer accesses share: widths, register layout, tickets and counting.
#pragma once

#include <array>
#include <utility>

#include "sim/machine/lanes.hpp"

namespace tilewave::sim {

/// One lane's part of a load or store. It is packed into Instruction::parameter.
struct Access {
  std::uint32_t bytes = 4;
  bool sign_extend = false;
  bool d16 = false;   // keeps the other half of the register
  bool high = false;  // ... and uses the high half

  constexpr std::uint32_t pack() const { return bytes | sign_extend << 8 | d16 << 9 | high << 10; }
  static constexpr Access unpack(std::uint32_t x) {
    return {x & 0xff, (x >> 8 & 1) != 0, (x >> 9 & 1) != 0, (x >> 10 & 1) != 0};
  }
};

inline constexpr std::array<std::pair<const char*, Access>, 14> load_kinds{{{"ubyte", {1}},
                                                                            {"sbyte", {1, true}},
                                                                            {"ushort", {2}},
                                                                            {"sshort", {2, true}},
                                                                            {"ubyte_d16", {1, false, true}},
                                                                            {"ubyte_d16_hi", {1, false, true, true}},
                                                                            {"sbyte_d16", {1, true, true}},
                                                                            {"sbyte_d16_hi", {1, true, true, true}},
                                                                            {"short_d16", {2, false, true}},
                                                                            {"short_d16_hi", {2, false, true, true}},
                                                                            {"dword", {4}},
                                                                            {"dwordx2", {8}},
                                                                            {"dwordx3", {12}},
                                                                            {"dwordx4", {16}}}};
inline constexpr std::array<std::pair<const char*, Access>, 8> store_kinds{{{"byte", {1}},
                                                                            {"byte_d16_hi", {1, false, true, true}},
                                                                            {"short", {2}},
                                                                            {"short_d16_hi", {2, false, true, true}},
                                                                            {"dword", {4}},
                                                                            {"dwordx2", {8}},
                                                                            {"dwordx3", {12}},
                                                                            {"dwordx4", {16}}}};

/// The value of a one- or two-byte load, as the register will hold it.
inline std::uint32_t narrow_value(const Access& access, const std::uint8_t* from, std::uint32_t old) {
  std::uint32_t x = access.bytes == 1 ? *from : load_bytes<std::uint16_t>(from);
  const std::uint32_t spare = 32 - 8 * access.bytes;
  if (access.sign_extend) x = static_cast<std::uint32_t>(static_cast<std::int32_t>(x << spare) >> spare);
  if (!access.d16) return x;
  return access.high ? (old & 0xffffu) | x << 16 : (old & 0xffff0000u) | (x & 0xffffu);
}

inline void load_lane(Wave& w, int reg, int lane, const Access& access, const std::uint8_t* from) {
  if (access.bytes < 4) {
    w.v[reg][lane] = narrow_value(access, from, w.v[reg][lane]);
  } else {
    for (std::uint32_t i = 0; i < access.bytes / 4; ++i) w.v[reg + i][lane] = load_bytes<std::uint32_t>(from + 4 * i);
  }
}
inline void store_lane(const Wave& w, int reg, int lane, const Access& access, std::uint8_t* to) {
  if (access.bytes < 4) {
    const std::uint32_t x = w.v[reg][lane] >> (access.high ? 16 : 0);
    std::memcpy(to, &x, access.bytes);
  } else {
    for (std::uint32_t i = 0; i < access.bytes / 4; ++i) std::memcpy(to + 4 * i, &w.v[reg + i][lane], 4);
  }
}

/// A lane's part of a copy straight to LDS: lane l writes at M0 + instruction offset + 4 l, of three or four dwords
/// + 16 l; narrow ones fill a dword (CDNA3 and CDNA4 ISA guides, "Memory buffer load to LDS"). gfx942 has 16 bits of M0.
inline void copy_lane(Wave& w, const Op& op, int lane, const Access& access, const std::uint8_t* from) {
  const std::uint32_t base = w.s[m0] & (w.block->arch == Arch::gfx942 ? 0xffffu : ~0u);
  const std::uint32_t bytes = access.bytes < 4 ? 4 : access.bytes, stride = bytes > 4 ? 16 : 4;
  std::uint8_t* to = w.block->lds_copy(
      w, base + static_cast<std::uint32_t>(op.offset) + stride * static_cast<std::uint32_t>(lane), bytes);
  const std::uint32_t narrow = access.bytes < 4 ? narrow_value(access, from, 0) : 0;
  std::memcpy(to, access.bytes < 4 ? reinterpret_cast<const std::uint8_t*>(&narrow) : from, bytes);
}

/// The registers of `a` are filled when the operation just issued completes.
inline void mark_pending(Wave& w, const Operand& a, bool vm, bool lgkm) {
  for (int r = a.reg; r < a.reg + a.words; ++r) {
    if (vm) w.v_vm[r] = w.vm.issued;
    if (lgkm) w.v_lgkm[r] = w.lgkm.issued;
  }
}

/// Run `f(lane)` for every active lane; an Error names the lane.
template <class F>
void for_active(const Wave& w, F f) {
  const std::uint64_t exec = w.exec();
  for (int l = 0; l < wave_lanes; ++l) {
    if (!(exec >> l & 1)) continue;
    try {
      f(l);
    } catch (const Error& error) {
      throw Error("lane " + std::to_string(l) + ": " + error.what());
    }
  }
}

}  // namespace tilewave::sim
