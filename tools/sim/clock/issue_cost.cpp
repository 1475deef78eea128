// SPDX-License-Identifier: MIT
#include "sim/clock/issue_cost.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

namespace tilewave::sim {
namespace {

using std::string_view;

bool starts_with_any(string_view s, std::initializer_list<string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](string_view p) { return s.starts_with(p); });
}

/// Passes of four clk, and the products of the tile.
void set_matrix(const Op& op, string_view name, Arch arch, Pace& pace) {
  pace.unit = Unit::matrix;
  pace.issue = op.bytes > 8 ? 8 : 4;
  int m = 16, n = 16, k = 16, blocks = 1;
  const auto shape = name.find_first_of(
      "0123456789", name.find("32_") != string_view::npos ? name.find("32_") + 3 : name.find("64_") + 3);
  if (shape != string_view::npos)
    std::sscanf(std::string(name.substr(shape)).c_str(), "%dx%dx%d_%db", &m, &n, &k, &blocks);
  if (blocks != 2 && blocks != 4 && blocks != 16) blocks = 1;
  pace.flops = 2.0 * m * n * k * blocks;
  int passes = m == 32 ? 8 : m == 16 ? 4 : 2;
  if (name.find("f8f6f4") != string_view::npos)
    passes = (m == 32 ? 16 : 8) / (op.cbsz >= 2 && op.blgp >= 2 ? 2 : 1);
  else if (name.starts_with("v_mfma_f64"))
    passes = m == 4 ? 4 : arch == Arch::gfx950 ? 16 : 8;
  else if (m != 4 && !name.starts_with("v_smfmac") && (blocks > 1 || name.ends_with("_f32")))
    passes *= 2;
  pace.matrix = static_cast<std::uint16_t>(4 * passes);
}

void set_valu(const Op& op, string_view name, const ArchClock& clock, Pace& pace) {
  pace.unit = Unit::valu;
  if (starts_with_any(name, {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"})) {
    pace.taken = static_cast<std::uint16_t>(clock.transcendental);
    pace.result = static_cast<std::uint16_t>(clock.transcendental);
  }
  pace.packed = starts_with_any(name, {"v_pk_add_f32", "v_pk_mul_f32", "v_pk_fma_f32"});
  if (pace.packed) pace.result = static_cast<std::uint16_t>(clock.packed_result);
  if (starts_with_any(name, {"v_permlane"})) pace.taken = 8;
  pace.scalar_result = starts_with_any(name, {"v_cmp", "v_readfirstlane", "v_readlane"});
  if (op.bytes == 8 && op.address % 8 == 4) pace.issue = static_cast<std::uint16_t>(pace.issue + clock.wide_misaligned);
}

void set_lds(string_view name, Pace& pace) {
  pace.unit = Unit::lds;
  pace.store = starts_with_any(name, {"ds_write"});
  pace.lds_bytes = name.find("b128") != string_view::npos                          ? 16
                   : name.find("b96") != string_view::npos                         ? 12
                   : name.find("b64") != string_view::npos || name.ends_with("64") ? 8
                                                                                   : 4;
  pace.lds_accesses = name.find("read2") != string_view::npos || name.find("write2") != string_view::npos ? 2 : 1;
}

void set_sources(const Op& op, Pace& pace) {
  const bool scalar = pace.unit == Unit::salu || pace.unit == Unit::smem;
  if (!scalar && pace.unit != Unit::valu) return;
  for (int i = scalar ? 0 : 1; i < op.operands; ++i)
    if (op.arg[i].kind == (scalar ? Kind::scalar : Kind::vector)) pace.source[pace.sources++] = op.arg[i].reg;
}

}  // namespace

std::vector<Pace> paces(const CodeObject& object) {
  const ArchClock& clock = arch_clock(object.arch);
  std::vector<Pace> out;
  out.reserve(object.program.ops.size());
  for (const Op& op : object.program.ops) {
    Pace pace;
    const string_view name = string_view(op.text).substr(0, op.text.find(' '));
    switch (op.cls) {
      case Class::mfma: set_matrix(op, name, object.arch, pace); break;
      case Class::valu: set_valu(op, name, clock, pace); break;
      case Class::salu:
        pace.unit = Unit::salu;
        pace.writes_scc = true;  // nearly all do; only a branch asks
        break;
      case Class::branch:
        pace.unit = Unit::branch;
        pace.reads_scc = name.find("scc") != string_view::npos;
        break;
      case Class::smem: pace.unit = Unit::smem; break;
      case Class::vmem:
        pace.unit = Unit::vmem;
        pace.store = name.find("_store_") != string_view::npos;
        pace.atomic = name.find("_atomic_") != string_view::npos;
        pace.to_lds = op.lds || name.find("_lds_") != string_view::npos;
        break;
      case Class::lds: set_lds(name, pace); break;
      case Class::wait:
        pace.unit = name == "s_barrier" ? Unit::barrier : Unit::wait;
        if (pace.unit == Unit::wait) {
          const std::uint32_t x = op.simm16(), vm = (x & 15u) | (x >> 14 & 3u) << 4, lgkm = x >> 8 & 15u;
          if (vm < 63) pace.vm_limit = static_cast<std::int16_t>(vm);
          if (lgkm < 15) pace.lgkm_limit = static_cast<std::int16_t>(lgkm);
        }
        break;
      case Class::other:
        pace.unit = name == "s_endpgm" ? Unit::end : Unit::idle;
        if (name == "s_nop") pace.issue = static_cast<std::uint16_t>(4 * ((op.simm16() & 15) + 1));
        if (name == "s_sleep") pace.issue = static_cast<std::uint16_t>(4 + 64 * (op.simm16() & 127));
        break;
    }
    set_sources(op, pace);
    out.push_back(pace);
  }
  return out;
}

double lds_time(const ArchClock& clock, const Pace& pace, const std::vector<std::uint32_t>& addresses, bool write) {
  const int banks = clock.lds_banks, words = pace.lds_bytes / 4;
  // Lanes of one phase: as many as fill the banks; reads of 16 bytes take them in an order of their own.
  const int lanes = std::max(1, words >= 3 ? banks / 4 : std::min(64, banks / words));
  static constexpr std::array<std::uint8_t, 32> order942{0, 1, 2,  3,  20, 21, 22, 23, 4,  5,  6,  7,  16, 17, 18, 19,
                                                         8, 9, 10, 11, 28, 29, 30, 31, 12, 13, 14, 15, 24, 25, 26, 27};
  static constexpr std::array<std::uint8_t, 32> order950{0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27,
                                                         4, 5, 6, 7, 8,  9,  10, 11, 16, 17, 18, 19, 28, 29, 30, 31};
  const auto& order = banks == 32 ? order942 : order950;
  const bool permuted = words >= 3 && !write && addresses.size() == 64;
  double clk = 0;
  const auto n = static_cast<int>(addresses.size());
  for (int accesses = 0; accesses < pace.lds_accesses; ++accesses) {
    for (int first = accesses; first < n; first += lanes * pace.lds_accesses) {
      std::array<std::array<std::uint32_t, 64>, 64> seen;
      std::array<std::uint8_t, 64> count{};
      int fullest = 1;
      for (int i = 0; i < lanes && first + i * pace.lds_accesses < n; ++i) {
        const int at = first + i * pace.lds_accesses;
        const int lane = permuted ? (at & 32) | order[static_cast<std::size_t>(at & 31)] : at;
        for (int w = 0; w < words; ++w) {
          const std::uint32_t dword = addresses[static_cast<std::size_t>(lane)] / 4 + static_cast<std::uint32_t>(w);
          const std::size_t bank = dword % static_cast<std::uint32_t>(banks);
          const auto end = seen[bank].begin() + count[bank];
          if (count[bank] == 64 || std::find(seen[bank].begin(), end, dword) != end) continue;
          seen[bank][count[bank]++] = dword;
          fullest = std::max(fullest, static_cast<int>(count[bank]));
        }
      }
      clk += 4.0 * banks / clock.lds_port + clock.lds_conflict * (fullest - 1);
    }
  }
  return std::max(clk, 4.0);
}

}  // namespace tilewave::sim
