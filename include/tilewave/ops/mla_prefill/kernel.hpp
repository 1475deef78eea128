// SPDX-License-Identifier: MIT
// What prefill of latent attention does besides its products and its attention. One block finds out which tokens each
// part has. Then rows of the cache are gathered, part after part. Bound: memory, mostly the rotated dimensions, which
// every head's keys get a copy of.
//
// Part 0 has the tokens that are queries. Part i > 0 is a chunk of earlier tokens: if those of all sequences that have
// queries are counted through, it has numbers (i - 1) * chunk to i * chunk.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/mla_prefill/policy.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

struct MlaPrefillStartsArgs {
  const std::int32_t* q_starts;    // [batch + 1]
  const std::int32_t* kv_lengths;  // [batch]
  std::int32_t* context_starts;    // [batch + 1]: of earlier tokens, as q_starts of queries
  std::int32_t* chunk_starts;      // [chunks][batch + 1]: the same within each chunk
  std::int32_t* part_rows;         // [1 + chunks]: the rows of each part
  std::int32_t* spoilt;            // [batch]: 1 if a sequence has no answer
  std::int64_t capacity;           // tokens of a sequence
  std::int32_t batch, total_q, context_tokens, chunk, chunks;
};

/// One block. A lane has a run of sequences.
template <class B>
struct MlaPrefillStarts {
  using Room = B;
  using Args = MlaPrefillStartsArgs;
  static constexpr int block_threads = 256, waves_per_simd = 1;
  struct Shared {
    std::int64_t of_lane[block_threads];  // earlier tokens of a lane's sequences
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const int lane = B::block_lane_id();
    const std::int32_t each = ceil_div(a.batch, block_threads), first = min_of(lane * each, a.batch);
    const std::int32_t end = min_of(first + each, a.batch);
    std::int64_t own = 0;
    TILEWAVE_ROLL
    for (std::int32_t s = first; s < end; ++s) own += context_of(a, s);
    shared.of_lane[lane] = own;
    B::barrier();
    std::int64_t before = 0, all = 0;
    const int lanes = ceil_div(a.batch, each);  // that have sequences
    TILEWAVE_ROLL
    for (int other = 0; other < lanes; ++other) {
      if (other == lane) before = all;
      all += shared.of_lane[other];
    }
    TILEWAVE_ROLL
    for (std::int32_t s = first; s < end; ++s) {
      const std::int64_t context = context_of(a, s);
      const std::int32_t queries = queries_of(a, s);
      const std::int64_t length = B::load(a.kv_lengths + s);
      store_starts(a, s, before);
      before += context;
      const bool lacks = length < queries || length > a.capacity || (context > 0 && before > a.context_tokens);
      B::store(a.spoilt + s, queries > 0 && lacks ? 1 : 0);
    }
    if (lane == 0) store_starts(a, a.batch, all);
    const std::int32_t queries = query_start(a, a.batch);
    TILEWAVE_ROLL
    for (std::int32_t part = lane; part <= a.chunks; part += block_threads)
      B::store(a.part_rows + part, part == 0 ? queries : in_chunk(a, all, part - 1));
  }

 private:
  TILEWAVE_DEVICE static std::int32_t query_start(const Args& a, std::int32_t s) {
    return max_of(0, min_of(B::load(a.q_starts + s), a.total_q));
  }
  TILEWAVE_DEVICE static std::int32_t queries_of(const Args& a, std::int32_t s) {
    return max_of(0, query_start(a, s + 1) - query_start(a, s));
  }
  /// Returns the earlier tokens of a sequence that count: 0 without queries.
  TILEWAVE_DEVICE static std::int64_t context_of(const Args& a, std::int32_t s) {
    const std::int32_t queries = queries_of(a, s), length = B::load(a.kv_lengths + s);
    return queries == 0 || length > a.capacity ? 0 : max_of(0, length - queries);
  }
  /// Returns how many of the first `tokens` earlier tokens are in a chunk or before its end, from the chunk's first on.
  TILEWAVE_DEVICE static std::int32_t in_chunk(const Args& a, std::int64_t tokens, std::int32_t chunk) {
    const std::int64_t from = std::int64_t{chunk} * a.chunk, seen = min_of<std::int64_t>(tokens, a.context_tokens);
    return static_cast<std::int32_t>(max_of<std::int64_t>(0, min_of<std::int64_t>(seen - from, a.chunk)));
  }
  TILEWAVE_DEVICE static void store_starts(const Args& a, std::int32_t s, std::int64_t before) {
    B::store(a.context_starts + s, static_cast<std::int32_t>(min_of<std::int64_t>(before, a.context_tokens)));
    TILEWAVE_ROLL
    for (std::int32_t chunk = 0; chunk < a.chunks; ++chunk)
      B::store(a.chunk_starts + std::int64_t{chunk} * (a.batch + 1) + s, in_chunk(a, before, chunk));
  }
};

struct MlaPrefillGatherArgs {
  const void* kv;
  const float* kv_scale;
  const std::int32_t* block_table;
  const std::int32_t* starts;      // [batch + 1]: of queries in part 0, else of earlier tokens
  const std::int32_t* kv_lengths;  // [batch], in part 0, else null
  const std::int32_t* spoilt;      // [batch], in part 0
  void* latent;                    // [rows, 512] bf16
  void* rope;                      // [rows, heads, 64] bf16, by the strides
  std::int64_t rope_token, rope_head;
  std::int64_t table_row, page_bytes, token_bytes, capacity;
  FastDiv block_size;
  std::int32_t batch, first, rows, heads;  // first: the number of the part's first token
};

/// Grid: blocks of P.tokens tokens. Of the lanes of a token, 64 have eight latent dimensions each, and every eight have
/// the rotated dimensions, which they copy to their share of the heads.
template <class B, MlaPrefillSpec S, MlaPrefillPolicy P>
struct MlaPrefillGather {
  using Room = B;
  using Args = MlaPrefillGatherArgs;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 2, token_lanes = block_threads / P.tokens;
  static constexpr int unit = 8, latent_units = latent_value_size / unit, rope_units = mla_rope_size / unit;
  static constexpr LatentRow layout = S.row();
  static constexpr bool codes = is_fp8(S.kv), scaled = S.has_scale();
  static constexpr int group = layout.group(), scale_byte = layout.scale_byte();
  static constexpr int rope_byte = group > 0 ? layout.wide_byte() : latent_value_size* size_of(S.kv);
  static constexpr DType rope_type = group > 0 ? DType::bf16 : S.kv;
  static_assert(token_lanes >= latent_units && latent_units % rope_units == 0, "a token's lanes have all its units");

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const int lane = B::block_lane_id() % token_lanes;
    const std::int32_t row = B::block_id() * P.tokens + B::block_lane_id() / token_lanes, number = a.first + row;
    if (row >= a.rows || number >= B::load(a.starts + a.batch)) return;
    const std::int32_t sequence = sequence_of(a, number);
    std::int64_t token = number - B::load(a.starts + sequence);
    bool known = true;
    if (a.kv_lengths != nullptr) {  // queries are the last tokens
      token += B::load(a.kv_lengths + sequence) - (B::load(a.starts + sequence + 1) - B::load(a.starts + sequence));
      known = B::load(a.spoilt + sequence) == 0;
    }
    known = known && token >= 0 && token < a.capacity;
    const std::int32_t in_sequence = known ? static_cast<std::int32_t>(token) : 0;
    const std::int32_t column = a.block_size.quotient(in_sequence);
    const char* from = static_cast<const char*>(a.kv);
    if (known) {
      const std::int64_t page = B::load(a.block_table + sequence * a.table_row + column);
      from += page * a.page_bytes + (in_sequence - column * a.block_size.divisor) * a.token_bytes;
    }
    if (lane < latent_units) {
      float scale = 1.0f;
      if constexpr (group > 0) {
        if (known) scale = B::load(reinterpret_cast<const float*>(from + scale_byte) + lane / (group / unit));
      }
      if constexpr (scaled) scale = B::load(a.kv_scale);
      const Chunk values = known ? wide<S.kv>(from + lane * unit * size_of(S.kv), scale) : nan();
      B::store(static_cast<Chunk*>(a.latent) + std::int64_t{row} * latent_units + lane, values);
    }
    const int u = lane % rope_units;
    float scale = 1.0f;
    if constexpr (scaled) scale = B::load(a.kv_scale);
    const Chunk values = known ? wide<rope_type>(from + rope_byte + u * unit * size_of(rope_type), scale) : nan();
    auto* const to = static_cast<std::uint16_t*>(a.rope) + row * a.rope_token + u * unit;
    for (std::int32_t head = lane / rope_units; head < a.heads; head += token_lanes / rope_units)
      B::store(reinterpret_cast<Chunk*>(to + head * a.rope_head), values);
  }

 private:
  /// Returns the last sequence that starts at or before a token.
  TILEWAVE_DEVICE static std::int32_t sequence_of(const Args& a, std::int32_t number) {
    std::int32_t from = 0, end = a.batch;
    TILEWAVE_ROLL
    while (end - from > 1) {
      const std::int32_t middle = from + (end - from) / 2;
      const bool starts = B::load(a.starts + middle) <= number;
      from = starts ? middle : from;
      end = starts ? end : middle;
    }
    return from;
  }
  /// Returns eight elements as bf16.
  template <DType T>
  TILEWAVE_DEVICE static Chunk wide(const char* from, float scale) {
    const auto packed = B::load(reinterpret_cast<const Packed<T, unit>*>(from));
    if constexpr (T == DType::bf16) {
      return packed;
    } else {
      Vec<float, unit> values = widen<B, T, unit>(packed);
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) values[e] *= scale;
      return narrow<B, DType::bf16, unit>(values);
    }
  }
  TILEWAVE_DEVICE static Chunk nan() { return {{0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu, 0x7fff7fffu}}; }
};

}  // namespace tilewave
