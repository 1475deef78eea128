// SPDX-License-Identifier: MIT
// Combines the partials of splits (attention/partial_sum.hpp); then sinks join. Grid: 256 lanes a block, of which
// value_size / 4, up to a wave, hold a row (query token, head). There is no shared memory. Bound: bytes of partials.
#pragma once

#include "tilewave/attention/partial_sum.hpp"
#include "tilewave/attention/sink.hpp"
#include "tilewave/ops/flash_attention/args.hpp"
#include "tilewave/ops/flash_attention/choice/cost_sm90.hpp"

namespace tilewave {

struct FlashAttentionCombineArgs {
  const float *partials, *partial_lse;  // [splits][q tokens][q_heads][value_size], [splits][q_heads][q tokens]
  std::int64_t partial_stride, partial_lse_stride, q_tokens;
  void* out;
  float* lse;                    // may be null
  const float* sinks;            // may be null
  const std::int32_t* q_starts;  // may be null
  TokenStrides out_strides;
  std::int64_t lse_head_stride;
  FastDiv heads, q_length;
  std::int32_t rows, batch, splits;  // rows: q tokens times heads
};

template <class B, FlashAttentionSpec S>
struct FlashAttentionCombine {
  using Room = B;
  using Args = FlashAttentionCombineArgs;
  struct Shared {};
  static constexpr int block_threads = 256, waves_per_simd = 2;
  static constexpr int lanes = min_of(S.value_size / 4, B::facts.wave_lanes), block_rows = block_threads / lanes;
  static constexpr RowPolicy row_policy{
      .lanes = lanes, .rows = block_rows, .chunks = ceil_div(S.value_size, 4 * lanes), .vec = 16};

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    // Lanes behind the last row take it again, since all lanes of a wave work together.
    const std::int32_t wanted = B::block_id() * block_rows + B::block_lane_id() / lanes,
                       row = min_of(wanted, a.rows - 1);
    const std::int32_t token = a.heads.quotient(row), head = row - token * a.heads.divisor;
    const Row of{{a.partials + std::int64_t{row} * S.value_size, a.partial_lse + head * a.q_tokens + token,
                  a.partial_stride, a.partial_lse_stride, a.splits}};
    PartialSum<B, DType::f32, row_policy, true> total = total.of(of, S.value_size);
    if (wanted > row || !has_query(a, token)) return;
    if (a.sinks != nullptr) {
      const JoinedSink joined = join_sink<B>(total.lse, B::load(a.sinks + head));
      total.scale(joined.out_scale);
      total.lse = joined.lse;
    }
    const std::int32_t sequence = a.q_starts != nullptr ? 0 : a.q_length.quotient(token);
    auto* const to = static_cast<Storage<S.out>*>(a.out) + sequence * a.out_strides.sequence +
                     (token - sequence * a.q_length.divisor) * a.out_strides.token + head * a.out_strides.head;
    total.template store<S.out>(to, S.value_size);
    if (a.lse != nullptr && total.lane() == 0) B::store(a.lse + head * a.lse_head_stride + token, total.lse);
  }

 private:
  struct Row : PartialRow {
    static constexpr int max_count = flash_most_splits;
  };
  /// Returns whether a token is a query of some sequence: packed ones may be fewer than their tensor has room for.
  TILEWAVE_DEVICE static bool has_query(const Args& a, std::int32_t token) {
    return a.q_starts == nullptr || (token >= B::load(a.q_starts) && token < B::load(a.q_starts + a.batch));
  }
};

}  // namespace tilewave
