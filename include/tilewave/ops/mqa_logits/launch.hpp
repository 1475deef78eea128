// SPDX-License-Identifier: MIT
// From a Problem to a queued kernel. Every rule that a problem must satisfy is checked before any work is done.
#pragma once

#include "tilewave/core/hip.hpp"
#include "tilewave/ops/mqa_logits/bulk_kernel.hpp"
#include "tilewave/ops/mqa_logits/kernel.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave {

/// Returns ok if kernels of a spec can be built for a chip, else the rule that the spec breaks.
constexpr Status mqa_logits_check_spec(const MqaLogitsSpec& s, const ArchFacts& facts) {
  const bool fp4 = s.type == DType::fp4_e2m1;
  if (fp4 && !facts.mx) return {StatusCode::unsupported_dtype, "fp4 is for gfx950 only"};
  if (!fp4 && s.type != facts.fp8) return {StatusCode::unsupported_dtype, "q and k must be fp4 or the chip's fp8"};
  if (s.keys != MqaKeys::paged && s.keys != MqaKeys::ranges) return {StatusCode::bad_value, "keys is none of MqaKeys"};
  if (fp4 && s.keys != MqaKeys::paged) return {StatusCode::unsupported_layout, "fp4 keys are paged"};
  if (s.heads != 32 && s.heads != 64) return {StatusCode::unsupported_head_ratio, "heads must be 32 or 64"};
  if (s.head_size != 128) return {StatusCode::unsupported_head_size, "head_size must be 128"};
  return {};
}

namespace detail {

inline Status check_mqa_extents(const MqaLogitsProblem& p) {
  const MqaLogitsSpec& s = p.spec;
  if (p.sequences < 0 || p.queries < 0 || p.columns < 0) {
    return {StatusCode::bad_extent, "sequences, queries or columns is negative"};
  }
  if (p.columns > 1 << 30) return {StatusCode::bad_extent, "columns must be 2^30 or less"};
  if (std::int64_t{p.sequences} * p.queries > 1 << 30) return {StatusCode::bad_extent, "more than 2^30 queries"};
  if (s.keys == MqaKeys::ranges) {
    if (p.sequences > 1) return {StatusCode::bad_extent, "queries with ranges are of one sequence"};
    if (p.pages != 0 || p.block_size != 0 || p.table_columns != 0) {
      return {StatusCode::bad_value, "pages, block_size and table_columns are of paged keys"};
    }
    return {};
  }
  if (p.pages < 0 || p.table_columns < 0) return {StatusCode::bad_extent, "pages or table_columns is negative"};
  if (p.block_size < 1) return {StatusCode::unsupported_block_size, "block_size must be positive"};
  if (s.type == DType::fp4_e2m1 && p.block_size != 64)
    return {StatusCode::unsupported_block_size, "pages of fp4 keys have 64"};
  return {};
}

inline Status check_mqa_pointers(const MqaLogitsProblem& p) {
  if (p.q == nullptr || p.k == nullptr) return {StatusCode::null_pointer, "q or k is null"};
  if (p.weights == nullptr || p.k_scale == nullptr) return {StatusCode::null_pointer, "weights or k_scale is null"};
  if (p.logits == nullptr) return {StatusCode::null_pointer, "logits is null"};
  const bool fp4 = p.spec.type == DType::fp4_e2m1;
  if (fp4 && p.q_scale == nullptr) return {StatusCode::null_pointer, "q_scale is null"};
  if (!fp4 && (p.q_scale != nullptr || p.k_unit_stride != 0)) {
    return {StatusCode::bad_value, "q_scale and k_unit_stride are of fp4"};
  }
  const bool paged = p.spec.keys == MqaKeys::paged;
  if (paged && (p.block_tables == nullptr || p.context_lengths == nullptr)) {
    return {StatusCode::null_pointer, "block_tables or context_lengths is null"};
  }
  if (!paged && (p.starts == nullptr || p.ends == nullptr)) return {StatusCode::null_pointer, "starts or ends is null"};
  if (paged ? p.starts != nullptr || p.ends != nullptr : p.block_tables != nullptr || p.context_lengths != nullptr) {
    return {StatusCode::bad_value, "starts and ends are of ranges, block_tables and context_lengths of paged keys"};
  }
  for (const void* wide : {p.q, p.k, static_cast<const void*>(p.weights)}) {
    if (!is_aligned(wide, 16)) {
      return {StatusCode::misaligned, "q, k and weights need 16-byte alignment"};
    }
  }
  for (const void* words : {p.k_scale, p.q_scale, static_cast<const void*>(p.logits),
                            static_cast<const void*>(p.block_tables), static_cast<const void*>(p.context_lengths),
                            static_cast<const void*>(p.starts), static_cast<const void*>(p.ends)}) {
    if (!element_aligned(words, DType::f32)) {
      return {StatusCode::misaligned, "k_scale, logits, tables, lengths and ranges need 4-byte alignment"};
    }
  }
  return {};
}

inline Status check_mqa_regions(const MqaLogitsProblem& p) {
  const MqaLogitsSpec& s = p.spec;
  const bool paged = s.keys == MqaKeys::paged;
  const std::int64_t queries = std::int64_t{p.sequences} * p.queries;
  const bool fp4 = s.type == DType::fp4_e2m1;
  const int size = s.head_size / packing_of(s.type), units = s.head_size / 32;
  const Region q(p.q, size_of(s.type), size,
                 {{queries, p.q_stride, "q_stride is 0"}, {s.heads, p.q_head_stride, "q_head_stride is 0"}});
  const Region weights(p.weights, sizeof(float), s.heads, {{queries, p.weights_stride}});
  const std::int64_t keys = paged ? p.block_size : p.columns, pages = paged ? p.pages : 1;
  const Region k(p.k, size_of(s.type), fp4 ? 16 : size,
                 {{pages, p.k_page_stride, "k_page_stride is 0"},
                  {fp4 ? units : 1, p.k_unit_stride, "k_unit_stride is 0"},
                  {keys, p.k_stride, "k_stride is 0"}});
  const Region scales(p.k_scale, fp4 ? 1 : sizeof(float), fp4 ? units * keys : keys, {{pages, p.k_scale_page_stride}});
  const Region q_scale(p.q_scale, 1, std::int64_t{s.heads} * units, {{queries, p.q_scale_stride}});
  const Region tables(p.block_tables, sizeof(std::int32_t), p.table_columns, {{p.sequences, p.table_stride}});
  const auto list = [](const std::int32_t* data, std::int64_t count) { return vector_region(data, DType::f32, count); };
  const Region logits(p.logits, sizeof(float), p.columns, {{queries, p.logits_stride, "logits_stride is 0"}});
  for (const Status& status :
       {check_absent<"q_scale">(p.q_scale, {p.q_scale_stride}), check_read<"q">(q, "a stride of q is 0"),
        check_read<"weights">(weights, "weights_stride is 0"), check_read<"k">(k, "a stride of k is 0"),
        check_read<"k_scale">(scales, "k_scale_page_stride is 0"),
        check_read<"q_scale">(q_scale, "q_scale_stride is 0"), check_read<"block_tables">(tables, "table_stride is 0"),
        check_written<"logits">(logits, "rows of logits overlap")}) {
    if (!status.ok()) return status;
  }
  if (!clear_of(logits, {q, weights, k, scales, q_scale, tables, list(p.context_lengths, p.sequences),
                         list(p.starts, p.queries), list(p.ends, p.queries)})) {
    return {StatusCode::bad_value, "logits overlap an input"};
  }
  const auto wide = [](std::int64_t count, std::int64_t stride, int unit) { return count <= 1 || stride % unit == 0; };
  if (!wide(queries, p.q_stride, 16) || !wide(s.heads, p.q_head_stride, 16) || !wide(pages, p.k_page_stride, 16) ||
      !wide(keys, p.k_stride, 16) || !wide(queries, p.weights_stride, 4) || p.k_unit_stride % 16 != 0 ||
      !wide(queries, p.q_scale_stride, fp4 ? 4 : 1)) {
    return {StatusCode::bad_stride, "strides of q, k and weights must be multiples of 16 bytes, of q_scale of 4"};
  }
  return {};
}

}  // namespace detail

/// Every rule that a problem must satisfy. Lengths, ranges and tables are on the device and are not read, see
/// MqaLogitsProblem.
inline Status mqa_logits_check(const MqaLogitsProblem& p, const ArchFacts& facts) {
  if (Status s = mqa_logits_check_spec(p.spec, facts); !s.ok()) return s;
  if (Status s = detail::check_mqa_extents(p); !s.ok()) return s;
  if (p.sequences == 0 || p.queries == 0 || p.columns == 0) return {};  // nothing to read or write
  if (Status s = detail::check_mqa_pointers(p); !s.ok()) return s;
  return detail::check_mqa_regions(p);
}

/// Returns whether an entry with this policy takes a problem that has passed mqa_logits_check.
inline Status mqa_logits_takes(const MqaLogitsPolicy& policy, const MqaLogitsProblem& p) {
  if (!policy.bulk || p.sequences == 0 || p.queries == 0 || p.columns == 0) return {};
  const bool paged = p.spec.keys == MqaKeys::paged;
  if (paged && p.block_size % 64 != 0) return {StatusCode::unsupported_block_size, "bulk entries take whole 64 keys"};
  const bool whole = paged ? p.k_scale_page_stride % 4 == 0 : p.columns % 4 == 0;
  if (!whole || !is_aligned(p.k_scale, 16)) {
    return {StatusCode::misaligned, "bulk entries copy scales by 16 bytes"};
  }
  return {};
}

/// Columns of a chunk, which a block takes: whole tiles of its teams. Chunks give each compute unit four blocks, as
/// many as it holds at a time. But they have at most 4096 columns, so that the last blocks end together. Bulk entries
/// make eight times as many blocks as the chip holds, but of at least 512 columns while that leaves no SM idle, all
/// equally long.
constexpr std::int32_t mqa_logits_chunk(const MqaLogitsProblem& p, const MqaLogitsPolicy& policy,
                                        const ArchFacts& facts) {
  const std::int32_t unit = policy.teams * (facts.wave_lanes == 64 ? 32 : 64);
  const std::int64_t columns = std::int64_t{p.sequences} * ceil_div(p.queries, policy.queries) * p.columns;
  const std::int64_t resident = std::int64_t{policy.blocks_per_cu()} * facts.compute_units;
  std::int64_t columns_per_block = max_of<std::int64_t>(ceil_div(columns, resident), 1);
  if (policy.bulk) {
    columns_per_block = min_of<std::int64_t>(
        columns_per_block,
        max_of<std::int64_t>(512 * policy.teams, min_of<std::int64_t>(columns_per_block / 8, 2048 * policy.teams)));
    const std::int64_t chunks =
        ceil_div<std::int64_t>(max_of(p.columns, 1), align_up<std::int64_t>(columns_per_block, unit));
    columns_per_block = ceil_div<std::int64_t>(max_of(p.columns, 1), chunks);
  }
  return static_cast<std::int32_t>(
      align_up<std::int64_t>(policy.bulk ? columns_per_block : min_of<std::int64_t>(columns_per_block, 4096), unit));
}

/// The arguments of the kernels.
inline MqaLogitsArgs mqa_logits_args(const MqaLogitsProblem& p, const MqaLogitsPolicy& policy, const ArchFacts& facts) {
  const std::int32_t chunk = mqa_logits_chunk(p, policy, facts);
  const int size = size_of(p.spec.type);
  const std::int64_t most = std::int64_t{p.table_columns} * p.block_size;
  return {.q = static_cast<const std::byte*>(p.q),
          .weights = p.weights,
          .k = static_cast<const std::byte*>(p.k),
          .q_scale = static_cast<const std::byte*>(p.q_scale),
          .k_scale = p.k_scale,
          .logits = p.logits,
          .block_tables = p.block_tables,
          .context_lengths = p.context_lengths,
          .starts = p.starts,
          .ends = p.ends,
          .q_stride = p.q_stride * size,
          .q_head_stride = p.q_head_stride * size,
          .weights_stride = p.weights_stride,
          .q_scale_stride = p.q_scale_stride,
          .k_page_stride = p.k_page_stride * size,
          .k_stride = p.k_stride * size,
          .k_unit_stride = p.k_unit_stride * size,
          .k_scale_page_stride = p.k_scale_page_stride,
          .logits_stride = p.logits_stride,
          .table_stride = p.table_stride,
          .chunks = FastDiv::by(ceil_div(p.columns, chunk)),
          .query_blocks = FastDiv::by(ceil_div(p.queries, policy.queries)),
          .block_size = FastDiv::by(max_of(p.block_size, 1)),
          .queries = p.queries,
          .columns = p.columns,
          .chunk_columns = chunk,
          .most_length = static_cast<std::int32_t>(min_of<std::int64_t>(p.columns, most))};
}

/// The kernel of an entry.
template <class B, MqaLogitsSpec S, MqaLogitsPolicy P>
struct MqaLogitsKernel {
  using type = MqaLogits<B, S, P>;
};
template <TensorBackend B, MqaLogitsSpec S, MqaLogitsPolicy P>
requires(P.bulk) struct MqaLogitsKernel<B, S, P> {
  using type = MqaBulkLogits<B, S, P>;
};

/// Queues the kernel on the stream. Nothing is allocated, synchronised or read from the device. Errors: those of
/// mqa_logits_check; no_matching_entry if the entry is of another spec; bad_extent for more blocks than a grid has;
/// launch_failed with the runtime's reason.
template <class B, MqaLogitsSpec S, MqaLogitsPolicy P>
Status mqa_logits_launch(const MqaLogitsProblem& p, hipStream_t stream) {
  if (!(p.spec == S)) return {StatusCode::no_matching_entry, "the entry was built for another spec"};
  if (Status s = mqa_logits_check(p, B::facts); !s.ok()) return s;
  if (p.sequences == 0 || p.queries == 0 || p.columns == 0) return {};
  if (Status s = mqa_logits_takes(P, p); !s.ok()) return s;
  using Kernel = typename MqaLogitsKernel<B, S, P>::type;
  const MqaLogitsArgs call = mqa_logits_args(p, P, B::facts);
  const std::int64_t blocks = std::int64_t{call.chunks.divisor} * call.query_blocks.divisor * p.sequences;
  if constexpr (P.bulk) {
    typename Kernel::Args args{.call = call, .keys = {}, .queries = {}};
    const bool paged = S.keys == MqaKeys::paged;
    const std::int64_t pages = paged ? max_of(p.pages, 1) : 1, queries = std::int64_t{p.sequences} * p.queries;
    const auto stride = [](std::int64_t count, std::int64_t of) {
      return count > 1 ? of : 16;
    };  // the stride of a single one does not matter
    const TensorShape keys{.data = p.k,
                           .type = S.type,
                           .columns = S.head_size,
                           .rows = paged ? p.block_size : p.columns,
                           .layers = pages,
                           .row_stride = call.k_stride,
                           .layer_stride = stride(pages, call.k_page_stride),
                           .box_rows = Kernel::keys};
    const TensorShape heads{.data = p.q,
                            .type = S.type,
                            .columns = S.head_size,
                            .rows = S.heads,
                            .layers = queries,
                            .row_stride = call.q_head_stride,
                            .layer_stride = stride(queries, call.q_stride),
                            .box_rows = S.heads};
    if (Status s = B::make_tensor_map(keys, args.keys); !s.ok()) return s;
    if (Status s = B::make_tensor_map(heads, args.queries); !s.ok()) return s;
    return B::template launch<Kernel>({blocks, Kernel::block_threads}, args, stream);
  } else {
    return B::template launch<Kernel>({blocks, Kernel::block_threads}, call, stream);
  }
}

}  // namespace tilewave
