// SPDX-License-Identifier: MIT
// Compares every element of every row with the reference, in three ways.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "bench/ops/paged_attention/case.hpp"
#include "tilewave/core/dtype.hpp"
#include "tilewave/reference/paged_attention.hpp"

namespace tilewave::bench {

/// The tolerances. An element passes within element * (1 + |reference|). That alone would let a missing token pass,
/// since at 1027 tokens outputs are about 0.02, near the tolerance. So each row (a query token and a head) must also be
/// within `row` of the reference in the l2 norm, and its lse within `lse`.
struct Tolerance {
  double element = 8e-3;
  double row = 1e-2;
  double lse = 1e-5;
};

/// element: FlyDSL tests/kernels/test_pa.py, get_tolerance. row: bf16 outputs and probabilities cost about 2e-3, one
/// missing or extra token of n about 1/sqrt(n), 3e-2 at 1027. lse: products of bf16 are exact in f32, sums of them cost
/// 3e-6; 1e-3 would hide a K element whose exponent is wrong. Native products: probabilities are rounded to fp8, by
/// 2^-4 at most, down to 2^-12 of the largest.
constexpr Tolerance tolerance_of(const PagedAttentionSpec& s) {
  return s.native ? Tolerance{.element = 7e-2, .row = 7e-2, .lse = 7e-2} : Tolerance{};
}
constexpr Tolerance tolerance_of(const PagedAttentionCase& c) {
  Tolerance t = tolerance_of(spec_of(c));
  if (c.native) return t;
  t.element = c.kv_varlen ? (c.sliding_window > 0 ? 6e-2 : 5e-2) : (c.sliding_window > 0 ? 5e-2 : 8e-3);
  return t;
}

struct Verdict {
  bool pass = true;
  std::int64_t elements = 0;  // compared
  std::int64_t bad = 0;       // outside the tolerance: elements, plus rows and lse values
  double max_abs_err = 0;     // over elements; inf if one is not a number
  double max_rel_err = 0;     // over rows: l2 norm of the difference / l2 norm of the reference
  double max_lse_err = 0;
  std::string reason;  // the first finding, empty if there is none
};

namespace detail {
inline double distance(double actual, double expected) {
  if (actual == expected) return 0;  // equal infinities too
  const double difference = std::abs(actual - expected);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}
}  // namespace detail

/// Compare out [batch * mtp, Hq, D] (bits of the spec's type) and lse [batch * mtp, Hq] with the reference, for the
/// given pairs of (sequence, kv head). A row that sees no token must be exactly 0 with lse -inf.
inline Verdict verify(const PagedAttentionProblem& p, const reference::PagedAttentionResult& expected,
                      const std::uint16_t* out, const float* lse, const Tolerance& tolerance,
                      std::span<const reference::PagedAttentionPair> pairs) {
  Verdict verdict;
  const int head_size = p.spec.head_size, group = p.num_q_heads / p.num_kv_heads;
  const auto found = [&](std::int64_t row, std::int64_t head, const char* what, double actual, double wanted) {
    verdict.pass = false;
    if (verdict.bad++ > 0) return;
    verdict.reason = std::string(what) + " is " + std::to_string(actual) + " instead of " + std::to_string(wanted) +
                     " at row " + std::to_string(row) + ", head " + std::to_string(head);
  };
  for (const reference::PagedAttentionPair& pair : pairs) {
    for (int r = 0; r < p.mtp * group; ++r) {
      const std::int64_t row = std::int64_t{pair.sequence} * p.mtp + r / group;
      const std::int64_t head = std::int64_t{pair.kv_head} * group + r % group;
      const std::int64_t at = row * p.num_q_heads + head;
      double difference = 0, norm = 0;
      for (int d = 0; d < head_size; ++d) {
        const std::uint16_t bits = out[at * head_size + d];
        const double actual = p.spec.out == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
        const double wanted = expected.out[at * head_size + d];
        const double error = detail::distance(actual, wanted);
        difference += error * error;
        norm += wanted * wanted;
        verdict.max_abs_err = std::max(verdict.max_abs_err, error);
        if (!(error <= tolerance.element * (1 + std::abs(wanted)))) found(row, head, "out", actual, wanted);
      }
      verdict.elements += head_size;
      const double relative = difference == 0 ? 0 : std::sqrt(difference / norm);
      verdict.max_rel_err = std::max(verdict.max_rel_err, relative);
      if (!(relative <= tolerance.row)) found(row, head, "the error norm of out", relative, 0);
      const double lse_error = detail::distance(lse[at], expected.lse[at]);
      verdict.max_lse_err = std::max(verdict.max_lse_err, lse_error);
      if (!(lse_error <= tolerance.lse)) found(row, head, "lse", lse[at], expected.lse[at]);
    }
  }
  return verdict;
}

}  // namespace tilewave::bench
