// SPDX-License-Identifier: MIT
// The tensors of a row operation as regions of memory, and the rules that every operation has for them.
#pragma once

#include <array>
#include <string_view>

#include "tilewave/core/math.hpp"
#include "tilewave/core/region.hpp"
#include "tilewave/core/status.hpp"
#include "tilewave/tile/row_output.hpp"

namespace tilewave {

/// Text as a template argument. It makes reasons with a tensor's name static strings.
template <std::size_t n>
struct StaticText {
  char text[n];
  constexpr StaticText(const char (&from)[n]) : text{} {
    for (std::size_t i = 0; i < n; ++i) text[i] = from[i];
  }
};
namespace detail {
template <StaticText... parts>
constexpr auto join() {
  std::array<char, 1 + (... + (sizeof(parts.text) - 1))> all{};
  std::size_t at = 0;
  const auto append = [&](std::string_view part) {
    for (const char c : part) all[at++] = c;
  };
  (append(parts.text), ...);  // nvcc 13 accepts no pack in a list that a loop goes through
  return all;
}
template <StaticText... parts>
inline constexpr auto joined = join<parts...>();
}  // namespace detail

/// A field of a struct of strides, as Region::Dimension::zero names it; the tensor's member is `name_strides`.
template <StaticText field>
inline constexpr const char* stride_field = detail::joined<field>.data();

/// Returns the region of rows with RowStrides.
inline Region rows_region(const void* data, DType type, std::int32_t rows, std::int32_t columns,
                          std::int32_t inner_rows, const RowStrides& s) {
  const std::int32_t rest = rows % inner_rows;
  columns /= packing_of(type);  // from here on, columns are elements
  Region region(data, size_of(type), columns,
                {{ceil_div<std::int64_t>(rows, inner_rows), s.outer, stride_field<"outer">},
                 {min_of(rows, inner_rows), s.inner, stride_field<"inner">}});
  if (rows > inner_rows && rest > 0 && s.outer >= 0 && s.inner >= 0 && region.addressable() && !region.empty()) {
    const std::int64_t whole = rows / inner_rows, last_whole = (whole - 1) * s.outer + (inner_rows - 1) * s.inner;
    region.end_at((max_of(last_whole, whole * s.outer + (rest - 1) * s.inner) + columns) * size_of(type));
  }
  return region;
}
/// Returns the region of contiguous elements.
inline Region vector_region(const void* data, DType type, std::int64_t count) {
  return Region(data, size_of(type), count, {});
}
/// Returns the region of the scales that RowOutputArgs describes, with the padding of shuffled ones.
template <class Problem>
Region scale_region(const Problem& p) {
  const Scaling mode = p.spec.scale;
  const std::int64_t groups = ceil_div<std::int64_t>(p.columns, group_of(mode));
  if (mode == Scaling::per_group)
    return Region(
        p.scale, sizeof(float), groups > 0,
        {{p.rows, p.scale_stride, "scale_stride is 0"}, {groups, p.scale_group_stride, "scale_group_stride is 0"}});
  if (mode == Scaling::mx && p.scale_layout == ScaleLayout::rows)
    return Region(p.scale, 1, groups, {{p.rows, p.scale_stride, "scale_stride is 0"}});
  if (mode == Scaling::mx)
    return Region(p.scale, 1, align_up<std::int64_t>(p.rows, 32) * align_up(groups, std::int64_t{8}), {});
  return vector_region(p.scale, DType::f32, mode == Scaling::none ? 0 : mode == Scaling::per_tensor ? 1 : p.rows);
}

namespace detail {
template <StaticText name, StaticText... fields>
const char* named_stride(const char* zero) {
  const char* reason = zero;
  ((zero == stride_field<fields> ? void(reason = joined<name, "_strides.", fields, " is 0">.data()) : void()), ...);
  return reason;
}
}  // namespace detail

/// Returns the reason that names the stride of a tensor which is 0, or `otherwise` where its region does not know.
template <StaticText name>
const char* zero_stride(const Region& tensor, const char* otherwise) {
  if (tensor.zero_stride() == nullptr) return otherwise;
  return detail::named_stride<name, "outer", "inner", "token", "head", "page", "unit", "dim", "partial", "row">(
      tensor.zero_stride());
}

/// Checks a tensor that is read. A stride of 0 was forgotten; `repeats` is the reason if the region does not know
/// which.
template <StaticText name>
Status check_read(const Region& tensor, const char* repeats) {
  if (!tensor.addressable()) {
    return {StatusCode::bad_stride,
            detail::joined<"multiples of a stride of ", name, " reach beyond 2^56 bytes">.data()};
  }
  if (tensor.repeats()) return {StatusCode::bad_stride, zero_stride<name>(tensor, repeats)};
  return {};
}
/// Checks a tensor that is written. `overlaps` is the reason if its rows overlap.
template <StaticText name>
Status check_written(const Region& tensor, const char* overlaps) {
  if (Status s = check_read<name>(tensor, overlaps); !s.ok()) return s;
  if (tensor.overlaps_itself()) return {StatusCode::bad_stride, overlaps};
  return {};
}
/// Checks scales that are read or written. One set of rules serves both, since overlapping groups are a wrong stride in
/// either case.
inline Status check_scales(const Region& scales) {
  return check_written<"scale">(scales,
                                "scales of two rows or groups overlap: see scale_stride and scale_group_stride");
}
/// True if a tensor that is written shares no byte with any of the others.
inline bool clear_of(const Region& written, std::initializer_list<Region> others) {
  for (const Region& other : others)
    if (overlap(written, other)) return false;
  return true;
}
/// Checks the strides of a tensor that is null. A stride that is given was meant for a tensor that was forgotten.
template <StaticText name>
Status check_absent(const void* tensor, std::initializer_list<std::int64_t> strides) {
  if (tensor != nullptr) return {};
  for (const std::int64_t stride : strides)
    if (stride != 0)
      return {StatusCode::bad_value, detail::joined<"a stride of ", name, " is given, but ", name, " is null">.data()};
  return {};
}
/// True if the tensors share no byte, or are the same tensor element for element. Each lane reads what it holds before
/// it writes there.
inline bool in_place_or_clear(const Region& written, const Region& other) {
  return written == other || !overlap(written, other);
}

}  // namespace tilewave
