// SPDX-License-Identifier: MIT
// A guarded range of memory for hardware that has none: every access is compared with its size.
#pragma once

#include <cstdint>

#include "tilewave/core/config.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave {

/// Implements B::Window (docs/reference/primitives.md) over a room's loads and stores.
template <class Memory>
struct CheckedWindow {
  const void* base;
  std::uint32_t bytes;

  template <class T>
  TILEWAVE_DEVICE T load(std::uint32_t offset) const {
    T value{};
    if (offset < bytes) value = Memory::load(at<const T>(offset));
    return value;
  }
  template <class T>
  TILEWAVE_DEVICE T load_stream(std::uint32_t offset) const {
    if constexpr (sizeof(T) == sizeof(Chunk)) {
      T value{};
      if (offset < bytes) value = __builtin_bit_cast(T, Memory::load_stream(at<const Chunk>(offset)));
      return value;
    } else {
      return load<T>(offset);
    }
  }
  template <class T>
  TILEWAVE_DEVICE T load_stream_inside(std::uint32_t offset) const {
    if constexpr (sizeof(T) == sizeof(Chunk)) {
      return __builtin_bit_cast(T, Memory::load_stream(at<const Chunk>(offset)));
    } else {
      return Memory::load(at<const T>(offset));
    }
  }
  template <class T>
  TILEWAVE_DEVICE void store(std::uint32_t offset, const T& value) const {
    if (offset < bytes) Memory::store(at<T>(offset), value);
  }
  template <class T>
  TILEWAVE_DEVICE void store_stream(std::uint32_t offset, const T& value) const {
    if constexpr (sizeof(T) == sizeof(Chunk)) {
      if (offset < bytes) Memory::store_stream(at<Chunk>(offset), __builtin_bit_cast(Chunk, value));
    } else {
      store<T>(offset, value);
    }
  }

 private:
  template <class T>
  TILEWAVE_DEVICE T* at(std::uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<char*>(const_cast<void*>(base)) + offset);
  }
};

}  // namespace tilewave
