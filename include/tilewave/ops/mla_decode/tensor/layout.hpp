// SPDX-License-Identifier: MIT
// The layout of MlaDecodeTensor: its arguments, its shared memory, and the operands in it.
#pragma once

#include <type_traits>

#include "tilewave/attention/lane_sums.hpp"
#include "tilewave/ops/mla_decode/work.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

/// Shared memory holds boxes of 64 rows by 128 bytes: nine of q, and two stages of nine, a tile of 64 tokens each. The
/// last box of a stage has the dimensions behind the values, if there are any. When scores have been made of it, it
/// takes the probabilities of the tile.
///
/// Codes of fp8 become operands there: f16, which has all of their values, where one scale serves the whole cache, or
/// bf16 times the scales of groups.
template <class B, MlaDecodeSpec S, MlaDecodePolicy P>
struct MlaDecodeTensorLayout : MlaDecodeQueued<P> {
  static_assert(mla_decode_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: mla_decode_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  static constexpr MlaDecodeSpec spec = S;
  static constexpr int rows = P.rows, tokens = P.tokens, group_waves = 4, groups = 2;
  static constexpr int lanes = B::facts.wave_lanes, group_lanes = group_waves * lanes;

  static constexpr bool widens = is_fp8(S.kv), one_scale = widens && S.layout == LatentLayout::plain;
  // Tensor copies bring tiles, else lanes do.
  static constexpr bool maps_cache = mla_decode_copies(S, P);
  static constexpr DType type = one_scale ? DType::f16 : DType::bf16;  // of both products
  static constexpr bool converts_q = one_scale;                        // lanes do, as they bring it
  static constexpr int box_columns = 128 / size_of(type), slice = 32 / size_of(type);
  static constexpr int box_chunks = 8, box_size = 64 * box_chunks;  // chunks of a row, and of a box
  static constexpr int last_box = latent_value_size / box_columns, boxes = last_box + 1, half_boxes = last_box / 2;
  static constexpr int score_boxes = ceil_div(S.head_size, box_columns);
  static constexpr int score_slices = S.head_size / slice, value_slices = tokens / slice;  // products of a tile
  static constexpr int last_slices = score_slices - 4 * last_box;                          // those of the last box
  static constexpr int box_bytes = box_size * int{sizeof(Chunk)};
  static constexpr int q_box_size = rows * box_chunks;  // chunks
  static constexpr int read_bytes = S.row().token_bytes();
  static constexpr int full_waves = widens ? group_waves : 1;  // that make a box full
  static constexpr int stages = 2, half_columns = latent_value_size / groups;
  static constexpr bool any_last = score_boxes > last_box;  // whether rows have dimensions behind their values

  using Mbarrier = typename B::Mbarrier;
  using Scores = Vec<float, tokens / 2>;
  // Values are multiplied in parts, so that the place of the first is free while the second is multiplied.
  static constexpr int parts = 2, part_columns = half_columns / parts, part_boxes = half_boxes / parts;
  using Sums = LaneSums<B, parts, part_columns>;
  using Operands = Chunk[value_slices];  // probabilities in registers

  struct Args {
    MlaDecodeArgs of;
    std::int32_t q_sequence_rows;      // rows of q's map from a sequence to the next
    std::int32_t page_rows, box_rows;  // rows of the cache's map from a page to the next; tokens of a box
    std::int32_t sequences;            // whole ones of each part of a balanced launch, 0 if a part may begin inside one
    std::int32_t cluster;              // blocks that fetch rows of the cache for each other: 2, or 1
    typename B::TensorMap q, kv;

    const MlaDecodeArgs& decode() const { return of; }
    TILEWAVE_DEVICE bool clustered() const { return maps_cache && P.balanced() && cluster > 1; }
  };

  struct Units {
    float unit[rows];  // of the scores of a row, see half_query.hpp
  };
  struct Nothing {};
  using Aside = std::conditional_t<converts_q, Units, Nothing>;
  struct Shared {
    alignas(1024) Chunk q[boxes * q_box_size];
    alignas(1024) Chunk kv[stages][boxes * box_size];
    Aside aside;
    float reference[stages][rows];  // of a tile's probabilities, log2 units
    float sum[groups][rows];
    Mbarrier q_full, q_free;
    Mbarrier full[stages][boxes];  // of each box, so that scores begin with the first
    // Wave group g frees the parts of its half of the values.
    Mbarrier free[stages][groups][parts];
    Mbarrier probabilities[stages], summed[groups];
    Mbarrier turn;  // group 1 begins its scores behind those of group 0
  };

  /// Wave 0 initialises the barriers, in front of a barrier of the block.
  TILEWAVE_DEVICE static void begin(Shared& shared) {
    if (B::elected()) {
      begin_fetching(shared);
      B::mbarrier_init(&shared.turn, group_waves);
      for (int stage = 0; stage < stages; ++stage) {
        B::mbarrier_init(&shared.probabilities[stage], group_waves);
        B::mbarrier_init(&shared.summed[stage], group_waves);
      }
    }
    B::mbarrier_ready();
  }

  /// Initialises the barriers of q and of stages.
  template <class AnyShared>
  TILEWAVE_DEVICE static void begin_fetching(AnyShared& shared) {
    B::mbarrier_init(&shared.q_full, converts_q ? groups * group_waves : 1);
    B::mbarrier_init(&shared.q_free, groups * group_waves);
    for (int stage = 0; stage < stages; ++stage) {
      for (int box = 0; box < boxes; ++box) B::mbarrier_init(&shared.full[stage][box], full_waves);
      for (auto& half : shared.free[stage])
        for (auto& part : half) B::mbarrier_init(&part, group_waves);
    }
  }

  /// Frees a place in this block and the other one of its cluster.
  TILEWAVE_DEVICE static void release(const Args& args, Mbarrier& place) {
    if (args.clustered()) {
      TILEWAVE_UNROLL
      for (int rank = 0; rank < 2; ++rank) B::mbarrier_arrive(&place, rank);
    } else {
      B::mbarrier_arrive(&place);
    }
  }

  /// Return the operands of a k slice: 32 bytes of q or of a tile's rows, as many tokens of a part of a group's half
  /// of the values, and of their probabilities.
  TILEWAVE_DEVICE static SwizzledOperand q_operand(const Shared& shared, int k_slice) {
    return {shared.q + k_slice / 4 * q_box_size, 0, k_slice % 4};
  }
  TILEWAVE_DEVICE static SwizzledOperand key_operand(const Shared& shared, int stage, int k_slice) {
    return {shared.kv[stage] + k_slice / 4 * box_size, 0, k_slice % 4};
  }
  TILEWAVE_DEVICE static auto value_operand(const Shared& shared, int stage, int group, int part, int k_slice) {
    return TransposedOperand{shared.kv[stage] + (group * half_boxes + part * part_boxes) * box_size, tokens, 0,
                             k_slice};
  }
  /// The n-th box that scores take: those come first whose places are free first.
  TILEWAVE_HOST_DEVICE static constexpr int score_box(int n) {
    if (P.rows < 64 || n >= last_box) return n;
    return n / part_boxes % groups * half_boxes + n / (groups * part_boxes) * part_boxes + n % part_boxes;
  }
  /// Waits for the n-th box of scores, of those up to `end`. Codes are awaited two boxes at a time: what lanes stored
  /// must be fenced.
  template <int n, int end>
  TILEWAVE_DEVICE static void await_box(Mbarrier (&full)[boxes], int parity) {
    if constexpr (!widens) {
      B::mbarrier_wait(&full[score_box(n)], parity);
    } else if constexpr (n % 2 == 0) {
      B::mbarrier_wait(&full[score_box(n)], parity);
      if constexpr (n + 1 < end) B::mbarrier_wait(&full[score_box(n + 1)], parity);
      B::shared_written();
    }
  }
  TILEWAVE_DEVICE static SwizzledOperand probability_operand(const Shared& shared, int stage, int k_slice) {
    return {shared.kv[stage] + last_box * box_size, 0, k_slice};
  }
  /// Returns where a 16-byte unit of a row lies in a box.
  TILEWAVE_DEVICE static int chunk_of(int row, int unit) { return row * box_chunks + (unit ^ row % 8); }
};

}  // namespace tilewave
