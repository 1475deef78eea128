// SPDX-License-Identifier: MIT
// What waves that fetch have in common: copies of q and of boxes of a tile's rows, and requests for later rows.
#pragma once

#include "tilewave/ops/mla_decode/latent_tokens.hpp"
#include "tilewave/ops/mla_decode/tensor/layout.hpp"
#include "tilewave/ops/mla_decode/work.hpp"

namespace tilewave {

template <class B, MlaDecodeSpec S, class L>
class MlaDecodeCopies {
 protected:
  using Item = PagedAttentionWorkItem;

  TILEWAVE_DEVICE MlaDecodeCopies(const typename L::Args& args, typename L::Shared& shared)
      : args_(args), shared_(shared) {}

  /// Asks for what an item will write, so that its stores need not wait for translations of addresses: some 6 us of
  /// them on an H200 whose pages are cold.
  TILEWAVE_DEVICE void touch_output(const Item& item) const {
    const PagedAttentionArgs& a = args_.of.attention;
    if (B::lane_id() != 0) return;
    const QueryRow query = query_row(a, item, item.first_row);
    if (item.slot >= 0) {
      B::prefetch(a.partial_out + std::int64_t{item.slot} * L::rows * latent_value_size);
    } else {
      B::prefetch(static_cast<const std::uint16_t*>(a.out) + query.out_row * a.out_row_stride +
                  query.head * a.out_head_stride);
    }
  }

  TILEWAVE_DEVICE void fetch_q(const Item& item) {
    const std::int32_t row = item.sequence * args_.q_sequence_rows + item.first_row;
    B::mbarrier_wait(&shared_.q_free, q_parity_ ^ 1);
    B::mbarrier_expect(&shared_.q_full, L::score_boxes * L::q_box_size * int{sizeof(Chunk)});
    const int box = B::lane_id();
    if (box < L::score_boxes)
      B::copy_tensor(shared_.q + box * L::q_box_size, args_.q, box * L::box_columns, row, 0, &shared_.q_full);
    q_parity_ ^= 1;
  }

  /// Tokens that lie together in a page and in a tile are a segment. Each lane looks up where one of a tile's segments
  /// lies, as a row of the cache's map, before it is needed.
  TILEWAVE_DEVICE std::int32_t segment_row(const Item& item, const std::int32_t* table, std::int32_t token) const {
    const PagedAttentionArgs& a = args_.of.attention;
    const std::int32_t first = B::lane_id() * args_.box_rows;
    if (first >= L::tokens) return 0;
    const std::int32_t t = min_of(token + first, item.end - 1);
    const std::int32_t page = a.block_size.quotient(t), in_page = t - page * a.block_size.divisor;
    return B::load(table + page) * args_.page_rows + (in_page & -args_.box_rows);  // a power of two
  }
  // Rows of the cache are asked for so many tiles, 128 tokens, before their copies begin, which then take as long as
  // copies from L2. That helps where row blocks share rows and products bound the kernel. Where memory bounds it, it
  // would only push other rows out of L2.
  static constexpr int ahead = 128 / L::tokens;

  /// Has `count` rows brought to L2, from row `first` of the tile `ahead` behind the one from `token` on. Rows that
  /// follow each other without gaps are asked for together: a lane's request takes some forty clocks of its wave.
  TILEWAVE_DEVICE void prefetch(const Item& item, const std::int32_t* table, std::int32_t token, int first, int count) {
    if (args_.of.attention.row_blocks.divisor == 1) return;
    constexpr std::int32_t gap = L::read_bytes / size_of(S.kv);
    const int together = L::maps_cache && args_.of.attention.k_strides.token == gap ? min_of(args_.box_rows, count) : 1;
    const std::int32_t n = B::lane_id() * together, t = token + ahead * L::tokens + first + n;
    if (n >= count || t >= item.begin + item.tiles * L::tokens || t >= item.end) return;
    const std::int32_t rows = min_of(together, item.end - t);
    B::prefetch(LatentTokens<B, S>{args_.of, table, item.end - 1}.token(t).row, rows * L::read_bytes);
  }

  const typename L::Args& args_;
  typename L::Shared& shared_;

 private:
  int q_parity_ = 0;
};

}  // namespace tilewave
