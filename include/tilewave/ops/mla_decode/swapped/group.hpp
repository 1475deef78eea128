// SPDX-License-Identifier: MIT
// What a wave group does for an item whose query rows are columns of its products, before its tiles and behind them.
#pragma once

#include "tilewave/ops/mla_decode/swapped/output.hpp"
#include "tilewave/ops/mla_decode/tensor/half_query.hpp"

namespace tilewave {

/// A wave group, and the phases of the barriers that it waits for.
template <class B, class L>
struct MlaDecodeColumnGroup {
  using Item = PagedAttentionWorkItem;

  const typename L::Args& all;
  typename L::Shared& shared;
  int group, wave;  // of the group
  int q_parity = 0, merged_parity = 0;

  /// Waits for q. If it has to be converted, both groups put it into its place.
  template <class Softmax>
  TILEWAVE_DEVICE void take_q(const Item& item, Softmax& softmax) {
    if constexpr (L::converts_q) {
      B::mbarrier_wait(&shared.q_free, q_parity ^ 1);
      MlaDecodeHalfQuery<B, L>::put(all.of, item, shared, group * L::group_waves + wave);
      B::shared_written();
      B::mbarrier_arrive(&shared.q_full);
    }
    B::mbarrier_wait(&shared.q_full, q_parity);
    q_parity ^= 1;
    if constexpr (L::converts_q && !L::grouped) softmax.multiply_scale(shared.aside.unit);
  }
  /// Writes an item's results. Maxima of the last tile were read by all waves of the group before they stored their
  /// probabilities.
  template <class Softmax, class Sums>
  TILEWAVE_DEVICE void finish(const Item& item, Softmax& softmax, const Sums& out) {
    softmax.publish(shared.of_wave[group], shared.reference[group]);
    if constexpr (L::grouped) {
      if (wave == 0 && B::lane_id() == 0) shared.unit[group] = softmax.unit();
    }
    meet();
    MlaDecodeSwappedOutput<B, L, Softmax>(all.of, item, shared, group, wave)
        .write(softmax, out, [&]() TILEWAVE_INLINE_LAMBDA { meet(); });
    B::shared_written();
    meet();  // the next item's sums come into the place of these
    if (item.tiles > 0) B::mbarrier_arrive(&shared.q_free);
  }

 private:
  /// A barrier of both groups.
  TILEWAVE_DEVICE void meet() {
    B::mbarrier_arrive(&shared.merged);
    B::mbarrier_wait(&shared.merged, merged_parity);
    merged_parity ^= 1;
  }
};

}  // namespace tilewave
