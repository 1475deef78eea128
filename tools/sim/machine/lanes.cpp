// SPDX-License-Identifier: MIT
#include "sim/machine/lanes.hpp"

#include <algorithm>

namespace tilewave::sim {

Half::Half(float value) {
  const std::uint32_t x = std::bit_cast<std::uint32_t>(value), sign = x >> 16 & 0x8000u, magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<std::uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    bits = static_cast<std::uint16_t>(sign | 0x7c00u);
  } else {
    const int exponent = static_cast<int>(magnitude >> 23) - 127;
    const int dropped = 13 + std::max(0, -14 - exponent);
    std::uint32_t code = 0;
    if (dropped <= 24) {
      const std::uint32_t significand = (magnitude & 0x7fffffu) | (magnitude >> 23 ? 0x800000u : 0u);
      const std::uint32_t half = 1u << (dropped - 1), rest = significand & ((1u << dropped) - 1);
      code = (significand >> dropped) + (rest > half || (rest == half && (significand >> dropped & 1u)) ? 1u : 0u);
      if (exponent >= -14) code += static_cast<std::uint32_t>(exponent + 14) << 10;
    }
    bits = static_cast<std::uint16_t>(sign | code);
  }
}

Half::operator float() const {
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, mantissa = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -value : value;
}

void read_words(const Wave& w, const Operand& a, int word, const Dpp* dpp, Lanes<std::uint32_t>& out) {
  if (!a.is_vector()) {
    std::fill_n(out.value, wave_lanes, scalar_word(w, a, word));
    return;
  }
  const Wave::Row& row = w.v[a.reg + word];
  if (!dpp) {
    std::memcpy(out.value, row.data(), sizeof(out.value));
    return;
  }
  const std::uint64_t exec = w.exec();
  for (int l = 0; l < wave_lanes; ++l) {
    const int from = dpp->source[l];
    out[l] = from >= 0 && (exec >> from & 1) ? row[from] : 0;  // an inactive source counts as invalid
  }
}

std::uint64_t write_mask(const Wave& w, const Op& op) {
  std::uint64_t mask = w.exec();
  if (!op.dpp) return mask;
  const std::uint64_t exec = mask;
  mask &= op.dpp->enabled;
  if (!op.dpp->bound_zero)
    for (int l = 0; l < wave_lanes; ++l) {
      const int from = op.dpp->source[l];
      if (from < 0 || !(exec >> from & 1)) mask &= ~(std::uint64_t{1} << l);
    }
  return mask;
}

namespace {

constexpr int shift_of(Select s) { return s <= Select::byte3 ? 8 * static_cast<int>(s) : s == Select::word1 ? 16 : 0; }
constexpr int bits_of(Select s) { return s <= Select::byte3 ? 8 : s == Select::dword ? 32 : 16; }

}  // namespace

void select_part(Lanes<std::uint32_t>& words, Select select, bool sign_extend) {
  if (select == Select::dword) return;
  const int shift = shift_of(select), spare = 32 - bits_of(select);
  for (auto& x : words.value) {
    x = x >> shift << spare;
    x = sign_extend ? static_cast<std::uint32_t>(static_cast<std::int32_t>(x) >> spare) : x >> spare;
  }
}

void merge_part(Lanes<std::uint32_t>& words, const Wave::Row& old, const Sdwa& sdwa) {
  if (sdwa.destination == Select::dword) return;
  const int shift = shift_of(sdwa.destination), bits = bits_of(sdwa.destination);
  const std::uint32_t low = (1u << bits) - 1u, field = low << shift;
  for (int l = 0; l < wave_lanes; ++l) {
    const std::uint32_t part = words[l] & low;
    if (sdwa.unused == Unused::preserve) {
      words[l] = (old[l] & ~field) | part << shift;
    } else if (sdwa.unused == Unused::sext && (part >> (bits - 1) & 1u)) {
      words[l] = part << shift | ~(low << shift | (shift ? (1u << shift) - 1u : 0u));
    } else {
      words[l] = part << shift;
    }
  }
}

}  // namespace tilewave::sim
