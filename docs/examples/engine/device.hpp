// SPDX-License-Identifier: MIT
// Which chip the engine is compiled for, and its memory. Files that include this see the runtime's names alone; only
// kernels.cpp needs the chip's compiler.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <tilewave/core/hip.hpp>
#include <utility>
#include <vector>

#include "error.hpp"

namespace engine {

inline void must(tilewave::hipError_t error, const char* what) {
  if (error != tilewave::hipSuccess) throw Error(std::string(what) + ": the device refused");
}

/// Device memory of one owner.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) must(tilewave::hipMalloc(&data_, bytes), "allocating device memory");
  }
  Buffer(Buffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr, other.bytes_ = 0;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) static_cast<void>(tilewave::hipFree(data_));
  }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A copy of host memory on the device.
inline Buffer on_device(const void* data, std::size_t bytes) {
  Buffer buffer(bytes);
  must(tilewave::hipMemcpy(buffer.data(), data, bytes, tilewave::hipMemcpyHostToDevice), "copying to the device");
  return buffer;
}

/// A stream of one owner.
class Stream {
 public:
  Stream() { must(tilewave::hipStreamCreate(&stream_), "creating a stream"); }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, tilewave::hipStream_t{})) {}
  ~Stream() {
    if (stream_ != tilewave::hipStream_t{}) static_cast<void>(tilewave::hipStreamDestroy(stream_));
  }
  tilewave::hipStream_t get() const { return stream_; }
  void wait() const { must(tilewave::hipStreamSynchronize(stream_), "waiting for the device"); }

 private:
  tilewave::hipStream_t stream_{};
};

/// What queue() puts on a stream, captured to be launched again and again. Its kernels have run before, since nothing may
/// be loaded or allocated during a capture.
class Graph {
 public:
  template <class Queue>
  Graph(const Stream& stream, const Queue& queue) {
    tilewave::hipGraph_t graph{};
    must(tilewave::hipStreamBeginCapture(stream.get(), tilewave::hipStreamCaptureModeThreadLocal), "capturing a step");
    try {
      queue();
    } catch (...) {
      if (tilewave::hipStreamEndCapture(stream.get(), &graph) == tilewave::hipSuccess && graph != nullptr)
        static_cast<void>(tilewave::hipGraphDestroy(graph));
      throw;
    }
    must(tilewave::hipStreamEndCapture(stream.get(), &graph), "ending a capture");
    const tilewave::hipError_t made = tilewave::hipGraphInstantiateWithFlags(&executable_, graph, 0);
    static_cast<void>(tilewave::hipGraphDestroy(graph));
    must(made, "making a graph");
  }
  Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
  ~Graph() {
    if (executable_ != nullptr) static_cast<void>(tilewave::hipGraphExecDestroy(executable_));
  }
  void launch(tilewave::hipStream_t stream) const {
    must(tilewave::hipGraphLaunch(executable_, stream), "launching a graph");
  }

 private:
  tilewave::hipGraphExec_t executable_{};
};

/// A part of a step's tables on the device: written on the host, sent with all others in one copy.
class TableUpload {
 public:
  explicit TableUpload(std::size_t capacity) : device_(capacity), host_(capacity) {}

  void begin() { used_ = 0; }
  /// Room for `values`, whose device address is given back; it is filled by send().
  template <class T>
  const T* add(const std::vector<T>& values) {
    const std::size_t at = (used_ + 255) / 256 * 256, bytes = values.size() * sizeof(T);
    if (at + bytes > host_.size()) throw Error("a step's tables are larger than their room");
    if (bytes > 0) std::memcpy(host_.data() + at, values.data(), bytes);
    used_ = at + bytes;
    return reinterpret_cast<const T*>(device_.as<std::byte>() + at);
  }
  void send(tilewave::hipStream_t stream) {
    must(tilewave::hipMemcpyAsync(device_.data(), host_.data(), used_, tilewave::hipMemcpyHostToDevice, stream),
         "sending a step's tables");
  }

 private:
  Buffer device_;
  std::vector<std::byte> host_;
  std::size_t used_ = 0;
};

}  // namespace engine
