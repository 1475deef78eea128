// SPDX-License-Identifier: MIT
// A file of an engine that no device compiler sees: the runtime's names beside tilewave's, checks, a choice among entries
// that another file has compiled, and a launch. The compiler is told to include the runtime's header, too.
#include <cstdio>
#include <tilewave/tilewave.hpp>
#include <vector>

using namespace tilewave;

std::span<const VecAddEntry> engine_entries();  // in device.cpp

Status add(const VecAddProblem& problem, const ArchFacts& facts, const VecAddEntry*& entry) {
  if (Status status = vec_add_check(problem, facts); !status.ok()) return status;
  std::vector<const VecAddEntry*> candidates;
  for (const VecAddEntry& e : engine_entries()) candidates.push_back(&e);
  return vec_add_select(problem, candidates, facts, entry);
}

int main() {
  const ArchFacts& facts = facts_of(engine_entries().front().arch);
  const auto at = [](std::uintptr_t i) { return reinterpret_cast<void*>(i << 20); };  // only looked at
  VecAddProblem problem{.spec = {DType::f32}, .a = at(1), .b = at(2), .out = at(3), .count = 4};
  const VecAddEntry* entry = nullptr;
  const Status status = add(problem, facts, entry);
  if (!status.ok()) return std::printf("not chosen: %s\n", status.reason), 1;
  void* memory = nullptr;
  const hipStream_t stream = nullptr;
  if (hipMalloc(&memory, 16) != hipSuccess) return 0;  // there is no GPU
  problem.a = problem.b = problem.out = memory;
  return hipMemset(memory, 0, 16) == hipSuccess && entry->launch(problem, stream).ok() &&
                 hipStreamSynchronize(stream) == hipSuccess && hipFree(memory) == hipSuccess
             ? 0
             : 1;
}
