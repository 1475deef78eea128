// SPDX-License-Identifier: MIT
// entries.json, which a build writes from the library's registry beside its code objects: their kernels' names and claims.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewave::tool {

struct Entry {
  std::string file, symbol;          // of the code object; a part of the kernel's name. Empty: any
  std::string kernel, spec, policy;  // for people

  std::string label() const;
};

/// Parses the parts that only give names: {"entries": [{"symbol", "kernel", "spec", "policy", ...}]}, or the list
/// alone.
std::vector<Entry> parse_entries(std::string_view text, const std::string& source);
std::vector<Entry> entries_of(const std::string& path);
/// The first for this kernel of this file; null: there is none.
const Entry* entry_of(const std::vector<Entry>& entries, std::string_view file, std::string_view symbol);

/// Claims for paged attention: the room's matrix instructions, and how its loads of K and V feed them.
struct KvClaims {
  std::vector<std::string> mfma;
  double mfma_per_load = 0;     // that one lane's 16-byte piece of K or V feeds
  std::vector<int> widths{16};  // bytes of a lane of such a load
};
/// The cost that a loop which streams K and V has reached, for each KB.
struct SteadyClaims {
  double valu = 0, matrix_clocks = 0, kb_in_flight = 0;
};
struct RowClaims {
  bool vector = false;  // accesses of 16 bytes: so many, and so many bytes in others
  std::int64_t bytes_in_flight = 0, wide_loads = 0, wide_stores = 0, narrow_load_bytes = 0, narrow_store_bytes = 0;
  std::int64_t dpp = 0, barriers = 0, exchanges = 0;
  std::int64_t wave_lds = 0;  // LDS accesses of a wave's own, without a barrier
};
struct GemmClaims {
  std::string mfma;
  double valu_of_products = 0;
  bool writes_lds = false;
  bool drains = false;  // a step ends when all that was copied has landed, or other waves copy
};
/// The claims of an entry about its code.
struct Claims {
  std::string file{}, symbol{}, arch{}, label{}, family{};  // family: kernel and policy
  bool full = false;                                        // only looked at by tests labelled full
  std::int64_t waves_per_simd = 0, waves_per_block = 0, lds_bytes = 0;
  std::optional<KvClaims> kv{};
  std::optional<SteadyClaims> steady{};
  std::optional<RowClaims> row{};
  std::optional<GemmClaims> gemm{};
};

/// Refuses what lacks a claim, and facts of a chip other than the library's.
std::vector<Claims> parse_claims(std::string_view text, const std::string& source);

}  // namespace tilewave::tool
