// SPDX-License-Identifier: MIT
// Kernels that wait for the stream's previous kernel themselves, and what they must not do before.
#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::early {
namespace {

enum class Slip { none, load, store, copy, promised, beyond_promise, promised_store, launch_next, no_wait };

/// Doubles a value for each lane.
template <class B, Slip slip, bool inputs_early = false>
struct EarlyKernel {
  static constexpr bool waits_itself = true, reads_inputs_early = inputs_early;
  static constexpr int block_threads = 2 * B::facts.wave_lanes;
  struct Args {
    const float* in;
    float* out;
  };
  struct Shared {
    float doubled[block_threads];
    alignas(16) Chunk chunks[B::facts.wave_lanes];
  };
  static void run(const Args& a, Shared& shared) {
    const int lane = B::block_lane_id();
    if constexpr (slip == Slip::load) shared.doubled[lane] = B::load(a.in + lane);
    if constexpr (slip == Slip::store) B::store(a.out + lane, 0.0f);
    if constexpr (slip == Slip::copy) {
      B::copy_lane(&shared.chunks[B::lane_id()], reinterpret_cast<const Chunk*>(a.in));
      B::lane_copies_end();
      B::template lane_copies_wait<0>();
    }
    if constexpr (slip == Slip::promised || slip == Slip::promised_store || slip == Slip::beyond_promise) {
      B::promised_reads(true);
      shared.doubled[lane] = B::load(a.in + lane);
      if constexpr (slip == Slip::promised_store) B::store(a.out + lane, 0.0f);
      B::promised_reads(false);
      if constexpr (slip == Slip::beyond_promise) shared.doubled[lane] += B::load(a.in + lane);
    }
    if constexpr (slip == Slip::launch_next) B::launch_next();
    B::barrier();  // what lies in shared memory needs no wait
    if constexpr (slip == Slip::no_wait) return;
    B::wait_for_previous();
    B::launch_next();
    shared.doubled[lane] = 2 * B::load(a.in + lane);
    B::store(a.out + lane, shared.doubled[lane]);
  }
};

template <class B, Slip slip, bool inputs_early = false>
Status run_early() {
  using K = EarlyKernel<B, slip, inputs_early>;
  std::vector<float> in(K::block_threads, 1.5f), out(K::block_threads);
  const Status status = launch<B, K>(1, {in.data(), out.data()});
  if (status.ok()) CHECK(out == std::vector<float>(K::block_threads, 3.0f));
  return status;
}

}  // namespace

TEMPLATE_TEST_CASE("a kernel that waits itself touches device memory only behind its wait", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  CHECK(run_early<B, Slip::none>().ok());
  CHECK(contains(run_early<B, Slip::load>().reason, "device memory is read at early_test.cpp"));
  CHECK(contains(run_early<B, Slip::store>().reason, "device memory is written at early_test.cpp"));
  CHECK(contains(run_early<B, Slip::launch_next>().reason, "launch_next before wait_for_previous at early_test.cpp"));
  CHECK(contains(run_early<B, Slip::no_wait>().reason, "no lane of it has called wait_for_previous"));
  CHECK(run_early<B, Slip::promised>().ok());
  CHECK(contains(run_early<B, Slip::promised_store>().reason, "device memory is written at early_test.cpp"));
  CHECK(contains(run_early<B, Slip::beyond_promise>().reason, "device memory is read at early_test.cpp"));
  if constexpr (StagedBackend<B>)
    CHECK(contains(run_early<B, Slip::copy>().reason, "device memory is read at early_test.cpp"));
}

TEST_CASE("a kernel behind one of its own op may read inputs before its wait, and write nothing") {
  CHECK(run_early<Sm90, Slip::load, true>().ok());
  CHECK(contains(run_early<Sm90, Slip::store, true>().reason, "device memory is written at early_test.cpp"));
}

TEST_CASE("a captured stream keeps launches, copies and fills, and a graph repeats them with their arguments") {
  using K = EarlyKernel<Gfx950, Slip::none>;
  std::vector<float> in(K::block_threads, 1.5f), between(K::block_threads), out(K::block_threads, -1.0f);
  const std::size_t bytes = in.size() * sizeof(float);
  hipStream_t stream{};
  hipGraph_t graph{};
  hipGraphExec_t executable{};
  REQUIRE(hipStreamCreate(&stream) == hipSuccess);
  REQUIRE(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
  CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipErrorInvalidValue);
  CHECK(hipStreamSynchronize(stream) == hipErrorStreamCaptureUnsupported);
  K::Args args{in.data(), between.data()};
  CHECK(Gfx950::launch<K>({1, K::block_threads}, args, stream).ok());
  CHECK(hipMemcpyAsync(out.data(), between.data(), bytes, hipMemcpyDeviceToDevice, stream) == hipSuccess);
  CHECK(hipMemsetAsync(between.data(), 0, bytes, stream) == hipSuccess);
  args = {};  // the graph has its own
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipSuccess);
  CHECK(out.front() == -1.0f);
  REQUIRE(hipGraphInstantiateWithFlags(&executable, graph, 0) == hipSuccess);
  CHECK(hipGraphDestroy(graph) == hipSuccess);
  for (const float value : {2.0f, 5.0f}) {
    in.assign(in.size(), value);
    CHECK(hipGraphLaunch(executable, stream) == hipSuccess);
    CHECK(out == std::vector<float>(out.size(), 2 * value));
    CHECK(between == std::vector<float>(out.size(), 0.0f));
  }
  CHECK(hipGraphExecDestroy(executable) == hipSuccess);
  CHECK(hipStreamEndCapture(stream, &graph) == hipErrorInvalidValue);
  CHECK(hipStreamDestroy(stream) == hipSuccess);
}

TEST_CASE("a graph whose kernel fails says so") {
  using K = EarlyKernel<Gfx950, Slip::no_wait>;
  std::vector<float> in(K::block_threads), out(K::block_threads);
  hipStream_t stream{};
  hipGraph_t graph{};
  REQUIRE(hipStreamCreate(&stream) == hipSuccess);
  REQUIRE(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
  CHECK(Gfx950::launch<K>({1, K::block_threads}, {in.data(), out.data()}, stream).ok());
  REQUIRE(hipStreamEndCapture(stream, &graph) == hipSuccess);
  CHECK(hipGraphLaunch(graph, stream) == hipErrorLaunchFailure);
  CHECK(hipGraphDestroy(graph) == hipSuccess);
  CHECK(hipStreamDestroy(stream) == hipSuccess);
}

}  // namespace tilewave::test::early
