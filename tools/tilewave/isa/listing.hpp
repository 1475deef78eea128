// SPDX-License-Identifier: MIT
// Kernels as instructions, and the way most of a kernel's time is spent on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tilewave/isa/binary.hpp"

namespace tilewave::tool {

struct AsmLine {
  std::uint64_t address = 0;
  std::string mnemonic, operands;
  int bytes = 0;
  std::int64_t target = -1;  // of a branch, an address
  bool falls_through = true;
};
using Listing = std::vector<AsmLine>;

/// By symbol. Runs llvm-objdump (20 or later) or nvdisasm; says which is missing.
std::map<std::string, Listing> listings_of(const DeviceCode& code);

/// Of what llvm-objdump -d prints: all lines of all kernels. Of what nvdisasm -c prints: by symbol.
Listing parse_amd_listing(std::string_view text);
std::map<std::string, Listing> parse_cuda_listing(std::string_view text);

/// What an instruction is for, by its mnemonic: matrix, load, store, lds, exchange, wait, barrier, vector, scalar, acc_move,
/// lane_move, scratch, call, nop.
const char* kind_of(std::string_view mnemonic);
/// Bytes that one lane gets from a load of global memory; 0 of any other instruction.
int load_bytes(std::string_view mnemonic);

struct Mix {
  std::map<std::string, std::int64_t> kinds;   // by kind_of
  std::map<std::string, std::int64_t> matrix;  // by shape and types
  std::map<int, std::int64_t> loads;           // by bytes of a lane
  std::int64_t instructions = 0;
};
Mix mix_of(const Listing& lines);

/// The steady loop: of the outermost loops that multiply, without what only repeats one of their own, that with the most matrix
/// instructions, then the longest; where nothing multiplies, the one that loads the most bytes. Empty without a loop.
Listing steady_loop(const Listing& kernel);
/// The way once round it that most iterations take: the most matrix instructions, then the most bytes, then the fewest
/// instructions.
Listing steady_path(const Listing& loop);

}  // namespace tilewave::tool
