// SPDX-License-Identifier: MIT
// Flash attention with K and V straight to registers takes what no other kernel does: any layout, page size or head
// size.
//
// Grid: batch x kv heads x row tiles, flattened with row tiles fastest. A block has P.rows query rows of one kv head,
// which are query tokens times the heads of the GQA ratio. Each of its waves has sixteen rows and walks their keys
// alone. A tile's scores are the operand of its second product (arch/atom.hpp, "chained"), so lanes exchange only the
// maxima and sums of rows. The kernel uses no LDS and no barrier. Tiles begin at multiples of their length, and a row's
// maximum is its own, so the bits of a row do not depend on other rows. Bound: loads of K and V from L1 and L2, which
// each wave makes for itself.
#pragma once

#include "tilewave/attention/operands.hpp"
#include "tilewave/attention/scores.hpp"
#include "tilewave/ops/flash_attention/policy_status.hpp"
#include "tilewave/ops/flash_attention/registers/keys_values.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

template <class B, FlashAttentionSpec S, FlashAttentionPolicy P>
struct FlashAttentionRegisters {
  static_assert(flash_attention_policy_status(B::facts.id, S, P).ok(),
                "a law of policies is broken: flash_attention_policy_status(arch, spec, policy).reason says which");
  using Room = B;
  struct Args {
    FlashAttentionArgs attention;
    FastDiv row_tiles, kv_heads;
  };
  struct Shared {};
  static constexpr bool launches_next = true;  // when its blocks end
  static constexpr int block_threads = P.waves * B::facts.wave_lanes;
  static constexpr int waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const FlashAttentionArgs& a = args.attention;
    const WorkItem item = locate(args);
    if (item.first_row >= item.rows) return;
    State s;
    begin(a, item, s);
    if (item.end > item.first) {
      const Kv kv(a, item.sequence, item.kv_head);
      for (std::int32_t tile = align_down(item.first, std::int32_t{P.keys}); tile < item.end; tile += P.keys) {
        Scores scores[score_tiles] = {};
        multiply_keys(kv, tile, s, scores);
        finish_scores(a, item, kv, tile, s, scores);
        RowsOperand probabilities[k_slices];
        softmax(kv, tile, s, scores, probabilities);
        multiply_values(kv, tile, s, probabilities);
      }
    }
    write(a, item, s);
  }

 private:
  using Kv = FlashKeysAndValues<B, S>;
  using Map = LaneMap<B>;
  using Values = typename Kv::Values;
  using Scores = typename B::Accumulator;  // [rows_per_lane][kv_per_lane]
  using RowsOperand = typename B::RowsOperand;
  static constexpr AtomFacts atom = B::atom;
  static constexpr int unit = S.unit(), rows_per_lane = atom.rows_per_lane, kv_per_lane = atom.kv_per_lane;
  static constexpr int score_tiles = Kv::score_tiles, k_slices = unit / atom.k_per_lane, k_units = Kv::k_units;
  static constexpr DType wide = S.wide_type();                            // type of q and K in their product
  static constexpr DType value_type = is_fp8(S.kv) ? DType::bf16 : S.kv;  // type of V and probabilities
  // f16 ends at 2^-24, where many keys of little weight would lose theirs.
  static constexpr float probability_scale = value_type == DType::f16 ? 0x1p14f : 1.0f;

  struct WorkItem {
    AttentionSequence sequence;
    std::int32_t kv_head, first_row, rows;  // first_row of this wave; rows of the sequence and kv head
    std::int32_t first, end;                // keys [first, end) that any of the wave's rows sees
  };
  struct Row {
    std::int32_t token, head;  // query of the sequence; query head
    VisibleKeys visible;
    std::int32_t position;  // of the query among the keys
    float scale, slope;     // scores times scale are log2 units, or those of the cap; alibi slope
    float maximum, sum;     // log2 units, -inf before the first key; sum of this lane's keys
  };
  struct State {
    RowsOperand q[k_units * k_slices];
    Scores out[Kv::out_tiles];
    Row row[rows_per_lane];
  };

  TILEWAVE_DEVICE static WorkItem locate(const Args& args) {
    const FlashAttentionArgs& a = args.attention;
    WorkItem item;
    const std::int32_t head = args.row_tiles.quotient(B::block_id()), sequence = args.kv_heads.quotient(head);
    item.sequence = AttentionSequence::of<B>(a, sequence);
    item.kv_head = head - sequence * args.kv_heads.divisor;
    item.first_row = (B::block_id() - head * args.row_tiles.divisor) * P.rows + 16 * B::wave_id();
    item.rows = item.sequence.q_count * a.gqa_ratio.divisor;
    const std::int32_t last_row = min_of(item.first_row + 16, item.rows) - 1;
    item.first =
        VisibleKeys::of(a, item.sequence, a.gqa_ratio.quotient(min_of(item.first_row, max_of(item.rows - 1, 0)))).first;
    item.end = VisibleKeys::of(a, item.sequence, a.gqa_ratio.quotient(max_of(last_row, 0))).end;
    return item;
  }

  TILEWAVE_DEVICE static void begin(const FlashAttentionArgs& a, const WorkItem& item, State& s) {
    TILEWAVE_UNROLL
    for (int r = 0; r < rows_per_lane; ++r) {
      const std::int32_t row = min_of(item.first_row + Map::row(B::lane_id(), r), item.rows - 1);
      Row& of = s.row[r];
      of.token = a.gqa_ratio.quotient(row);
      of.head = item.kv_head * a.gqa_ratio.divisor + row - of.token * a.gqa_ratio.divisor;
      of.visible = VisibleKeys::of(a, item.sequence, of.token);
      of.position = item.sequence.kv_count - item.sequence.q_count + of.token;
      of.scale = a.scale_log2;
      if constexpr (is_fp8(S.q)) of.scale *= B::load(a.q_scale + (S.quant == Scaling::per_head ? of.head : 0));
      if constexpr (S.quant == Scaling::per_tensor) of.scale *= B::load(a.k_scale);
      if constexpr (S.quant == Scaling::per_head) of.scale *= B::load(a.k_scale + item.kv_head * a.scale_head_stride);
      of.slope = 0.0f;
      if constexpr (S.alibi) of.slope = B::load(a.alibi_slopes + of.head) * log2_e;
      of.maximum = minus_infinity;
      of.sum = 0.0f;
      load_q(a, item, of, r, s);
    }
    TILEWAVE_UNROLL
    for (int d = 0; d < Kv::out_tiles; ++d) s.out[d] = Scores{};
  }

  /// Loads row r of the lane's operands: units 4 u + group of the row, in K's elements, `k_slices` operands each.
  TILEWAVE_DEVICE static void load_q(const FlashAttentionArgs& a, const WorkItem& item, const Row& row, int r,
                                     State& s) {
    constexpr int element = size_of(S.q), chunks = unit * element / 16, words = atom.k_per_lane / 2;
    const char* const from =
        static_cast<const char*>(a.q) + element * item.sequence.query_at(a, a.q_strides, row.token, row.head);
    TILEWAVE_UNROLL
    for (int u = 0; u < k_units; ++u) {
      const int number = AtomFacts::groups * u + Map::group(B::lane_id());
      Vec<std::uint32_t, unit / 2> pairs{};
      if (number < Kv::head_units) {
        TILEWAVE_UNROLL
        for (int c = 0; c < chunks; ++c) {
          const Chunk chunk = B::load(reinterpret_cast<const Chunk*>(from) + number * chunks + c);
          const auto widened = widen_unit<B, S.q, wide>(chunk);
          TILEWAVE_UNROLL
          for (int w = 0; w < widened.size; ++w) pairs[c * widened.size + w] = widened[w];
        }
      }
      TILEWAVE_UNROLL
      for (int w = 0; w < unit / 2; ++w) s.q[u * k_slices + w / words][r * words + w % words] = pairs[w];
    }
  }
  TILEWAVE_DEVICE static typename B::KvOperand operand(const Vec<std::uint32_t, unit / 2>& words, int k_slice) {
    typename B::KvOperand kv;
    TILEWAVE_UNROLL
    for (int w = 0; w < atom.k_per_lane / 2; ++w) kv[w] = words[k_slice * atom.k_per_lane / 2 + w];
    return kv;
  }
  TILEWAVE_DEVICE static void multiply_keys(const Kv& kv, std::int32_t tile, const State& s,
                                            Scores (&scores)[score_tiles]) {
    const typename Kv::Keys keys = kv.keys(tile);
    TILEWAVE_UNROLL
    for (int u = 0; u < k_units; ++u) {
      TILEWAVE_UNROLL
      for (int j = 0; j < score_tiles; ++j) {
        const Chunk chunk = kv.load_k(keys, u, j);
        const auto words = widen_unit<B, S.kv, wide>(chunk);
        TILEWAVE_UNROLL
        for (int k_slice = 0; k_slice < k_slices; ++k_slice) {
          scores[j] = mma_of<B, wide>(operand(words, k_slice), s.q[u * k_slices + k_slice], scores[j]);
        }
      }
    }
  }

  /// Returns the score of row r and key e of the lane's unit.
  TILEWAVE_DEVICE static float& score(Scores (&scores)[score_tiles], int r, int e) {
    return scores[e / kv_per_lane][r * kv_per_lane + e % kv_per_lane];
  }

  /// Applies scales, cap, slope and masks. Scores become log2 units, and -inf if the key is not seen.
  TILEWAVE_DEVICE static void finish_scores(const FlashAttentionArgs& a, const WorkItem& item, const Kv& kv,
                                            std::int32_t tile, const State& s, Scores (&scores)[score_tiles]) {
    TILEWAVE_UNROLL
    for (int e = 0; e < unit; ++e) {
      const std::int32_t key = tile + unit * kv.group + e;
      float k_scale = 1.0f;
      if constexpr (Kv::per_token) k_scale = kv.scale(a.k_scale, key);
      TILEWAVE_UNROLL
      for (int r = 0; r < rows_per_lane; ++r) {
        const Row& row = s.row[r];
        float& x = score(scores, r, e);
        x *= row.scale * k_scale;
        if constexpr (S.soft_cap) x = a.cap_log2 * tanh_of<B>(x);
        if constexpr (S.alibi) x -= row.slope * abs_of(static_cast<float>(key - row.position));
        bool seen = key >= row.visible.first && key < row.visible.end;
        if constexpr (S.bit_mask) seen = seen && item.sequence.template mask_allows<B>(a, row.token, key);
        if (!seen) x = minus_infinity;
      }
    }
  }

  /// Combines a value over the four lane groups that share a row.
  template <class Op>
  TILEWAVE_DEVICE static float over_groups(float x, Op op) {
    x = op(x, B::shuffle_xor(x, Map::lane_of(0, 1)));
    return op(x, B::shuffle_xor(x, Map::lane_of(0, 2)));
  }

  TILEWAVE_DEVICE static void softmax(const Kv& kv, std::int32_t tile, State& s, Scores (&scores)[score_tiles],
                                      RowsOperand (&probabilities)[k_slices]) {
    TILEWAVE_UNROLL
    for (int r = 0; r < rows_per_lane; ++r) {
      Row& row = s.row[r];
      float largest = score(scores, r, 0);
      TILEWAVE_UNROLL
      for (int e = 1; e < unit; ++e) largest = Max{}(largest, score(scores, r, e));
      const float raised = Max{}(row.maximum, over_groups(largest, Max{}));
      const float reference = raised == minus_infinity ? 0.0f : raised;  // no key was seen yet
      const float factor = B::exp2(row.maximum - reference);
      row.maximum = raised;
      row.sum *= factor;
      TILEWAVE_UNROLL
      for (int d = 0; d < Kv::out_tiles; ++d) {
        TILEWAVE_UNROLL
        for (int c = 0; c < kv_per_lane; ++c) s.out[d][r * kv_per_lane + c] *= factor;
      }
      TILEWAVE_UNROLL
      for (int e = 0; e < unit; ++e) {
        float& x = score(scores, r, e);
        x = B::exp2(B::subtract(x, reference));
        row.sum += x;
      }
    }
    constexpr int words = atom.k_per_lane / 2;
    TILEWAVE_UNROLL
    for (int pair = 0; pair < unit / 2; ++pair) {
      float low_scale = probability_scale, high_scale = probability_scale;
      if constexpr (Kv::per_token) {
        low_scale = kv.scale(kv.a.v_scale, tile + unit * kv.group + 2 * pair);
        high_scale = kv.scale(kv.a.v_scale, tile + unit * kv.group + 2 * pair + 1);
      }
      TILEWAVE_UNROLL
      for (int r = 0; r < rows_per_lane; ++r) {
        const float low = score(scores, r, 2 * pair) * low_scale, high = score(scores, r, 2 * pair + 1) * high_scale;
        probabilities[pair / words][r * words + pair % words] =
            value_type == DType::f16 ? B::pack_f16(low, high) : B::pack_bf16(low, high);
      }
    }
  }

  TILEWAVE_DEVICE static void multiply_values(const Kv& kv, std::int32_t tile, State& s,
                                              const RowsOperand (&probabilities)[k_slices]) {
    TILEWAVE_UNROLL
    for (int block = 0; block < Kv::out_tiles / Values::width; ++block) {
      Chunk chunks[Values::width];
      kv.load_v(tile, block, chunks);
      TILEWAVE_UNROLL
      for (int i = 0; i < Values::width; ++i) {
        const auto words = widen_unit<B, S.kv, value_type>(chunks[i]);
        Scores& out = s.out[block * Values::width + i];
        TILEWAVE_UNROLL
        for (int k_slice = 0; k_slice < k_slices; ++k_slice) {
          out = mma_of<B, value_type>(operand(words, k_slice), probabilities[k_slice], out);
        }
      }
    }
  }

  TILEWAVE_DEVICE static void write(const FlashAttentionArgs& a, const WorkItem& item, State& s) {
    float v_scale = 1.0f / probability_scale;
    if constexpr (S.quant == Scaling::per_tensor) v_scale *= B::load(a.v_scale);
    if constexpr (S.quant == Scaling::per_head) v_scale *= B::load(a.v_scale + item.kv_head * a.scale_head_stride);
    if constexpr (is_fp8(S.out)) v_scale *= B::load(a.out_scale);
    TILEWAVE_UNROLL
    for (int r = 0; r < rows_per_lane; ++r) {
      const Row& row = s.row[r];
      const float sum = item.sequence.beyond_capacity ? __builtin_nanf("") : over_groups(row.sum, Sum{});
      const float lse = sum == 0.0f ? minus_infinity : (row.maximum + B::log2(sum)) * ln_2;
      const JoinedSink joined = with_sink<B>(a, row.head, lse);
      if (item.first_row + Map::row(B::lane_id(), r) >= item.rows) continue;
      write_row(a, item, s, r, sum == 0.0f ? 0.0f : v_scale / sum * joined.out_scale);
      if (a.lse != nullptr && Map::group(B::lane_id()) == 0) {
        B::store(a.lse + row.head * a.lse_head_stride + item.sequence.q_first + row.token, joined.lse);
      }
    }
  }
  TILEWAVE_DEVICE static void write_row(const FlashAttentionArgs& a, const WorkItem& item, const State& s, int r,
                                        float scale) {
    constexpr int run = Values::run, store_width = min_of(8, run), element = size_of(S.out);
    const Row& row = s.row[r];
    char* const to =
        static_cast<char*>(a.out) + element * item.sequence.query_at(a, a.out_strides, row.token, row.head);
    TILEWAVE_UNROLL
    for (int block = 0; block < Kv::out_tiles / Values::width; ++block) {
      TILEWAVE_UNROLL
      for (int n = 0; n < run; n += store_width) {
        const int column = Values::first_held(block, Map::group(B::lane_id())) + n;
        if (column >= S.value_size) continue;
        Vec<float, store_width> values;
        TILEWAVE_UNROLL
        for (int i = 0; i < store_width; ++i) {
          const Scores& tile = s.out[block * Values::width + Values::tile_of(n + i)];
          values[i] = tile[r * kv_per_lane + Values::column_of(n + i)] * scale;
        }
        B::store(reinterpret_cast<Packed<S.out, store_width>*>(to + element * column),
                 narrow<B, S.out, store_width>(values));
      }
    }
  }
};

}  // namespace tilewave
