// SPDX-License-Identifier: MIT
// Small kernels whose results the test knows. No HIP headers: the two attributes below are all they need.
#define __global__ extern "C" __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

#include "arithmetic.hpp"

using Float2 = float __attribute__((ext_vector_type(2)));
using Float4 = float __attribute__((ext_vector_type(4)));
using Float16s = float __attribute__((ext_vector_type(16)));
using Short4 = short __attribute__((ext_vector_type(4)));
using Half2 = _Float16 __attribute__((ext_vector_type(2)));
using Bf16x2 = __bf16 __attribute__((ext_vector_type(2)));
using Bf16x8 = __bf16 __attribute__((ext_vector_type(8)));

__device__ inline int lane() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
__device__ inline void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = static_cast<int>(__builtin_amdgcn_workgroup_id_x()) * 256 + lane();
  if (i < n) c[i] = a[i] + b[i];
}

// Addresses that are known once the code object is loaded.
__attribute__((constant)) const int ones[2] = {1, 11}, tens[2] = {10, 110};
__attribute__((constant)) const int* const tables[2] = {ones, tens + 1};
__global__ void pointers(int* out, int first) { out[lane()] = *tables[(lane() + first) & 1]; }

// Block (x, y) of a 3-D grid with 3-D work-item ids.
__global__ void ids(u32* out) {
  const u32 x = __builtin_amdgcn_workitem_id_x(), y = __builtin_amdgcn_workitem_id_y(),
            z = __builtin_amdgcn_workitem_id_z();
  const u32 block = (__builtin_amdgcn_workgroup_id_z() * 3 + __builtin_amdgcn_workgroup_id_y()) * 2 +
                    __builtin_amdgcn_workgroup_id_x();
  out[block * 240 + (z * 5 + y) * 16 + x] = block << 24 | z << 16 | y << 8 | x;
}

// 16 x 16 floats through LDS; four waves, so the barrier matters.
__global__ void transpose(const float* in, float* out) {
  __shared__ float tile[16][17];
  tile[lane() / 16][lane() % 16] = in[lane()];
  barrier();
  out[lane()] = tile[lane() % 16][lane() / 16];
}

__global__ void lane_exchanges(const u32* in, u32* out) {
  const int x = static_cast<int>(in[lane()]);
  const auto put = [&](int row, int value) { out[row * 64 + lane()] = static_cast<u32>(value); };
  put(0, __builtin_amdgcn_ds_bpermute((lane() ^ 21) * 4, x));
  put(1, __builtin_amdgcn_ds_permute((lane() * 5 % 64) * 4, x));
  put(2, __builtin_amdgcn_update_dpp(-1, x, 0x1b, 0xf, 0xf, false));    // quad_perm:[3,2,1,0]
  put(3, __builtin_amdgcn_update_dpp(-1, x, 0x113, 0xf, 0xf, false));   // row_shr:3
  put(4, __builtin_amdgcn_update_dpp(-1, x, 0x102, 0xf, 0xf, true));    // row_shl:2, zero beyond the row
  put(5, __builtin_amdgcn_update_dpp(-1, x, 0x125, 0xf, 0xf, false));   // row_ror:5
  put(6, __builtin_amdgcn_update_dpp(-1, x, 0x140, 0xf, 0xf, false));   // row_mirror
  put(7, __builtin_amdgcn_update_dpp(-1, x, 0x141, 0xf, 0xf, false));   // row_half_mirror
  put(8, __builtin_amdgcn_update_dpp(-1, x, 0x142, 0xf, 0xf, false));   // row_bcast:15
  put(9, __builtin_amdgcn_update_dpp(-1, x, 0x143, 0xf, 0xf, false));   // row_bcast:31
  put(10, __builtin_amdgcn_update_dpp(-1, x, 0x157, 0xf, 0xf, false));  // row_newbcast:7
  put(11, __builtin_amdgcn_update_dpp(-1, x, 0x111, 0xa, 0x5, false));  // row_shr:1, two rows, two banks
  put(12, __builtin_amdgcn_ds_swizzle(x, 0x041f));                      // xor 1
  put(13, __builtin_amdgcn_ds_swizzle(x, 0x80b1));                      // quads 1,0,3,2
  put(14, __builtin_amdgcn_readlane(x, 37));
  int written = x;
  asm("v_writelane_b32 %0, %1, 12" : "+v"(written) : "s"(99));
  put(15, written);
  put(16, static_cast<int>(__builtin_amdgcn_mbcnt_hi(0x0f0f0f0fu, __builtin_amdgcn_mbcnt_lo(0xffff0000u, 0))));
  int divergent = -7;
  if (lane() % 3) divergent = __builtin_amdgcn_ds_bpermute((lane() + 1) * 4, x) + __builtin_amdgcn_readfirstlane(x);
  put(17, divergent);
  int masked = -7;
  if (lane() % 3) masked = __builtin_amdgcn_update_dpp(-9, x, 0x111, 0xf, 0xf, false);  // row_shr:1
  put(18, masked);
  if (lane() % 3) masked = __builtin_popcountll(__builtin_amdgcn_ballot_w64((x & 4) != 0));
  put(19, masked);
  put(20, static_cast<int>(__builtin_amdgcn_perm(in[lane()], in[lane() ^ 1], 0x0d0c0107)));
  put(21, static_cast<int>(__builtin_amdgcn_perm(in[lane()], in[lane() ^ 1], 0x080a0b09)));
  if (lane() % 3) masked = __builtin_amdgcn_update_dpp(-9, x, 0x111, 0xf, 0xf, true);
  put(26, masked);
#if defined(__gfx950__)
  const auto wide = __builtin_amdgcn_permlane32_swap(x, -x, false, false);
  put(22, static_cast<int>(wide[0]));
  put(23, static_cast<int>(wide[1]));
  const auto half = __builtin_amdgcn_permlane16_swap(x, -x, false, false);
  put(24, static_cast<int>(half[0]));
  put(25, static_cast<int>(half[1]));
  const int other = static_cast<int>(in[lane() ^ 1]);
  int high = x;
  asm("v_bitop3_b16 %0, %1, %2, %3 bitop3:0x6c op_sel:[1,0,0,1]" : "+v"(high) : "v"(x), "v"(other), "v"(~x * 5));
  put(27, high);
#endif
}

// Every fp8 code, decoded one at a time from each byte of a word and in pairs.
__global__ void fp8_decode(const int* words, float* out) {
  const int word = words[lane()];
  out[lane() * 8 + 0] = __builtin_amdgcn_cvt_f32_fp8(word, 0);
  out[lane() * 8 + 1] = __builtin_amdgcn_cvt_f32_fp8(word, 1);
  out[lane() * 8 + 2] = __builtin_amdgcn_cvt_f32_fp8(word, 2);
  out[lane() * 8 + 3] = __builtin_amdgcn_cvt_f32_fp8(word, 3);
  const Float2 low = __builtin_amdgcn_cvt_pk_f32_fp8(word, false), high = __builtin_amdgcn_cvt_pk_f32_fp8(word, true);
  out[lane() * 8 + 4] = low[0];
  out[lane() * 8 + 5] = low[1];
  out[lane() * 8 + 6] = high[0];
  out[lane() * 8 + 7] = high[1];
}
__global__ void fp8_encode(const Float4* in, u32* out) {
  const Float4 x = in[lane()];
  int word = __builtin_amdgcn_cvt_pk_fp8_f32(x[0], x[1], 0, false);
  word = __builtin_amdgcn_cvt_pk_fp8_f32(x[2], x[3], word, true);
  out[lane()] = static_cast<u32>(word);
}
__global__ void bf16_round(const Float2* in, u32* out) {
  out[lane()] = __builtin_bit_cast(u32, __builtin_convertvector(in[lane()], Bf16x2));
}

// Through v_pack_b32_f16 or v_cvt_pk_f16_f32, low half first and high half first; and back.
__global__ void f16_round(const Float2* in, u32* out, u32* swapped, Float2* widened) {
  const Float2 x = in[lane()];
  const Half2 pair = __builtin_convertvector(x, Half2);
  out[lane()] = __builtin_bit_cast(u32, pair);
  swapped[lane()] = __builtin_bit_cast(u32, Half2{pair[1], pair[0]});
  widened[lane()] = __builtin_convertvector(pair, Float2);
}

// The room's chained atom: each lane's registers as they are, so that the test applies the lane maps.
__global__ void mfma_atom(const void* a, const void* b, const Float4* c, Float4* out) {
#if defined(__gfx950__)
  const auto* pa = static_cast<const Bf16x8*>(a);
  const auto* pb = static_cast<const Bf16x8*>(b);
  out[lane()] = __builtin_amdgcn_mfma_f32_16x16x32_bf16(pa[lane()], pb[lane()], c[lane()], 0, 0, 0);
#else
  const auto* pa = static_cast<const Short4*>(a);
  const auto* pb = static_cast<const Short4*>(b);
  out[lane()] = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(pa[lane()], pb[lane()], c[lane()], 0, 0, 0);
#endif
}
__global__ void mfma_32x32x8(const Short4* a, const Short4* b, const Float16s* c, Float16s* out) {
  out[lane()] = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a[lane()], b[lane()], c[lane()], 0, 0, 0);
}
__global__ void mfma_fp8(const long* a, const long* b, const Float4* c, Float4* out) {
  out[lane()] = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a[lane()], b[lane()], c[lane()], 0, 0, 0);
}

__global__ void arithmetic(const u32* in, u64* out) {
  const int i = static_cast<int>(__builtin_amdgcn_workgroup_id_x()) * 64 + lane();
  const u32 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  const float x = __builtin_bit_cast(float, a), y = __builtin_bit_cast(float, b), z = __builtin_bit_cast(float, c);
  u64* o = out + 6 * i;
  o[0] = integers(a, b, c);
  o[1] = wide_integers(u64{a} << 32 | b, u64{c} << 32 | a, b);
  o[2] = floats(x, y, z);
  o[3] = doubles(x, y, z);
  o[4] = halves(x, y);
  o[5] = divergent(a, b);
}
// The same on values that all lanes share: scalar instructions.
__global__ void scalar_arithmetic(const u32* in, u64* out) {
  const u32 i = __builtin_amdgcn_workgroup_id_x();
  const u32 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  out[3 * i] = integers(a, b, c);
  out[3 * i + 1] = wide_integers(u64{a} << 32 | b, u64{c} << 32 | a, b);
  out[3 * i + 2] = divergent(a, b);
}

// The carry of a shift and add, which the compiler never reads.
__global__ void shift_add_carries(const u32* in, u32* out) {
  const u32 a = in[2 * __builtin_amdgcn_workgroup_id_x()], b = in[2 * __builtin_amdgcn_workgroup_id_x() + 1];
  u32 one, three;
  asm("s_lshl1_add_u32 %0, %1, %2\n s_cselect_b32 %0, 1, 0" : "=&s"(one) : "s"(a), "s"(b) : "scc");
  asm("s_lshl3_add_u32 %0, %1, %2\n s_cselect_b32 %0, 1, 0" : "=&s"(three) : "s"(a), "s"(b) : "scc");
  out[__builtin_amdgcn_workgroup_id_x()] = one + 2 * three;
}

__global__ void exponentials(const float* in, float* out) {
  const float x = in[lane()];
  out[lane() * 4 + 0] = __builtin_amdgcn_exp2f(x);
  out[lane() * 4 + 1] = __builtin_amdgcn_logf(__builtin_fabsf(x));
  out[lane() * 4 + 2] = __builtin_amdgcn_rcpf(x);
  out[lane() * 4 + 3] = __builtin_amdgcn_rsqf(__builtin_fabsf(x));
}

// Denormal operands and results in ordinary arithmetic; the mode comes from the compiler's flags.
__global__ void denormals(const float* in, float* out) {
  out[lane()] = in[lane()] * 0.5f;
  out[64 + lane()] = in[lane()] + in[lane()];
}

// Every width of load and store, narrow ones into halves of registers, and packed f32 arithmetic.
__global__ void widths(const unsigned char* in, unsigned char* out) {
  const int i = lane();
  out[i] = static_cast<unsigned char>(in[i] + 1);
  reinterpret_cast<short*>(out + 64)[i] = static_cast<short>(reinterpret_cast<const signed char*>(in)[i] - 300);
  reinterpret_cast<unsigned short*>(out + 192)[i] =
      static_cast<unsigned short>(reinterpret_cast<const unsigned short*>(in)[i] ^ 0x5a5a);
  reinterpret_cast<Float2*>(out + 320)[i] = reinterpret_cast<const Float2*>(in)[i] * 3.0f;
  reinterpret_cast<Float4*>(out + 832)[i] = reinterpret_cast<const Float4*>(in)[i] + 1.0f;
}

// Offsets in front of and behind a pointer, and LDS in pairs that are a word or 64 elements apart.
__global__ void offsets(const u32* in, u32* out, int n) {
  const u32* middle = in + n;
  __shared__ u32 words[64 * 3 + 1];
  __shared__ u64 wide[64 * 4];
  words[lane() * 3 + 1] = middle[lane() - 7];
  words[lane() * 3 + 2] = middle[lane() + 9];
  for (int i = 0; i < 4; ++i) wide[lane() + 64 * i] = u64{in[lane()]} * 0x100000001u + static_cast<u32>(i);
  barrier();
  out[lane()] = words[(lane() ^ 1) * 3 + 1] * 3 + words[(lane() ^ 1) * 3 + 2];
  out[64 + lane()] = static_cast<u32>(wide[63 - lane()] >> 32) + static_cast<u32>(wide[63 - lane() + 64] * 5) +
                     static_cast<u32>(wide[63 - lane() + 192] * 7);
}

// A private array with run-time indices lives in scratch memory.
__global__ void scratch(const u32* in, u32* out) {
  volatile u32 mine[24];
  for (int i = 0; i < 24; ++i) mine[i] = in[lane()] + static_cast<u32>(i);
  u32 sum = 0;
  for (int i = 0; i < 24; ++i) sum = sum * 3 + mine[(in[lane()] + static_cast<u32>(i) * 5) % 24];
  out[lane()] = sum;
}

__global__ void atomics(u32* counters, u32* old) {
  __shared__ u32 shared_count;
  if (lane() == 0) shared_count = 0;
  barrier();
  __hip_atomic_fetch_add(&shared_count, static_cast<u32>(lane()), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  barrier();
  old[__builtin_amdgcn_workgroup_id_x() * 128 + lane()] =
      __hip_atomic_fetch_add(counters + lane() % 4, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) + shared_count;
  __hip_atomic_fetch_max(counters + 4, static_cast<u32>(lane()), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
