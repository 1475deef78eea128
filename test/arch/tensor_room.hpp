// SPDX-License-Identifier: MIT
// Parts that the tests of tensors share: device memory, clusters, and boxes as they lie in shared memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "test/arch/room.hpp"

namespace tilewave::test {

using Bytes = std::vector<unsigned char>;

inline Bytes numbered_bytes(std::size_t count) {
  Bytes bytes(count);
  std::uint32_t state = 1;
  for (unsigned char& b : bytes) b = static_cast<unsigned char>((state = state * 1664525u + 1013904223u) >> 24);
  return bytes;
}

/// Values of T on the device.
template <class T>
class Device {
 public:
  explicit Device(const std::vector<T>& values) : count_(values.size()), buffer_(values.size() * sizeof(T)) {
    REQUIRE(hipMemcpy(buffer_.data(), values.data(), buffer_.bytes(), hipMemcpyHostToDevice) == hipSuccess);
  }
  T* data() const { return static_cast<T*>(buffer_.data()); }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    REQUIRE(hipMemcpy(values.data(), buffer_.data(), buffer_.bytes(), hipMemcpyDeviceToHost) == hipSuccess);
    return values;
  }

 private:
  std::size_t count_;
  bench::DeviceBuffer buffer_;
};

inline Bytes bytes_of(const std::vector<Chunk>& chunks) {
  Bytes bytes(chunks.size() * sizeof(Chunk));
  std::memcpy(bytes.data(), chunks.data(), bytes.size());
  return bytes;
}

template <class K>
void launch_kernel(int grid, int cluster, const typename K::Args& args) {
  const Status status = K::Room::template launch<K>({grid, K::block_threads, cluster}, args, nullptr);
  INFO(status.reason);
  REQUIRE(status.ok());
  REQUIRE(hipDeviceSynchronize() == hipSuccess);
}

/// Returns where byte `byte` of row `row` of a box lies.
inline int swizzled(int row, int byte) { return 128 * row + 16 * (byte / 16 ^ row % 8) + byte % 16; }

inline int rows_of_box(const TensorShape& shape) {
  return shape.box_rows * shape.box_layers * (shape.side_by_side > 0 ? shape.side_by_side : 1);
}

/// Appends what a copy of the box there shall leave in shared memory.
inline void append_box(Bytes& to, const TensorShape& shape, const Bytes& tensor, int column, int row, int layer) {
  if (shape.side_by_side > 0) {  // eight rows of each box in turn, as if they were boxes of their own
    TensorShape eight = shape;
    eight.side_by_side = 0, eight.box_rows = 8;
    for (int r = 0; r < shape.box_rows; r += 8)
      for (int box = 0; box < shape.side_by_side; ++box)
        append_box(to, eight, tensor, box * shape.box_bytes() / size_of(shape.type), row + r, layer);
    return;
  }
  const int bytes = shape.box_bytes();
  Bytes box(static_cast<std::size_t>(bytes * rows_of_box(shape)), 0);
  const std::int64_t size = size_of(shape.type), first = column * size;
  for (int r = 0; r < rows_of_box(shape); ++r) {
    const std::int64_t of_row = row + r % shape.box_rows, of_layer = layer + r / shape.box_rows;
    for (int byte = 0; byte < bytes; ++byte) {
      if (of_row >= shape.rows || of_layer >= shape.layers || first + byte >= shape.columns * size) continue;
      box[shape.straight ? bytes * r + byte : swizzled(r, byte)] =
          tensor[of_layer * shape.layer_stride + of_row * shape.row_stride + first + byte];
    }
  }
  to.insert(to.end(), box.begin(), box.end());
}

}  // namespace tilewave::test
