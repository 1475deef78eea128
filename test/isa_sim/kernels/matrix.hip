// SPDX-License-Identifier: MIT
// Every matrix instruction once: each lane's registers as they are, so that the test applies the lane maps.
#define __global__ extern "C" __attribute__((global))
#define __device__ __attribute__((device))

template <class T, int n>
using Vector = T __attribute__((ext_vector_type(n)));

__device__ inline int lane() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }

// TILE(name, A and B of a lane, C and D of a lane): D = A B + C
#define TILE(name, AB, CD)                                             \
  __global__ void name(const AB* a, const AB* b, const CD* c, CD* d) { \
    const int l = lane();                                              \
    d[l] = __builtin_amdgcn_mfma_##name(a[l], b[l], c[l], 0, 0, 0);    \
  }
using Half4 = Vector<_Float16, 4>;
using Half8 = Vector<_Float16, 8>;
using Short4 = Vector<short, 4>;
using Bf16x8 = Vector<__bf16, 8>;
using Int4 = Vector<int, 4>;
using Int8 = Vector<int, 8>;
using Float4 = Vector<float, 4>;
using Float16s = Vector<float, 16>;
using Float32s = Vector<float, 32>;
using Int16s = Vector<int, 16>;
using Int32s = Vector<int, 32>;
using Double4 = Vector<double, 4>;

TILE(f32_16x16x16bf16_1k, Short4, Float4)
TILE(f32_32x32x8bf16_1k, Short4, Float16s)
TILE(f32_32x32x4bf16_1k, Short4, Float32s)
TILE(f32_16x16x4bf16_1k, Short4, Float16s)
TILE(f32_4x4x4bf16_1k, Short4, Float4)
TILE(f32_16x16x16f16, Half4, Float4)
TILE(f32_32x32x8f16, Half4, Float16s)
TILE(f32_32x32x4f16, Half4, Float32s)
TILE(f32_16x16x4f16, Half4, Float16s)
TILE(f32_4x4x4f16, Half4, Float4)
TILE(f32_16x16x4f32, float, Float4)
TILE(f32_32x32x2f32, float, Float16s)
TILE(f32_32x32x1f32, float, Float32s)
TILE(f32_16x16x1f32, float, Float16s)
TILE(f32_4x4x1f32, float, Float4)
TILE(f64_16x16x4f64, double, Double4)
TILE(f64_4x4x4f64, double, double)
TILE(i32_16x16x32_i8, long, Int4)
TILE(i32_32x32x16_i8, long, Int16s)
TILE(i32_32x32x4i8, int, Int32s)
TILE(i32_16x16x4i8, int, Int16s)
TILE(i32_4x4x4i8, int, Int4)
TILE(f32_16x16x32_fp8_fp8, long, Float4)
TILE(f32_16x16x32_fp8_bf8, long, Float4)
TILE(f32_16x16x32_bf8_fp8, long, Float4)
TILE(f32_32x32x16_fp8_fp8, long, Float16s)
TILE(f32_32x32x16_bf8_bf8, long, Float16s)

// A has two of every four values of a row; `set` is the one of the index register's sets that counts.
#define SPARSE(name, A, B, CD, set)                                                                     \
  __global__ void sparse_##name##_##set(const A* a, const B* b, const CD* c, CD* d, const int* index) { \
    const int l = lane();                                                                               \
    d[l] = __builtin_amdgcn_smfmac_##name(a[l], b[l], c[l], index[l], 0, set);                          \
  }
using Int2 = Vector<int, 2>;
using Short8 = Vector<short, 8>;
SPARSE(f32_16x16x32_f16, Half4, Half8, Float4, 0)
SPARSE(f32_16x16x32_f16, Half4, Half8, Float4, 3)
SPARSE(f32_32x32x16_f16, Half4, Half8, Float16s, 1)
SPARSE(f32_16x16x32_bf16, Short4, Short8, Float4, 2)
SPARSE(f32_32x32x16_bf16, Short4, Short8, Float16s, 0)
SPARSE(i32_16x16x64_i8, Int2, Int4, Int4, 1)
SPARSE(i32_32x32x32_i8, Int2, Int4, Int16s, 0)
SPARSE(f32_16x16x64_fp8_bf8, Int2, Int4, Float4, 1)
SPARSE(f32_32x32x32_bf8_bf8, Int2, Int4, Float16s, 0)

#if defined(__gfx950__)
TILE(f32_16x16x32_bf16, Bf16x8, Float4)
TILE(f32_32x32x16_bf16, Bf16x8, Float16s)
TILE(f32_16x16x32_f16, Half8, Float4)
TILE(f32_32x32x16_f16, Half8, Float16s)
TILE(i32_16x16x64_i8, Int4, Int4)
TILE(i32_32x32x32_i8, Int4, Int16s)

// Formats of A and B, which byte of each lane's scale word counts, and the form without scales.
#define SCALED(name, shape, CD, fa, fb, sa, sb)                                                                        \
  __global__ void scaled_##name(const Int8* a, const Int8* b, const CD* c, CD* d, const int* scales) {                 \
    const int l = lane();                                                                                              \
    d[l] =                                                                                                             \
        __builtin_amdgcn_mfma_scale_f32_##shape##_f8f6f4(a[l], b[l], c[l], fa, fb, sa, scales[l], sb, scales[64 + l]); \
  }                                                                                                                    \
  __global__ void plain_##name(const Int8* a, const Int8* b, const CD* c, CD* d) {                                     \
    const int l = lane();                                                                                              \
    d[l] = __builtin_amdgcn_mfma_scale_f32_##shape##_f8f6f4(a[l], b[l], c[l], fa, fb, 0, 0, 0, 0);                     \
  }
SCALED(16_00, 16x16x128, Float4, 0, 0, 0, 3)
SCALED(16_14, 16x16x128, Float4, 1, 4, 1, 2)
SCALED(16_23, 16x16x128, Float4, 2, 3, 2, 1)
SCALED(16_44, 16x16x128, Float4, 4, 4, 3, 0)
SCALED(32_01, 32x32x64, Float16s, 0, 1, 0, 1)
SCALED(32_42, 32x32x64, Float16s, 4, 2, 2, 2)
SCALED(32_30, 32x32x64, Float16s, 3, 0, 3, 3)
#endif
