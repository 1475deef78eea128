// SPDX-License-Identifier: MIT
// Global accesses are single vector instructions, and bulk copies go into shared memory.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/window.hpp"

#if defined(__CUDACC__)

namespace tilewave::sm90 {

struct Accesses {
  template <class T>
  TILEWAVE_DEVICE static T load(const T* p) {
    return *p;
  }
  template <class T>
  TILEWAVE_DEVICE static void store(T* p, const T& value) {
    *p = value;
  }
};

/// The accesses of windows that stream rows in and out. On an H200 with whole rows it is best to evict read data last
/// and to store plainly, so that L2 writes back early and evenly. Plain loads are 3 % slower, and loads without
/// allocation in L1, which attention wants, 8 % (docs/notebook/2026-11-21-rows.md). They are volatile, so that
/// prefetches stay where the kernel put them.
struct WindowAccesses : Accesses {
  TILEWAVE_DEVICE static Chunk load_stream(const Chunk* p) {
    Chunk c;
    std::uint64_t evict_last;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(evict_last));
    asm volatile("ld.global.L1::evict_last.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "l"(p), "l"(evict_last));
    return c;
  }
  TILEWAVE_DEVICE static void store_stream(Chunk* p, const Chunk& c) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
                 : "memory");
  }
};

struct Memory : Accesses {
  template <bool uniform>
  using Window = CheckedWindow<WindowAccesses>;

  /// Reads read-only data that is not kept in L1. It is volatile, so that prefetches stay where the kernel put them.
  TILEWAVE_DEVICE static Chunk load_stream(const Chunk* p) {
    Chunk c;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "l"(p));
    return c;
  }
  /// The same where a wave has half a line of each row: L2 brings all of it. Weights under few rows come 2 to 3 %
  /// sooner than without, and than by 256 bytes (docs/notebook/2026-11-28-gemm-few-rows-of-16-bits.md).
  TILEWAVE_DEVICE static Chunk load_stream_line(const Chunk* p) {
    Chunk c;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "l"(p));
    return c;
  }
  /// cs means "evict first": data that is written once does not push out data that is read again.
  TILEWAVE_DEVICE static void store_stream(Chunk* p, const Chunk& c) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
                 : "memory");
  }

  TILEWAVE_DEVICE static void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
  TILEWAVE_DEVICE static void prefetch(const void* p, std::uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
  }
  TILEWAVE_DEVICE static void copy_bulk(void* shared, const void* global, std::uint32_t bytes,
                                        std::uint64_t* mbarrier) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    const auto done = static_cast<std::uint32_t>(__cvta_generic_to_shared(mbarrier));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(global), "r"(bytes), "r"(done)
                 : "memory");
  }
  /// This is cp.async. Copies of 16 bytes, which stream by, are not kept in L1.
  template <class T>
  TILEWAVE_DEVICE static void copy_lane(T* shared, const T* global) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 16, "cp.async copies 4 or 16 bytes for a lane");
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    if constexpr (sizeof(T) == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
    }
  }
  TILEWAVE_DEVICE static void lane_copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int pending>
  TILEWAVE_DEVICE static void lane_copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
  }
  TILEWAVE_DEVICE static Chunk load_matrices_transposed(const Chunk* row) {
    Chunk c;
    const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "r"(from)
                 : "memory");
    return c;
  }
  TILEWAVE_DEVICE static Chunk load_matrices(const Chunk* row) {
    Chunk c;
    const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
                 : "r"(from)
                 : "memory");
    return c;
  }
};

}  // namespace tilewave::sm90

#endif
