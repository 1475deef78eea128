// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/vec_add/kernel.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// The largest count: a launch has fewer than 2^32 lanes, and the lane of the narrowest policy adds four elements.
inline constexpr std::int64_t vec_add_max_count = (std::int64_t{1} << 34) - (1 << 20);

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status vec_add_check_spec(const VecAddSpec& s, const ArchFacts&) {
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "a, b and out must be f32, f16 or bf16"};
  return {};
}

/// Checks every rule that a problem must satisfy.
inline Status vec_add_check(const VecAddProblem& p, const ArchFacts& facts) {
  const DType type = p.spec.x;
  if (Status status = vec_add_check_spec(p.spec, facts); !status.ok()) return status;
  if (p.count < 0) return {StatusCode::bad_extent, "count is negative"};
  if (p.count > vec_add_max_count) return {StatusCode::bad_extent, "count must be at most 2^34 - 2^20"};
  if (p.count == 0) return {};  // nothing to read or write
  if (p.a == nullptr) return {StatusCode::null_pointer, "a is null"};
  if (p.b == nullptr) return {StatusCode::null_pointer, "b is null"};
  if (p.out == nullptr) return {StatusCode::null_pointer, "out is null"};
  if (!element_aligned(p.a, type)) return {StatusCode::misaligned, "a is not aligned to its elements"};
  if (!element_aligned(p.b, type)) return {StatusCode::misaligned, "b is not aligned to its elements"};
  if (!element_aligned(p.out, type)) return {StatusCode::misaligned, "out is not aligned to its elements"};
  const Region out = vector_region(p.out, type, p.count);
  for (const void* input : {p.a, p.b}) {
    if (!in_place_or_clear(out, vector_region(input, type, p.count))) {
      return {StatusCode::bad_value, "out overlaps a or b without being it"};
    }
  }
  return {};
}

/// True if an entry of this policy takes the problem.
inline bool policy_takes(const VecAddPolicy& policy, const VecAddProblem& p) {
  const auto phase = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16; };
  return policy.vec < 16 || (phase(p.a) == phase(p.out) && phase(p.b) == phase(p.out));
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// vec_add_check; no_matching_entry if the entry is of another spec or its policy does not take the problem;
/// launch_failed with the runtime's reason.
template <class B, VecAddSpec S, VecAddPolicy P>
Status vec_add_launch(const VecAddProblem& p, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = vec_add_check(p, B::facts); !s.ok()) return s;
  if (!policy_takes(P, p)) {
    return {StatusCode::no_matching_entry, "16-byte accesses need a, b and out to agree modulo 16"};
  }
  using Kernel = VecAdd<B, S, P>;
  const int lead = P.vec < 16 ? 0 : static_cast<int>(reinterpret_cast<std::uintptr_t>(p.out) % 16) / size_of(S.x);
  const VecAddArgs args{p.a, p.b, p.out, p.count, lead};
  if (p.count == 0) return {};
  return B::template launch<Kernel>({ceil_div<std::int64_t>(p.count + lead, Kernel::tile), Kernel::block_threads}, args,
                                    stream);
}

}  // namespace tilewave
