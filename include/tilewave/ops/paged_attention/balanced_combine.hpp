// SPDX-License-Identifier: MIT
// Combine of a balanced launch: the parts of a row lie with the blocks that share its stages. Grid: one block per output
// row; its waves take the parts in turn. It begins while decode still runs and works out where the parts will be. Bound:
// latency of two dependent reads.
#pragma once

#include "tilewave/ops/paged_attention/work.hpp"

namespace tilewave {

template <class B, int head_size>
struct PagedAttentionBalancedCombine {
  using Room = B;
  using Args = PagedAttentionArgs;
  static constexpr int lanes = B::facts.wave_lanes, waves = 4;
  static constexpr int block_threads = waves * lanes, waves_per_simd = 2;
  static constexpr int columns = head_size / lanes, held = 9, batch = 4;
  struct Shared {
    float out[waves][head_size];
  };

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const std::int32_t lane = B::lane_id(), row_waves = a.combine_waves;
    const std::int32_t id = B::block_id() * waves + B::wave_id();
    const std::int32_t row = min_of(id >> a.combine_shift, a.output_rows - 1), wave = id & (row_waves - 1);
    const std::int32_t out_row = row / a.num_q_heads, head = row - out_row * a.num_q_heads;
    const std::int32_t sequence = out_row / a.mtp, token = out_row - sequence * a.mtp;
    const std::int32_t kv_head = a.group.quotient(head);
    const std::int32_t group_row = token * a.group.divisor + head - kv_head * a.group.divisor;
    const std::int32_t row_group = group_row / a.block_rows, items = a.kv_heads.divisor * a.row_groups.divisor;
    std::int32_t all = 0, before = 0;
    for (std::int32_t s = lane; s < a.batch; s += lanes) {
      const std::int32_t stages = stages_of(a, s);
      all += stages;
      if (s < sequence) before += stages;
    }
    all = sum(all);
    before = sum(before);
    const auto reach = PagedAttentionReach::of(a, B::uniform(B::load(a.context_lengths + sequence)), a.stage_tokens);
    const std::int64_t total = std::int64_t{all} * items;
    const std::int64_t begin = std::int64_t{before} * items +
                               std::int64_t{kv_head * a.row_groups.divisor + row_group} * reach.stages;
    const std::int32_t first = reach.stages == 0 ? 0 : worker_of(a, begin, total);
    const std::int32_t parts = reach.stages == 0 ? 0 : worker_of(a, begin + reach.stages - 1, total) - first + 1;
    const std::int32_t in_group = group_row - row_group * a.block_rows;
    const auto place = [&](std::int32_t p) {
      return (2 * std::int64_t{first + p} + (p == 0 ? 1 : 0)) * a.block_rows + in_group;
    };

    B::wait_for_previous();
    if (parts == 1 || id >= a.output_rows * row_waves) return;  // its block wrote it
    constexpr float minus_infinity = -__builtin_inff();
    float weight[held], maximum = minus_infinity;
    TILEWAVE_UNROLL
    for (int i = 0; i < held; ++i) {
      const int p = i * lanes + lane;
      weight[i] = p < parts ? B::load(a.partial_lse + place(p)) : minus_infinity;
      maximum = __builtin_fmaxf(maximum, weight[i]);
    }
    maximum = B::template reduce<lanes>(maximum, Max{});
    const float reference = maximum == minus_infinity ? 0.0f : maximum;
    float total_weight = 0.0f;
    TILEWAVE_UNROLL
    for (int i = 0; i < held; ++i) {
      weight[i] = B::exp2((weight[i] - reference) * log2_e);
      total_weight += weight[i];
    }
    total_weight = B::template reduce<lanes>(total_weight, Sum{});
    if (reach.beyond_table) total_weight = __builtin_nanf("");

    using Columns = Vec<float, columns>;
    Columns out{};
    static_for<held>([&](auto i) {
      for (int at = i * lanes; at < min_of(parts, (i + 1) * lanes); at += row_waves * batch) {
        Columns part[batch];
        TILEWAVE_UNROLL
        for (int j = 0; j < batch; ++j) {
          const std::int32_t p = min_of(at + j * row_waves + wave, parts - 1);
          part[j] = B::load(reinterpret_cast<const Columns*>(a.partial_out + place(p) * head_size + lane * columns));
        }
        TILEWAVE_UNROLL
        for (int j = 0; j < batch; ++j) {
          const int p = at + j * row_waves + wave;
          const float w = B::shuffle(weight[i], p % lanes);
          TILEWAVE_UNROLL
          for (int c = 0; c < columns; ++c) out[c] += (p < parts ? w : 0.0f) * part[j][c];
        }
      }
    });
    if (row_waves > 1) {  // then all waves of the block have this row
      B::store(reinterpret_cast<Columns*>(&shared.out[wave][lane * columns]), out);
      B::barrier();
      if (wave != 0) return;
      for (int w = 1; w < waves; ++w) {
        const Columns other = B::load(reinterpret_cast<const Columns*>(&shared.out[w][lane * columns]));
        TILEWAVE_UNROLL
        for (int c = 0; c < columns; ++c) out[c] += other[c];
      }
    }
    const float scale = total_weight == 0.0f ? 0.0f : 1.0f / total_weight;
    auto* to = static_cast<std::uint16_t*>(a.out) + out_row * a.out_row_stride + head * a.out_head_stride;
    Vec<std::uint32_t, columns / 2> words;
    TILEWAVE_UNROLL
    for (int w = 0; w < columns / 2; ++w) words[w] = B::round_bf16(out[2 * w] * scale, out[2 * w + 1] * scale);
    B::store(reinterpret_cast<decltype(words)*>(to + lane * columns), words);
    if (a.lse != nullptr && lane == 0)
      B::store(a.lse + row, total_weight == 0.0f ? minus_infinity : reference + B::log2(total_weight) * ln_2);
  }

 private:
  TILEWAVE_DEVICE static std::int32_t stages_of(const Args& a, std::int32_t s) {
    return PagedAttentionReach::of(a, B::load(a.context_lengths + s), a.stage_tokens).stages;
  }
  /// The block w with floor(w T / G) <= stage < floor((w + 1) T / G).
  TILEWAVE_DEVICE static std::int32_t worker_of(const Args& a, std::int64_t stage, std::int64_t total) {
    return static_cast<std::int32_t>(((stage + 1) * workers_of(a, total) - 1) / total);
  }
  TILEWAVE_DEVICE static std::int32_t sum(std::int32_t x) {
    TILEWAVE_UNROLL
    for (int mask = 1; mask < lanes; mask *= 2) x += B::shuffle_xor(x, mask);
    return x;
  }
};

}  // namespace tilewave
