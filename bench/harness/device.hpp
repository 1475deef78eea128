// SPDX-License-Identifier: MIT
// The device of this build and buffers on it. The harness throws where the library answers with a Status: a tool that
// cannot allocate has nothing better to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "tilewave/arch/facts.hpp"
#include "tilewave/arch/host/options.hpp"
#include "tilewave/core/hip.hpp"

namespace tilewave::bench {

/// Without a GPU compiler the hip* names work on host memory, and there is nothing to time.
inline constexpr bool emulated_device = TILEWAVE_ON_GPU_COMPILER == 0;

inline void check_hip(hipError_t error, const std::string& doing) {
  if (error != hipSuccess) throw std::runtime_error(doing + ": " + hipGetErrorString(error));
}

/// Throws if the environment asks the emulated device for what it does not know: every launch would say so.
inline void check_device_options() {
#if !TILEWAVE_ON_GPU_COMPILER
  host::Options options;
  const Status status = host::parse_options(std::getenv("TILEWAVE_HOST_THREADS"), std::getenv("TILEWAVE_HOST_SCHEDULE"),
                                            std::getenv("TILEWAVE_HOST_SEED"), options);
  if (!status.ok()) throw std::invalid_argument(status.reason);
#endif
}

/// Place i, for tensors that are only looked at, not into: the library plans by where they are, and they must be apart.
inline void* somewhere(std::uintptr_t i) { return reinterpret_cast<void*>(i << 44); }

/// Bytes on the device, freed with the object.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) check_hip(hipMalloc(&data_, bytes), "allocating " + std::to_string(bytes) + " bytes");
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) (void)hipFree(data_);
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void fill(int byte) const {
    if (bytes_ > 0) check_hip(hipMemset(data_, byte, bytes_), "filling a buffer");
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Device memory with a host view of it: the same bytes on the emulated device, a copy on a GPU.
class TwinBuffer {
 public:
  TwinBuffer() = default;
  /// `element`: the name of a DType, i32, or bytes.
  explicit TwinBuffer(std::size_t bytes, std::string_view element = "bytes") : device_(bytes), element_(element) {
    if constexpr (!emulated_device) copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  }

  void* device() const { return device_.data(); }
  std::byte* host() const { return emulated_device ? static_cast<std::byte*>(device_.data()) : copy_.get(); }
  std::size_t bytes() const { return device_.bytes(); }
  std::string_view element() const { return element_; }

  /// Make the device see what was written to [offset, offset + bytes) of the host view.
  void upload(std::size_t offset, std::size_t bytes) const {
    if (emulated_device || bytes == 0) return;
    check_hip(hipMemcpy(static_cast<std::byte*>(device()) + offset, host() + offset, bytes, hipMemcpyHostToDevice),
              "copying to the device");
  }
  void upload() const { upload(0, bytes()); }
  /// The other way, for all of it.
  void download() const {
    if (emulated_device || bytes() == 0) return;
    check_hip(hipMemcpy(host(), device(), bytes(), hipMemcpyDeviceToHost), "copying from the device");
  }

 private:
  DeviceBuffer device_;
  std::string_view element_ = "bytes";
  std::unique_ptr<std::byte[]> copy_;
};

/// A device event, for timing a stream.
class DeviceEvent {
 public:
  DeviceEvent() { check_hip(hipEventCreate(&event_), "creating an event"); }
  DeviceEvent(DeviceEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&&) = delete;
  ~DeviceEvent() {
    if (event_ != nullptr) (void)hipEventDestroy(event_);
  }
  void record(hipStream_t stream) const { check_hip(hipEventRecord(event_, stream), "recording an event"); }
  void wait() const { check_hip(hipEventSynchronize(event_), "waiting for an event"); }
  /// Microseconds from `start` to this event; waits for this event.
  double microseconds_since(const DeviceEvent& start) const {
    float milliseconds = 0;
    wait();
    check_hip(hipEventElapsedTime(&milliseconds, start.event_, event_), "reading an event");
    return 1e3 * milliseconds;
  }

 private:
  hipEvent_t event_{};
};

}  // namespace tilewave::bench
