// SPDX-License-Identifier: MIT
// The ring of stages in shared memory that a few waves keep full of K and V, and how they copy them out of their pages.
#pragma once

#include "tilewave/attention/pace.hpp"
#include "tilewave/ops/paged_attention/work_queue.hpp"
#include "tilewave/tile/ring.hpp"

namespace tilewave {

/// L is a PagedAttentionBulkLayout. Lives in shared memory.
///
/// A stage is cut into segments, tokens that lie together in one page and in the stage. A segment is cut into copies of
/// contiguous bytes: some of K, some of V, and with per-token scales one of each scale. Where tokens of V are rows, one
/// copy of the tensor copy engine brings a segment of K, and another one of V, as boxes of 128 bytes side by side, with
/// the swizzle that products read. The waves that fetch, and their lanes, deal out the copies of a stage in turn.
template <class L>
struct PagedAttentionStages {
  using B = typename L::Room;
  using WorkQueue = PagedAttentionWorkQueue<L>;

  static constexpr PagedAttentionSpec spec = L::spec;
  static constexpr int stages = L::policy.prefetch.stages, stage_tokens = L::policy.prefetch.stage_tokens;
  using Pace = AttentionPace<B, stages>;

  static constexpr bool boxed = L::boxed;
  struct UnitStage {
    Chunk k[stage_tokens * spec.head_size / L::unit];  // [segments][D / x][tokens of a segment]
    Chunk v[stage_tokens / L::unit][spec.head_size];
    float k_scale[L::per_token ? stage_tokens : 4];
    float v_scale[L::per_token ? stage_tokens : 4];
  };
  struct BoxedStage {
    alignas(1024)
        Chunk k[stage_tokens / 8][L::boxes][8][8];  // [groups of eight tokens][64 dimensions][tokens][units, swizzled]
    Chunk v[stage_tokens / 8][L::boxes][8][8];
  };
  using Stage = std::conditional_t<boxed, BoxedStage, UnitStage>;
  /// Where a wave stands in the ring.
  struct Ring : RingSlot<stages> {
    int shift = 0;  // of the stages' memory against their barriers

    /// A ring of `count` stages of which the last one lies at the end of memory. The first places are then free while
    /// the other stages are still read, and can receive what other blocks send.
    TILEWAVE_DEVICE static Ring ending_last(std::int32_t count) {
      Ring ring;
      ring.shift = (stages - count % stages) % stages;
      return ring;
    }
    /// The index in stage[] of the current slot.
    TILEWAVE_DEVICE int stage_index() const {
      return this->slot + shift < stages ? this->slot + shift : this->slot + shift - stages;
    }
  };

  union {
    Stage stage[stages];
    typename L::Received received;  // over the first stages, when nobody reads them any more
  };
  RingBarriers<B, stages> barriers;

  /// Called by one of the waves that fetch.
  TILEWAVE_DEVICE void begin() { barriers.begin(L::fetch_waves, L::waves); }

  /// Contiguous bytes of a segment.
  struct Copy {
    const char* page_0;  // source for the first token of page 0
    std::int64_t page_bytes, token_bytes;
    std::int32_t segment, stage_offset, bytes;
    std::int32_t
        droppable_token_bytes;  // bytes of each of its last tokens, which may be left out; 0 if they are scattered
  };

  /// The first of the lane's copies of a stage.
  TILEWAVE_DEVICE static std::int32_t first_copy(int wave) { return B::lane_id() * L::fetch_waves + wave; }

  /// A wave that fetches issues its copies of all stages of an item, each stage as soon as its slot is free. Lanes look
  /// up the pages of the next segments, one page a lane, and one such round ahead. `first` is
  /// copy_of(first_copy(wave)). `before_copies` is called behind the first look at the table.
  template <class Maps, class BeforeCopies>
  TILEWAVE_DEVICE void fetch(const PagedAttentionArgs& a, const Maps& maps, const WorkQueue& queue, int wave,
                             const Copy& first, Ring& ring, Pace& pace, const BeforeCopies& before_copies) {
    const int lane = B::lane_id();
    const std::int32_t segments = stage_tokens >> a.segment_shift;
    const auto pages_from = [&](std::int32_t segment) {
      const std::int32_t token = min_of(queue.token(0) + (segment + lane) * a.segment, queue.end() - 1);
      return B::load(queue.table() + a.block_size.quotient(max_of(token, queue.first())));
    };
    std::int32_t pages = 0, next_pages = queue.stages() > 0 ? pages_from(0) : 0;
    before_copies();
    for (std::int32_t i = 0, stage_segment = 0; i < queue.stages(); ++i, stage_segment += segments, ring.advance()) {
      const std::int32_t token = queue.token(i);
      if (stage_segment % L::lanes == 0) pages = next_pages;
      // Segments without a token to attend are left as they are: their scores are masked and their V is zeroed.
      const std::int32_t from = max_of(queue.first() - token, 0) >> a.segment_shift;
      const std::int32_t to = min_of((queue.end() - token + a.segment - 1) >> a.segment_shift, segments);
      // Tokens behind the last unit with one to attend. Copies that can leave them out do so.
      const std::int32_t dropped = max_of(token + to * a.segment - align_up(queue.end(), L::unit), 0);
      auto* stage_bytes = reinterpret_cast<char*>(&stage[ring.stage_index()]);
      typename B::Mbarrier* full = &barriers.full[ring.slot];
      pace.read_clock();
      barriers.wait_free(ring);
      // All waves that fetch arrive, even one without a copy of this stage, which might miss the phase otherwise.
      if (L::fetch_waves == 1 || wave == 0) {
        B::mbarrier_expect(
            full, static_cast<std::uint32_t>((to - from) * a.segment_bytes - dropped * droppable_token_bytes(a)));
      } else {
        B::mbarrier_arrive(full);
      }
      for (std::int32_t done = 0; done < segments * a.segment_copies.divisor; done += L::fetch_waves * L::lanes) {
        const Copy copy = done == 0 ? first : copy_of(a, queue.kv_head(), done + first_copy(wave));
        const std::int32_t page = B::shuffle(pages, stage_segment % L::lanes + min_of(copy.segment, segments - 1));
        if (copy.segment < from || copy.segment >= to) continue;
        const std::int32_t in_page =
            a.segment == a.block_size.divisor ? 0 : a.block_size.remainder(token + copy.segment * a.segment);
        if constexpr (boxed) {
          const bool of_v = copy.stage_offset >= static_cast<std::int32_t>(offsetof(Stage, v));
          B::copy_side_by_side(stage_bytes + copy.stage_offset, of_v ? maps.v : maps.k,
                               page * (of_v ? maps.v_page_rows : maps.k_page_rows) + in_page, queue.kv_head(), full);
          continue;
        }
        B::copy_bulk(stage_bytes + copy.stage_offset, copy.page_0 + page * copy.page_bytes + in_page * copy.token_bytes,
                     copy.bytes - (copy.segment == to - 1 ? dropped * copy.droppable_token_bytes : 0), full);
      }
      if (stage_segment % L::lanes == 0) next_pages = pages_from(stage_segment + L::lanes);
      if (!queue.ends_with(i)) pace.wait([&] { return queue.round_stages_per_stage(); });
    }
  }

  /// Bytes that all copies of a segment together can leave out for each of its last tokens.
  TILEWAVE_DEVICE static std::int32_t droppable_token_bytes(const PagedAttentionArgs& a) {
    constexpr std::int32_t token_bytes = spec.head_size * size_of(spec.kv);
    if (boxed) return 0;  // boxes are whole
    return (a.k_copies.divisor > 1 ? token_bytes : 0) + (a.v_copies.divisor == 1 ? token_bytes : 0) +
           (L::per_token ? 2 * int{sizeof(float)} : 0);
  }

  /// Copy `index` of a stage. Beyond the last copy its segment is beyond the last segment.
  TILEWAVE_DEVICE static Copy copy_of(const PagedAttentionArgs& a, std::int32_t kv_head, std::int32_t index) {
    constexpr std::int64_t element = size_of(spec.kv);
    const std::int32_t segment_bytes = a.segment * spec.head_size * static_cast<std::int32_t>(element);
    Copy copy;
    copy.segment = a.segment_copies.quotient(index);
    std::int32_t n = index - copy.segment * a.segment_copies.divisor;
    if constexpr (boxed) {  // n says whether it is of V
      copy.stage_offset = copy.segment * segment_bytes + (n > 0 ? static_cast<std::int32_t>(offsetof(Stage, v)) : 0);
      return copy;
    }
    if (n < a.k_copies.divisor) {
      copy.bytes = a.k_copies.quotient(segment_bytes);
      copy.droppable_token_bytes = a.k_copies.divisor > 1 ? int{sizeof(Chunk)} : 0;
      copy.stage_offset = copy.segment * segment_bytes + n * copy.bytes;
      copy.page_0 = static_cast<const char*>(a.k) + element * (kv_head * a.k_strides.head + n * a.k_strides.unit);
      copy.page_bytes = element * a.k_strides.page;
      copy.token_bytes = element * L::unit;
      return copy;
    }
    n -= a.k_copies.divisor;
    if constexpr (L::per_token) {
      if (n >= a.v_copies.divisor) {
        const bool of_k = n == a.v_copies.divisor;
        copy.bytes = a.segment * static_cast<std::int32_t>(sizeof(float));
        copy.droppable_token_bytes = sizeof(float);
        copy.stage_offset = static_cast<std::int32_t>(of_k ? offsetof(Stage, k_scale) : offsetof(Stage, v_scale)) +
                            copy.segment * copy.bytes;
        copy.page_0 = reinterpret_cast<const char*>((of_k ? a.k_scale : a.v_scale) + kv_head * a.scale_head_stride);
        copy.page_bytes = sizeof(float) * a.scale_page_stride;
        copy.token_bytes = sizeof(float);
        return copy;
      }
    }
    copy.bytes = a.v_copies.quotient(segment_bytes);
    copy.droppable_token_bytes = a.v_copies.divisor == 1 ? spec.head_size * static_cast<std::int32_t>(element) : 0;
    copy.stage_offset = static_cast<std::int32_t>(offsetof(Stage, v)) + copy.segment * segment_bytes + n * copy.bytes;
    copy.page_0 = static_cast<const char*>(a.v) + element * (kv_head * a.v_strides.head + n * a.v_strides.unit);
    copy.page_bytes = element * a.v_strides.page;
    copy.token_bytes = element * a.v_strides.unit / L::unit;
    return copy;
  }
};

}  // namespace tilewave
