// SPDX-License-Identifier: MIT
// Memory primitives that both CDNA rooms share: global accesses as single instructions in the global address space.
#pragma once

#include "tilewave/arch/backend.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

// They are native types, so that one access stays one instruction. Address space 1 keeps it off the slower flat path.
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
};

}  // namespace tilewave::gfx9

#endif
