// SPDX-License-Identifier: MIT
// Kernels whose time follows from one constant each.
#define __global__ extern "C" __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

template <class T, int n>
using Vector = T __attribute__((ext_vector_type(n)));
using Float4 = Vector<float, 4>;
using Half4 = Vector<_Float16, 4>;

__device__ inline unsigned lane() { return __builtin_amdgcn_workitem_id_x(); }

#define TEN(x) x x x x x x x x x x
#define HUNDRED(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x) TEN(x)
// 10000 matrix instructions, each alone or with `n` plain VALU instructions beside it.
#define MATRIX(name, beside)                                                                                           \
  __global__ void name(const Half4* in, float* out) {                                                                  \
    Half4 a = in[lane() % 64];                                                                                         \
    Float4 c = {0, 0, 0, 0}, d = {0, 0, 0, 0};                                                                         \
    float x = 1, y = 2, z = 3, e = 4;                                                                                  \
    _Pragma("clang loop unroll(disable)") for (int i = 0; i < 50; ++i) asm volatile(                                   \
        HUNDRED("v_mfma_f32_16x16x16_f16 %0, %6, %6, %0\n" beside "v_mfma_f32_16x16x16_f16 %1, %6, %6, %1\n" beside) : \
        "+v"(c), "+v"(d), "+v"(x), "+v"(y), "+v"(z), "+v"(e) : "v"(a));                                                \
    out[lane()] = c[0] + d[0] + x + y + z + e;                                                                         \
  }
MATRIX(matrix_alone, "")
MATRIX(matrix_and_three, "v_add_f32 %2, %2, %2\n v_add_f32 %3, %3, %3\n v_add_f32 %4, %4, %4\n")
MATRIX(
    matrix_and_five,
    "v_add_f32 %2, %2, %2\n v_add_f32 %3, %3, %3\n v_add_f32 %4, %4, %4\n v_add_f32 %5, %5, %5\n v_mul_f32 %2, %2, %3\n")
MATRIX(matrix_and_exp, "v_exp_f32 %2, %3\n")

// 1000 LDS reads of four bytes, lanes `stride` dwords apart.
__global__ void lds_stride(unsigned* out, int stride) {
  __shared__ unsigned words[64 * 32];
  words[lane()] = lane();
  const unsigned at = static_cast<unsigned>(reinterpret_cast<unsigned long>(&words[0])) +
                      lane() % 64 * 4 * static_cast<unsigned>(stride);
  unsigned x = 0, y = 0;
  for (int i = 0; i < 100; ++i)
    asm volatile(TEN("ds_read_b32 %0, %2\n") "s_waitcnt lgkmcnt(0)" : "=&v"(x), "=&v"(y) : "v"(at) : "memory");
  out[lane()] = x + y;
}

// A stream: each work-item copies four dwords.
__global__ void stream(const Float4* in, Float4* out) {
  const unsigned i = __builtin_amdgcn_workgroup_id_x() * 256 + lane();
  out[i] = in[i];
}

// Blocks take turns: each waits for its number, idles for 4000 clk and says the next.
__global__ void turns(volatile unsigned* turn) {
  if (lane() == 0) {
    const unsigned mine = __builtin_amdgcn_workgroup_id_x();
    while (*turn != mine) __builtin_amdgcn_s_sleep(1);
    asm volatile(HUNDRED("s_nop 9\n"));
    *turn = mine + 1;
  }
}

// Blocks of more and more work.
__global__ void growing(unsigned* out) {
  const unsigned rounds = __builtin_amdgcn_workgroup_id_x() / 32;
  unsigned x = lane();
  _Pragma("clang loop unroll(disable)") for (unsigned i = 0; i < rounds;
                                             ++i) asm volatile(TEN("v_add_u32 %0, %0, %0\n") : "+v"(x));
  out[lane()] = x;
}

// Blocks from `valid` on leave at once, as those of MoE kernels beyond the tokens that are there.
__global__ void half_empty(float* p, unsigned valid, int rounds) {
  const unsigned block = __builtin_amdgcn_workgroup_id_x();
  if (block >= valid) return;
  float a = p[block];
  for (int i = 0; i < rounds; ++i) a = __builtin_fmaf(a, 1.0001f, p[(block * 64 + i) & 0xffff]);
  p[block] = a;
}

// Row y of blocks takes y + 1 times the work, as in causal attention.
__global__ void triangle(float* p, int rounds) {
  const int y = __builtin_amdgcn_workgroup_id_y();
  float a = p[y];
  for (int i = 0; i < rounds * (y + 1); ++i) a = __builtin_fmaf(a, 1.0001f, p[(y * 64 + i) & 0xffff]);
  p[y] = a;
}

// Of eight blocks in a row one works: that of one XCD.
__global__ void one_of_eight(float* p, unsigned which, int rounds) {
  const unsigned block = __builtin_amdgcn_workgroup_id_x();
  if (block % 8 != which) return;
  float a = p[block];
  for (int i = 0; i < rounds; ++i) a = __builtin_fmaf(a, 1.0001f, p[(block * 64 + i) & 0xffff]);
  p[block] = a;
}

// Blocks take tiles from a counter until there are no more.
__global__ void shared_counter(unsigned* counter, unsigned tiles) {
  __shared__ unsigned tile;
  for (;;) {
    __builtin_amdgcn_s_barrier();
    if (lane() == 0) tile = __atomic_fetch_add(counter, 1u, __ATOMIC_RELAXED);
    __builtin_amdgcn_s_barrier();
    if (tile >= tiles) return;
    asm volatile(HUNDRED("v_add_u32 %0, %0, %0\n") : : "v"(tile));
  }
}

// Each work-item writes a dword of its own, or adds to it.
__global__ void store_words(unsigned* out) { out[__builtin_amdgcn_workgroup_id_x() * 256 + lane()] = lane(); }
__global__ void add_words(unsigned* out) {
  __hip_atomic_fetch_add(out + __builtin_amdgcn_workgroup_id_x() * 256 + lane(), lane(), __ATOMIC_RELAXED,
                         __HIP_MEMORY_SCOPE_AGENT);
}
