// SPDX-License-Identifier: MIT
// Buffers, copies into LDS and barriers of LdsBackend that both CDNA rooms share.
#pragma once

#include "tilewave/arch/gfx9/memory.hpp"
#include "tilewave/arch/lds.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

struct Source {
  static constexpr std::uint32_t nowhere = 1u << 31;
  using Words = std::uint32_t __attribute__((ext_vector_type(4)));
  const void* base;
  std::uint32_t bytes;

  TILEWAVE_DEVICE Chunk load(std::uint32_t lane_offset, std::int32_t offset) const {
    const auto resource = __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, bytes, format);
    return __builtin_bit_cast(Chunk, __builtin_amdgcn_raw_buffer_load_b128(resource, lane_offset, offset, 0));
  }

  TILEWAVE_DEVICE std::uint32_t load_word(std::uint32_t lane_offset, std::int32_t offset) const {
    const auto resource = __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, bytes, format);
    return __builtin_amdgcn_raw_buffer_load_b32(resource, lane_offset, offset, 0);
  }
  TILEWAVE_DEVICE Vec<std::uint32_t, 2> load_two_words(std::uint32_t lane_offset, std::int32_t offset) const {
    const auto resource = __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, bytes, format);
    const auto two = __builtin_amdgcn_raw_buffer_load_b64(resource, lane_offset, offset, 0);
    return {{two[0], two[1]}};
  }
  TILEWAVE_DEVICE Vec<Chunk, 2> load_sixes(std::uint32_t lane_offset, std::int32_t offset) const {
    const auto resource = __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, bytes, format);
    const auto last = __builtin_amdgcn_raw_buffer_load_b64(resource, lane_offset + 16, offset, 0);
    return {{load(lane_offset, offset), Chunk{{last[0], last[1], 0, 0}}}};
  }

  // This is not a builtin, because clang waits for all of their copies before any read of LDS. It has no memory
  // clobber, because lds_barrier orders copies with reads. M0 holds the target; writing it needs one wait state before
  // a copy reads it (LLVM, GCNSubtarget::hasReadM0LdsDmaHazard).
  TILEWAVE_DEVICE void copy(void* shared, std::uint32_t lane_offset, std::int32_t offset) const {
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tbuffer_load_dwordx4 %1, %2, %3 offen lds"
                 :
                 : "s"(in_lds(shared)), "v"(lane_offset), "s"(words()), "s"(offset));
  }
  /// An offset of the instruction counts in memory and in LDS alike.
  template <int both = 0>
  TILEWAVE_DEVICE void copy_word(void* shared, std::uint32_t lane_offset, std::int32_t offset) const {
    static_assert(both >= 0 && both < 4096, "an instruction has 12 bits of offset");
    asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tbuffer_load_dword %1, %2, %3 offen offset:%4 lds"
                 :
                 : "s"(in_lds(shared)), "v"(lane_offset), "s"(words()), "s"(offset), "n"(both));
  }

 private:
  static constexpr int format = 0x20000;  // the descriptor's word 3, as in window.hpp
  /// A flat address of LDS has the aperture in its high half (LLVM, User Guide for AMDGPU Backend, "Address Spaces").
  /// A cast to LDS's own address space would compare with null each time.
  TILEWAVE_DEVICE static std::uint32_t in_lds(void* shared) {
    return __builtin_amdgcn_readfirstlane(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(shared)));
  }
  TILEWAVE_DEVICE Words words() const {
    const auto at = reinterpret_cast<std::uintptr_t>(base);
    return Words{static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32) & 0xffffu, bytes, format};
  }
};

struct Lds {
  using Source = gfx9::Source;

  template <int pending>
  TILEWAVE_DEVICE static void copies_wait() {
    static_assert(pending >= 0 && pending < 64, "vmcnt counts at most 63 copies under way");
    asm volatile("s_waitcnt vmcnt(%0)" ::"n"(pending) : "memory");
  }
  /// LLVM knows of this wait, and so asks for none where it uses what was loaded before.
  TILEWAVE_DEVICE static void loads_wait() {
    constexpr int vmcnt_0 = 0x0f70;  // all other counters have their largest value
    __builtin_amdgcn_sched_barrier(0);
    __builtin_amdgcn_s_waitcnt(vmcnt_0);
    __builtin_amdgcn_sched_barrier(0);
  }
  /// The fences cover LDS alone; others would wait for loads, too. LLVM waits for no access of LDS there, since they
  /// keep their order among themselves. But a copy from memory may overwrite bytes that a pending read is to see, so
  /// the wait is explicit.
  TILEWAVE_DEVICE static void lds_barrier() {
    constexpr int lgkmcnt_0 = 0xc07f;  // all other counters have their largest value
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_waitcnt(lgkmcnt_0);
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
  }
  /// LLVM moves products freely, also across sched_fence() and barriers.
  template <class T, int n>
  TILEWAVE_DEVICE static void keep(Vec<T, n>& sums) {
    using Registers = T __attribute__((ext_vector_type(n)));
    auto held = __builtin_bit_cast(Registers, sums);
    asm volatile("" : "+v"(held));
    sums = __builtin_bit_cast(Vec<T, n>, held);
  }
  TILEWAVE_DEVICE static void keep(float& number) { asm volatile("" : "+v"(number)); }
  TILEWAVE_DEVICE static void keep_uniform(std::int32_t& number) { asm volatile("" : "+s"(number)); }
  TILEWAVE_DEVICE static void keep_uniform(const char*& base) { asm volatile("" : "+s"(base)); }
  /// Address space 4 is constant memory, which the scalar unit reads.
  TILEWAVE_DEVICE static std::int32_t load_uniform(const std::int32_t* p) {
    return *(const __attribute__((address_space(4))) std::int32_t*)p;
  }
  /// v_cvt_pk_fp8_f32 encodes the chip's own flavour, a pair at a time. Beyond the largest value it makes NaN.
  TILEWAVE_DEVICE static std::uint32_t pack_fp8_within(float a, float b, float c, float d) {
    int low;
    asm("" : "=v"(low) : "v"(a));  // the high half is not yet written; a number there would take a move
    low = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, low, false);
    return static_cast<std::uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(c, d, low, true));
  }
  template <int level>
  TILEWAVE_DEVICE static void priority() {
    __builtin_amdgcn_s_setprio(level);
  }
};

}  // namespace tilewave::gfx9

#endif
