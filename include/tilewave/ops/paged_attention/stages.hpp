// SPDX-License-Identifier: MIT
// The ring of stages in shared memory that one wave keeps full of K and V, and how it copies them out of their pages.
#pragma once

#include "tilewave/ops/paged_attention/work.hpp"

namespace tilewave {

/// L is a PagedAttentionLayout. Lives in shared memory.
template <class L>
struct PagedAttentionStages {
  using B = typename L::Room;
  using Kv = typename L::Kv;
  using Work = PagedAttentionWork<L>;

  static constexpr PagedAttentionSpec spec = L::spec;
  static constexpr int stages = L::policy.prefetch.stages, stage_tokens = L::policy.prefetch.stage_tokens;
  static constexpr int stage_chunks = stage_tokens * spec.head_size / L::unit;

  struct Stage {
    Chunk k[stage_chunks];  // [segments][D / x][segment][x], a segment being the tokens that lie together in a page
    Chunk v[stage_chunks];  // [stage_tokens / x][D][x]
    float k_scale[Kv::per_token ? stage_tokens : 4];
    float v_scale[Kv::per_token ? stage_tokens : 4];
  };
  /// Where a wave stands in the ring.
  struct Ring {
    int slot = 0, round = 0;
    TILEWAVE_DEVICE void advance() {
      if (++slot < stages) return;
      slot = 0;
      round ^= 1;
    }
  };

  Stage stage[stages];
  typename B::Mbarrier full[stages], empty[stages];

  /// The wave that fetches: fills the stages of one segment, each as soon as it is free.
  TILEWAVE_DEVICE void fetch(const PagedAttentionArgs& a, const Work& work, Ring& at) {
    const int lane = B::lane_id();
    const std::int32_t segments = stage_tokens >> a.segment_shift, pieces = a.pieces.divisor;
    const auto page_of = [&](std::int32_t stage) {  // lane s < segments looks up segment s
      const std::int32_t token = min_of(work.token(stage) + min_of(lane, segments - 1) * a.segment, work.end() - 1);
      return B::load(work.table() + a.block_size.quotient(max_of(token, work.first())));
    };
    std::int32_t page = work.stages() > 0 ? page_of(0) : 0;
    for (std::int32_t i = 0; i < work.stages(); ++i, at.advance()) {
      const std::int32_t page_now = page, token = work.token(i);
      if (i + 1 < work.stages()) page = page_of(i + 1);
      // Segments with no token to attend are left as they are: their scores are masked, their V zeroed.
      const std::int32_t from = max_of(work.first() - token, 0) >> a.segment_shift;
      const std::int32_t to = min_of((work.end() - token + a.segment - 1) >> a.segment_shift, segments);
      Stage& here = stage[at.slot];
      typename B::Mbarrier* landed = &full[at.slot];
      B::mbarrier_wait(&empty[at.slot], at.round ^ 1);
      B::mbarrier_expect(landed, static_cast<std::uint32_t>((to - from) * a.segment_bytes));
      for (std::int32_t n = 0; n < ceil_div((to - from) * pieces, L::lanes); ++n) {
        const std::int32_t piece = n * L::lanes + lane;
        const std::int32_t segment = min_of(from + a.pieces.quotient(piece), segments - 1);
        const std::int32_t its_page = B::shuffle(page_now, segment);
        if (piece < (to - from) * pieces)
          copy_piece(a, work, here, landed, segment, its_page, token + segment * a.segment, a.pieces.remainder(piece));
      }
    }
  }

 private:
  TILEWAVE_DEVICE static void copy_piece(const PagedAttentionArgs& a, const Work& work, Stage& stage,
                                         typename B::Mbarrier* full, std::int32_t segment, std::int32_t page,
                                         std::int32_t token, std::int32_t piece) {
    constexpr int element = size_of(spec.kv);
    const std::int32_t in_page = token - a.block_size.quotient(token) * a.block_size.divisor;
    const std::int32_t segment_bytes = a.segment * spec.head_size * element;
    if (piece < a.k_pieces.divisor) {
      const std::int32_t bytes = a.k_pieces.quotient(segment_bytes);
      const auto* from =
          static_cast<const char*>(a.k) + element * (page * a.k_strides.page + work.kv_head() * a.k_strides.head +
                                                     piece * a.k_strides.unit + in_page * std::int64_t{L::unit});
      B::copy_bulk(reinterpret_cast<char*>(stage.k) + segment * segment_bytes + piece * bytes, from, bytes, full);
      return;
    }
    piece -= a.k_pieces.divisor;
    if constexpr (Kv::per_token) {
      if (piece >= a.v_pieces.divisor) {
        const bool of_k = piece == a.v_pieces.divisor;
        const float* from = (of_k ? a.k_scale : a.v_scale) + page * a.scale_page_stride +
                            work.kv_head() * a.scale_head_stride + in_page;
        B::copy_bulk((of_k ? stage.k_scale : stage.v_scale) + segment * a.segment, from,
                     a.segment * static_cast<std::int32_t>(sizeof(float)), full);
        return;
      }
    }
    const std::int32_t bytes = a.v_pieces.quotient(segment_bytes);
    const auto* from =
        static_cast<const char*>(a.v) + element * (page * a.v_strides.page + work.kv_head() * a.v_strides.head +
                                                   (in_page / L::unit + piece) * a.v_strides.unit);
    B::copy_bulk(reinterpret_cast<char*>(stage.v) + segment * segment_bytes + piece * bytes, from, bytes, full);
  }
};

}  // namespace tilewave
