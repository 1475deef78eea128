// SPDX-License-Identifier: MIT
// What kernels of others have and none of the library's: blocks and waves that wait for each other, locks, atomics of every
// kind of memory, f64 division, f16 and packed integer arithmetic.
#define __global__ extern "C" __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

using u32 = unsigned;
using u64 = unsigned long long;
using Short2 = short __attribute__((ext_vector_type(2)));
using Half = _Float16;
using Half2 = Half __attribute__((ext_vector_type(2)));

__device__ inline u32 thread() { return __builtin_amdgcn_workitem_id_x(); }
__device__ inline u32 block() { return __builtin_amdgcn_workgroup_id_x(); }
__device__ inline void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// All blocks write, meet, and read what the last ones have written.
__global__ void grid_barrier(u32* counter, u32* data, u32* out, u32 blocks) {
  data[block() * 64 + thread()] = block() * 1000 + thread();
  barrier();
  if (thread() == 0) {
    __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    while (__hip_atomic_load(counter, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < blocks) __builtin_amdgcn_s_sleep(1);
  }
  barrier();
  out[block() * 64 + thread()] = data[(blocks - 1 - block()) * 64 + thread()];
}

// A sum of four waves under a lock in LDS, which waves spin for.
__global__ void lds_lock(u32* out) {
  __shared__ u32 lock, sum;
  if (thread() == 0) lock = 0, sum = 0;
  barrier();
  if (thread() % 64 == 0) {
    u32 expected = 0;
    while (!__hip_atomic_compare_exchange_strong(&lock, &expected, 1u, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED,
                                                 __HIP_MEMORY_SCOPE_WORKGROUP))
      expected = 0;
    sum += thread() / 64 + 1;
    __hip_atomic_exchange(&lock, 0u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
  }
  barrier();
  if (thread() == 0) out[0] = sum;
}

// Each in global memory, in LDS, and through a pointer that may be either.
#define ATOMICS(T)                                                                \
  __device__ inline void atomics_of(T* p, T x) {                                  \
    __hip_atomic_fetch_add(p + 0, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
    __hip_atomic_fetch_sub(p + 1, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
    __hip_atomic_fetch_max(p + 2, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
    __hip_atomic_fetch_min(p + 3, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
    __hip_atomic_fetch_xor(p + 4, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
    __hip_atomic_fetch_or(p + 5, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);  \
    __hip_atomic_fetch_and(p + 6, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  }
ATOMICS(u32)
ATOMICS(u64)

template <class T>
__device__ inline void everywhere(T* out, const T* in, int either) {
  __shared__ T local[16];
  if (thread() < 16) local[thread()] = thread() % 8 == 6 || thread() % 8 == 3 ? ~T{0} : T{0};
  barrier();
  atomics_of(out, in[thread()]);
  atomics_of(local, in[thread()]);
  // Odd lanes would be in LDS and even ones in global memory, were `either` 1.
  T* const flat = (thread() & static_cast<u32>(either)) != 0 ? local + 8 : out + 8;
  atomics_of(flat, in[thread()]);
  barrier();
  if (thread() < 16) out[16 + thread()] = local[thread()];
}
__global__ void atomics_32(u32* out, const u32* in, int either) { everywhere(out, in, either); }
__global__ void atomics_64(u64* out, const u64* in, int either) { everywhere(out, in, either); }

__global__ void divide(const double* a, const double* b, double* c) { c[thread()] = a[thread()] / b[thread()]; }

__global__ void halves(const Half* a, const Half* b, const Half* c, Half* out) {
  const u32 i = thread();
  Half* const to = out + 12 * i;
  to[0] = __builtin_elementwise_floor(a[i]);
  to[1] = __builtin_elementwise_ceil(a[i]);
  to[2] = __builtin_elementwise_trunc(a[i]);
  to[3] = __builtin_elementwise_rint(a[i]);
  to[4] = __builtin_elementwise_fma(a[i], b[i], c[i]);
  to[5] = __builtin_fmaxf16(a[i], __builtin_fmaxf16(b[i], c[i]));
  to[6] = static_cast<Half>(static_cast<short>(a[i]));
  to[7] = static_cast<Half>(static_cast<unsigned short>(__builtin_elementwise_abs(b[i])));
  const Half2 x = {a[i], b[i]}, y = {b[i], c[i]}, least = __builtin_elementwise_min(x, y);
  const Half2 most = __builtin_elementwise_max(x, y);
  to[8] = least.x, to[9] = least.y, to[10] = most.x, to[11] = most.y;
}

__global__ void dots(const int* a, const int* b, const int* c, int* out) {
  const u32 i = thread();
  int* const to = out + 6 * i;
  to[0] = __builtin_amdgcn_sdot4(a[i], b[i], c[i], false);
  to[1] = static_cast<int>(__builtin_amdgcn_udot4(a[i], b[i], c[i], false));
  to[2] = __builtin_amdgcn_sdot8(a[i], b[i], c[i], false);
  to[3] = static_cast<int>(__builtin_amdgcn_udot8(a[i], b[i], c[i], false));
  to[4] = __builtin_amdgcn_sdot2(__builtin_bit_cast(Short2, a[i]), __builtin_bit_cast(Short2, b[i]), c[i], false);
  to[5] = static_cast<int>(__builtin_amdgcn_sad_u8(a[i], b[i], c[i]));
}
