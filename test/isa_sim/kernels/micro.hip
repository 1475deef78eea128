// SPDX-License-Identifier: MIT
// Conversions to and from floats of 8, 6 and 4 bits; gfx950 only, but for the stochastic ones of fp8.
#define __global__ extern "C" __attribute__((global))
#define __device__ __attribute__((device))

using u32 = unsigned;
template <class T, int n>
using Vector = T __attribute__((ext_vector_type(n)));
using Float2 = Vector<float, 2>;
using Half2 = Vector<_Float16, 2>;
using Bf16x2 = Vector<__bf16, 2>;
using Short2 = Vector<short, 2>;

__device__ inline u32 lane() { return __builtin_amdgcn_workitem_id_x(); }

__global__ void stochastic_fp8(const float* in, const u32* seed, u32* out) {
  u32 x = 0xdeadbeefu;
  x = static_cast<u32>(__builtin_amdgcn_cvt_sr_fp8_f32(in[lane()], seed[lane()], static_cast<int>(x), 2));
  out[lane()] = static_cast<u32>(__builtin_amdgcn_cvt_sr_bf8_f32(in[lane()], seed[lane()], static_cast<int>(x), 0));
}

#if defined(__gfx950__)
// out: 0 to 3 from fp8, 4 to 7 from bf8, 8 to 11 from fp4, as f32; 12, 13: bf16 and f16 pairs of fp8; 14, 15: of fp4;
// 16: one f32 of byte 3; 17: f16 of byte 2 in the upper half.
__global__ void decode_scaled(const u32* codes, const float* scales, u32* out) {
  const u32 x = codes[lane()];
  const float s = scales[lane()];
  u32* o = out + 18 * lane();
  const auto put = [o](int at, Float2 v) {
    reinterpret_cast<float*>(o)[at] = v[0];
    reinterpret_cast<float*>(o)[at + 1] = v[1];
  };
  put(0, __builtin_amdgcn_cvt_scalef32_pk_f32_fp8(x, s, false));
  put(2, __builtin_amdgcn_cvt_scalef32_pk_f32_fp8(x, s, true));
  put(4, __builtin_amdgcn_cvt_scalef32_pk_f32_bf8(x, s, false));
  put(6, __builtin_amdgcn_cvt_scalef32_pk_f32_bf8(x, s, true));
  put(8, __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(x, s, 1));
  put(10, __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(x, s, 3));
  o[12] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp8(x, s, true));
  o[13] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_f16_fp8(x, s, false));
  o[14] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(x, s, 2));
  o[15] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_f16_fp4(x, s, 0));
  o[16] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_f32_fp8(static_cast<int>(x), s, 3));
  o[17] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_f16_fp8(Half2{1, 1}, static_cast<int>(x), s, 2, true));
}

// out: 0 fp8 of f32 pairs in the upper half, 1 bf8 of f16, 2 fp8 of bf16, 3 fp4 in byte 2, 4 fp4 of f16 in byte 1,
// 5 stochastic fp8 in byte 1, 6 stochastic fp4 pair in byte 3, 7 stochastic bf16 upper and f16 lower.
__global__ void encode_scaled(const Float2* in, const float* scales, const u32* seeds, u32* out) {
  const Float2 x = in[lane()];
  const float s = scales[lane()];
  const u32 seed = seeds[lane()];
  const auto half = __builtin_convertvector(x, Half2);
  const auto bf16 = __builtin_convertvector(x, Bf16x2);
  u32* o = out + 8 * lane();
  const Short2 old = {0x1111, 0x2222};
  const u32 word = 0x44332211u;
  o[0] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_fp8_f32(old, x[0], x[1], s, true));
  o[1] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_bf8_f16(old, half, s, false));
  o[2] = __builtin_bit_cast(u32, __builtin_amdgcn_cvt_scalef32_pk_fp8_bf16(old, bf16, s, true));
  o[3] = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[0], x[1], s, 2);
  o[4] = __builtin_amdgcn_cvt_scalef32_pk_fp4_f16(word, half, s, 1);
  o[5] = static_cast<u32>(__builtin_amdgcn_cvt_scalef32_sr_fp8_f32(static_cast<int>(word), x[0], seed, s, 1));
  o[6] = __builtin_amdgcn_cvt_scalef32_sr_pk_fp4_f32(word, x, seed, s, 3);
  Half2 rounded = {1, 1};
  rounded = __builtin_amdgcn_cvt_sr_f16_f32(rounded, x[0], seed, false);
  Bf16x2 both = __builtin_bit_cast(Bf16x2, rounded);
  both = __builtin_amdgcn_cvt_sr_bf16_f32(both, x[1], seed, true);
  o[7] = __builtin_bit_cast(u32, both);
}

// 32 values to six bits and back.
using Float16s = Vector<float, 16>;
using Float32s = Vector<float, 32>;
using Words6 = Vector<u32, 6>;  // 8 in memory
__global__ void six_bits(const Float16s* in, float* scale, Words6* fp6, Words6* bf6, Float32s* back) {
  fp6[lane()] = __builtin_amdgcn_cvt_scalef32_2xpk16_fp6_f32(in[2 * lane()], in[2 * lane() + 1], scale[lane()]);
  bf6[lane()] = __builtin_amdgcn_cvt_scalef32_2xpk16_bf6_f32(in[2 * lane()], in[2 * lane() + 1], scale[lane()]);
  back[lane()] = __builtin_amdgcn_cvt_scalef32_pk32_f32_fp6(fp6[lane()], scale[lane()]);
}
#endif
