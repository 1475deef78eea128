// SPDX-License-Identifier: MIT
// A launch captured in a graph and replayed at other lengths. Only where there is a GPU: the emulated device has no graphs.
#pragma once

#include "test/graph.hpp"
#include "test/ops/paged_attention/call.hpp"

#if TILEWAVE_ON_GPU_COMPILER

namespace tilewave::test {

/// Captures the launch while every length is 1; then, for each of `at`, replays it with call.lengths that, and calls
/// f(answer). The lengths are as before in the end.
template <class F>
void replay(const PagedAttentionEntry& e, Call& call, int wanted_splits,
            const std::vector<std::vector<std::int32_t>>& at, F f) {
  const int splits = splits_for(e, wanted_splits);
  const std::vector<std::int32_t> lengths = call.lengths, ones(lengths.size(), 1);
  call.run(e, splits);  // loads the kernels, which may not happen while capturing
  const Prepared d = call.prepare(e, splits);
  copy_to_device(d.lengths.data(), ones.data(), d.lengths.bytes());
  const Graph graph([&](hipStream_t stream) { return e.launch(d.p, splits, stream); });
  for (const std::vector<std::int32_t>& now : at) {
    copy_to_device(d.lengths.data(), now.data(), d.lengths.bytes());
    d.out.fill(unwritten_byte);
    d.lse.fill(unwritten_byte);
    graph.replay();
    call.lengths = now;
    f(call.collect(d));
  }
  call.lengths = lengths;
}

}  // namespace tilewave::test

#endif
