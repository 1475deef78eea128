// SPDX-License-Identifier: MIT
// The hip* names of the host room, above all the guard pages around device memory.
#include "tilewave/core/hip.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::hip {
namespace {

struct ReadKernel {
  static constexpr int block_threads = 64;
  struct Args {
    const std::uint32_t* in;
    int offset;
    std::uint32_t* out;
  };
  using Shared = NoShared;
  static void run(const Args& args, Shared&) {
    args.out[Gfx950::lane_id()] = Gfx950::load(args.in + Gfx950::lane_id() + args.offset);
  }
};

/// True if `access` kills a child process with SIGSEGV. The child leaves with _exit, past any sanitizer's report.
template <class Access>
bool faults(Access access) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // not Catch2's or a sanitizer's
    std::signal(SIGBUS, SIG_DFL);
    access();
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) CHECK(WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

}  // namespace

TEST_CASE("device memory ends at an inaccessible page") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{16}, std::size_t{4096}, std::size_t{100000}}) {
    CAPTURE(bytes);
    void* memory = nullptr;
    REQUIRE(hipMalloc(&memory, bytes) == hipSuccess);
    auto* const begin = static_cast<volatile std::byte*>(memory);
    const std::size_t rounded = (bytes + 15) / 16 * 16;
    CHECK(reinterpret_cast<std::uintptr_t>(memory) % 16 == 0);
    CHECK(begin[0] == std::byte{0});
    begin[rounded - 1] = std::byte{7};
    CHECK(begin[rounded - 1] == std::byte{7});
    CHECK_FALSE(faults([&] { (void)begin[rounded - 1]; }));
    CHECK(faults([&] { (void)begin[rounded]; }));
    CHECK(faults([&] { begin[rounded + 4095] = std::byte{1}; }));
    REQUIRE(hipFree(memory) == hipSuccess);
    CHECK(faults([&] { (void)begin[0]; }));
  }
}

TEST_CASE("a kernel that reads beyond its tensor faults") {
  const WithOptions with({.threads = 1});
  std::uint32_t *in = nullptr, *out = nullptr;
  REQUIRE(hipMalloc(&in, 64 * 4) == hipSuccess);
  REQUIRE(hipMalloc(&out, 64 * 4) == hipSuccess);
  const auto run = [&](int offset) { (void)launch<Gfx950, ReadKernel>(1, {in, offset, out}); };
  CHECK_FALSE(faults([&] { run(0); }));
  CHECK(faults([&] { run(1); }));
  REQUIRE(hipFree(in) == hipSuccess);
  REQUIRE(hipFree(out) == hipSuccess);
}

TEST_CASE("a sparse pool beyond 4 GiB costs only the pages touched") {
  constexpr std::size_t bytes = std::size_t{64} << 30;
  std::byte* pool = nullptr;
  REQUIRE(hipMalloc(&pool, bytes) == hipSuccess);
  pool[0] = std::byte{1};
  pool[bytes - 1] = std::byte{2};
  CHECK(pool[bytes / 2] == std::byte{0});
  CHECK(pool[bytes - 1] == std::byte{2});
  REQUIRE(hipFree(pool) == hipSuccess);
}

TEST_CASE("allocation at the edges") {
  int here = 0;
  void* memory = &here;
  REQUIRE(hipMalloc(&memory, 0) == hipSuccess);
  CHECK(memory == nullptr);
  CHECK(hipFree(nullptr) == hipSuccess);
  CHECK(hipGetLastError() == hipSuccess);
  CHECK(hipMalloc(&memory, ~std::size_t{0}) == hipErrorOutOfMemory);
  CHECK(hipMalloc(&memory, std::size_t{1} << 60) == hipErrorOutOfMemory);
  CHECK(hipGetLastError() == hipErrorOutOfMemory);
  CHECK(hipGetLastError() == hipSuccess);
  CHECK(hipFree(&here) == hipErrorInvalidValue);
  CHECK(hipGetLastError() == hipErrorInvalidValue);
  CHECK(std::string(hipGetErrorString(hipErrorOutOfMemory)) == "out of memory");
}

TEST_CASE("copies and fills") {
  hipStream_t stream = nullptr;
  REQUIRE(hipStreamCreate(&stream) == hipSuccess);
  std::uint32_t* device = nullptr;
  REQUIRE(hipMalloc(&device, 4 * sizeof(std::uint32_t)) == hipSuccess);
  const std::uint32_t in[4] = {1, 2, 3, 4};
  std::uint32_t out[4] = {};
  CHECK(hipMemcpy(device, in, sizeof(in), hipMemcpyHostToDevice) == hipSuccess);
  CHECK(hipMemsetAsync(device + 1, 0xab, 4, stream) == hipSuccess);
  CHECK(hipMemcpyAsync(out, device, sizeof(out), hipMemcpyDefault, stream) == hipSuccess);
  CHECK(hipStreamSynchronize(stream) == hipSuccess);
  CHECK(out[0] == 1);
  CHECK(out[1] == 0xababababu);
  CHECK(out[3] == 4);
  CHECK(hipMemset(device, 0, sizeof(out)) == hipSuccess);
  CHECK(device[3] == 0);
  CHECK(hipMemcpy(nullptr, nullptr, 0, hipMemcpyDeviceToDevice) == hipSuccess);
  CHECK(hipMemcpy(nullptr, in, 4, hipMemcpyDeviceToDevice) == hipErrorInvalidValue);
  CHECK(hipMemset(nullptr, 0, 4) == hipErrorInvalidValue);
  (void)hipGetLastError();
  CHECK(hipFree(device) == hipSuccess);
  CHECK(hipStreamDestroy(stream) == hipSuccess);
}

TEST_CASE("one device, with the facts of gfx950 and no time") {
  int value = 0;
  CHECK(hipGetDeviceCount(&value) == hipSuccess);
  CHECK(value == 1);
  CHECK(hipSetDevice(0) == hipSuccess);
  CHECK(hipSetDevice(1) == hipErrorInvalidDevice);
  (void)hipGetLastError();
  REQUIRE(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, 0) == hipSuccess);
  CHECK(value == gfx950_facts.compute_units);
  CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 1) == hipErrorInvalidDevice);
  (void)hipGetLastError();
  hipEvent_t begin = nullptr, end = nullptr;
  REQUIRE(hipEventCreate(&begin) == hipSuccess);
  REQUIRE(hipEventCreate(&end) == hipSuccess);
  CHECK(hipEventRecord(begin, nullptr) == hipSuccess);
  CHECK(hipEventRecord(end, nullptr) == hipSuccess);
  CHECK(hipEventSynchronize(end) == hipSuccess);
  float milliseconds = 0;
  CHECK(hipEventElapsedTime(&milliseconds, begin, end) == hipSuccess);
  CHECK(std::isnan(milliseconds));
  CHECK(hipEventDestroy(begin) == hipSuccess);
  CHECK(hipEventDestroy(end) == hipSuccess);
}

}  // namespace tilewave::test::hip
