// SPDX-License-Identifier: MIT
// The only place, outside arch/ and core/hip.hpp, that asks which compiler is running.
#pragma once

#if defined(__HIP__) || defined(__CUDACC__)
#define TILEWAVE_HOST_DEVICE __host__ __device__ inline __attribute__((always_inline))
#define TILEWAVE_DEVICE __device__ inline __attribute__((always_inline))
#define TILEWAVE_ON_GPU_COMPILER 1
#else
#define TILEWAVE_HOST_DEVICE inline
#define TILEWAVE_DEVICE inline
#define TILEWAVE_ON_GPU_COMPILER 0
#endif

// Put before a loop whose body indexes registers: an index that survives to run time would send them to memory.
#if defined(__clang__) || defined(__CUDACC__)
#define TILEWAVE_UNROLL _Pragma("unroll")
#else
#define TILEWAVE_UNROLL _Pragma("GCC unroll 64")
#endif
