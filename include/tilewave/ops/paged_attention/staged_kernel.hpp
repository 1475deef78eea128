// SPDX-License-Identifier: MIT
// Paged-attention decode through shared memory, for rooms that copy in bulk. A block is `waves` that compute and one
// that fetches: it keeps a ring of stages, `stage_tokens` of K and V each, full with copies that take whole pieces of a
// page, so that nothing but the ring's size bounds the bytes in flight. A wave takes every waves.tokens-th tile of its
// block, reads fragments with load_matrices, and is otherwise the wave of kernel.hpp. Grid: clusters that share one
// (sequence, kv head, row group) and merge through shared memory, or persistent blocks that share all stages of the
// batch evenly (Work). LDS plan: the ring, then what the epilogue exchanges. Bound: KV bytes over memory bandwidth.
#pragma once

#include "tilewave/ops/paged_attention/cluster_merge.hpp"
#include "tilewave/ops/paged_attention/epilogue.hpp"
#include "tilewave/ops/paged_attention/layout.hpp"
#include "tilewave/ops/paged_attention/online_softmax.hpp"
#include "tilewave/ops/paged_attention/stages.hpp"

namespace tilewave {

template <class B, PagedAttentionSpec S, PagedAttentionPolicy P>
struct PagedAttentionStagedDecode {
  using Room = B;
  using L = PagedAttentionLayout<B, S, P>;
  using Args = PagedAttentionArgs;
  using Kv = typename L::Kv;
  using Map = typename L::Map;
  using State = typename L::State;
  using Scores = typename L::Scores;
  using RowsOperand = typename L::RowsOperand;
  using Epilogue = PagedAttentionEpilogue<L>;
  using Merge = PagedAttentionClusterMerge<L>;
  using Work = PagedAttentionWork<L>;
  using Stages = PagedAttentionStages<L>;
  using Stage = typename Stages::Stage;
  using Ring = typename Stages::Ring;

  static constexpr int compute_waves = P.waves_per_block();
  static constexpr int block_threads = (compute_waves + 1) * L::lanes;
  static constexpr int waves_per_simd = P.waves_per_simd;
  static constexpr int stages = P.prefetch.stages, stage_tokens = P.prefetch.stage_tokens;
  static constexpr int stage_waves = stage_tokens / L::wave_tokens;  // token waves that share a stage
  static constexpr int wave_groups = L::token_waves / stage_waves;   // that take stages in turn
  static_assert(sizeof(typename Merge::Shares) <= sizeof(Stages));
  static_assert(stage_waves >= 1 && wave_groups >= 1 && stage_tokens % L::wave_tokens == 0);

  struct Shared {
    Stages ring;
    typename L::Shared merge;
    typename B::Mbarrier joined;
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t wave = B::wave_id();
    Work work(a);
    if (B::block_lane_id() == 0) {
      for (int i = 0; i < stages; ++i) {
        B::mbarrier_init(&shared.ring.full[i], 1);
        B::mbarrier_init(&shared.ring.empty[i], compute_waves);
      }
      B::mbarrier_init(&shared.joined, compute_waves);
      B::mbarrier_ready();
    }
    B::barrier();
    if constexpr (P.balanced()) B::launch_next();
    Ring ring;
    if (wave == compute_waves) {
      for (; work.more(); work.next()) shared.ring.fetch(a, work, ring);
      if (!P.balanced() && a.cluster > 1) Merge::accompany();
      return;
    }
    int joins = 0;
    const auto join = [&] {
      B::mbarrier_arrive(&shared.joined);
      B::mbarrier_wait(&shared.joined, joins++ % 2);
    };
    for (; work.more(); work.next()) {
      const typename L::Place at = work.place(wave);
      State s;
      set_up(a, at, s, shared, join);
      if (work.stages() > 0) consume(a, at, work, ring, s, shared);
      if (!P.balanced() && a.cluster > 1) {
        Merge::run(a, at, s, shared.merge, *reinterpret_cast<typename Merge::Shares*>(&shared.ring.stage[0]));
      } else {
        Epilogue::run(a, at, s, shared.merge, join);
      }
    }
  }

 private:
  // ---- the waves that compute

  template <class Join>
  TILEWAVE_DEVICE static void set_up(const Args& a, const typename L::Place& at, State& s, Shared& shared, Join join) {
    const int lane = B::lane_id();
    TILEWAVE_UNROLL
    for (int t = 0; t < L::row_tiles; ++t) {
      RowsOperand q[L::q_operands];
      TILEWAVE_UNROLL
      for (int r = 0; r < L::rows_per_lane; ++r) {
        const std::int32_t row = at.first_row + t * L::atom_rows + Map::row(lane, r);
        L::begin_row(a, at, s, t, r, row);
        load_q_row(a, at, row, r, q);
        if constexpr (L::scales_q) s.q_scale[t][r] = scale_q_row(r, q);
      }
      TILEWAVE_UNROLL
      for (int i = 0; i < L::q_operands; ++i) {
        if constexpr (P.q_shared) {
          if (at.wave_token == 0)
            shared.merge.early.q[(at.wave_row * L::row_tiles + t) * L::q_operands + i][lane] = q[i];
        } else {
          s.q[t][i] = q[i];
        }
      }
      TILEWAVE_UNROLL
      for (int d = 0; d < L::out_tiles; ++d) s.out[t][d] = Scores{};
    }
    if constexpr (P.q_shared) join();
  }

  static constexpr int q_words = L::atom.k_per_lane / 2;  // of one row of an operand

  /// Row r of the lane's Q operands, in the order in which load_matrices deals out a unit of K: x / 4 dimensions to
  /// each lane group. Rows past the end are zero.
  TILEWAVE_DEVICE static void load_q_row(const Args& a, const typename L::Place& at, std::int32_t row, int r,
                                         RowsOperand* q) {
    const bool valid = row < a.rows;
    const auto query = L::query_row(a, at, valid ? row : 0);
    const auto* row_start =
        static_cast<const std::uint16_t*>(a.q) + query.out_row * a.q_row_stride + query.head * a.q_head_stride;
    constexpr int dealt = L::unit / AtomFacts::groups;
    using Dealt = Vec<std::uint32_t, dealt / 2>;
    TILEWAVE_UNROLL
    for (int unit = 0; unit < S.head_size / L::unit; ++unit) {
      Dealt d{};
      if (valid) {
        d = B::load(reinterpret_cast<const Dealt*>(row_start + unit * L::unit + dealt * Map::group(B::lane_id())));
      }
      TILEWAVE_UNROLL
      for (int w = 0; w < dealt / 2; ++w) {
        const int word = unit * (dealt / 2) + w;
        q[word / q_words][r * q_words + word % q_words] = d[w];
      }
    }
  }

  /// Row r from bf16 to f16, its largest element brought to [2^14, 2^15), where even 2^-28 of it is still exact:
  /// returns the power of two it was divided by.
  TILEWAVE_DEVICE static float scale_q_row(int r, RowsOperand* q) {
    std::uint32_t top = 0;  // exponent and mantissa order magnitudes, as integers
    const auto each_word = [&](auto f) {
      TILEWAVE_UNROLL
      for (int i = 0; i < L::q_operands; ++i) {
        TILEWAVE_UNROLL
        for (int w = 0; w < q_words; ++w) f(q[i][r * q_words + w]);
      }
    };
    each_word([&](std::uint32_t word) { top = max_of(top, max_of(word & 0x7fff0000u, word << 16 & 0x7fff0000u)); });
    top = max_of(top, B::shuffle_xor(top, Map::lane_of(0, 1)));
    top = max_of(top, B::shuffle_xor(top, Map::lane_of(0, 2)));
    const std::uint32_t exponent = min_of(max_of(top >> 23, 15u), 254u);  // of zeros and infinities, any
    const float factor = __builtin_bit_cast(float, (127 + 14 + 127 - exponent) << 23);
    each_word([&](std::uint32_t& word) {
      word = B::pack_f16(__builtin_bit_cast(float, word << 16) * factor,
                         __builtin_bit_cast(float, word & 0xffff0000u) * factor);
    });
    return __builtin_bit_cast(float, (exponent - 14) << 23);
  }

  TILEWAVE_DEVICE static void consume(const Args& a, const typename L::Place& at, const Work& work, Ring& ring,
                                      State& s, Shared& shared) {
    const Kv kv(a);
    const float k_scale = a.scale_log2 * L::common_scale(a, a.k_scale, at.kv_head);
    const std::int32_t group = at.wave_token / stage_waves, offset = at.wave_token % stage_waves * L::wave_tokens;
    const int lane = B::lane_id(), matrix = lane / 8, row = lane % 8;

    // Rows of the matrices that this lane points at, as byte offsets in a stage: K by 16 tokens, V for dimension 0.
    std::int32_t k_row[L::wave_tokens / 16];
    TILEWAVE_UNROLL
    for (int q = 0; q < L::wave_tokens / 16; ++q) {
      constexpr int c = L::kv_per_lane, tiles = 16 / L::atom_kv;
      const std::int32_t token = offset + L::token_of(row / c, q * tiles * c + row % c);
      const std::int32_t in_segment = token & (a.segment - 1);
      k_row[q] = (token - in_segment) * S.head_size * size_of(S.kv) + matrix * a.segment * 16 + in_segment * 16;
    }
    const std::int32_t k_step = AtomFacts::groups * a.segment * 16;
    const std::int32_t v_row = (offset / L::unit + matrix) * S.head_size * 16 + row * 16;

    for (std::int32_t i = 0; i < work.stages(); ++i, ring.advance()) {
      // All waves see every phase of every stage: one that missed a phase would take it for the next but one.
      B::mbarrier_wait(&shared.ring.full[ring.slot], ring.round);
      const std::int32_t token = work.token(i) + offset;
      Stage& stage = shared.ring.stage[ring.slot];
      if (i % wave_groups == group && token < at.end && token + L::wave_tokens > at.first) {
        const bool edge = token < at.full_first || token + L::wave_tokens > at.full_end;
        Scores scores[L::row_tiles][L::score_tiles] = {};
        multiply_k(at, s, shared, reinterpret_cast<const char*>(stage.k), k_row, k_step, scores);
        RowsOperand probabilities[L::row_tiles][L::steps];
        if constexpr (Kv::per_token) load_scales(stage, offset, kv, s);
        OnlineSoftmax<L>::run(kv, at, token, edge, k_scale, s, scores, probabilities);
        const char* v = reinterpret_cast<const char*>(stage.v) + v_row;
        if (edge) {
          multiply_v<true>(kv, at, token, s, v, probabilities);
        } else {
          multiply_v<false>(kv, at, token, s, v, probabilities);
        }
      }
      B::mbarrier_arrive(&shared.ring.empty[ring.slot]);
    }
  }

  TILEWAVE_DEVICE static void load_scales(const Stage& stage, std::int32_t offset, const Kv& kv, State& s) {
    TILEWAVE_UNROLL
    for (int i = 0; i < Kv::scale_words; ++i) {
      const std::int32_t token = offset + L::token_of(kv.group, kv.position + i * L::atom_kv);
      s.cursors[0].k_scale[i] = B::load(&stage.k_scale[token]);
      s.cursors[0].v_scale[i] = B::load(&stage.v_scale[token]);
    }
  }

  /// Groups of four chunks keep their loads a group ahead of the products, and four chains of products apart.
  static constexpr int width = 4;
  using Group = Chunk[width];

  TILEWAVE_DEVICE static void multiply_k(const typename L::Place& at, const State& s, const Shared& shared,
                                         const char* k, const std::int32_t* k_row, std::int32_t k_step,
                                         Scores (&scores)[L::row_tiles][L::score_tiles]) {
    constexpr int per_16 = 16 / L::atom_kv, per_u = L::score_tiles / width;  // score tiles of 16 tokens; groups
    static_assert(L::score_tiles % width == 0);
    Group ring[2];
    const auto load = [&](int n, Group& group) {
      TILEWAVE_UNROLL
      for (int i = 0; i < width; ++i) {
        const int u = n / per_u, tile = n % per_u * width + i;
        const std::int32_t inside = 16 * L::token_of(0, L::kv_per_lane * (tile % per_16));
        group[i] = B::load_matrices(reinterpret_cast<const Chunk*>(k + k_row[tile / per_16] + u * k_step + inside));
      }
    };
    constexpr int groups = L::k_units * per_u;
    load(0, ring[0]);
    static_for<groups>([&](auto group) {
      constexpr int n = group;
      if constexpr (n + 1 < groups) load(n + 1, ring[(n + 1) % 2]);
      TILEWAVE_UNROLL
      for (int step = 0; step < L::steps; ++step) {
        RowsOperand q[L::row_tiles];
        TILEWAVE_UNROLL
        for (int t = 0; t < L::row_tiles; ++t) {
          const int i = n / per_u * L::steps + step;
          if constexpr (P.q_shared) {
            q[t] = shared.merge.early.q[(at.wave_row * L::row_tiles + t) * L::q_operands + i][B::lane_id()];
          } else {
            q[t] = s.q[t][i];
          }
        }
        TILEWAVE_UNROLL
        for (int i = 0; i < width; ++i) {
          const auto kv = operand<L::k_type>(ring[n % 2][i], step);
          TILEWAVE_UNROLL
          for (int t = 0; t < L::row_tiles; ++t) {
            Scores& to = scores[t][n % per_u * width + i];
            to = mma_of<B, L::k_type>(kv, q[t], to);
          }
        }
      }
    });
  }

  template <bool edge>
  TILEWAVE_DEVICE static void multiply_v(const Kv& kv, const typename L::Place& at, std::int32_t token, State& s,
                                         const char* v, const RowsOperand (&probabilities)[L::row_tiles][L::steps]) {
    static_assert(L::out_tiles % width == 0);
    // Word m of a chunk is tokens x * m + (x / 4) * group ... of the wave's tile, of any head dimension.
    Chunk attended{};
    if constexpr (edge) {
      TILEWAVE_UNROLL
      for (int m = 0; m < 4; ++m) {
        attended[m] = attended_mask<S>(token + L::unit * m + L::unit / AtomFacts::groups * kv.group, at.first, at.end);
      }
    }
    Group ring[2];
    const auto load = [&](int n, Group& group) {
      TILEWAVE_UNROLL
      for (int i = 0; i < width; ++i) {
        group[i] = B::load_matrices(reinterpret_cast<const Chunk*>(v + (n * width + i) * L::atom_kv * 16));
        if constexpr (edge) {
          TILEWAVE_UNROLL
          for (int m = 0; m < 4; ++m) group[i][m] &= attended[m];
        }
      }
    };
    constexpr int groups = L::out_tiles / width;
    load(0, ring[0]);
    static_for<groups>([&](auto group) {
      constexpr int n = group;
      if constexpr (n + 1 < groups) load(n + 1, ring[(n + 1) % 2]);
      TILEWAVE_UNROLL
      for (int step = 0; step < L::steps; ++step) {
        TILEWAVE_UNROLL
        for (int i = 0; i < width; ++i) {
          const auto words = operand<L::v_type>(ring[n % 2][i], step);
          TILEWAVE_UNROLL
          for (int t = 0; t < L::row_tiles; ++t) {
            Scores& to = s.out[t][n * width + i];
            to = mma_of<B, L::v_type>(words, probabilities[t][step], to);
          }
        }
      }
    });
  }

  /// Step `step` of a chunk: two of its words, or one widened.
  template <DType type>
  TILEWAVE_DEVICE static typename B::KvOperand operand(const Chunk& chunk, int step) {
    if constexpr (is_fp8(S.kv) && type == DType::f16) {
      return B::widen_fp8_to_f16(chunk[step]);
    } else if constexpr (is_fp8(S.kv)) {
      return B::widen_fp8(chunk[step]);
    } else {
      return {chunk[2 * step], chunk[2 * step + 1]};
    }
  }
};

}  // namespace tilewave
