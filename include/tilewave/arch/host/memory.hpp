// SPDX-License-Identifier: MIT
// Loads and stores of the host room: plain memory accesses, checked and counted.
#pragma once

#include "tilewave/core/config.hpp"

#if !TILEWAVE_ON_GPU_COMPILER

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/schedule.hpp"
#include "tilewave/arch/window.hpp"
#include "tilewave/core/vec.hpp"

namespace tilewave::host {

namespace detail {

enum class Access { load, store, stream };

[[noreturn]] TILEWAVE_HOST_UNTRACKED inline void bad_access(Lane& self, const void* address, int bytes, Where where) {
  const bool null = reinterpret_cast<std::uintptr_t>(address) < 4096;
  fail(self, "%s access of %d bytes at address %p at %s:%d", null ? "null" : "misaligned", bytes, address,
       where.base_name(), where.line);
}

/// Checks and counts one access of the running lane.
template <int Bytes, Access Kind>
TILEWAVE_HOST_UNTRACKED inline void account(const void* pointer, Where where) {
  Lane& self = *current_lane;
  Cluster& cluster = *self.cluster;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % Bytes != 0 || address < 4096) bad_access(self, pointer, Bytes, where);
  LaunchCounters& counters = cluster.counters;
  const auto shared = reinterpret_cast<std::uintptr_t>(cluster.block[0].shared);
  const bool in_shared = address - shared < cluster.blocks * cluster.shared_bytes;
  if (self.early != Early::over && !in_shared) must_have_waited(self, Kind == Access::store, where);
  if constexpr (Kind == Access::stream) {
    counters.stream_bytes += Bytes;
  } else if constexpr (Kind == Access::load) {
    (in_shared ? counters.lds_loads_bytes : counters.loads_bytes) += Bytes;
  } else {
    (in_shared ? counters.lds_stores_bytes : counters.stores_bytes) += Bytes;
  }
  if (cluster.options.schedule == Schedule::random && cluster.draw() % 8 == 0) yield(self);
}

}  // namespace detail

template <ArchId Id>
struct Memory {
  /// Makes one access of sizeof(T) <= 16 bytes. An address that is not a multiple of the size fails the launch.
  template <class T>
  static T load(const T* p, Where where = {}) {
    return read<detail::Access::load>(p, where);
  }
  /// Does the same for data that no lane reads again.
  template <class T>
  static T load_stream(const T* p, Where where = {}) {
    return read<detail::Access::stream>(p, where);
  }
  static Chunk load_stream_line(const Chunk* p, Where where = {}) { return load_stream(p, where); }
  template <class T>
  static void store(T* p, const std::type_identity_t<T>& value, Where where = {}) {
    check_type<T>();
    detail::account<sizeof(T), detail::Access::store>(p, where);
    std::memcpy(p, &value, sizeof(T));
  }
  /// Stores data that no lane reads soon.
  static void store_stream(Chunk* p, const Chunk& value, Where where = {}) { store(p, value, where); }

  /// A uniform window whose base or bytes differ between the lanes of a wave fails the launch.
  template <bool uniform>
  struct Window : CheckedWindow<Memory> {
    Window(const void* base, std::uint32_t bytes, Where where = {}) : CheckedWindow<Memory>{base, bytes} {
      if constexpr (uniform) {
        agree(*current_lane,
              {"base of a window", static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(base)), where});
        agree(*current_lane, {"bytes of a window", bytes, where});
      }
    }
  };

 private:
  template <class T>
  static constexpr void check_type() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16 && std::has_single_bit(sizeof(T)),
                  "one access moves 1, 2, 4, 8 or 16 bytes");
  }
  template <detail::Access Kind, class T>
  static T read(const T* p, Where where) {
    check_type<T>();
    detail::account<sizeof(T), Kind>(p, where);
    std::remove_const_t<T> value;
    std::memcpy(&value, p, sizeof(T));  // memcpy, because callers view bf16 or fp8 storage as chunks
    return value;
  }
};

}  // namespace tilewave::host

#endif  // !TILEWAVE_ON_GPU_COMPILER
