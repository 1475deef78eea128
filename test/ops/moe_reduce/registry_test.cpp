// SPDX-License-Identifier: MIT
// The entry that takes a reduction, for rows as engines have them.
#include "tilewave/ops/moe_reduce/registry.hpp"

#include <algorithm>
#include <string>

#include "entries/moe_reduce.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {
namespace {

/// The policy chosen for packed rows of bf16, weighted and by a table or not; checks look at addresses only.
std::string chosen(ArchId arch, int rows, int topk, int columns, bool table) {
  MoeReduceProblem p;
  const auto at = [](std::uintptr_t tebibyte) { return tebibyte << 40; };
  p.x = reinterpret_cast<const void*>(at(1));
  p.out = reinterpret_cast<void*>(at(2));
  if (table) p.slots = reinterpret_cast<const std::int32_t*>(at(3));
  p.weights = reinterpret_cast<const float*>(at(4));
  p.rows = rows;
  p.columns = columns;
  p.topk = topk;
  p.x_rows = table ? rows * topk : 0;
  p.x_stride = table ? columns : std::int64_t{topk} * columns;
  p.x_slot_stride = table ? 0 : columns;
  p.out_stride = columns;
  const MoeReduceEntry* entry = nullptr;
  const Status status = moe_reduce_select(p, all_moe_reduce_entries(), facts_of(arch), entry);
  return status.ok() ? name_of(entry->policy) : status.reason;
}

TEST_CASE("by a table Hopper's lanes take several accesses a slot, of few rows or of many slots without a table one") {
  constexpr ArchId sm90 = ArchId::sm90;
  const auto built = [](ArchId arch) {  // a GPU's build has entries of that GPU alone
    return std::ranges::any_of(all_moe_reduce_entries(), [&](const MoeReduceEntry* e) { return e->arch == arch; });
  };
  if (built(ArchId::gfx950)) CHECK(chosen(ArchId::gfx950, 16384, 8, 7168, true) == "l128.r2.c1.v16");
  if (!built(sm90)) return;
  CHECK(chosen(sm90, 16384, 8, 7168, true) == "l128.r2.c4.v16");
  CHECK(chosen(sm90, 4096, 8, 7168, true) == "l128.r2.c4.v16");
  CHECK(chosen(sm90, 64, 8, 7168, true) == "l64.r4.c1.v16");
  CHECK(chosen(sm90, 1, 8, 7168, true) == "l64.r4.c1.v16");
  CHECK(chosen(sm90, 16384, 8, 7168, false) == "l128.r2.c1.v16");
  CHECK(chosen(sm90, 512, 8, 7168, true) == "l128.r2.c2.v16");
  CHECK(chosen(sm90, 16384, 4, 2880, true) == "l128.r2.c4.v16");
  CHECK(chosen(sm90, 16384, 4, 2880, false) == "l128.r2.c2.v16");
  CHECK(chosen(sm90, 16384, 2, 4096, true) == "l128.r2.c4.v16");
}

}  // namespace
}  // namespace tilewave::test
