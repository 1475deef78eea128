// SPDX-License-Identifier: MIT
// The bytes of a tensor in memory. The host judges strides and aliasing by them, before any work.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

namespace tilewave {

/// True if an address is a multiple of so many bytes. Null is.
inline bool is_aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

/// Runs of contiguous bytes, one at every sum of multiples of the strides. A null tensor has no bytes.
class Region {
 public:
  struct Dimension {
    std::int64_t count, stride;  // stride in elements; it may be anything where count is 1
    const char* zero = nullptr;  // the reason to give where the stride is 0

    friend bool operator==(const Dimension&, const Dimension&) = default;
  };
  static constexpr int most_dimensions = 4;
  static constexpr std::int64_t most_bytes = std::int64_t{1} << 56;  // more than any device can address

  Region() = default;
  /// Takes elements of `size` bytes, `columns` of them in a run. Strides may be negative.
  Region(const void* data, int size, std::int64_t columns, std::initializer_list<Dimension> outer) {
    if (data == nullptr || columns <= 0) return;
    for (const Dimension& d : outer)
      if (d.count <= 0) return;
    first_ = reinterpret_cast<std::uintptr_t>(data);
    addressable_ = columns <= most_bytes / size;
    if (!addressable_) return;
    std::int64_t bytes = columns * size;
    for (const Dimension& d : outer) {
      if (d.count == 1) continue;
      if (d.stride == 0 && zero_ == nullptr) zero_ = d.zero;
      const std::int64_t most = (most_bytes - bytes) / size / (d.count - 1);
      addressable_ = addressable_ && d.stride <= most && d.stride >= -most;
      if (!addressable_) return;
      const std::int64_t stride = (d.stride < 0 ? -d.stride : d.stride) * size;
      bytes += (d.count - 1) * stride;
      if (d.stride < 0) first_ -= static_cast<std::uintptr_t>((d.count - 1) * stride);
      steps_[dimensions_] = d.stride * size;
      int at = dimensions_++;  // sorted by falling stride
      for (; at > 0 && outer_[at - 1].stride < stride; --at) outer_[at] = outer_[at - 1];
      outer_[at] = {d.count, stride};
    }
    bytes_[dimensions_] = columns * size;
    for (int i = dimensions_; i-- > 0;) bytes_[i] = bytes_[i + 1] + (outer_[i].count - 1) * outer_[i].stride;
  }

  /// True if every element lies where the other tensor has the element of the same indices.
  friend bool operator==(const Region&, const Region&) = default;

  bool empty() const { return bytes_[0] == 0; }
  /// True if all offsets fit into 2^56 bytes. A tensor whose offsets do not fit counts as overlapping everything.
  bool addressable() const { return addressable_; }
  /// True if a stride is 0, so that many indices read one run.
  bool repeats() const { return dimensions_ > 0 && outer_[dimensions_ - 1].stride == 0; }
  /// Returns the reason of the first dimension whose stride is 0; null if it has none.
  const char* zero_stride() const { return zero_; }
  /// True if runs may share a byte. It is false where the runs of each dimension lie between the steps of the next
  /// larger one.
  bool overlaps_itself() const {
    for (int i = 0; i < dimensions_; ++i)
      if (outer_[i].stride < bytes_[i + 1]) return true;
    return false;
  }
  /// Sets the size, for a tensor whose outermost dimension lacks its last runs: the bytes up to the end of the last run
  /// that is there.
  void end_at(std::int64_t bytes) { bytes_[0] = bytes; }

  /// True if two tensors may share a byte; false only where they surely do not. Tensors that interleave, as the parts
  /// of a fused tensor do, are found disjoint if each has its runs between the other's steps.
  friend bool overlap(const Region& a, const Region& b) {
    if (!a.addressable_) return !b.addressable_ || !b.empty();
    if (!b.addressable_) return !a.empty();
    return !a.empty() && !b.empty() && meet(a, 0, b, 0, static_cast<std::int64_t>(b.first_ - a.first_));
  }

 private:
  /// Does the same for a without its first i dimensions and b without its first j, where b starts `distance` bytes
  /// behind a.
  static bool meet(const Region& a, int i, const Region& b, int j, std::int64_t distance) {
    if (distance >= a.bytes_[i] || distance <= -b.bytes_[j]) return false;
    const std::int64_t a_stride = i < a.dimensions_ ? a.outer_[i].stride : 0;
    const std::int64_t b_stride = j < b.dimensions_ ? b.outer_[j].stride : 0;
    if (a_stride < b_stride) return meet(b, j, a, i, -distance);
    if (a_stride == 0) return true;
    // Among all steps of the larger stride, or of a common one, only two can bring together runs that are no longer
    // than it.
    const int inner_j = a_stride == b_stride ? j + 1 : j;
    if (a.bytes_[i + 1] > a_stride || b.bytes_[inner_j] > a_stride) return true;
    const std::int64_t behind = (distance % a_stride + a_stride) % a_stride;
    return meet(a, i + 1, b, inner_j, behind) || meet(a, i + 1, b, inner_j, behind - a_stride);
  }

  std::uintptr_t first_ = 0;  // address of the lowest byte
  bool addressable_ = true;
  const char* zero_ = nullptr;
  int dimensions_ = 0;
  std::array<Dimension, most_dimensions> outer_{};     // strides in bytes
  std::array<std::int64_t, most_dimensions> steps_{};  // the same with their signs, in the order of the indices
  std::array<std::int64_t, most_dimensions + 1>
      bytes_{};  // bytes from the lowest to the highest, without the first i dimensions
};

}  // namespace tilewave
