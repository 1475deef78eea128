// SPDX-License-Identifier: MIT
#include "sim/machine/instruction.hpp"

namespace tilewave::sim {
namespace {

InstructionTable build(Arch arch) {
  InstructionTable table;
  add_scalar_instructions(table);
  add_flow_instructions(table);
  add_mode_instructions(table);
  add_scalar_memory_instructions(table);
  add_float_instructions(table);
  add_half_instructions(table);
  add_integer_instructions(table);
  add_dot_instructions(table);
  add_convert_instructions(table, arch);
  add_micro_instructions(table, arch);
  add_compare_instructions(table);
  add_lane_instructions(table);
  add_packed_instructions(table);
  add_mfma_instructions(table, arch);
  if (arch == Arch::gfx950) add_scaled_mfma_instructions(table);
  add_sparse_mfma_instructions(table, arch);
  add_global_instructions(table, arch);
  add_buffer_instructions(table);
  add_lds_instructions(table, arch);
  return table;
}

}  // namespace

const InstructionTable& instruction_table(Arch arch) {
  static const InstructionTable tables[] = {build(Arch::gfx942), build(Arch::gfx950)};
  return tables[arch == Arch::gfx950];
}

}  // namespace tilewave::sim
