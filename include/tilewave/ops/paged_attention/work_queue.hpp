// SPDX-License-Identifier: MIT
// Which work items a block takes, one after the other. Bulk kernels and the balanced schedule ask it. Work is dealt out
// in stages of policy.block_tokens() tokens, each of one row block.
#pragma once

#include "tilewave/attention/reach.hpp"
#include "tilewave/ops/paged_attention/work_item.hpp"

namespace tilewave {

/// Blocks of a balanced launch that have work. Each has at least one of the `total` stages.
TILEWAVE_DEVICE std::int64_t working_blocks(const PagedAttentionArgs& a, std::int64_t total) {
  return min_of<std::int64_t>(a.balanced_blocks, total);
}

/// The sum over the lanes of a wave.
template <class B>
TILEWAVE_DEVICE std::int32_t wave_sum(std::int32_t x) {
  TILEWAVE_UNROLL
  for (int mask = 1; mask < B::facts.wave_lanes; mask *= 2) x += B::shuffle_xor(x, mask);
  return B::uniform(x);
}

/// L is the layout of a kernel. The even schedule gives a block one item, a split of a row block's stages. The balanced
/// schedule gives it an equal part of all stages of the batch: neighbouring row blocks, of which the first and the last
/// may be partial.
template <class L>
class PagedAttentionWorkQueue {
  using B = typename L::Room;
  using Reach = AttentionReach;
  static constexpr auto policy = L::policy;
  static constexpr std::int32_t stage_tokens = policy.block_tokens(L::spec);

 public:
  /// With the even schedule the row block is known at once, and the length is on its way. start() waits for the length.
  TILEWAVE_DEVICE explicit PagedAttentionWorkQueue(const PagedAttentionArgs& args)
      : PagedAttentionWorkQueue(args, B::block_id(), args.kv_heads.divisor * args.row_blocks.divisor) {}
  /// `block` is the number of the block among those that share the work, in which a sequence has so many row blocks.
  TILEWAVE_DEVICE PagedAttentionWorkQueue(const PagedAttentionArgs& args, std::int32_t block, std::int32_t row_blocks)
      : a(args), block(block), sequence_row_blocks(row_blocks) {
    if constexpr (!policy.balanced()) locate_even();
  }
  TILEWAVE_DEVICE void start() {
    if constexpr (policy.balanced()) {
      start_balanced();
    } else {
      start_even();
    }
  }

  TILEWAVE_DEVICE bool more() const { return left >= 0; }
  TILEWAVE_DEVICE void next() {
    left -= count;
    if (left <= 0) {
      left = -1;
      return;
    }
    if (++row_block == sequence_row_blocks) {
      row_block = 0;
      do {
        if (sequence + 1 >= a.batch) {  // stage_starts counts more stages than there are
          left = -1;
          return;
        }
        enter_sequence(sequence + 1, B::load(a.context_lengths + sequence + 1));
      } while (reach.stages == 0);
    }
    from = 0;
    count = min_of(left, reach.stages);
    is_first_item = false;
  }

  /// Prefetches the row of the block table, so that pages of a short context are as near as its length. One wave of a
  /// block suffices, since all blocks may ask for the same few lines.
  TILEWAVE_DEVICE void prefetch_pages() const {
    const std::int32_t line = B::lane_id() * 32;
    if (line < a.table_columns) B::prefetch(table() + line);
  }

  /// Returns whether stage i of this item is the block's last.
  TILEWAVE_DEVICE bool ends_with(std::int32_t i) const { return i + 1 >= left; }

  /// How many stages the block's round of the launch fetches for each one of this block's; see AttentionPace. A launch
  /// that is paced has at most two rounds. Row blocks of a KV head read the same stages at the same time, so these
  /// count once. In balanced work they count each time, because the other row blocks are elsewhere. The ratio is 0, no
  /// pace, in two rounds of lengths that differ much, where a short block would hold back a long one of the next round.
  TILEWAVE_DEVICE float round_stages_per_stage() const {
    if constexpr (policy.balanced()) return static_cast<float>(a.balanced_blocks);
    const std::int32_t blocks = sequence_row_blocks * a.splits.divisor;  // of a sequence
    const bool last = B::block_id() >= a.last_round;
    const std::int32_t begin = last ? a.last_round : 0, end = last ? a.batch * blocks : a.last_round;
    float in_round = 0.0f, all = 0.0f, longest = 0.0f;
    for (std::int32_t s = B::lane_id(); s < a.batch; s += L::lanes) {
      const auto stages_of_s = static_cast<float>(Reach::template stages_of<B>(a, s, stage_tokens));
      in_round +=
          stages_of_s * static_cast<float>(max_of(min_of((s + 1) * blocks, end) - max_of(s * blocks, begin), 0));
      all += stages_of_s;
      longest = max_of(longest, stages_of_s);
    }
    TILEWAVE_UNROLL
    for (int mask = 1; mask < L::lanes; mask *= 2) {
      in_round += B::shuffle_xor(in_round, mask);
      all += B::shuffle_xor(all, mask);
      longest = max_of(longest, B::shuffle_xor(longest, mask));
    }
    if (a.last_round > 0 && longest * static_cast<float>(a.batch) > 2.0f * all) return 0.0f;
    return in_round / (static_cast<float>(a.splits.divisor * a.row_blocks.divisor) * static_cast<float>(count));
  }

  TILEWAVE_DEVICE std::int32_t stages() const { return count; }
  TILEWAVE_DEVICE std::int32_t token(std::int32_t stage) const { return reach.base + (from + stage) * stage_tokens; }
  /// The split of an even launch that the block has.
  TILEWAVE_DEVICE std::int32_t even_split() const { return split; }
  TILEWAVE_DEVICE std::int32_t first() const { return reach.first; }
  TILEWAVE_DEVICE std::int32_t end() const { return reach.end; }
  TILEWAVE_DEVICE std::int32_t kv_head() const { return a.row_blocks.quotient(row_block); }
  TILEWAVE_DEVICE const std::int32_t* table() const { return a.block_table + sequence * a.table_row_stride; }

  /// The rows of a wave. The tokens of the item are not filled in.
  TILEWAVE_DEVICE PagedAttentionWorkItem rows(std::int32_t wave) const {
    PagedAttentionWorkItem item;
    item.sequence = sequence;
    item.kv_head = kv_head();
    item.wave_row = wave / L::token_waves;
    item.wave_token = wave % L::token_waves;
    const std::int32_t of_kv_head = row_block - item.kv_head * a.row_blocks.divisor;
    item.first_row = of_kv_head * L::block_rows + item.wave_row * L::row_tiles * L::atom_rows;
    return item;
  }
  TILEWAVE_DEVICE PagedAttentionWorkItem item(std::int32_t wave) const {
    PagedAttentionWorkItem item = rows(wave);
    reach.publish(a, item);
    const bool whole = count == reach.stages;
    item.begin = token(0) + item.wave_token * L::wave_tokens;
    const std::int32_t to = min_of(item.end, token(count));
    item.tiles = item.begin < to ? ceil_div(to - item.begin, std::int32_t{L::block_tokens}) : 0;
    item.slot = !policy.balanced() || whole ? -1 : 2 * B::block_id() + (is_first_item && from > 0 ? 0 : 1);
    return item;
  }

 private:
  TILEWAVE_DEVICE void enter_sequence(std::int32_t s, std::int32_t length_of_s) {
    sequence = s;
    reach = Reach::of(a, B::uniform(length_of_s), stage_tokens);
  }

  TILEWAVE_DEVICE void locate_even() {
    const std::int32_t batch_row_block = a.splits.quotient(block);
    split = block - batch_row_block * a.splits.divisor;
    sequence = a.kv_heads.quotient(a.row_blocks.quotient(batch_row_block));
    length = B::load(a.context_lengths + sequence);
    row_block = batch_row_block - sequence * sequence_row_blocks;
  }

  TILEWAVE_DEVICE void start_even() {
    reach = Reach::of(a, length, stage_tokens);
    const std::int32_t equal_parts = a.splits.quotient(reach.stages + a.splits.divisor - 1);
    const std::int32_t per_split = max_of(equal_parts, a.split_tiles);
    from = min_of(split * per_split, reach.stages);
    count = min_of((split + 1) * per_split, reach.stages) - from;
    left = count;
    is_first_item = true;
  }

  /// Block w of W takes the stages from floor(w T / W) up to floor((w + 1) T / W) of the batch's T.
  TILEWAVE_DEVICE void start_balanced() {
    const bool listed = a.stage_starts != nullptr;
    // The first steps of the list, or the lengths, are on their way while the block's part is worked out.
    const std::int32_t first = listed ? probe_list(0, a.batch) : lengths_from(0);
    const std::int32_t stages = listed ? B::uniform(B::load(a.stage_starts + a.batch)) : count_stages(first);
    const std::int64_t total = std::int64_t{stages} * sequence_row_blocks;
    const std::int32_t blocks = static_cast<std::int32_t>(working_blocks(a, total));
    if (block >= blocks) {
      left = -1;
      return;
    }
    // T = quotient W + remainder takes one long division instead of two.
    const std::int64_t quotient = total / blocks;
    const std::int32_t remainder = static_cast<std::int32_t>(total - quotient * blocks),
                       extra = block * remainder / blocks;
    const std::int64_t begin = block * quotient + extra;
    left = static_cast<std::int32_t>(quotient) + (block + 1) * remainder / blocks - extra;
    const Start start = listed ? find_in_list(begin, first) : find_by_counting(begin, first);
    const std::int32_t before = B::uniform(start.before);
    enter_sequence(B::uniform(start.sequence), start.length);
    const std::int32_t inside = static_cast<std::int32_t>(begin - std::int64_t{before} * sequence_row_blocks);
    // A list that is not of these lengths leads somewhere into the sequence, or nowhere if that has no stages.
    row_block = min_of(max_of(inside, 0) / max_of(reach.stages, 1), sequence_row_blocks - 1);
    from = min_of(max_of(inside - row_block * reach.stages, 0), reach.stages - 1);
    if (reach.stages == 0) left = -1;
    count = min_of(left, reach.stages - from);
    is_first_item = true;
  }

  /// A sequence, the stages of a row block in all sequences before it, and its length.
  struct Start {
    std::int32_t sequence, before, length;
  };

  /// The entry of stage_starts that this lane looks at. The lanes of a wave cut the `width` entries from `low` on into
  /// equal steps.
  TILEWAVE_DEVICE std::int32_t probe_list(std::int32_t low, std::int32_t width) const {
    const std::int32_t entry = B::lane_id() * ceil_div(width, L::lanes);
    return entry < width ? B::load(a.stage_starts + low + entry) : 0x7fffffff;
  }

  /// The sequence that holds stage `begin`: the last one to start no later, since empty sequences before it start at
  /// the same stage. `probe` is the lane's entry of the whole list. Each round keeps one lane's step of the round
  /// before.
  TILEWAVE_DEVICE Start find_in_list(std::int64_t begin, std::int32_t probe) const {
    std::int32_t s = 0, width = a.batch;
    while (true) {
      const bool reached = std::int64_t{probe} * sequence_row_blocks <= begin;
      // No lane has reached it if the list does not begin at 0.
      const std::int32_t last = max_of(wave_sum<B>(reached ? 1 : 0) - 1, 0), step = ceil_div(width, L::lanes);
      s += last * step;
      if (step == 1) return {s, B::shuffle(probe, last), B::load(a.context_lengths + s)};
      width = min_of(step, width - last * step);
      probe = probe_list(s, width);
    }
  }

  /// The length of sequence `chunk` + lane, 0 beyond the last.
  TILEWAVE_DEVICE std::int32_t lengths_from(std::int32_t chunk) const {
    const std::int32_t s = chunk + B::lane_id();
    return s < a.batch ? B::load(a.context_lengths + s) : 0;
  }
  TILEWAVE_DEVICE std::int32_t stages_of(std::int32_t length_of_s) const {
    return Reach::of(a, length_of_s, stage_tokens).stages;
  }
  /// The stages of a row block in all sequences of the batch. `first` is lengths_from(0).
  TILEWAVE_DEVICE std::int32_t count_stages(std::int32_t first) const {
    std::int32_t lane_stages = stages_of(first);
    for (std::int32_t chunk = L::lanes; chunk < a.batch; chunk += L::lanes)
      lane_stages += stages_of(lengths_from(chunk));
    return wave_sum<B>(lane_stages);
  }

  /// The same sequence, found from the lengths: the first one whose stages end behind `begin`.
  TILEWAVE_DEVICE Start find_by_counting(std::int64_t begin, std::int32_t first) const {
    std::int32_t before = 0;
    for (std::int32_t chunk = 0; chunk < a.batch; chunk += L::lanes) {
      const std::int32_t s = chunk + B::lane_id(), length_of_s = chunk == 0 ? first : lengths_from(chunk);
      std::int32_t here = stages_of(length_of_s), through = here;
      TILEWAVE_UNROLL
      for (int step = 1; step < L::lanes; step *= 2) {
        const std::int32_t other = B::shuffle(through, max_of(B::lane_id() - step, 0));
        if (B::lane_id() >= step) through += other;
      }
      const bool holds = s < a.batch && std::int64_t{before + through} * sequence_row_blocks > begin;
      if (B::any(holds)) {
        std::int32_t found = holds ? s : chunk + L::lanes, start = holds ? before + through - here : 0x7fffffff;
        TILEWAVE_UNROLL
        for (int mask = 1; mask < L::lanes; mask *= 2) {
          found = min_of(found, B::shuffle_xor(found, mask));
          start = min_of(start, B::shuffle_xor(start, mask));
        }
        return {found, start, B::shuffle(length_of_s, found - chunk)};
      }
      before += B::shuffle(through, L::lanes - 1);
    }
    return {0, before, 0};
  }

  const PagedAttentionArgs& a;
  std::int32_t block;
  std::int32_t sequence_row_blocks;
  Reach reach;
  std::int32_t sequence, row_block;  // row_block: of the sequence, KV heads outermost
  std::int32_t from, count;          // stages of this item
  std::int32_t left;                 // stages of the block from here on; -1 when it is done
  std::int32_t split, length;        // of even work
  bool is_first_item;                // of the block
};

}  // namespace tilewave
