// SPDX-License-Identifier: MIT
// What a program keeps around its plans: one for each shape that was met, the workspace that the calls of a stream
// share, and the way from a spec that is known at run time to one that was compiled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "tilewave/core/hip.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/tile/plan.hpp"

namespace tilewave {

/// Makes the plan of a problem by Maker::plan<spec>(problem, plan), of the one of `specs` that is the problem's own.
/// Errors: no_matching_entry if it is none of them; those of the maker.
template <class Maker, auto... specs, class Problem, class Plan>
Status plan_among(const Problem& p, Plan& plan) {
  Status status{StatusCode::no_matching_entry, "problem.spec is none of the specs that were compiled"};
  static_cast<void>(((p.spec == specs && (status = Maker::template plan<specs>(p, plan), true)) || ...));
  return status;
}

/// The calls of one stream, by plans of some ops. A plan is made when its shape is met first, and kept. One workspace
/// serves all calls, since they run one after the other. It belongs to the device that is current at the first call.
template <class... Plans>
class StreamCalls {
 public:
  /// Whatever calls of one op differ by, and plans depend on: a number for the spec, extents, strides, flags.
  using Shape = std::array<std::int32_t, 6>;

  explicit StreamCalls(hipStream_t stream) : stream_(stream) {}
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;
  ~StreamCalls() { static_cast<void>(hipFree(workspace_)); }

  /// Queues the call. make(problem, plan) is asked for a plan where the shape has none yet. Errors: those of `make`, of
  /// reserve() and of the launch, and then nothing was queued.
  template <class Plan, class Problem, class Make>
  Status launch(const Shape& shape, Problem p, const Make& make) {
    Plan& plan = std::get<std::map<Shape, Plan>>(plans_)[shape];
    if (plan.entry == nullptr) {
      if (const Status s = make(p, plan); !s.ok()) return s;
    }
    if constexpr (requires { p.workspace; }) {
      if (const Status s = reserve(plan.workspace_bytes(p)); !s.ok()) return s;
      p.workspace = workspace_, p.workspace_bytes = workspace_bytes_;
    }
    return plan.launch(p, stream_);
  }

  /// Makes the workspace at least as large. It waits for the stream before memory is freed that queued kernels may use.
  /// Errors: launch_failed where there is no memory; the workspace is as it was.
  Status reserve(std::size_t bytes) {
    if (bytes <= workspace_bytes_) return {};
    void* larger = nullptr;
    if (hipMalloc(&larger, bytes) != hipSuccess) {
      static_cast<void>(hipGetLastError());  // which the next launch would take for its own
      return {StatusCode::launch_failed, "no memory for the workspace"};
    }
    const bool waited = hipStreamSynchronize(stream_) == hipSuccess, freed = hipFree(workspace_) == hipSuccess;
    workspace_ = larger, workspace_bytes_ = bytes, ++workspace_moves_;
    if (waited && freed) return {};
    return {StatusCode::launch_failed, "the device failed before the workspace grew"};
  }
  /// Returns how often the workspace has moved. A graph that was captured before uses the one that is gone.
  std::uint64_t workspace_moves() const { return workspace_moves_; }

 private:
  hipStream_t stream_;
  void* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  std::uint64_t workspace_moves_ = 0;
  std::tuple<std::map<Shape, Plans>...> plans_{};
};

}  // namespace tilewave
