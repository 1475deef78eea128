// SPDX-License-Identifier: MIT
// The one table of the clock's constants. docs/reference/clock.md names the source of each row; `fitted` ones have none and were
// chosen on half of the measured kernels. Times are in clk of the GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "sim/machine/instruction.hpp"

namespace tilewave::sim {

/// Clock numbers that one part of an architecture shares.
struct ArchClock {
  int transcendental;       // clk the VALU is taken; a dependent VALU waits for it
  int packed_result;        // v_pk_*_f32 -> dependent VALU
  int packed_after_matrix;  // clk that a packed f32 waits after the matrix unit has ended
  int wide_misaligned;      // more issue clk of an 8-byte instruction at 4 mod 8
  int lds_banks, lds_bytes, lds_granule;
  double lds_port;                           // bytes a clk of each of the two ports, SIMDs 0 and 1, 2 and 3
  double lds_conflict;                       // clk for each further dword of a bank
  int lds_latency_narrow, lds_latency_wide;  // b32, b128
};

/// Clock numbers that both chips share.
struct CommonClock {
  int issue = 4;               // one instruction of a wave, and of a class and SIMD
  int compare_to_scalar = 20;  // VALU writes an SGPR -> SALU, branch
  int scc_to_branch = 8;
  int branch_taken = 20, branch_not = 4;
  int valu_to_memory = 8;  // idle clk on the switch from VALU to LDS or VMEM
  int barrier = 8;
  int wave_start = 28;          // first instruction after a wave's start
  int block_start = 400;        // fitted: from the end of a block to the start of the next on its CU
  double vmem_data = 64;        // bytes a clk and CU: TA, TD and L1
  int vmem_queue = 64;          // fitted: clk of work that may wait in front of TA before issue stalls
  int lds_queue = 32;           // fitted: the same in front of LDS
  int outstanding_lines = 640;  // fitted: cache lines a CU waits for at most
  int l1_bytes = 32 * 1024, line = 128, l1_ways = 64;
  int l2_bytes = 4 * 1024 * 1024, l2_ways = 16, l2_channels = 16;
  double l2_channel = 128;  // bytes a clk, reads
  int l1_latency = 116, l2_latency = 288, mall_latency = 497, hbm_latency = 876;
  int scalar_hit = 40, scalar_line = 64;
  int fetch_line = 50;  // clk a first run of 128 bytes of code takes on a CU
};

struct Chip {
  std::string_view name;
  Arch arch;
  int xcds, cus;         // CUs of an XCD
  double mhz;            // light load
  double power;          // fitted: what matrix units that are always busy ask for, over what is there for them,
  double power_valu;     // fitted: and beside it where their SIMDs issue VALU or matrix instructions all the time
  double hbm_tbs;        // achieved, of streaming
  double mall_ratio;     // bandwidth of the MALL over that of HBM
  double launch_us;      // fitted: an empty kernel on one XCD,
  double launch_all_us;  // fitted: and on all of them

  /// MHz under a load: the share of the time that matrix units are busy, and that of issue slots that are taken. The exponent
  /// keeps the order of two kernels for the same work: with `m` clk of matrix work and `v` of issue a launch of `c` clk takes
  /// sqrt(c^2 + power c m + power_valu m v) over mhz, so more work, or more clk, never takes less time.
  double mhz_under(double matrix_duty, double issue_duty) const {
    return mhz / std::sqrt(1 + matrix_duty * (power + power_valu * issue_duty));
  }
  double launch_us_of(double blocks) const {
    return launch_us + (launch_all_us - launch_us) * (std::min(blocks, 1.0 * xcds) - 1) / (xcds - 1);
  }
};

const ArchClock& arch_clock(Arch arch);
inline constexpr CommonClock common_clock{};
/// Returns the chip of this name (MI300X, MI300A, MI308X, MI325X, MI350X, MI355X), or for "" the first of the
/// architecture.
const Chip& chip_named(std::string_view name, Arch arch);

}  // namespace tilewave::sim
