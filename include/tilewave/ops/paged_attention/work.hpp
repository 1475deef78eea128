// SPDX-License-Identifier: MIT
// What a block works on, where it is not plainly its number: segments of stages, each of one (sequence, kv head, row
// group). A stage is what a schedule deals in, policy.block_tokens() tokens.
#pragma once

#include "tilewave/attention/reach.hpp"
#include "tilewave/ops/paged_attention/registers/layout.hpp"

namespace tilewave {

/// Blocks that have work: each at least one of the `total` stages.
TILEWAVE_DEVICE std::int64_t workers_of(const PagedAttentionArgs& a, std::int64_t total) {
  return min_of<std::int64_t>(a.workers, total);
}

/// The sum over the lanes of a wave.
template <class B>
TILEWAVE_DEVICE std::int32_t wave_sum(std::int32_t x) {
  TILEWAVE_UNROLL
  for (int mask = 1; mask < B::facts.wave_lanes; mask *= 2) x += B::shuffle_xor(x, mask);
  return B::uniform(x);
}

template <class L>
class PagedAttentionWork {
  using B = typename L::Room;
  using Reach = AttentionReach;
  static constexpr PagedAttentionPolicy policy = L::policy;
  static constexpr std::int32_t stage_tokens = policy.block_tokens(L::spec);

 public:
  /// Whose rows even work is of, is known at once, its tokens when start() has the length, which is on its way.
  TILEWAVE_DEVICE explicit PagedAttentionWork(const PagedAttentionArgs& args) : a(args) {
    items_per_sequence = a.kv_heads.divisor * a.row_groups.divisor;
    if constexpr (!policy.balanced()) locate_even();
  }
  TILEWAVE_DEVICE void start() {
    if constexpr (policy.balanced()) {
      begin_balanced();
    } else {
      begin_even();
    }
  }

  TILEWAVE_DEVICE bool more() const { return left >= 0; }
  TILEWAVE_DEVICE void next() {
    left -= count;
    if (left <= 0) {
      left = -1;
      return;
    }
    if (++item == items_per_sequence) {
      item = 0;
      do {
        if (sequence + 1 >= a.batch) {  // a list that counts more stages than there are
          left = -1;
          return;
        }
        enter_sequence(sequence + 1, B::load(a.context_lengths + sequence + 1));
      } while (reach.stages == 0);
    }
    from = 0;
    count = min_of(left, reach.stages);
    segment_is_first = false;
  }

  /// The pages of a short context are then as near as its length. One wave of a block suffices: it may be that all
  /// blocks ask for the same few lines.
  TILEWAVE_DEVICE void prefetch_pages() const {
    const std::int32_t line = B::lane_id() * 32;
    if (line < a.table_columns) B::prefetch(table() + line);
  }

  /// Whether stage i of this piece of work is the block's last.
  TILEWAVE_DEVICE bool ends_with(std::int32_t i) const { return i + 1 >= left; }
  /// All stages of the block's round of the launch, of at most two, for each of the block's. The row groups of a kv
  /// head read the same: at the same time, so that it comes once, but in balanced work, where others are elsewhere.
  /// 0 in two rounds of lengths that differ much: a short block would keep its place from a long one of the next.
  TILEWAVE_DEVICE float share() const {
    if constexpr (policy.balanced()) return static_cast<float>(a.workers);
    const std::int32_t blocks = items_per_sequence * a.splits.divisor;  // of a sequence
    const bool last = B::block_id() >= a.last_round;
    const std::int32_t begin = last ? a.last_round : 0, end = last ? a.batch * blocks : a.last_round;
    float in_round = 0.0f, all = 0.0f, longest = 0.0f;
    for (std::int32_t s = B::lane_id(); s < a.batch; s += L::lanes) {
      const auto its_stages = static_cast<float>(Reach::template stages_of<B>(a, s, stage_tokens));
      in_round += its_stages * static_cast<float>(max_of(min_of((s + 1) * blocks, end) - max_of(s * blocks, begin), 0));
      all += its_stages;
      longest = max_of(longest, its_stages);
    }
    TILEWAVE_UNROLL
    for (int mask = 1; mask < L::lanes; mask *= 2) {
      in_round += B::shuffle_xor(in_round, mask);
      all += B::shuffle_xor(all, mask);
      longest = max_of(longest, B::shuffle_xor(longest, mask));
    }
    if (a.last_round > 0 && longest * static_cast<float>(a.batch) > 2.0f * all) return 0.0f;
    return in_round / (static_cast<float>(a.splits.divisor * a.row_groups.divisor) * static_cast<float>(count));
  }

  TILEWAVE_DEVICE std::int32_t stages() const { return count; }
  TILEWAVE_DEVICE std::int32_t token(std::int32_t stage) const { return reach.base + (from + stage) * stage_tokens; }
  TILEWAVE_DEVICE std::int32_t first() const { return reach.first; }
  TILEWAVE_DEVICE std::int32_t end() const { return reach.end; }
  TILEWAVE_DEVICE std::int32_t kv_head() const { return a.row_groups.quotient(item); }
  TILEWAVE_DEVICE const std::int32_t* table() const { return a.block_table + sequence * a.table_row_stride; }

  /// Which rows a wave has; of the place nothing else.
  TILEWAVE_DEVICE typename L::Place rows(std::int32_t wave) const {
    typename L::Place at;
    at.sequence = sequence;
    at.kv_head = kv_head();
    at.wave_row = wave / L::token_waves;
    at.wave_token = wave % L::token_waves;
    const std::int32_t row_group = item - at.kv_head * a.row_groups.divisor;
    at.first_row = row_group * L::block_rows + at.wave_row * L::row_tiles * L::atom_rows;
    return at;
  }
  TILEWAVE_DEVICE typename L::Place place(std::int32_t wave) const {
    typename L::Place at = rows(wave);
    reach.publish(a, at);
    const bool whole = count == reach.stages;
    at.begin = token(0) + at.wave_token * L::wave_tokens;
    const std::int32_t to = min_of(at.end, token(count));
    at.tiles = at.begin < to ? ceil_div(to - at.begin, std::int32_t{L::block_tokens}) : 0;
    at.slot = !policy.balanced() || whole ? -1 : 2 * B::block_id() + (segment_is_first && from > 0 ? 0 : 1);
    return at;
  }

 private:
  TILEWAVE_DEVICE void enter_sequence(std::int32_t s, std::int32_t its_length) {
    sequence = s;
    reach = Reach::of(a, B::uniform(its_length), stage_tokens);
  }

  TILEWAVE_DEVICE void locate_even() {
    const std::int32_t block = B::block_id(), work = a.splits.quotient(block);
    split = block - work * a.splits.divisor;
    sequence = a.kv_heads.quotient(a.row_groups.quotient(work));
    length = B::load(a.context_lengths + sequence);
    item = work - sequence * items_per_sequence;
  }

  TILEWAVE_DEVICE void begin_even() {
    reach = Reach::of(a, length, stage_tokens);
    const std::int32_t per_split = a.splits.quotient(reach.stages + a.splits.divisor - 1);
    from = min_of(split * per_split, reach.stages);
    count = min_of((split + 1) * per_split, reach.stages) - from;
    left = count;
    segment_is_first = true;
  }

  /// Block w of G takes stages floor(w T / G) up to floor((w + 1) T / G) of the T of the batch.
  TILEWAVE_DEVICE void begin_balanced() {
    const bool listed = a.stage_starts != nullptr;
    // The first steps of a list, or lengths: on their way while the share is worked out.
    const std::int32_t first = listed ? probe_list(0, a.batch) : lengths_from(0);
    const std::int32_t stages = listed ? B::uniform(B::load(a.stage_starts + a.batch)) : count_stages(first);
    const std::int64_t total = std::int64_t{stages} * items_per_sequence;
    const std::int32_t workers = static_cast<std::int32_t>(workers_of(a, total)), block = B::block_id();
    if (block >= workers) {
      left = -1;
      return;
    }
    // With T = q G + r, in one long division.
    const std::int64_t each = total / workers;
    const std::int32_t rest = static_cast<std::int32_t>(total - each * workers), extra = block * rest / workers;
    const std::int64_t begin = block * each + extra;
    left = static_cast<std::int32_t>(each) + (block + 1) * rest / workers - extra;
    const Start start = listed ? find_in_list(begin, first) : find_by_counting(begin, first);
    const std::int32_t before = B::uniform(start.before);
    enter_sequence(B::uniform(start.sequence), start.length);
    const std::int32_t inside = static_cast<std::int32_t>(begin - std::int64_t{before} * items_per_sequence);
    // Of a list that is not of these lengths: somewhere in the sequence, or nowhere in one without stages.
    item = min_of(max_of(inside, 0) / max_of(reach.stages, 1), items_per_sequence - 1);
    from = min_of(max_of(inside - item * reach.stages, 0), reach.stages - 1);
    if (reach.stages == 0) left = -1;
    count = min_of(left, reach.stages - from);
    segment_is_first = true;
  }

  /// A sequence, the stages of those before it, and its length.
  struct Start {
    std::int32_t sequence, before, length;
  };

  /// The lane's entry of stage_starts: those of a wave cut the `width` entries from `low` on into equal steps.
  TILEWAVE_DEVICE std::int32_t probe_list(std::int32_t low, std::int32_t width) const {
    const std::int32_t at = B::lane_id() * ceil_div(width, L::lanes);
    return at < width ? B::load(a.stage_starts + low + at) : 0x7fffffff;
  }

  /// The sequence that holds stage `begin`: the last to start no later, since empty ones before it start where it does.
  /// `probe`: of the whole list. Each round leaves one lane's step of the one before.
  TILEWAVE_DEVICE Start find_in_list(std::int64_t begin, std::int32_t probe) const {
    std::int32_t s = 0, width = a.batch;
    while (true) {
      const bool reached = std::int64_t{probe} * items_per_sequence <= begin;
      // None starts so early in a list that does not begin at 0.
      const std::int32_t last = max_of(wave_sum<B>(reached ? 1 : 0) - 1, 0), step = ceil_div(width, L::lanes);
      s += last * step;
      if (step == 1) return {s, B::shuffle(probe, last), B::load(a.context_lengths + s)};
      width = min_of(step, width - last * step);
      probe = probe_list(s, width);
    }
  }

  /// The length of sequence `chunk` + lane; 0 beyond the last.
  TILEWAVE_DEVICE std::int32_t lengths_from(std::int32_t chunk) const {
    const std::int32_t mine = chunk + B::lane_id();
    return mine < a.batch ? B::load(a.context_lengths + mine) : 0;
  }
  TILEWAVE_DEVICE std::int32_t stages_of(std::int32_t its_length) const {
    return Reach::of(a, its_length, stage_tokens).stages;
  }
  /// Of the batch. `first`: lengths_from(0).
  TILEWAVE_DEVICE std::int32_t count_stages(std::int32_t first) const {
    std::int32_t lane_stages = stages_of(first);
    for (std::int32_t chunk = L::lanes; chunk < a.batch; chunk += L::lanes)
      lane_stages += stages_of(lengths_from(chunk));
    return wave_sum<B>(lane_stages);
  }

  /// The same sequence, from the lengths: the first whose stages end behind `begin`.
  TILEWAVE_DEVICE Start find_by_counting(std::int64_t begin, std::int32_t first) const {
    std::int32_t before = 0;
    for (std::int32_t chunk = 0; chunk < a.batch; chunk += L::lanes) {
      const std::int32_t mine = chunk + B::lane_id(), its_length = chunk == 0 ? first : lengths_from(chunk);
      std::int32_t here = stages_of(its_length), through = here;
      TILEWAVE_UNROLL
      for (int step = 1; step < L::lanes; step *= 2) {
        const std::int32_t other = B::shuffle(through, max_of(B::lane_id() - step, 0));
        if (B::lane_id() >= step) through += other;
      }
      const bool holds = mine < a.batch && std::int64_t{before + through} * items_per_sequence > begin;
      if (B::any(holds)) {
        std::int32_t found = holds ? mine : chunk + L::lanes, start = holds ? before + through - here : 0x7fffffff;
        TILEWAVE_UNROLL
        for (int mask = 1; mask < L::lanes; mask *= 2) {
          found = min_of(found, B::shuffle_xor(found, mask));
          start = min_of(start, B::shuffle_xor(start, mask));
        }
        return {found, start, B::shuffle(its_length, found - chunk)};
      }
      before += B::shuffle(through, L::lanes - 1);
    }
    return {0, before, 0};
  }

  const PagedAttentionArgs& a;
  Reach reach;
  std::int32_t items_per_sequence, sequence, item;  // item: kv head, then row group
  std::int32_t from, count;                         // stages of this segment
  std::int32_t left;                                // stages of this block from here on; -1 when it is done
  std::int32_t split, length;                       // of even work
  bool segment_is_first;
};

}  // namespace tilewave
