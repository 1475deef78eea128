// SPDX-License-Identifier: MIT
// The hip* names of core/hip.hpp for a machine without a GPU compiler: device memory is host memory, streams are
// synchronous, and nothing pretends to be a time. They are in an inline namespace of their own: a program may link
// this half with one that nvcc compiled, whose hip* names are functions of other bodies over the CUDA runtime.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/fiber.hpp"

namespace tilewave {
inline namespace emulated_hip {

// The values are those of ROCm's hip_runtime_api.h.
enum hipError_t : int {
  hipSuccess = 0,
  hipErrorInvalidValue = 1,
  hipErrorOutOfMemory = 2,
  hipErrorNoDevice = 100,
  hipErrorInvalidDevice = 101,
  hipErrorLaunchFailure = 719,
  hipErrorStreamCaptureUnsupported = 900,
};
enum hipStreamCaptureMode : int {
  hipStreamCaptureModeGlobal = 0,
  hipStreamCaptureModeThreadLocal = 1,
  hipStreamCaptureModeRelaxed = 2,
};
enum hipMemcpyKind : int {
  hipMemcpyHostToHost = 0,
  hipMemcpyHostToDevice = 1,
  hipMemcpyDeviceToHost = 2,
  hipMemcpyDeviceToDevice = 3,
  hipMemcpyDefault = 4,
};
enum hipDeviceAttribute_t : int {
  hipDeviceAttributeL2CacheSize,
  hipDeviceAttributeMaxSharedMemoryPerBlock,
  hipDeviceAttributeMaxThreadsPerBlock,
  hipDeviceAttributeMultiprocessorCount,
  hipDeviceAttributeWarpSize,
};

}  // namespace emulated_hip

namespace host::detail {
/// What a stream was given while it was captured, in order. Each call does one of these, and returns false if it fails.
struct Graph {
  std::vector<std::function<bool()>> calls;
};
struct Stream {
  Graph* captured = nullptr;  // null: calls are carried out at once
};
struct Event {};
struct Allocations {
  std::mutex mutex;
  std::map<void*, GuardedPages> pages;  // keyed by the returned pointer
};
inline Allocations& allocations() {
  static auto* const all = new Allocations;  // lives as long as the process
  return *all;
}
inline thread_local constinit hipError_t last_error = hipSuccess;
inline hipError_t answer(hipError_t error) {
  if (error != hipSuccess) last_error = error;
  return error;
}
}  // namespace host::detail

inline namespace emulated_hip {

using hipStream_t = host::detail::Stream*;  // null is the default stream
using hipEvent_t = host::detail::Event*;
using hipGraph_t = host::detail::Graph*;
using hipGraphExec_t = host::detail::Graph*;

inline const char* hipGetErrorString(hipError_t error) {
  switch (error) {
    case hipSuccess: return "no error";
    case hipErrorInvalidValue: return "invalid argument";
    case hipErrorOutOfMemory: return "out of memory";
    case hipErrorNoDevice: return "no device";
    case hipErrorInvalidDevice: return "invalid device ordinal";
    case hipErrorLaunchFailure: return "unspecified launch failure";
    case hipErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
  }
  return "unknown error";
}
/// Returns the last error of the calling thread and clears it.
inline hipError_t hipGetLastError() {
  const hipError_t error = host::detail::last_error;
  host::detail::last_error = hipSuccess;
  return error;
}

/// The emulated device counts as one.
inline hipError_t hipGetDeviceCount(int* count) {
  *count = 1;
  return hipSuccess;
}
inline hipError_t hipGetDevice(int* device) {
  *device = 0;
  return hipSuccess;
}
inline hipError_t hipSetDevice(int device) {
  return host::detail::answer(device == 0 ? hipSuccess : hipErrorInvalidDevice);
}
/// The attributes are those of gfx950, whatever chip a launch impersonates: code that cares reads the backend's facts.
inline hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  if (device != 0) return host::detail::answer(hipErrorInvalidDevice);
  const ArchFacts& facts = gfx950_facts;
  switch (attribute) {
    case hipDeviceAttributeL2CacheSize: *value = static_cast<int>(facts.last_level_cache_bytes); return hipSuccess;
    case hipDeviceAttributeMaxSharedMemoryPerBlock: *value = facts.lds_bytes; return hipSuccess;
    case hipDeviceAttributeMaxThreadsPerBlock: *value = 1024; return hipSuccess;
    case hipDeviceAttributeMultiprocessorCount: *value = facts.compute_units; return hipSuccess;
    case hipDeviceAttributeWarpSize: *value = facts.wave_lanes; return hipSuccess;
  }
  return host::detail::answer(hipErrorInvalidValue);
}

/// Returns zeroed memory that ends, rounded up to 16 bytes, at an inaccessible page, so that a read beyond it faults.
/// It is aligned to 16 bytes only. Pages are taken on first touch, so pools of hundreds of GiB can be mapped. 0 bytes
/// give a null pointer.
inline hipError_t hipMalloc(void** pointer, std::size_t bytes) {
  if (pointer == nullptr) return host::detail::answer(hipErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return hipSuccess;
  host::GuardedPages pages;
  if (bytes > std::numeric_limits<std::size_t>::max() / 2 || !pages.map(bytes)) {
    return host::detail::answer(hipErrorOutOfMemory);
  }
#if defined(MADV_HUGEPAGE)
  // Tensors of some megabytes are filled; a page of 4 KiB at a time that takes longer than filling them. Of larger ones
  // often only a few rows are touched.
  constexpr std::size_t mebibyte = std::size_t{1} << 20;
  if (bytes >= 4 * mebibyte && bytes <= 512 * mebibyte) madvise(pages.begin, pages.bytes, MADV_HUGEPAGE);
#endif
  *pointer = pages.end() - (bytes + 15) / 16 * 16;
  host::detail::Allocations& all = host::detail::allocations();
  const std::lock_guard lock(all.mutex);
  all.pages.emplace(*pointer, pages);
  return hipSuccess;
}
template <class T>
hipError_t hipMalloc(T** pointer, std::size_t bytes) {
  return hipMalloc(reinterpret_cast<void**>(pointer), bytes);
}
/// Later accesses fault until the address is used again. Null is fine; a pointer that is not from hipMalloc is an
/// error.
inline hipError_t hipFree(void* pointer) {
  if (pointer == nullptr) return hipSuccess;
  host::detail::Allocations& all = host::detail::allocations();
  const std::lock_guard lock(all.mutex);
  const auto found = all.pages.find(pointer);
  if (found == all.pages.end()) return host::detail::answer(hipErrorInvalidValue);
  found->second.unmap();
  all.pages.erase(found);
  return hipSuccess;
}

inline hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind) {
  if (bytes == 0) return hipSuccess;
  if (to == nullptr || from == nullptr) return host::detail::answer(hipErrorInvalidValue);
  std::memmove(to, from, bytes);
  return hipSuccess;
}
inline hipError_t hipMemset(void* to, int value, std::size_t bytes) {
  if (bytes == 0) return hipSuccess;
  if (to == nullptr) return host::detail::answer(hipErrorInvalidValue);
  std::memset(to, value, bytes);
  return hipSuccess;
}
inline hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind,
                                 hipStream_t stream = nullptr) {
  if (stream == nullptr || stream->captured == nullptr) return hipMemcpy(to, from, bytes, kind);
  stream->captured->calls.push_back([=] { return hipMemcpy(to, from, bytes, kind) == hipSuccess; });
  return hipSuccess;
}
inline hipError_t hipMemsetAsync(void* to, int value, std::size_t bytes, hipStream_t stream = nullptr) {
  if (stream == nullptr || stream->captured == nullptr) return hipMemset(to, value, bytes);
  stream->captured->calls.push_back([=] { return hipMemset(to, value, bytes) == hipSuccess; });
  return hipSuccess;
}

inline hipError_t hipStreamCreate(hipStream_t* stream) {
  *stream = new host::detail::Stream;
  return hipSuccess;
}
inline hipError_t hipStreamDestroy(hipStream_t stream) {
  delete stream;
  return hipSuccess;
}
inline hipError_t hipStreamSynchronize(hipStream_t stream) {
  const bool capturing = stream != nullptr && stream->captured != nullptr;
  return host::detail::answer(capturing ? hipErrorStreamCaptureUnsupported : hipSuccess);
}
inline hipError_t hipDeviceSynchronize() { return hipSuccess; }

/// Until the capture ends, launches, copies and fills of the stream are written down, and not carried out. A graph may
/// be launched any number of times, with the arguments that the calls had.
inline hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode) {
  if (stream == nullptr || stream->captured != nullptr) return host::detail::answer(hipErrorInvalidValue);
  stream->captured = new host::detail::Graph;
  return hipSuccess;
}
inline hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* graph) {
  if (stream == nullptr || stream->captured == nullptr || graph == nullptr)
    return host::detail::answer(hipErrorInvalidValue);
  *graph = stream->captured;
  stream->captured = nullptr;
  return hipSuccess;
}
inline hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph, unsigned long long) {
  if (executable == nullptr || graph == nullptr) return host::detail::answer(hipErrorInvalidValue);
  *executable = new host::detail::Graph(*graph);
  return hipSuccess;
}
inline hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  if (executable == nullptr || (stream != nullptr && stream->captured != nullptr))
    return host::detail::answer(hipErrorInvalidValue);
  for (const auto& call : executable->calls)
    if (!call()) return host::detail::answer(hipErrorLaunchFailure);
  return hipSuccess;
}
inline hipError_t hipGraphDestroy(hipGraph_t graph) {
  delete graph;
  return hipSuccess;
}
inline hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  delete executable;
  return hipSuccess;
}

inline hipError_t hipEventCreate(hipEvent_t* event) {
  *event = new host::detail::Event;
  return hipSuccess;
}
inline hipError_t hipEventDestroy(hipEvent_t event) {
  delete event;
  return hipSuccess;
}
inline hipError_t hipEventRecord(hipEvent_t, hipStream_t = nullptr) { return hipSuccess; }
inline hipError_t hipEventSynchronize(hipEvent_t) { return hipSuccess; }
/// The result is NaN: an emulated device has no time of its own.
inline hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t, hipEvent_t) {
  *milliseconds = std::numeric_limits<float>::quiet_NaN();
  return hipSuccess;
}

}  // namespace emulated_hip
}  // namespace tilewave

#endif  // !TILEWAVE_ON_GPU_COMPILER
