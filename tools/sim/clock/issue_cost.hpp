// SPDX-License-Identifier: MIT
// The cost of each instruction on each unit, which is decided once per instruction of the program.
#pragma once

#include <array>
#include <vector>

#include "sim/clock/chip.hpp"
#include "sim/programs/code_object.hpp"

namespace tilewave::sim {

enum class Unit : std::uint8_t { valu, matrix, salu, branch, smem, vmem, lds, wait, barrier, idle, end };

struct Pace {
  Unit unit = Unit::idle;
  std::uint16_t issue = 4;     // clk until the wave's next instruction
  std::uint16_t taken = 4;     // clk the VALU is taken
  std::uint16_t result = 0;    // clk until a VALU may read what it wrote, if more than `taken`
  std::uint16_t matrix = 0;    // clk the matrix unit is taken
  bool packed = false;         // packed f32
  bool scalar_result = false;  // a VALU that writes SGPRs
  bool reads_scc = false, writes_scc = false;
  bool store = false, atomic = false, to_lds = false;
  std::uint16_t lds_bytes = 0;                  // of a lane and access
  std::uint8_t lds_accesses = 1;                // of a lane
  double flops = 0;                             // of a matrix instruction
  std::int16_t vm_limit = -1, lgkm_limit = -1;  // s_waitcnt; -1: none
  std::uint8_t sources = 0;  // registers it may wait for: of a VALU vector ones, of SALU and SMEM scalar
  std::array<std::uint16_t, max_operands> source{};
};

std::vector<Pace> paces(const CodeObject& object);

/// clk that an LDS access takes on its port: phases of lanes served together, each as long as its fullest bank.
double lds_time(const ArchClock& clock, const Pace& pace, const std::vector<std::uint32_t>& addresses, bool write);

}  // namespace tilewave::sim
