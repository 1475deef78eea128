// SPDX-License-Identifier: MIT
// Launches captured in a graph, and replayed, where there is a GPU.
#pragma once

#include <stdexcept>

#include "bench/harness/device.hpp"
#include "tilewave/core/status.hpp"

#if TILEWAVE_ON_GPU_COMPILER

namespace tilewave::test {

class Graph {
 public:
  /// Captures the work that launch(stream) queues, a function that returns a Status. It has run before: kernels must
  /// not be loaded during the capture.
  template <class Launch>
  explicit Graph(const Launch& launch) {
    bench::check_hip(hipStreamCreate(&stream_), "creating a stream");
    bench::check_hip(hipStreamBeginCapture(stream_, hipStreamCaptureModeThreadLocal), "capturing");
    const Status status = launch(stream_);
    bench::check_hip(hipStreamEndCapture(stream_, &graph_), "ending a capture");
    if (!status.ok()) throw std::runtime_error(status.reason);
    bench::check_hip(hipGraphInstantiateWithFlags(&executable_, graph_, 0), "instantiating a graph");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (executable_ != nullptr) (void)hipGraphExecDestroy(executable_);
    if (graph_ != nullptr) (void)hipGraphDestroy(graph_);
    if (stream_ != nullptr) (void)hipStreamDestroy(stream_);
  }

  /// Once, and waits.
  void replay() const {
    bench::check_hip(hipGraphLaunch(executable_, stream_), "replaying");
    bench::check_hip(hipStreamSynchronize(stream_), "waiting");
  }

 private:
  hipStream_t stream_{};
  hipGraph_t graph_{};
  hipGraphExec_t executable_{};
};

/// Captures launch(stream), and for each of `inputs` replays it with them: change(input) puts them where the launch
/// reads;
/// what check(input) returns, an error or "", is gathered.
template <class Launch, class Inputs, class Change, class Check>
std::string replayed(const Launch& launch, const Inputs& inputs, const Change& change, const Check& check) {
  const Graph graph(launch);
  std::string errors;
  for (const auto& input : inputs) {
    change(input);
    graph.replay();
    const std::string error = check(input);
    if (error != "") errors += " replay: " + error;
  }
  return errors;
}

}  // namespace tilewave::test

#endif
