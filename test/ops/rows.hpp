// SPDX-License-Identifier: MIT
// Parts that the tests of row operations share: tensors on the device with gaps between rows, and the entries to run.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "bench/harness/device.hpp"
#include "bench/harness/element.hpp"
#include "bench/harness/random.hpp"
#include "test/catch_compat.hpp"
#include "test/device_memory.hpp"
#include "test/ops/values.hpp"
#include "test/poison.hpp"
#if !TILEWAVE_ON_GPU_COMPILER
#include "test/arch/host/host_room.hpp"
#endif
#include "tilewave/reference/rows.hpp"
#include "tilewave/tile/index_list.hpp"
#include "tilewave/tile/row_check.hpp"

namespace tilewave::test {

inline std::uint32_t encode(DType type, float value) { return bits_of_value(type, value); }

/// Rows of elements with the same bytes on host and device; it ends exactly where its last element does. A tensor that
/// is never set is one that a kernel writes, and all of it holds unwritten_byte; of one that is set, what is not holds
/// unread_byte. Of a tensor that spans more than a GiB the host holds the rows only, packed, and its gaps are not
/// looked
/// at.
class Tensor {
 public:
  Tensor(DType type, std::int32_t rows, std::int32_t columns, std::int32_t inner_rows, const RowStrides& strides)
      : type_(type), inner_rows_(inner_rows), strides_(strides) {
    columns /= packing_of(type);  // elements
    std::int64_t last = 0;
    for (std::int32_t r = 0; r < rows; ++r)
      last = std::max(last, reference::row_offset(r, inner_rows, strides) + columns);
    last *= size_of(type);
    device_ = bench::DeviceBuffer(static_cast<std::size_t>(last));
    if (last > 1 << 30) {
      far_ = strides;
      strides_ = {std::int64_t{columns} * inner_rows, columns};
      row_bytes_ = columns * size_of(type);
      last = std::int64_t{rows} * row_bytes_;
    }
    bytes_.assign(static_cast<std::size_t>(last), poison_);
    upload();
  }
  /// One row without gaps.
  Tensor(DType type, std::int32_t columns) : Tensor(type, 1, columns, 1, {columns, 0}) {}

  /// It is not for values that share an element.
  template <class F>
  void set(std::int32_t rows, std::int32_t columns, const F& f) {
    std::vector<float> values(columns);
    begin_setting();
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int32_t c = 0; c < columns; ++c) values.data()[c] = f(r, c);
      set_row(r, values);
    }
    upload();
  }
  /// Sets elements to first + factor * drawn(name, row + first_row, column).
  void draw(std::int32_t rows, std::int32_t columns, char name, std::int64_t first_row, float factor, float first) {
    std::vector<float> values(columns);
    begin_setting();
    for (std::int32_t r = 0; r < rows; ++r) {
      bench::random_uniforms_of_row(7, name, r + first_row, columns, values.data());
      for (float& value : values) value = first + factor * (2.0f * value);
      set_row(r, values);
    }
    upload();
  }
  void download() { download(*this); }
  /// Downloads a tensor that was written in place of this one.
  void download(const Tensor& from) {
    poison_ = from.poison_;
    each_part([&](std::int64_t at, std::int64_t device_at, std::size_t bytes) {
      bench::check_hip(hipMemcpy(&bytes_[at], from.far(device_at), bytes, hipMemcpyDeviceToHost), "copying back");
    });
  }
  double at(std::int32_t row, std::int32_t column) const {
    return reference::element(type_, host(), index(row, 0) * packing_of(type_) + column);
  }
  /// The element holds what it held before any was set.
  bool untouched(std::int32_t row, std::int32_t column) const {
    const auto* const first = &bytes_[index(row, column) * size_of(type_)];
    return std::all_of(first, first + size_of(type_), [&](auto byte) { return byte == poison_; });
  }
  /// Bytes that belong to no element of the rows still hold what they held.
  bool gaps_kept(std::int32_t rows, std::int32_t columns) const {
    if (row_bytes_ > 0) return true;
    std::vector<std::size_t> begins(static_cast<std::size_t>(rows));
    for (std::int32_t r = 0; r < rows; ++r) begins[r] = index(r, 0) * size_of(type_);
    std::sort(begins.begin(), begins.end());
    // Each byte of a gap is the one before it, and the first is the poison.
    const auto kept = [this](std::size_t from, std::size_t to) {
      const std::uint8_t* const first = bytes_.data() + from;
      return from >= to || (*first == poison_ && std::memcmp(first, first + 1, to - from - 1) == 0);
    };
    std::size_t end = 0;
    for (const std::size_t begin : begins) {
      if (!kept(end, begin)) return false;
      end = std::max(end, begin + bytes_of(type_, columns));
    }
    return kept(end, bytes_.size());
  }
  const void* host() const { return bytes_.data(); }
  void* device() const { return device_.data(); }
  const RowStrides& host_strides() const { return strides_; }

 private:
  void begin_setting() {
    if (poison_ == unwritten_byte) std::fill(bytes_.begin(), bytes_.end(), poison_ = unread_byte);
  }
  void set_row(std::int32_t row, const std::vector<float>& values) {
    if (!values.empty())
      put_values(type_, &bytes_[index(row, 0) * size_of(type_)], values.data(), static_cast<int>(values.size()));
  }
  std::byte* far(std::int64_t byte) const { return static_cast<std::byte*>(device_.data()) + byte; }
  /// Calls f(byte on the host, byte on the device, bytes) for the whole tensor, or for every row.
  template <class F>
  void each_part(const F& f) const {
    if (row_bytes_ == 0) {
      if (!bytes_.empty()) f(0, 0, bytes_.size());
      return;
    }
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(bytes_.size() / row_bytes_); ++r) {
      f(std::int64_t{r} * row_bytes_, reference::row_offset(r, inner_rows_, far_) * size_of(type_), row_bytes_);
    }
  }
  void upload() const {
    each_part([&](std::int64_t at, std::int64_t device_at, std::size_t bytes) {
      bench::check_hip(hipMemcpy(far(device_at), &bytes_[at], bytes, hipMemcpyHostToDevice), "copying over");
    });
  }
  std::int64_t index(std::int32_t row, std::int32_t column) const {
    return reference::row_offset(row, inner_rows_, strides_) + column;
  }
  DType type_;
  std::int32_t inner_rows_;
  RowStrides strides_;  // on the host, and on the device where far_ does not say otherwise
  RowStrides far_{};
  std::int64_t row_bytes_ = 0;  // of a far tensor
  std::uint8_t poison_ = unwritten_byte;
  std::vector<std::uint8_t> bytes_;
  bench::DeviceBuffer device_;
};

/// Calls f() under every schedule of the host room, else once.
template <class F>
void each_schedule(const F& f) {
#if TILEWAVE_ON_GPU_COMPILER
  f();
#else
  for (const host::Schedule schedule : host::all_schedules) {
    const WithOptions with({.threads = host::options().threads, .schedule = schedule, .seed = 1});
    f();
  }
#endif
}

/// The n-th of the indices that are none of a table of so many rows: right behind it, before it, as far away as can be.
/// Of i64 first one whose low word alone would be in the table.
inline std::int64_t outside_table(IndexType type, std::int64_t rows, int n) {
  using Wide = std::numeric_limits<std::int64_t>;
  using Narrow = std::numeric_limits<std::int32_t>;
  const std::int64_t wide[] = {
      (std::int64_t{1} << 32) + rows / 2, rows, -1, Wide::min() + rows / 2, Wide::max(), -(std::int64_t{1} << 32)};
  const std::int64_t narrow[] = {rows, -1, Narrow::min(), Narrow::max()};
  return type == IndexType::i64 ? wide[n % std::size(wide)] : narrow[n % std::size(narrow)];
}

/// Strides of rows of which the second starts beyond 2^31 elements and the third beyond 2^32, by either stride.
inline RowStrides far_strides(int inner_rows) {
  constexpr std::int64_t step = (std::int64_t{1} << 31) + 640;
  return inner_rows == 1 ? RowStrides{step, 0} : RowStrides{inner_rows * step + 4096, step};
}

/// A value in [-2, 2) drawn from a name and a place.
inline float drawn(char name, std::int64_t row, std::int64_t column) {
  return 2.0f * bench::random_of_row(7, name, row, column);
}

using bench::half_step;

template <class T>
T* moved(T* p, int bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(p) + bytes);
}

/// A problem made wrong in one way, and the status that must name it.
template <class Problem>
struct Wrong {
  const char* what;
  StatusCode code;
  void (*make)(Problem&);
  const char* reason = "";  // a part of it
};

/// Returns the good problem made wrong. The check refuses it with the status and the reason that are said.
template <class Problem>
Problem wrong_of(const Problem& good, const Wrong<Problem>& wrong, Status (*check)(const Problem&, const ArchFacts&),
                 const ArchFacts& facts) {
  Problem p = good;
  wrong.make(p);
  const Status status = check(p, facts);
  CHECK(name_of(status.code) == name_of(wrong.code));
  CHECK(std::string(status.reason) != "");
  CHECK(std::string(status.reason).find(wrong.reason) != std::string::npos);
  return p;
}

/// The good problem passes the check. Each wrong one is refused: by the check with its status and a reason, by the
/// entry's launch, and by the selection, which has no entry then, though it had one.
template <class Entry, class Problem>
void check_refused(const Entry& e, const Problem& good, std::span<const Wrong<Problem>> wrongs,
                   Status (*check)(const Problem&, const ArchFacts&),
                   Status (*select)(const Problem&, std::span<const Entry* const>, const ArchFacts&, const Entry*&),
                   std::span<const Entry* const> entries) {
  const ArchFacts& facts = facts_of(e.arch);
  INFO(name_of(e.spec));
  REQUIRE(name_of(check(good, facts).code) == "ok");
  for (const Wrong<Problem>& wrong : wrongs) {
    INFO(wrong.what);
    const Problem p = wrong_of(good, wrong, check, facts);
    CHECK_FALSE(e.launch(p, {}).ok());
    const Entry* chosen = &e;
    CHECK_FALSE(select(p, entries, facts, chosen).ok());
    CHECK(chosen == nullptr);
  }
}

/// The same for an op whose plan has several launches and chooses among the entries of `parts`: each wrong problem is
/// refused by the check, by the choice, which leaves no plan, and by the launch of the plan made for the good one.
template <class Plan, class Problem, class Parts>
void check_plan_refused(Problem good, std::initializer_list<Wrong<Problem>> wrongs,
                        Status (*check)(const Problem&, const ArchFacts&),
                        Status (*select)(const Problem&, const Parts&, const ArchFacts&, Plan&), const Parts& parts,
                        const ArchFacts& facts) {
  REQUIRE(name_of(check(good, facts).code) == "ok");
  Plan plan;
  REQUIRE(select(good, parts, facts, plan).ok());
  const bench::DeviceBuffer workspace(plan.workspace_bytes(good));
  good.workspace = workspace.data(), good.workspace_bytes = workspace.bytes();
  for (const Wrong<Problem>& wrong : wrongs) {
    INFO(wrong.what);
    const Problem p = wrong_of(good, wrong, check, facts);
    Plan none;
    CHECK(select(p, parts, facts, none).code == wrong.code);
    CHECK(none.entry == nullptr);
    CHECK(!plan.launch(p, {}).ok());
  }
}

/// More rows than one launch has lanes for are refused where an entry is selected, not only at the launch.
template <class Entry, class Problem>
void check_too_many_rows(Problem p,
                         Status (*select)(const Problem&, std::span<const Entry* const>, const ArchFacts&,
                                          const Entry*&),
                         std::span<const Entry* const> entries, const ArchFacts& facts) {
  p.x = reinterpret_cast<const void*>(std::uintptr_t{1} << 48);
  p.out = reinterpret_cast<void*>(std::uintptr_t{1} << 49);
  for (const std::int32_t columns : {8, 4096}) {
    p.rows = 0x7fffffff - 65536;
    p.columns = columns;
    p.x_strides = p.out_strides = {columns, 0};
    const Entry* chosen = entries[0];
    const Status status = select(p, entries, facts, chosen);
    CHECK(name_of(status.code) == "bad_extent");
    CHECK(chosen == nullptr);
  }
}

/// No rows, and rows without columns, are fine; and neither they nor what was refused before wrote to `out`.
template <class Entry, class Problem>
void check_empty(const Entry& e, const Problem& good, Tensor& out) {
  for (void (*const make)(Problem&) : {+[](Problem& p) { p.rows = 0; }, +[](Problem& p) { p.columns = 0; }}) {
    Problem p = good;
    make(p);
    CHECK(e.launch(p, {}).ok());
  }
  out.download();
  CHECK(out.gaps_kept(0, 0));
}

}  // namespace tilewave::test
