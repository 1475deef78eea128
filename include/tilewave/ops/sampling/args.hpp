// SPDX-License-Identifier: MIT
// The arguments of the sampling kernels, and the parameters of a row's draw.
#pragma once

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/launch_arguments.hpp"
#include "tilewave/ops/sampling/problem.hpp"

namespace tilewave {

/// The results that blocks which share a row leave in the workspace: one SamplingFound for the row, and one
/// SamplingWeighed for each wave's segment of it.
struct SamplingFound {
  float largest;  // -inf if there is no token
  float from;     // the least logit that top_k leaves
};
struct SamplingWeighed {
  std::uint64_t of_logprobs, all, likely, unused;  // sums of weights, see SamplingSums
};

/// A RowValue as kernels receive it, in 16 bytes. With data, `value` is not 0 where each row has its own.
template <class T>
struct SamplingValue {
  const T* data;
  T value;

  static SamplingValue of(const RowValue<T>& v) {
    return {v.data, v.data == nullptr ? v.value : static_cast<T>(v.shared ? 0 : 1)};
  }
  TILEWAVE_DEVICE bool of_each_row() const { return data != nullptr && value != T{0}; }
};

struct SamplingArgs {
  const void* x;
  std::int32_t* tokens;
  float* logprobs;
  SamplingValue<float> temperature, top_p, min_p;
  SamplingValue<std::int32_t> top_k;
  SamplingValue<std::uint64_t> seed, offset;
  std::int64_t row_stride;
  std::int32_t rows, columns;
  bool raw_logprobs;
  std::int32_t part_bits;    // 2 to this power blocks share a row
  SamplingFound* found;      // [rows], where blocks share rows
  SamplingWeighed* weighed;  // [rows, blocks of a row, waves of a block]
};
static_assert(sizeof(SamplingArgs) <= sm90_arguments_with_launch);

/// The parameters by which a row is drawn.
template <class B>
struct SamplingValues {
  float temperature, top_p, min_p;
  std::int32_t top_k;
  std::uint64_t seed, offset;
  std::uint32_t row;  // row in the draw's counter
  bool greedy, filters_mass;

  TILEWAVE_DEVICE SamplingValues(const SamplingArgs& a, int of_row)
      : temperature(value_of(a.temperature, of_row)),
        top_p(value_of(a.top_p, of_row)),
        min_p(value_of(a.min_p, of_row)),
        top_k(value_of(a.top_k, of_row)),
        seed(value_of(a.seed, of_row)),
        offset(value_of(a.offset, of_row)),
        row(a.seed.of_each_row() ? 0u : of_row) {
    greedy = !(temperature >= 1e-5f);
    filters_mass = !greedy && top_p < 1.0f;
    if (greedy || top_k <= 0 || top_k >= a.columns) top_k = 0;
  }
  /// Returns the powers of two by which a unit of logit scales a weight. It is positive, whatever the temperature.
  TILEWAVE_DEVICE float scale() const {
    const float scale = log2_e / temperature;
    return greedy ? log2_e : scale > 1e-30f ? scale : 1e-30f;
  }

 private:
  template <class T>
  TILEWAVE_DEVICE static T value_of(const SamplingValue<T>& v, int row) {
    return v.data == nullptr ? v.value : B::load(v.data + (v.of_each_row() ? row : 0));
  }
};

}  // namespace tilewave
