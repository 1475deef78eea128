// SPDX-License-Identifier: MIT
// Memory, streams and graphs of the device, each with one owner: part 1 of the tutorial. Files that include this see the
// runtime's names alone; only kernels.cpp and plans.cpp need the chip's compiler.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <tilewave/core/hip.hpp>
#include <vector>

#include "error.hpp"

namespace engine {

using namespace tilewave;  // names of the engine's own come first

inline void must(hipError_t error, const char* what) {
  if (error != hipSuccess) throw Error(std::string(what) + ": the device refused");
}

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    static_cast<void>(destroy(handle));
  }
};
/// A handle of the runtime with one owner.
template <class T, auto destroy>
using Handle = std::unique_ptr<std::remove_pointer_t<T>, Destroy<destroy>>;

/// Device memory of one owner.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes) : bytes_(bytes) {
    void* data = nullptr;
    if (bytes > 0) must(hipMalloc(&data, bytes), "allocating device memory");
    data_.reset(data);
  }

  void* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data());
  }
  std::size_t bytes() const { return bytes_; }

 private:
  Handle<void*, hipFree> data_;
  std::size_t bytes_ = 0;
};

/// A copy of host memory on the device.
inline Buffer on_device(const void* data, std::size_t bytes) {
  Buffer buffer(bytes);
  must(hipMemcpy(buffer.data(), data, bytes, hipMemcpyHostToDevice), "copying to the device");
  return buffer;
}
template <class T>
Buffer on_device(const std::vector<T>& values) {
  return on_device(values.data(), values.size() * sizeof(T));
}

class Stream {
 public:
  Stream() {
    hipStream_t stream{};
    must(hipStreamCreate(&stream), "creating a stream");
    stream_.reset(stream);
  }
  hipStream_t get() const { return stream_.get(); }
  void wait() const { must(hipStreamSynchronize(get()), "waiting for the device"); }

 private:
  Handle<hipStream_t, hipStreamDestroy> stream_;
};

/// What queue() puts on a stream, captured to be launched again and again. Its kernels have run before, since nothing may
/// be loaded or allocated during a capture.
class Graph {
 public:
  template <class Queue>
  Graph(const Stream& stream, const Queue& queue) {
    must(hipStreamBeginCapture(stream.get(), hipStreamCaptureModeThreadLocal), "capturing a step");
    std::exception_ptr failed;
    try {
      queue();
    } catch (...) {
      failed = std::current_exception();
    }
    hipGraph_t captured{};
    const hipError_t ended = hipStreamEndCapture(stream.get(), &captured);
    const Handle<hipGraph_t, hipGraphDestroy> graph(captured);
    if (failed) std::rethrow_exception(failed);
    must(ended, "ending a capture");
    hipGraphExec_t executable{};
    must(hipGraphInstantiateWithFlags(&executable, graph.get(), 0), "making a graph");
    executable_.reset(executable);
  }
  void launch(hipStream_t stream) const { must(hipGraphLaunch(executable_.get(), stream), "launching a graph"); }

 private:
  Handle<hipGraphExec_t, hipGraphExecDestroy> executable_;
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
  void send(hipStream_t stream) {
    must(hipMemcpyAsync(device_.data(), host_.data(), used_, hipMemcpyHostToDevice, stream), "sending a step's tables");
  }

 private:
  Buffer device_;
  std::vector<std::byte> host_;
  std::size_t used_ = 0;
};

}  // namespace engine
