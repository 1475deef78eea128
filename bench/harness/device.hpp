// SPDX-License-Identifier: MIT
// The device of this build and buffers on it. The harness throws where the library returns a Status: a tool that cannot
// allocate cannot go on.
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

/// Without a GPU compiler the hip* names work on host memory, and nothing is timed.
inline constexpr bool emulated_device = TILEWAVE_ON_GPU_COMPILER == 0;

/// How many devices there are. The emulated device counts as one; with TILEWAVE_HOST_DEVICES=0 in the environment a benchmark
/// finds none, and what it does on a machine without a GPU is tested so.
inline int device_count() {
  const char* const hidden = std::getenv("TILEWAVE_HOST_DEVICES");
  if (emulated_device && hidden != nullptr && std::string_view(hidden) == "0") return 0;
  int count = 0;
  return hipGetDeviceCount(&count) == hipSuccess ? count : 0;
}

inline void check_hip(hipError_t error, const std::string& doing) {
  if (emulated_device && device_count() == 0) throw std::runtime_error(doing + ": no device");
  if (error != hipSuccess) throw std::runtime_error(doing + ": " + hipGetErrorString(error));
}

/// Throws if the environment asks the emulated device for options that it does not know. Otherwise every launch would
/// report them.
inline void check_device_options() {
#if !TILEWAVE_ON_GPU_COMPILER
  host::Options options;
  const Status status = host::parse_options(std::getenv("TILEWAVE_HOST_THREADS"), std::getenv("TILEWAVE_HOST_SCHEDULE"),
                                            std::getenv("TILEWAVE_HOST_SEED"), options);
  if (!status.ok()) throw std::invalid_argument(status.reason);
#endif
}

/// Returns address i for tensors that are not read: the library plans by their addresses, which must be apart.
inline void* somewhere(std::uintptr_t i) { return reinterpret_cast<void*>(i << 44); }

/// Bytes on the device that are freed with the object.
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

/// Device memory with a host view of it: the same bytes on the emulated device, and a copy on a GPU.
class TwinBuffer {
 public:
  TwinBuffer() = default;
  /// `element` is the name of a DType, i32, or bytes.
  explicit TwinBuffer(std::size_t bytes, std::string_view element = "bytes") : device_(bytes), element_(element) {
    if constexpr (!emulated_device) copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  }

  void* device() const { return device_.data(); }
  std::byte* host() const { return emulated_device ? static_cast<std::byte*>(device_.data()) : copy_.get(); }
  std::size_t bytes() const { return device_.bytes(); }
  std::string_view element() const { return element_; }

  /// Makes the device see the bytes that were written to [offset, offset + bytes) of the host view.
  void upload(std::size_t offset, std::size_t bytes) const {
    if (emulated_device || bytes == 0) return;
    check_hip(hipMemcpy(static_cast<std::byte*>(device()) + offset, host() + offset, bytes, hipMemcpyHostToDevice),
              "copying to the device");
  }
  void upload() const { upload(0, bytes()); }
  /// Copies all of it from the device to the host view.
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
  /// Returns the microseconds from `start` to this event, after waiting for this event.
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
