// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include "tilewave/ops/moe_reduce/kernel.hpp"

namespace tilewave {

namespace detail {

inline Status check_moe_reduce_tables(const MoeReduceProblem& p) {
  if (p.topk < 1 || p.topk > moe_reduce_most_slots) return {StatusCode::bad_extent, "topk must be 1 to 16"};
  if (p.x_rows < 0 || p.experts < 0) return {StatusCode::bad_extent, "x_rows or experts is negative"};
  if (p.slots == nullptr && p.x_rows != 0) return {StatusCode::bad_value, "x_rows is set, but there are no slots"};
  if (p.slots != nullptr && p.x_slot_stride != 0) {
    return {StatusCode::bad_value, "x_slot_stride is set, but slots say where rows are"};
  }
  if ((p.topk_ids == nullptr) != (p.expert_mask == nullptr)) {
    return {StatusCode::bad_value, "topk_ids and expert_mask come together"};
  }
  if (p.expert_mask == nullptr && p.experts != 0) {
    return {StatusCode::bad_value, "experts is set, but there is no expert_mask"};
  }
  if (p.expert_mask != nullptr && p.experts == 0) return {StatusCode::bad_extent, "expert_mask without experts"};
  for (const void* table : std::initializer_list<const void*>{p.slots, p.weights, p.topk_ids, p.expert_mask}) {
    if (!element_aligned(table, DType::f32)) return {StatusCode::misaligned, "tables need 4-byte alignment"};
  }
  return {};
}

inline Status check_moe_reduce_regions(const MoeReduceProblem& p) {
  const int size = size_of(p.spec.x);
  const std::int64_t slots = std::int64_t{p.rows} * p.topk;
  const Region x =
      p.slots != nullptr
          ? Region(p.x, size, p.columns, {{p.x_rows, p.x_stride, "x_stride is 0"}})
          : Region(p.x, size, p.columns,
                   {{p.rows, p.x_stride, "x_stride is 0"}, {p.topk, p.x_slot_stride, "x_slot_stride is 0"}});
  const Region residual(p.residual, size, p.columns, {{p.rows, p.residual_stride}});
  const Region out(p.out, size, p.columns, {{p.rows, p.out_stride, "out_stride is 0"}});
  for (const Status& status :
       {check_absent<"residual">(p.residual, {p.residual_stride}), check_read<"x">(x, "a stride of x is 0"),
        check_read<"residual">(residual, "residual_stride is 0"), check_written<"out">(out, "rows of out overlap")}) {
    if (!status.ok()) return status;
  }
  if (!in_place_or_clear(out, residual)) return {StatusCode::bad_value, "out overlaps residual without being it"};
  if (!clear_of(out,
                {x, vector_region(p.slots, DType::f32, slots), vector_region(p.weights, DType::f32, slots),
                 vector_region(p.topk_ids, DType::f32, slots), vector_region(p.expert_mask, DType::f32, p.experts)})) {
    return {StatusCode::bad_value, "out overlaps an input"};
  }
  return {};
}

}  // namespace detail

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status moe_reduce_check_spec(const MoeReduceSpec& s, const ArchFacts&) {
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "x must be f32, f16 or bf16"};
  return {};
}

/// Checks every rule that a problem must satisfy. Tables live on the device and are not read.
inline Status moe_reduce_check(const MoeReduceProblem& p, const ArchFacts& facts) {
  const DType type = p.spec.x;
  if (Status status = moe_reduce_check_spec(p.spec, facts); !status.ok()) return status;
  if (Status status = check_row_extent(p.rows, p.columns, 1); !status.ok()) return status;
  if (Status status = detail::check_moe_reduce_tables(p); !status.ok()) return status;
  if (p.rows == 0 || p.columns == 0) return {};  // nothing to read or write
  const bool nothing = p.slots != nullptr && p.x_rows == 0;
  if (p.x == nullptr && !nothing) return {StatusCode::null_pointer, "x is null"};
  if (p.out == nullptr) return {StatusCode::null_pointer, "out is null"};
  for (const void* tensor : std::initializer_list<const void*>{p.x, p.residual, p.out}) {
    if (!element_aligned(tensor, type)) return {StatusCode::misaligned, "a tensor is not aligned to its elements"};
  }
  return detail::check_moe_reduce_regions(p);
}

/// True if the kernels with 16-byte accesses can take the problem, if its columns are whole accesses.
inline bool moe_reduce_aligned(const MoeReduceProblem& p) {
  const DType type = p.spec.x;
  return rows_aligned(p.x, {p.x_stride, p.x_slot_stride}, p.topk, type) &&
         rows_aligned(p.residual, {p.residual_stride, 0}, 1, type) && rows_aligned(p.out, {p.out_stride, 0}, 1, type);
}

/// Returns the arguments of the kernels of a policy.
inline MoeReduceArgs moe_reduce_args(const MoeReduceProblem& p, const MoeReducePolicy& policy) {
  return {.x = p.x,
          .slots = p.slots,
          .weights = p.weights,
          .topk_ids = p.topk_ids,
          .expert_mask = p.expert_mask,
          .residual = p.residual,
          .extent = {p.rows, p.columns},
          .output = {p.out, nullptr, {p.out_stride, 0}, 0},
          .tiles = FastDiv::by(tiles_of(policy, p.spec.x, p.columns)),
          .x_stride = p.x_stride,
          .x_slot_stride = p.x_slot_stride,
          .residual_stride = p.residual_stride,
          .topk = p.topk,
          .x_rows = p.x_rows,
          .experts = p.experts};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// moe_reduce_check; no_matching_entry if the entry is of another spec or its policy does not take the rows;
/// launch_failed with the runtime's reason.
template <class B, MoeReduceSpec S, MoeReducePolicy P>
Status moe_reduce_launch(const MoeReduceProblem& p, hipStream_t stream) {
  if (Status s = check_tile_launch(S, P, p, B::facts, moe_reduce_check, moe_reduce_aligned); !s.ok()) return s;
  if (p.rows == 0 || p.columns == 0) return {};
  return B::template launch<MoeReduce<B, S, P>>(tile_grid(P, S.x, p.rows, p.columns), moe_reduce_args(p, P), stream);
}

}  // namespace tilewave
