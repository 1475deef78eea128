// SPDX-License-Identifier: MIT
// Multiplies heads of queries with keys by a wave of CDNA. A lane holds sums of heads in registers, and lanes share out
// the keys. In a product of 32 heads and 32 keys a lane has 16 heads of one key. It adds these up by itself, and then
// the two lanes of a key add up their sums. Queries and weights stay in registers.
#pragma once

#include "tilewave/arch/lds.hpp"
#include "tilewave/ops/mqa_logits/args.hpp"
#include "tilewave/tile/element.hpp"

namespace tilewave {

template <class B, MqaLogitsSpec S, MqaLogitsPolicy P>
class MqaWaveProduct {
  static constexpr int side = 32, tiles = S.heads / side;
  using Map = ProductMap<side>;
  using Sums = Vec<float, Map::sums>;
  static constexpr bool scaled = S.type == DType::fp4_e2m1;
  static constexpr int row_units = bytes_of(S.type, S.head_size) / 16;
  static_assert(!P.arranged || (S.keys == MqaKeys::ranges && !scaled),
                "arranged products are of ranges of keys without mx scales");

 public:
  static constexpr int lanes = B::facts.wave_lanes, keys = side;  // of a team
  static constexpr int lane_keys = 1, units = row_units / Map::units;
  /// Says whether keys are loaded line by line instead of in the order of products. A lane then has parts of several
  /// keys.
  static constexpr bool arranged = P.arranged;
  struct Tiles {
    Chunk of[P.teams][side * row_units];
  };
  struct None {
    float none;
  };
  using Shared = std::conditional_t<arranged, Tiles, None>;

  TILEWAVE_DEVICE static int team() { return B::wave_id(); }
  /// The number in its tile of this lane's key, and which 16 bytes of the key are the lane's chunk c.
  TILEWAVE_DEVICE static int key(int) { return Map::row(B::lane_id()); }
  TILEWAVE_DEVICE static int unit(int c) { return Map::units * c + Map::unit(B::lane_id()); }
  /// The same for the 16 bytes that this lane loads if keys are arranged.
  TILEWAVE_DEVICE static int loaded_key(int c) { return lanes / row_units * c + B::lane_id() / row_units; }
  TILEWAVE_DEVICE static int loaded_unit() { return B::lane_id() % row_units; }
  /// Returns whether this lane writes the logit of its key.
  TILEWAVE_DEVICE static bool writes() { return B::lane_id() < side; }

  TILEWAVE_DEVICE MqaWaveProduct(const MqaLogitsArgs& a, const MqaLogitsWorkItem& item, Shared& shared)
      : shared_(shared) {
    const int lane = B::lane_id();
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; ++i) {
      TILEWAVE_UNROLL
      for (int t = 0; t < tiles; ++t) {
        const std::byte* const q = a.q + item.query(a, i) * a.q_stride + (t * side + Map::row(lane)) * a.q_head_stride;
        TILEWAVE_UNROLL
        for (int c = 0; c < units; ++c) q_[i][t][c] = B::load(reinterpret_cast<const Chunk*>(q) + unit(c));
        if constexpr (scaled) {
          const std::byte* const scales = a.q_scale + item.query(a, i) * a.q_scale_stride;
          const auto word = B::load(reinterpret_cast<const std::uint32_t*>(scales) + t * side + Map::row(lane));
          TILEWAVE_UNROLL
          for (int c = 0; c < units; ++c) scales_[i][t][c] = word >> 8 * unit(c);
        }
        const float* const weights = a.weights + item.query(a, i) * a.weights_stride + t * side;
        TILEWAVE_UNROLL
        for (int run = 0; run < Map::sums / 4; ++run) {
          using Four = Vec<float, 4>;
          const Four four = B::load(reinterpret_cast<const Four*>(weights + Map::kv_row(lane, 4 * run)));
          TILEWAVE_UNROLL
          for (int e = 0; e < 4; ++e) weights_[i][t][4 * run + e] = four[e];
        }
      }
    }
  }

  /// Gives a lane the chunks of its key, from a tile that was loaded as loaded_key and loaded_unit say.
  TILEWAVE_DEVICE void arrange(const Chunk (&loaded)[units], Chunk (&key)[units]) const {
    Chunk* const tile = shared_.of[team()];
    B::wave_barrier();  // the tile before has been read
    TILEWAVE_UNROLL
    for (int c = 0; c < units; ++c) tile[lds_chunk(loaded_key(c), loaded_unit())] = loaded[c];
    B::wave_barrier();
    TILEWAVE_UNROLL
    for (int c = 0; c < units; ++c) key[c] = tile[lds_chunk(Map::row(B::lane_id()), unit(c))];
  }

  /// Calls f(query, sums over heads of this lane's keys) for every query.
  template <class Scale, class F>
  TILEWAVE_DEVICE void each(const Chunk (&key)[lane_keys][units], [[maybe_unused]] const Scale (&scale)[lane_keys],
                            const F& f) const {
    TILEWAVE_UNROLL
    for (int i = 0; i < P.queries; ++i) {
      float total = 0;
      TILEWAVE_UNROLL
      for (int t = 0; t < tiles; ++t) {
        Sums sums = {};
        if constexpr (scaled) {
          B::template multiply_mx<S.type, S.type, side>(q_[i][t], key[0], scales_[i][t], scale[0].data, sums);
        } else {
          constexpr int chunks = B::template product_chunks<S.type>;
          TILEWAVE_UNROLL
          for (int first = 0; first < units; first += chunks) {
            Chunk heads[chunks], keys_of[chunks];
            TILEWAVE_UNROLL
            for (int c = 0; c < chunks; ++c) {
              heads[c] = q_[i][t][first + c];
              keys_of[c] = key[0][first + c];
            }
            B::template multiply<S.type, side>(heads, keys_of, sums);
          }
        }
        TILEWAVE_UNROLL
        for (int e = 0; e < Map::sums; ++e) total = fused(weights_[i][t][e], positive(sums[e]), total);
      }
      f(i, Vec<float, lane_keys>{{total + B::shuffle_xor(total, side)}});
    }
  }

 private:
  /// Where 16 bytes of a key lie in LDS. Accesses that are served together, of different keys, have different banks.
  TILEWAVE_DEVICE static constexpr int lds_chunk(int key, int unit) {
    return key * row_units + (unit ^ ((key ^ key / row_units) % row_units));
  }

  Shared& shared_;
  Chunk q_[P.queries][tiles][units];
  Sums weights_[P.queries][tiles];
  std::uint32_t scales_[scaled ? P.queries : 1][tiles][units];  // in the low bytes
};

}  // namespace tilewave
