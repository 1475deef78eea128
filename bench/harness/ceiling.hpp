// SPDX-License-Identifier: MIT
// How fast the device can read its memory at best.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "bench/harness/device.hpp"
#include "bench/harness/stats.hpp"
#include "tilewave/arch/backend.hpp"
#include "tilewave/arch/gfx942/backend.hpp"
#include "tilewave/arch/gfx950/backend.hpp"
#include "tilewave/arch/sm90/backend.hpp"

// Which of these rooms exist depends on the compiler; one that does not stays incomplete.
namespace tilewave::gfx942 {
struct Backend;
}
namespace tilewave::gfx950 {
struct Backend;
}
namespace tilewave::sm90 {
struct Backend;
}

namespace tilewave::bench {

/// Read a buffer once, 16 bytes a lane, eight loads in flight. Grid: one block per `block_chunks`. Bound: memory.
template <class B>
struct ReadOnce {
  using Room = B;
  struct Args {
    const Chunk* data;
    std::uint32_t* sink;
  };
  struct Shared {};

  static constexpr int block_threads = 256, waves_per_simd = 4, loads = 8;
  static constexpr std::int64_t block_chunks = std::int64_t{block_threads} * loads;

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const int thread = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    const Chunk* from = a.data + B::block_id() * block_chunks + thread;
    Chunk chunks[loads];
    TILEWAVE_UNROLL
    for (int i = 0; i < loads; ++i) chunks[i] = B::load_stream(from + i * block_threads);
    std::uint32_t sum = 0;
    TILEWAVE_UNROLL
    for (int i = 0; i < loads; ++i) sum += chunks[i][0] ^ chunks[i][1] ^ chunks[i][2] ^ chunks[i][3];
    // Never taken: the buffer is all zero. It keeps the loads alive.
    if (sum != 0) B::store(a.sink, sum);
  }
};

/// Calls f(std::type_identity<B>{}) for the backend of every GPU room that this compiler builds.
template <class F>
void each_gpu_room(const F& f) {
  const auto if_built = [&]<class B>(std::type_identity<B> room) {
    if constexpr (requires { sizeof(B); }) f(room);
  };
  if_built(std::type_identity<gfx942::Backend>{});
  if_built(std::type_identity<gfx950::Backend>{});
  if_built(std::type_identity<sm90::Backend>{});
}

/// Queue one read of a zeroed buffer (its length rounded down to whole blocks); returns the bytes that are read. Throws
/// if the architecture is not one of this build's.
inline std::int64_t read_once(ArchId arch, const DeviceBuffer& data, const DeviceBuffer& sink, hipStream_t stream) {
  std::int64_t read = 0;
  each_gpu_room([&]<class B>(std::type_identity<B>) {
    using Kernel = ReadOnce<B>;
    if (arch != B::facts.id) return;
    constexpr auto block_bytes = static_cast<std::int64_t>(Kernel::block_chunks * sizeof(Chunk));
    const std::int64_t blocks = static_cast<std::int64_t>(data.bytes()) / block_bytes;
    const typename Kernel::Args args{static_cast<const Chunk*>(data.data()), static_cast<std::uint32_t*>(sink.data())};
    const Status status = B::template launch<Kernel>({blocks, Kernel::block_threads}, args, stream);
    if (!status.ok()) throw std::runtime_error(std::string("reading a buffer: ") + status.reason);
    read = blocks * block_bytes;
  });
  if (read == 0) throw std::runtime_error("no reading kernel for this device");
  return read;
}

/// Read ceiling in bytes per second: measured over 4 GiB on a device (the median of nine passes after one), the data
/// sheet's peak on the emulated one.
inline double read_ceiling(ArchId arch, hipStream_t stream) {
  if constexpr (emulated_device) return facts_of(arch).hbm_bytes_per_second;
  const DeviceBuffer data(std::size_t{4} << 30), sink(sizeof(std::uint32_t));
  data.fill(0);
  std::vector<double> microseconds;
  const DeviceEvent begin, end;
  std::int64_t bytes = 0;
  for (int pass = 0; pass < 10; ++pass) {
    begin.record(stream);
    bytes = read_once(arch, data, sink, stream);
    end.record(stream);
    const double us = end.microseconds_since(begin);
    if (pass > 0) microseconds.push_back(us);
  }
  return static_cast<double>(bytes) / (stats_of(microseconds).median * 1e-6);
}

}  // namespace tilewave::bench
