// SPDX-License-Identifier: MIT
// Memory primitives both CDNA rooms share: global accesses as single instructions in the global address space.
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

// Native types, so that one access stays one instruction; address space 1 keeps it off the slower flat path.
template <int bytes>
struct Raw {
  using type = std::uint32_t __attribute__((ext_vector_type(bytes / 4)));
};
template <int bytes>
requires(bytes <= 4) struct Raw<bytes> {
  using type = UnsignedOf<bytes>;
};
template <class T>
using Global = __attribute__((address_space(1))) T;
template <class T>
using Shared = __attribute__((address_space(3))) T;

struct Memory {
  template <class T>
  TILEWAVE_DEVICE static T load(const T* p) {
    return __builtin_bit_cast(T, *(const Global<typename Raw<sizeof(T)>::type>*)p);
  }
  template <class T>
  TILEWAVE_DEVICE static void store(T* p, const T& value) {
    using R = typename Raw<sizeof(T)>::type;
    *(Global<R>*)p = __builtin_bit_cast(R, value);
  }
  TILEWAVE_DEVICE static Chunk load_stream(const Chunk* p) {
    return __builtin_bit_cast(Chunk, __builtin_nontemporal_load((const Global<Raw<16>::type>*)p));
  }
  TILEWAVE_DEVICE static void store_stream(Chunk* p, const Chunk& value) {
    __builtin_nontemporal_store(__builtin_bit_cast(Raw<16>::type, value), (Global<Raw<16>::type>*)p);
  }

 protected:
  template <int vmcnt>
  TILEWAVE_DEVICE static void wait_vmcnt() {
    wait_counters<(vmcnt > 63 ? 63 : vmcnt), 15>();
  }

  /// To be called before each global_load_lds: LLVM before 23 counts it in lgkmcnt, the hardware does not
  /// (llvm-project#179305), so a wait for an LDS access issued earlier would come too early. None is outstanding then.
  TILEWAVE_DEVICE static void before_copy() {
#if __clang_major__ < 23
    wait_counters<63, 0>();
#endif
  }

 private:
  // s_waitcnt immediate of GFX9: vmcnt in bits 3:0 and 15:14, expcnt 6:4, lgkmcnt 11:8 (CDNA3 ISA guide, SOPP).
  template <int vmcnt, int lgkmcnt>
  TILEWAVE_DEVICE static void wait_counters() {
    __builtin_amdgcn_sched_barrier(0);
    __builtin_amdgcn_s_waitcnt((vmcnt & 15) | (7 << 4) | (lgkmcnt << 8) | ((vmcnt >> 4) << 14));
    __builtin_amdgcn_sched_barrier(0);
  }
};

}  // namespace tilewave::gfx9

#endif
