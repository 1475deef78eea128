// SPDX-License-Identifier: MIT
// The hip* runtime names that the library and its harness use. On AMD they come from ROCm's own header. On NVIDIA they
// are inline functions over the CUDA runtime, since no shipped HIP header compiles with CUDA 13. Elsewhere they are the
// host room's version over plain memory.
//
// A file of an engine may call tilewave beside a GPU runtime (checks, choice among compiled entries, launches) without
// being compiled by a device compiler. It names the runtime with HIP's own macro: __HIP_PLATFORM_AMD__, as CMake's
// hip::host does, or __HIP_PLATFORM_NVIDIA__. It then has that runtime's names, once, and not the emulated device's.
#pragma once

#include <cstddef>

#include "tilewave/core/config.hpp"

#if defined(__HIP__)

#include <hip/hip_runtime.h>

#elif defined(__CUDACC__) || defined(__HIP_PLATFORM_NVIDIA__)

#include <cuda_runtime_api.h>

namespace tilewave {

using hipError_t = cudaError_t;
using hipStream_t = cudaStream_t;
using hipEvent_t = cudaEvent_t;
using hipGraph_t = cudaGraph_t;
using hipGraphExec_t = cudaGraphExec_t;
using hipMemcpyKind = cudaMemcpyKind;
using hipDeviceAttribute_t = cudaDeviceAttr;
using hipStreamCaptureMode = cudaStreamCaptureMode;

inline constexpr hipError_t hipSuccess = cudaSuccess;
inline constexpr hipMemcpyKind hipMemcpyHostToDevice = cudaMemcpyHostToDevice;
inline constexpr hipMemcpyKind hipMemcpyDeviceToHost = cudaMemcpyDeviceToHost;
inline constexpr hipMemcpyKind hipMemcpyDeviceToDevice = cudaMemcpyDeviceToDevice;
inline constexpr hipMemcpyKind hipMemcpyDefault = cudaMemcpyDefault;
inline constexpr hipDeviceAttribute_t hipDeviceAttributeMultiprocessorCount = cudaDevAttrMultiProcessorCount;
inline constexpr hipStreamCaptureMode hipStreamCaptureModeThreadLocal = cudaStreamCaptureModeThreadLocal;

inline const char* hipGetErrorString(hipError_t e) { return cudaGetErrorString(e); }
inline hipError_t hipGetLastError() { return cudaGetLastError(); }
inline hipError_t hipPeekAtLastError() { return cudaPeekAtLastError(); }
inline hipError_t hipGetDeviceCount(int* n) { return cudaGetDeviceCount(n); }
inline hipError_t hipGetDevice(int* d) { return cudaGetDevice(d); }
inline hipError_t hipSetDevice(int d) { return cudaSetDevice(d); }
inline hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t a, int device) {
  return cudaDeviceGetAttribute(value, a, device);
}
inline hipError_t hipDeviceGetName(char* name, int bytes, int device) {
  cudaDeviceProp properties;
  const hipError_t error = cudaGetDeviceProperties(&properties, device);
  for (int i = 0; error == hipSuccess && i < bytes; ++i) name[i] = i + 1 < bytes ? properties.name[i] : '\0';
  return error;
}
inline hipError_t hipDeviceSynchronize() { return cudaDeviceSynchronize(); }
inline hipError_t hipMalloc(void** p, std::size_t bytes) { return cudaMalloc(p, bytes); }
inline hipError_t hipFree(void* p) { return cudaFree(p); }
inline hipError_t hipMemGetInfo(std::size_t* free, std::size_t* total) { return cudaMemGetInfo(free, total); }
inline hipError_t hipMemcpy(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline hipError_t hipMemcpyAsync(void* to, const void* from, std::size_t bytes, hipMemcpyKind kind, hipStream_t s) {
  return cudaMemcpyAsync(to, from, bytes, kind, s);
}
inline hipError_t hipMemset(void* p, int byte, std::size_t bytes) { return cudaMemset(p, byte, bytes); }
inline hipError_t hipMemsetAsync(void* p, int byte, std::size_t bytes, hipStream_t s) {
  return cudaMemsetAsync(p, byte, bytes, s);
}
inline hipError_t hipStreamCreate(hipStream_t* s) { return cudaStreamCreate(s); }
inline hipError_t hipStreamDestroy(hipStream_t s) { return cudaStreamDestroy(s); }
inline hipError_t hipStreamSynchronize(hipStream_t s) { return cudaStreamSynchronize(s); }
inline hipError_t hipEventCreate(hipEvent_t* e) { return cudaEventCreate(e); }
inline hipError_t hipEventDestroy(hipEvent_t e) { return cudaEventDestroy(e); }
inline hipError_t hipEventRecord(hipEvent_t e, hipStream_t s) { return cudaEventRecord(e, s); }
inline hipError_t hipEventSynchronize(hipEvent_t e) { return cudaEventSynchronize(e); }
inline hipError_t hipEventElapsedTime(float* ms, hipEvent_t a, hipEvent_t b) { return cudaEventElapsedTime(ms, a, b); }
inline hipError_t hipStreamBeginCapture(hipStream_t s, hipStreamCaptureMode mode) {
  return cudaStreamBeginCapture(s, mode);
}
inline hipError_t hipStreamEndCapture(hipStream_t s, hipGraph_t* g) { return cudaStreamEndCapture(s, g); }
inline hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* x, hipGraph_t g, unsigned long long flags) {
  return cudaGraphInstantiate(x, g, flags);
}
inline hipError_t hipGraphLaunch(hipGraphExec_t x, hipStream_t s) { return cudaGraphLaunch(x, s); }
inline hipError_t hipGraphDestroy(hipGraph_t g) { return cudaGraphDestroy(g); }
inline hipError_t hipGraphExecDestroy(hipGraphExec_t x) { return cudaGraphExecDestroy(x); }

}  // namespace tilewave

#elif defined(__HIP_PLATFORM_AMD__)

#include <hip/hip_runtime_api.h>

#else

#include "tilewave/arch/host/hip.hpp"

#endif
