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

/// Returns listings by symbol. It runs llvm-objdump (20 or later) or nvdisasm, and reports which is missing.
std::map<std::string, Listing> listings_of(const DeviceCode& code);
/// Returns the same of several: llvm-objdump takes longer to start than to read a code object, so it runs once for each
/// chip.
std::vector<std::map<std::string, Listing>> listings_of(const std::vector<DeviceCode>& codes);

/// Parses the output of llvm-objdump -d: all lines of all kernels. The other parses that of nvdisasm -c, by symbol.
Listing parse_amd_listing(std::string_view text);
std::map<std::string, Listing> parse_cuda_listing(std::string_view text);

/// Returns the purpose of an instruction by its mnemonic: matrix, load, store, lds, exchange, wait, barrier, vector,
/// scalar, acc_move, lane_move, scratch, call, nop.
const char* kind_of(std::string_view mnemonic);
/// Bytes that one lane gets from a load of global memory, or stores there; 0 of any other instruction.
int load_bytes(std::string_view mnemonic);
int store_bytes(std::string_view mnemonic);
/// Returns how many accesses a wait for vector memory leaves under way; -1 for any other instruction.
int left_by_wait(const AsmLine& line);

struct Mix {
  std::map<std::string, std::int64_t> kinds;   // by kind_of
  std::map<std::string, std::int64_t> matrix;  // by shape and types
  std::map<int, std::int64_t> loads, stores;   // by bytes of a lane
  std::vector<int> waits;                      // for vector memory: what each leaves under way
  std::int64_t instructions = 0;
  std::int64_t dpp = 0, lds_writes = 0;  // of vector, of lds
  std::int64_t quarter_rate = 0;         // of vector: transcendental, or a product of 32-bit integers
  std::string unknown_width;             // a load of AMD's whose bytes are not known

  std::int64_t of(const char* kind) const;
  std::int64_t products() const;
};
Mix mix_of(const Listing& lines);

/// The outermost loops that multiply, each without what only repeats one of its own.
std::vector<Listing> matrix_loops(const Listing& kernel);
/// Returns the loop with the most matrix instructions, then the longest (or the shortest) of those; empty if there are
/// none.
Listing most_products(std::vector<Listing> loops, bool shortest = false);
/// The steady loop: the longest of those, or, where nothing multiplies, the one that loads the most bytes. Empty without a loop.
Listing steady_loop(const Listing& kernel);
/// The way once round it that most iterations take: the most matrix instructions, then the most bytes, then the fewest
/// instructions.
Listing steady_path(const Listing& loop);

}  // namespace tilewave::tool
