// SPDX-License-Identifier: MIT
// This file is the only place, outside arch/ and core/hip.hpp, that asks which compiler is running.
#pragma once

// NaN, infinities and the order of a sum decide which token is drawn, which expert is chosen and which problem is
// refused. These flags let a compiler assume otherwise, in kernels and in checks. A project that has them ends the
// flags of the files that include tilewave with -fno-fast-math.
#if defined(__FAST_MATH__) || __FINITE_MATH_ONLY__ || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "tilewave needs NaN, infinities and sums in order: no -ffast-math, -ffinite-math-only, -fassociative-math"
#endif

#if defined(__HIP__) || defined(__CUDACC__)
#define TILEWAVE_HOST_DEVICE __host__ __device__ inline __attribute__((always_inline))
#define TILEWAVE_DEVICE __device__ inline __attribute__((always_inline))
#define TILEWAVE_ON_GPU_COMPILER 1
#else
#define TILEWAVE_HOST_DEVICE inline
#define TILEWAVE_DEVICE inline
#define TILEWAVE_ON_GPU_COMPILER 0
#endif

// It stands after the parameters of a lambda that is called for every chunk: a real call would send the registers that
// the lambda uses to memory.
#if TILEWAVE_ON_GPU_COMPILER
#define TILEWAVE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define TILEWAVE_INLINE_LAMBDA
#endif

// It stands before a loop whose body indexes registers: an index that survives to run time would send them to memory.
// The host room has no such registers, and g++ would take ten times as long.
#if defined(__clang__) || defined(__CUDACC__)
#define TILEWAVE_UNROLL _Pragma("unroll")
#else
#define TILEWAVE_UNROLL
#endif
// It stands before a loop that must not be unrolled: where a kernel runs once over little data, each line of code is a
// read of memory.
#if defined(__clang__) || defined(__CUDACC__)
#define TILEWAVE_ROLL _Pragma("unroll 1")
#else
#define TILEWAVE_ROLL
#endif
