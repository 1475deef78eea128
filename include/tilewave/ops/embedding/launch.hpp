// SPDX-License-Identifier: MIT
// Launches the kernel for a Problem. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include <cmath>

#include "tilewave/ops/embedding/kernel.hpp"

namespace tilewave {

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status embedding_check_spec(const EmbeddingSpec& s, const ArchFacts&) {
  if (!is_row_type(s.x)) return {StatusCode::unsupported_dtype, "the table must be f32, f16 or bf16"};
  return {};
}

/// Checks every rule that a problem must satisfy. Ids live on the device and are not read.
inline Status embedding_check(const EmbeddingProblem& p, const ArchFacts& facts) {
  const DType type = p.spec.x;
  if (Status status = embedding_check_spec(p.spec, facts); !status.ok()) return status;
  if (!is_index_type(p.id_type)) return {StatusCode::unsupported_dtype, "ids must be i32 or i64"};
  if (Status status = check_row_extent(p.rows, p.columns, 1); !status.ok()) return status;
  if (p.vocab_rows < 0) return {StatusCode::bad_extent, "vocab_rows is negative"};
  if (p.vocab_start < 0) return {StatusCode::bad_extent, "vocab_start is negative"};
  // The bound keeps an id less vocab_start from wrapping around 64 bits back into the table.
  if (p.vocab_start > std::int64_t{1} << 62) return {StatusCode::bad_extent, "vocab_start must be at most 2^62"};
  if (!std::isfinite(p.scale)) return {StatusCode::bad_value, "scale must be finite"};
  if (p.rows == 0 || p.columns == 0) return {};  // nothing to read or write
  if (p.table == nullptr && p.vocab_rows > 0) return {StatusCode::null_pointer, "table is null"};
  if (p.ids == nullptr) return {StatusCode::null_pointer, "ids is null"};
  if (p.out == nullptr) return {StatusCode::null_pointer, "out is null"};
  if (!element_aligned(p.table, type)) return {StatusCode::misaligned, "table is not aligned to its elements"};
  if (!element_aligned(p.out, type)) return {StatusCode::misaligned, "out is not aligned to its elements"};
  if (!is_aligned(p.ids, size_of(p.id_type))) {
    return {StatusCode::misaligned, "ids are not aligned to their elements"};
  }
  const Region table(p.table, size_of(type), p.columns, {{p.vocab_rows, p.table_stride}});
  const Region out(p.out, size_of(type), p.columns, {{p.rows, p.out_stride, "out_stride is 0"}});
  if (Status s = check_read<"table">(table, "table_stride is 0"); !s.ok()) return s;
  if (Status s = check_written<"out">(out, "rows of out overlap"); !s.ok()) return s;
  if (!clear_of(out, {table, index_region(p.ids, p.id_type, p.rows)})) {
    return {StatusCode::bad_value, "out overlaps an input"};
  }
  return {};
}

/// True if the kernels with 16-byte accesses can take the problem, if its columns are whole accesses.
inline bool embedding_aligned(const EmbeddingProblem& p) {
  return rows_aligned(p.table, {p.table_stride, 0}, 1, p.spec.x) && rows_aligned(p.out, {p.out_stride, 0}, 1, p.spec.x);
}

/// Returns the arguments of the kernels of a policy.
inline EmbeddingArgs embedding_args(const EmbeddingProblem& p, const EmbeddingPolicy& policy) {
  return {.table = p.table,
          .ids = IndexList::of(p.ids, p.id_type),
          .extent = {p.rows, p.columns},
          .output = {p.out, nullptr, {p.out_stride, 0}, 0},
          .tiles = FastDiv::by(tiles_of(policy, p.spec.x, p.columns)),
          .vocab_start = p.vocab_start,
          .table_stride = p.table_stride,
          .vocab_rows = p.vocab_rows,
          .scale = p.scale};
}

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// embedding_check; no_matching_entry if the entry is of another spec or its policy does not take the rows;
/// launch_failed with the runtime's reason.
template <class B, EmbeddingSpec S, EmbeddingPolicy P>
Status embedding_launch(const EmbeddingProblem& p, hipStream_t stream) {
  if (Status s = check_tile_launch(S, P, p, B::facts, embedding_check, embedding_aligned); !s.ok()) return s;
  if (p.rows == 0 || p.columns == 0) return {};
  return B::template launch<Embedding<B, S, P>>(tile_grid(P, S.x, p.rows, p.columns), embedding_args(p, P), stream);
}

}  // namespace tilewave
