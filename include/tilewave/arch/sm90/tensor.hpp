// SPDX-License-Identifier: MIT
// The tensor copy engine and products of swizzled operands (TensorBackend).
#pragma once

#include <initializer_list>

#include "tilewave/arch/sm90/product.hpp"
#include "tilewave/core/hip.hpp"

#if defined(__CUDACC__)

#include <cuda.h>

namespace tilewave::sm90 {

struct Tensor {
  using TensorMap = CUtensorMap;

  /// This touches no device, since a map is 128 bytes of numbers.
  static Status make_tensor_map(const TensorShape& s, TensorMap& map) {
    const auto encode = encoder();
    if (encode == nullptr) return {StatusCode::launch_failed, "the driver does not offer cuTensorMapEncodeTiled"};
    if (reinterpret_cast<std::uintptr_t>(s.data) % 16 != 0)
      return {StatusCode::misaligned, "a tensor copy needs 16-byte alignment"};
    if (s.row_stride % 16 != 0 || s.layer_stride % 16 != 0 || s.row_stride >> 40 != 0 || s.layer_stride >> 40 != 0)
      return {StatusCode::bad_stride, "a tensor copy needs strides that are multiples of 16 bytes, below 2^40"};
    if (s.straight && size_of(s.type) != 1) return {StatusCode::unsupported_dtype, "a straight box is of bytes"};
    if (s.side_by_side > 0 && (s.straight || s.rows % 8 != 0 || s.box_rows % 8 != 0 || s.box_layers != 1 ||
                               s.columns * size_of(s.type) % 128 != 0))
      return {StatusCode::bad_extent, "boxes side by side have whole rows, and groups of eight, of tensors of such"};
    const int columns = s.box_bytes() / size_of(s.type);
    const auto encoded = [&](std::initializer_list<cuuint64_t> extents, std::initializer_list<cuuint64_t> strides,
                             std::initializer_list<cuuint32_t> box) {
      const cuuint32_t steps[] = {1, 1, 1, 1, 1};
      return encode(
          &map, map_type(s.type), cuuint32_t(extents.size()), const_cast<void*>(s.data), extents.begin(),
          strides.begin(), box.begin(), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
          s.straight ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
          // Where L2 asks memory for 256 bytes at a time, decode attention takes 5 % longer and products of few
          // rows 1 to 4 % (docs/notebook/2026-11-28-step-squares.md).
          s.once ? CU_TENSOR_MAP_L2_PROMOTION_NONE : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    };
    const auto whole = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
    const auto part = [](int n) { return static_cast<cuuint32_t>(n); };
    const CUresult result =
        s.side_by_side > 0
            ? encoded({whole(columns), 8, whole(ceil_div<std::int64_t>(s.columns, columns)), whole(s.rows / 8),
                       whole(s.layers)},
                      {whole(s.row_stride), 128, whole(s.row_stride * 8), whole(s.layer_stride)},
                      {part(columns), 8, part(s.side_by_side), part(s.box_rows / 8), 1})
            : encoded({whole(s.columns), whole(s.rows), whole(s.layers)}, {whole(s.row_stride), whole(s.layer_stride)},
                      {part(columns), part(s.box_rows), part(s.box_layers)});
    if (result != CUDA_SUCCESS) return {StatusCode::bad_extent, "the driver refuses the tensor's extents"};
    return {};
  }

  /// ptxas knows that what stands behind elect.sync is one lane's. Behind lane_id() == 0 it puts a loop over lanes
  /// around each tensor copy, whose operands are scalar registers.
  TILEWAVE_DEVICE static bool elected() {
    std::uint32_t is;
    asm volatile(
        "{ .reg .pred is;\n"
        "  elect.sync _|is, 0xffffffff;\n"
        "  selp.u32 %0, 1, 0, is; }"
        : "=r"(is));
    return is != 0;
  }
  TILEWAVE_DEVICE static void prefetch_map(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  }
  TILEWAVE_DEVICE static void copy_tensor(void* shared, const TensorMap& map, int column, int row, int layer,
                                          std::uint64_t* mbarrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(shared_at(shared)),
        "l"(&map), "r"(shared_at(mbarrier)), "r"(column), "r"(row), "r"(layer)
        : "memory");
  }
  TILEWAVE_DEVICE static void copy_tensor_once(void* shared, const TensorMap& map, int column, int row, int layer,
                                               std::uint64_t* mbarrier) {
    asm volatile(
        "{ .reg .b64 evict_first;\n"
        "  createpolicy.fractional.L2::evict_first.b64 evict_first, 1.0;\n"
        "  cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%3, %4, %5}], [%2], evict_first; }" ::"r"(shared_at(shared)),
        "l"(&map), "r"(shared_at(mbarrier)), "r"(column), "r"(row), "r"(layer)
        : "memory");
  }
  TILEWAVE_DEVICE static void copy_side_by_side(void* shared, const TensorMap& map, int row, int layer,
                                                std::uint64_t* mbarrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%5, %5, %5, %3, "
        "%4}], [%2];" ::"r"(shared_at(shared)),
        "l"(&map), "r"(shared_at(mbarrier)), "r"(row / 8), "r"(layer), "r"(0)
        : "memory");
  }
  TILEWAVE_DEVICE static void copy_tensor(void* shared, const TensorMap& map, int column, int row, int layer,
                                          std::uint64_t* mbarrier, std::uint32_t blocks) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_at(shared)),
        "l"(&map), "r"(shared_at(mbarrier)), "r"(column), "r"(row), "r"(layer), "h"(std::uint16_t(blocks))
        : "memory");
  }
  TILEWAVE_DEVICE static void store_tensor(const TensorMap& map, int column, int row, int layer, const void* shared) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                 "r"(shared_at(shared)), "r"(column), "r"(row), "r"(layer)
                 : "memory");
  }
  TILEWAVE_DEVICE static void stores_end() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
  template <int pending>
  TILEWAVE_DEVICE static void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
  }

  TILEWAVE_DEVICE static std::uint32_t take_number(std::uint32_t* word, std::uint32_t last) {
    return atomicInc(word, last);
  }

  template <DType type, int columns, class A = SwizzledOperand, class B = SwizzledOperand>
  TILEWAVE_DEVICE static void group_multiply(A a, B b, Vec<ProductSum<type>, columns / 2>& acc, bool add) {
    constexpr bool a_transposed = std::is_same_v<A, TransposedOperand>,
                   b_transposed = std::is_same_v<B, TransposedOperand>;
    static_assert(!b_transposed || columns % 64 == 0, "a transposed b lies in whole boxes of 64 columns");
    if constexpr (type == DType::i8) {
      multiply_group_of_ints<columns>(descriptor(a), descriptor(b), add, acc);
    } else {
      multiply_group<type, columns, a_transposed, b_transposed>(descriptor(a), descriptor(b), add, acc);
    }
  }

  template <DType type, int columns, bool add = true>
  TILEWAVE_DEVICE static void group_multiply(const Chunk& a, SwizzledOperand b, auto& acc) {
    multiply_registers<type, columns, false, add>(a, descriptor(b), acc);
  }
  template <DType type, int columns, bool add = true>
  TILEWAVE_DEVICE static void group_multiply(const Chunk& a, TransposedOperand b, Vec<float, columns / 2>& acc) {
    static_assert(columns % 64 == 0, "a transposed b lies in whole boxes of 64 columns");
    multiply_registers<type, columns, true, add>(a, descriptor(b), acc);
  }

  template <int count>
  TILEWAVE_DEVICE static void store_matrices_straight(Chunk* row, const Vec<std::uint32_t, count>& words) {
    static_assert(count == 4, "boxes are written four matrices at a time");
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_at(row)),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  template <int n>
  TILEWAVE_DEVICE static void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
  }
  template <int n>
  TILEWAVE_DEVICE static void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
  }

 private:
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  /// The function comes through the runtime, so that nobody has to link the driver's library.
  static Encode encoder() {
    static const Encode encode = [] {
      void* found = nullptr;
      cudaDriverEntryPointQueryResult result;
      if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result) !=
              cudaSuccess ||
          result != cudaDriverEntryPointSuccess) {
        found = nullptr;
      }
      return reinterpret_cast<Encode>(found);
    }();
    return encode;
  }
  static constexpr CUtensorMapDataType map_type(DType t) {
    return t == DType::bf16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
           : t == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
           : t == DType::f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                             : CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }

  TILEWAVE_DEVICE static std::uint32_t shared_at(const void* p) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
  }
  TILEWAVE_DEVICE static std::uint64_t descriptor(GroupOperand m) { return group_descriptor(m); }
  /// The layout is k-major with the swizzle of 128 bytes: the stride is from one group of eight rows to the next.
  TILEWAVE_DEVICE static std::uint64_t descriptor(SwizzledOperand m) {
    constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
    const std::uint64_t eight_rows = std::uint64_t(m.eight_rows >> 4) << 32;
    const std::uint32_t at = (shared_at(m.at) & 0x3ffff) >> 4;
    return swizzle_128 | eight_rows | (at + m.row / 8 * (m.eight_rows >> 4) + m.k_slice * 2);
  }
  /// The layout is MN-major with the same swizzle: the stride is from eight k to the next. The leading dimension is the
  /// distance of two groups of 64 rows.
  TILEWAVE_DEVICE static std::uint64_t descriptor(TransposedOperand m) {
    constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
    const std::uint64_t eight_k = std::uint64_t(m.eight_k >> 4) << 32;
    const std::uint32_t at = (shared_at(m.at) & 0x3ffff) >> 4, box = m.box_k * 8;
    return swizzle_128 | eight_k | box << 16 | (at + m.row / 64 * box + m.k_slice * 2 * (m.eight_k >> 4));
  }
};

}  // namespace tilewave::sm90

#endif
