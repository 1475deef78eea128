// SPDX-License-Identifier: MIT
// Windows are buffer accesses: the hardware compares every offset with the end. A row's end then costs no branch, no
// mask and no register, and all loads of a row can be in flight before the first is waited for.
#pragma once

#include "tilewave/arch/gfx9/memory.hpp"
#include "tilewave/arch/window.hpp"

#if defined(__HIP__)

namespace tilewave::gfx9 {

/// Base and bytes live in SGPRs, so they must be the same in every lane of the wave.
struct BufferWindow {
  const void* base;
  std::uint32_t bytes;

  template <class T>
  TILEWAVE_DEVICE T load(std::uint32_t offset) const {
    return load_as<T, 0>(offset);
  }
  template <class T>
  TILEWAVE_DEVICE T load_stream(std::uint32_t offset) const {
    return load_as<T, non_temporal>(offset);
  }
  template <class T>
  TILEWAVE_DEVICE T load_stream_inside(std::uint32_t offset) const {
    return load_as<T, non_temporal>(offset);
  }
  template <class T>
  TILEWAVE_DEVICE void store(std::uint32_t offset, const T& value) const {
    store_as<T, 0>(offset, value);
  }
  template <class T>
  TILEWAVE_DEVICE void store_stream(std::uint32_t offset, const T& value) const {
    store_as<T, non_temporal>(offset, value);
  }

 private:
  static constexpr int non_temporal = 2;  // LLVM, User Guide for AMDGPU Backend, "buffer aux": bit 1 is nt on gfx940
  // Word 3 of the descriptor has data format 32 in bits 18:15 (CDNA3 ISA guide, "Buffer resource descriptor"). The
  // stride is 0, so offsets are compared as bytes.
  TILEWAVE_DEVICE auto resource() const {
    // If the compiler computed it in a VGPR, it would loop over the lanes' resources.
    const int records = __builtin_amdgcn_readfirstlane(static_cast<int>(bytes));
    return __builtin_amdgcn_make_buffer_rsrc(const_cast<void*>(base), 0, records, 0x20000);
  }
  template <class T, int aux>
  TILEWAVE_DEVICE T load_as(std::uint32_t offset) const {
    if constexpr (sizeof(T) == 16) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b128(resource(), offset, 0, aux));
    } else if constexpr (sizeof(T) == 8) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b64(resource(), offset, 0, aux));
    } else if constexpr (sizeof(T) == 4) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b32(resource(), offset, 0, aux));
    } else if constexpr (sizeof(T) == 2) {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b16(resource(), offset, 0, aux));
    } else {
      return __builtin_bit_cast(T, __builtin_amdgcn_raw_buffer_load_b8(resource(), offset, 0, aux));
    }
  }
  template <class T, int aux>
  TILEWAVE_DEVICE void store_as(std::uint32_t offset, const T& value) const {
    const auto bits = __builtin_bit_cast(typename Raw<sizeof(T)>::type, value);
    if constexpr (sizeof(T) == 16) {
      __builtin_amdgcn_raw_buffer_store_b128(bits, resource(), offset, 0, aux);
    } else if constexpr (sizeof(T) == 8) {
      __builtin_amdgcn_raw_buffer_store_b64(bits, resource(), offset, 0, aux);
    } else if constexpr (sizeof(T) == 4) {
      __builtin_amdgcn_raw_buffer_store_b32(bits, resource(), offset, 0, aux);
    } else if constexpr (sizeof(T) == 2) {
      __builtin_amdgcn_raw_buffer_store_b16(bits, resource(), offset, 0, aux);
    } else {
      __builtin_amdgcn_raw_buffer_store_b8(bits, resource(), offset, 0, aux);
    }
  }
};

/// A window that each lane has of its own. Beyond its end lanes read from the kernel arguments, which are always there:
/// with a branch instead, clang waits for one load before it issues the next.
struct LaneWindow : CheckedWindow<Memory> {
  template <class T>
  TILEWAVE_DEVICE T load(std::uint32_t offset) const {
    return load_as<T>(offset, [](const auto* p) { return *p; });
  }
  template <class T>
  TILEWAVE_DEVICE T load_stream(std::uint32_t offset) const {
    return load_as<T>(offset, [](const auto* p) { return __builtin_nontemporal_load(p); });
  }
  template <class T>
  TILEWAVE_DEVICE T load_stream_inside(std::uint32_t offset) const {
    const auto* address = (const Global<typename Raw<sizeof(T)>::type>*)(static_cast<const char*>(base) + offset);
    return __builtin_bit_cast(T, __builtin_nontemporal_load(address));
  }

 private:
  template <class T, class Load>
  TILEWAVE_DEVICE T load_as(std::uint32_t offset, const Load& access) const {
    using R = typename Raw<sizeof(T)>::type;
    const bool inside = offset < bytes;
    const void* safe = (const void*)__builtin_amdgcn_kernarg_segment_ptr();
    const void* address = inside ? static_cast<const char*>(base) + offset : safe;
    const R value = access((const Global<R>*)address);
    return __builtin_bit_cast(T, inside ? value : R{});
  }
};

}  // namespace tilewave::gfx9

#endif
