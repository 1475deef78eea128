// SPDX-License-Identifier: MIT
// The four waves that fetch: each has one half of one stage, and brings it whenever it is free. Wave 0 brings q as
// well, and the waves of the second half the last box of their stage.
#pragma once

#include "tilewave/ops/mla_decode/latent_tokens.hpp"
#include "tilewave/ops/mla_decode/tensor/layout.hpp"
#include "tilewave/ops/mla_decode/work.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeFetch {
 public:
  /// `wave`: 0 to 3 of those that fetch.
  TILEWAVE_DEVICE MlaDecodeFetch(const typename L::Args& args, typename L::Shared& shared, int wave)
      : args_(args), shared_(shared), stage_(wave / 2), half_(wave % 2), copies_(true) {
    if (args.clustered()) copies_ = B::cluster_rank() == half_;
  }

  TILEWAVE_DEVICE void run(const PagedAttentionWorkItem& item, const std::int32_t* table) {
    if (item.tiles == 0) return;
    if (stage_ == 0 && half_ == 0) fetch_q(item);
    for (std::int32_t i = stage_; i < item.tiles; i += L::stages) {
      const std::int32_t token = item.begin + i * L::tokens;
      B::mbarrier_wait(&shared_.free[stage_][half_], parity_ ^ 1);
      fetch<half_part>(item, table, token, half_ * L::half_boxes);
      if (half_ == 1) {
        B::mbarrier_wait(&shared_.free[stage_][0], parity_ ^ 1);
        if constexpr (L::any_last) fetch<last_part>(item, table, token, L::last_box);
      }
      if (copies_ && args_.of.attention.row_blocks.divisor > 1) prefetch(item, table, token + ahead * L::tokens);
      parity_ ^= 1;
    }
  }

 private:
  static constexpr int half_part = L::half_boxes, last_part = 1;  // boxes

  TILEWAVE_DEVICE void fetch_q(const PagedAttentionWorkItem& item) {
    const std::int32_t row = item.sequence * args_.q_sequence_rows + item.first_row;
    B::mbarrier_wait(&shared_.q_free, q_parity_ ^ 1);
    B::mbarrier_expect(&shared_.q_full, L::score_boxes * L::box_bytes);
    const int box = B::lane_id();
    if (box < L::score_boxes)
      B::copy_tensor(shared_.q + box * L::box_size, args_.q, box * L::box_columns, row, 0, &shared_.q_full);
    q_parity_ ^= 1;
  }

  // Rows of the cache are asked for so many tiles before their copies begin, which then take as long as copies from L2.
  // That helps where row blocks share rows and products bound the kernel. Where memory does, it would only push other
  // rows out of L2.
  static constexpr int ahead = 2;

  /// Has half of a tile's rows brought to L2. A stage's other wave asks for the other half.
  TILEWAVE_DEVICE void prefetch(const PagedAttentionWorkItem& item, const std::int32_t* table, std::int32_t token) {
    constexpr int rows = L::tokens / 2;  // the tiles of a stage have two waves
    const std::int32_t t = token + half_ * rows + B::lane_id();
    if (B::lane_id() >= rows || t >= item.begin + item.tiles * L::tokens || t >= item.end) return;
    B::prefetch(LatentTokens<B, S>{args_.of, table, item.end - 1}.token(t).row, L::read_bytes);
  }

  /// Brings `boxes` boxes of a tile from box `first` on.
  template <int boxes>
  TILEWAVE_DEVICE void fetch(const PagedAttentionWorkItem& item, const std::int32_t* table, std::int32_t token,
                             int first) {
    auto* const full = &shared_.full[stage_][first];
    Chunk* const to = shared_.kv[stage_] + first * L::box_size;
    if constexpr (L::policy.gathered) {
      gather<boxes>(LatentTokens<B, S>{args_.of, table, item.end - 1}, token, first * L::box_chunks, to);
      B::shared_written();
      for (int box = 0; box < boxes; ++box) B::mbarrier_arrive(full + box);
    } else {
      const PagedAttentionArgs& a = args_.of.attention;
      for (int box = 0; box < boxes; ++box) B::mbarrier_expect(full + box, L::box_bytes);
      if (!copies_) return;
      const int segments = L::tokens / args_.box_rows;
      for (int n = B::lane_id(); n < segments * boxes; n += L::lanes) {
        const int segment = n / boxes, box = n - segment * boxes;
        const std::int32_t t = min_of(token + segment * args_.box_rows, item.end - 1);
        const std::int32_t page = a.block_size.quotient(t), in_page = t - page * a.block_size.divisor;
        const std::int32_t row = B::load(table + page) * args_.page_rows + in_page / args_.box_rows * args_.box_rows;
        Chunk* const at = to + box * L::box_size + segment * args_.box_rows * L::box_chunks;
        const int column = (first + box) * L::box_columns;
        if (args_.clustered()) {
          B::copy_tensor(at, args_.kv, column, row, 0, full + box, 3u);  // into both blocks
        } else {
          B::copy_tensor(at, args_.kv, column, row, 0, full + box);
        }
      }
    }
  }

  /// The same by lanes, which widen codes. Lanes that follow each other have neighbouring units of a token.
  template <int boxes>
  TILEWAVE_DEVICE void gather(const LatentTokens<B, S>& tokens, std::int32_t first_token, int first_unit, Chunk* to) {
    constexpr int units = boxes * L::box_chunks, at_once = L::lanes / units;  // tokens
    constexpr int unrolled = 8;
    const int unit = B::lane_id() % units, box = unit / L::box_chunks;
    TILEWAVE_ROLL
    for (int first = 0; first < L::tokens; first += unrolled * at_once) {
      if constexpr (L::spec.kv == DType::bf16) {
        TILEWAVE_UNROLL
        for (int i = 0; i < unrolled; ++i) {
          const int row = first + i * at_once + B::lane_id() / units;
          const auto token = tokens.token(first_token + row);
          B::copy_lane(to + box * L::box_size + L::chunk_of(row, unit % L::box_chunks),
                       reinterpret_cast<const Chunk*>(token.row) + first_unit + unit);
        }
        B::lane_copies_end();
        B::template lane_copies_wait<3>();
      } else {
        Chunk loaded[unrolled];
        TILEWAVE_UNROLL
        for (int i = 0; i < unrolled; ++i) {
          loaded[i] =
              tokens.unit(tokens.token(first_token + first + i * at_once + B::lane_id() / units), first_unit + unit);
        }
        TILEWAVE_UNROLL
        for (int i = 0; i < unrolled; ++i) {
          const int row = first + i * at_once + B::lane_id() / units;
          to[box * L::box_size + L::chunk_of(row, unit % L::box_chunks)] = loaded[i];
        }
      }
    }
    if constexpr (L::spec.kv == DType::bf16) B::template lane_copies_wait<0>();
  }

  const typename L::Args& args_;
  typename L::Shared& shared_;
  int stage_, half_, parity_ = 0, q_parity_ = 0;
  bool copies_;  // whether this block brings the half, for the other block of its cluster too
};

}  // namespace tilewave
