// SPDX-License-Identifier: MIT
// The ring of stages in shared memory that a few waves keep full of K and V, and how they copy them out of their pages.
#pragma once

#include "tilewave/attention/pace.hpp"
#include "tilewave/ops/paged_attention/work.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

/// L is a PagedAttentionStagedLayout. Lives in shared memory.
template <class L>
struct PagedAttentionStages {
  using B = typename L::Room;
  using Work = PagedAttentionWork<L>;

  static constexpr PagedAttentionSpec spec = L::spec;
  static constexpr int stages = L::policy.prefetch.stages, stage_tokens = L::policy.prefetch.stage_tokens;
  using Pace = AttentionPace<B, stages>;

  struct Stage {
    Chunk k[stage_tokens * spec.head_size / L::unit];  // [segments][D / x][segment], a segment lying together in a page
    Chunk v[stage_tokens / L::unit][spec.head_size];
    float k_scale[L::per_token ? stage_tokens : 4];
    float v_scale[L::per_token ? stage_tokens : 4];
  };
  /// Where a wave stands in the ring.
  struct Ring : RingSlot<stages> {
    int shift = 0;  // of the stages against their barriers

    /// Whose `count` stages end in the last place: the first is free while the others are still read.
    TILEWAVE_DEVICE static Ring ending_last(std::int32_t count) {
      Ring ring;
      ring.shift = (stages - count % stages) % stages;
      return ring;
    }
    TILEWAVE_DEVICE int place() const {
      return this->slot + shift < stages ? this->slot + shift : this->slot + shift - stages;
    }
  };

  union {
    Stage stage[stages];
    typename L::Received received;  // in the first places, when nobody reads them any more
  };
  RingBarriers<B, stages> barriers;

  /// By one of the waves that fetch.
  TILEWAVE_DEVICE void begin() { barriers.begin(L::fetching, L::waves); }

  /// What one copy takes: contiguous bytes of a segment.
  struct Piece {
    const char* page_0;  // where it would be in page 0, of the page's first token
    std::int64_t page_bytes, token_bytes;
    std::int32_t segment, in_stage, bytes;
    std::int32_t behind;  // bytes of each of its last tokens, which it can do without; 0 where they lie scattered
  };

  /// The first of the lane's pieces: the waves that fetch share them out, in turn.
  TILEWAVE_DEVICE static std::int32_t first_piece(int wave) { return B::lane_id() * L::fetching + wave; }

  /// A wave that fetches: its share of the stages of one piece of work, each as soon as it is free. Lanes look up the
  /// pages of the next segments, one each, a round of them ahead. `piece_0`: piece_of first_piece().
  TILEWAVE_DEVICE void fetch(const PagedAttentionArgs& a, const Work& work, int wave, const Piece& piece_0, Ring& at,
                             Pace& pace) {
    const int lane = B::lane_id();
    const std::int32_t segments = stage_tokens >> a.segment_shift;
    const auto pages_from = [&](std::int32_t segment) {
      const std::int32_t token = min_of(work.token(0) + (segment + lane) * a.segment, work.end() - 1);
      return B::load(work.table() + a.block_size.quotient(max_of(token, work.first())));
    };
    std::int32_t pages = 0, next_pages = work.stages() > 0 ? pages_from(0) : 0;
    for (std::int32_t i = 0, ahead = 0; i < work.stages(); ++i, ahead += segments, at.advance()) {
      const std::int32_t token = work.token(i);
      if (ahead % L::lanes == 0) pages = next_pages;
      // Segments with no token to attend are left as they are: their scores are masked, their V zeroed.
      const std::int32_t from = max_of(work.first() - token, 0) >> a.segment_shift;
      const std::int32_t to = min_of((work.end() - token + a.segment - 1) >> a.segment_shift, segments);
      // Tokens behind the last unit with one to attend: what can do without them is copied without them.
      const std::int32_t absent = max_of(token + to * a.segment - align_up(work.end(), L::unit), 0);
      auto* here = reinterpret_cast<char*>(&stage[at.place()]);
      typename B::Mbarrier* full = &barriers.full[at.slot];
      pace.read_clock();
      barriers.wait_free(at);
      // All of them arrive, also one without a share of this stage: else it might miss the phase.
      if (L::fetching == 1 || wave == 0) {
        B::mbarrier_expect(full, static_cast<std::uint32_t>((to - from) * a.segment_bytes - absent * behind_of(a)));
      } else {
        B::mbarrier_arrive(full);
      }
      for (std::int32_t done = 0; done < segments * a.pieces.divisor; done += L::fetching * L::lanes) {
        const Piece piece = done == 0 ? piece_0 : piece_of(a, work.kv_head(), done + first_piece(wave));
        const std::int32_t page = B::shuffle(pages, ahead % L::lanes + min_of(piece.segment, segments - 1));
        if (piece.segment < from || piece.segment >= to) continue;
        const std::int32_t in_page =
            a.segment == a.block_size.divisor ? 0 : a.block_size.remainder(token + piece.segment * a.segment);
        B::copy_bulk(here + piece.in_stage, piece.page_0 + page * piece.page_bytes + in_page * piece.token_bytes,
                     piece.bytes - (piece.segment == to - 1 ? absent * piece.behind : 0), full);
      }
      if (ahead % L::lanes == 0) next_pages = pages_from(ahead + L::lanes);
      if (!work.ends_with(i)) pace.wait([&] { return work.share(); });
    }
  }

  /// Bytes of a segment's last tokens that its pieces can do without, for each of these.
  TILEWAVE_DEVICE static std::int32_t behind_of(const PagedAttentionArgs& a) {
    constexpr std::int32_t token_bytes = spec.head_size * size_of(spec.kv);
    return (a.k_pieces.divisor > 1 ? token_bytes : 0) + (a.v_pieces.divisor == 1 ? token_bytes : 0) +
           (L::per_token ? 2 * int{sizeof(float)} : 0);
  }

  /// Piece `index` of a stage; of a segment beyond the last if there are not so many.
  TILEWAVE_DEVICE static Piece piece_of(const PagedAttentionArgs& a, std::int32_t kv_head, std::int32_t index) {
    constexpr std::int64_t element = size_of(spec.kv);
    const std::int32_t segment_bytes = a.segment * spec.head_size * static_cast<std::int32_t>(element);
    Piece piece;
    piece.segment = a.pieces.quotient(index);
    std::int32_t n = index - piece.segment * a.pieces.divisor;
    if (n < a.k_pieces.divisor) {
      piece.bytes = a.k_pieces.quotient(segment_bytes);
      piece.behind = a.k_pieces.divisor > 1 ? int{sizeof(Chunk)} : 0;
      piece.in_stage = piece.segment * segment_bytes + n * piece.bytes;
      piece.page_0 = static_cast<const char*>(a.k) + element * (kv_head * a.k_strides.head + n * a.k_strides.unit);
      piece.page_bytes = element * a.k_strides.page;
      piece.token_bytes = element * L::unit;
      return piece;
    }
    n -= a.k_pieces.divisor;
    if constexpr (L::per_token) {
      if (n >= a.v_pieces.divisor) {
        const bool of_k = n == a.v_pieces.divisor;
        piece.bytes = a.segment * static_cast<std::int32_t>(sizeof(float));
        piece.behind = sizeof(float);
        piece.in_stage = static_cast<std::int32_t>(of_k ? offsetof(Stage, k_scale) : offsetof(Stage, v_scale)) +
                         piece.segment * piece.bytes;
        piece.page_0 = reinterpret_cast<const char*>((of_k ? a.k_scale : a.v_scale) + kv_head * a.scale_head_stride);
        piece.page_bytes = sizeof(float) * a.scale_page_stride;
        piece.token_bytes = sizeof(float);
        return piece;
      }
    }
    piece.bytes = a.v_pieces.quotient(segment_bytes);
    piece.behind = a.v_pieces.divisor == 1 ? spec.head_size * static_cast<std::int32_t>(element) : 0;
    piece.in_stage = static_cast<std::int32_t>(offsetof(Stage, v)) + piece.segment * segment_bytes + n * piece.bytes;
    piece.page_0 = static_cast<const char*>(a.v) + element * (kv_head * a.v_strides.head + n * a.v_strides.unit);
    piece.page_bytes = element * a.v_strides.page;
    piece.token_bytes = element * a.v_strides.unit / L::unit;
    return piece;
  }
};

}  // namespace tilewave
