// SPDX-License-Identifier: MIT
// Multiplies heads of queries with keys by a wave group of sm90. 64 keys come from registers as they were loaded.
// Queries lie in shared memory, in the order of k in which a lane has the bytes of its keys. A lane has two keys, and a
// quarter of the heads of both. It adds these up by itself, and then four lanes add up their sums.
#pragma once

#include "tilewave/ops/mqa_logits/args.hpp"

namespace tilewave {

template <class B, MqaLogitsSpec S, MqaLogitsPolicy P>
class MqaGroupProduct {
  static constexpr int head_chunks = S.head_size * size_of(S.type) / 16;  // of 16 bytes
  static constexpr int steps = head_chunks / 2;
  static constexpr int pair = P.queries > 1 ? 2 : 1;  // queries whose products are under way at a time
  using Sums = Vec<float, S.heads / 2>;
  static_assert(P.queries % pair == 0, "two queries of a block are multiplied at a time");

 public:
  static constexpr int lanes = 128, keys = 64;  // of a team
  static constexpr int lane_keys = 2, units = head_chunks / 4;
  static constexpr bool arranged = false;
  struct Shared {
    Chunk q[P.queries][head_chunks][S.heads];
    Vec<float, 2> weights[P.queries][S.heads / 2];
  };

  TILEWAVE_DEVICE static int team() { return B::wave_id() / 4; }
  /// The number in its tile of this lane's key i, and which 16 bytes of the key are the lane's chunk c.
  TILEWAVE_DEVICE static int key(int i) { return B::block_lane_id() % lanes / 32 * 16 + B::lane_id() / 4 + 8 * i; }
  TILEWAVE_DEVICE static int unit(int c) { return 4 * c + B::lane_id() % 4; }
  /// Returns whether this lane writes the logits of its keys.
  TILEWAVE_DEVICE static bool writes() { return B::lane_id() % 4 == 0; }

  TILEWAVE_DEVICE MqaGroupProduct(const MqaLogitsArgs& a, const MqaLogitsWorkItem& item, Shared& shared)
      : shared_(shared), queries_(item.queries) {
    constexpr int chunks = S.heads * head_chunks, all_lanes = P.teams * lanes;
    static_assert(chunks % all_lanes == 0, "all lanes copy equally many 16 bytes of a query");
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; ++i) {
      const std::byte* const q = a.q + item.query(a, i) * a.q_stride;
      const float* const weights = a.weights + item.query(a, i) * a.weights_stride;
      TILEWAVE_UNROLL
      for (int c = 0; c < chunks / all_lanes; ++c) {
        const int chunk = c * all_lanes + B::block_lane_id(), head = chunk / head_chunks, unit = chunk % head_chunks;
        const Chunk bytes = B::load(reinterpret_cast<const Chunk*>(q + head * a.q_head_stride) + unit);
        // Lane unit % 4 of a row takes word w of this unit in step 2 (unit / 4) + w / 2, as half w % 2.
        TILEWAVE_UNROLL
        for (int w = 0; w < 4; ++w) shared.q[i][unit / 4 * 4 + w][head][unit % 4] = bytes[w];
      }
      for (int h = B::block_lane_id(); h < S.heads / 2; h += all_lanes) {
        shared.weights[i][h] = B::load(reinterpret_cast<const Vec<float, 2>*>(weights) + h);
      }
    }
    B::shared_written();
    B::barrier();
  }

  /// Calls f(query, sums over heads of this lane's keys) for every query.
  template <class Scale, class F>
  TILEWAVE_DEVICE void each(const Chunk (&key)[lane_keys][units], const Scale (&)[lane_keys], const F& f) const {
    Chunk operand[steps];  // registers must live until the products are done
    TILEWAVE_UNROLL
    for (int s = 0; s < steps; ++s) {
      TILEWAVE_UNROLL
      for (int w = 0; w < 4; ++w) operand[s][w] = key[w % 2][s / 2][s % 2 * 2 + w / 2];
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; i += pair) {
      if (i >= queries_) return;
      Sums sums[pair] = {};
      TILEWAVE_UNROLL
      for (int j = 0; j < pair; ++j) B::group_mma_fence(sums[j]);
      TILEWAVE_UNROLL
      for (int j = 0; j < pair; ++j) {
        B::group_mma_begin();
        TILEWAVE_UNROLL
        for (int s = 0; s < steps; ++s) B::template group_mma<S.type, S.heads>(operand[s], heads_of(i + j, s), sums[j]);
        B::group_mma_end();
      }
      if constexpr (pair == 2) {
        B::template group_mma_wait<1>();
        B::group_mma_fence(sums[0]);
        f(i, total(i, sums[0]));
      }
      B::template group_mma_wait<0>();
      B::group_mma_fence(sums[pair - 1]);
      f(i + pair - 1, total(i + pair - 1, sums[pair - 1]));
    }
  }

 private:
  TILEWAVE_DEVICE GroupOperand heads_of(int query, int step) const {
    return {shared_.q[query], 8 * 16, S.heads * 16, 2 * step * S.heads * 16};
  }
  TILEWAVE_DEVICE Vec<float, lane_keys> total(int query, const Sums& sums) const {
    Vec<float, lane_keys> of = {};
    TILEWAVE_UNROLL
    for (int j = 0; j < S.heads / 8; ++j) {
      const Vec<float, 2> weights = shared_.weights[query][4 * j + B::lane_id() % 4];
      TILEWAVE_UNROLL
      for (int i = 0; i < lane_keys; ++i) {
        TILEWAVE_UNROLL
        for (int e = 0; e < 2; ++e) of[i] = fused(weights[e], positive(sums[4 * j + 2 * i + e]), of[i]);
      }
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < lane_keys; ++i) of[i] = B::template reduce<4>(of[i], Sum{});
    return of;
  }

  Shared& shared_;
  std::int32_t queries_;
};

}  // namespace tilewave
