// SPDX-License-Identifier: MIT
// A launch made ready to execute: what all its waves have in common, how a block of them starts and takes one step.
#pragma once

#include "sim/machine/machine.hpp"

namespace tilewave::sim {

class Context {
 public:
  /// Checks the launch and maps code, arguments and dispatch packet; they are unmapped when the context goes.
  Context(const CodeObject& object, const Launch& launch, Memory& memory, const MachineOptions& options);
  ~Context() { mapped_.truncate(regions_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const CodeObject& object;
  const KernelDescriptor& kernel;
  const Launch& launch;
  const Memory& memory;
  const MachineOptions& options;
  std::uint64_t load_base = 0, kernarg = 0, dispatch_packet = 0;
  std::size_t entry = 0;

  std::uint64_t blocks() const {
    return std::uint64_t{launch.grid_blocks[0]} * launch.grid_blocks[1] * launch.grid_blocks[2];
  }
  std::size_t lds_bytes() const { return std::size_t{kernel.lds_bytes} + launch.dynamic_lds_bytes; }

  std::uint32_t threads() const { return launch.block[0] * launch.block[1] * launch.block[2]; }
  std::uint32_t waves() const { return (threads() + wave_lanes - 1) / wave_lanes; }

  /// Puts all waves of block number `n` at the kernel's entry, with LDS and registers poisoned.
  void start(Block& block, std::uint64_t n) const;
  /// The wave's next instruction. An Error names it, with block and wave.
  void step(Wave& wave) const;
  /// Block, wave, and the instruction that comes next.
  std::string where(const Wave& wave) const { return where(wave, object.program.ops.at(wave.pc)); }

 private:
  static std::string where(const Wave& wave, const Op& op);

  Memory& mapped_;
  std::vector<std::uint8_t> image_, kernarg_, packet_;
  std::size_t regions_;
};

}  // namespace tilewave::sim
