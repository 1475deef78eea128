// SPDX-License-Identifier: MIT
// Values of K and V whose attention is known in closed form, and whose answer shows which tokens were used.
#pragma once

#include "test/ops/paged_attention/call.hpp"

namespace tilewave::test {

inline constexpr float minus_inf = -std::numeric_limits<float>::infinity();
inline constexpr double bf16_step = 1.0 / 128;  // between neighbouring bf16 values, relative

/// V that counts, for q = 0: token t of a sequence holds 1 in dimension t % head_size, so n times the mean says how
/// many tokens of each residue were used. Per-token scales are powers of two and cancel exactly.
inline void set_counting_v(Call& call) {
  const bool scaled = call.p.spec.quant == Scaling::per_token;
  const auto scale = [scaled](int t) { return scaled ? std::ldexp(1.0f, t % 5 - 2) : 1.0f; };
  call.set_v([&](int, int, int t, int d) { return d == t % call.p.spec.head_size ? 1.0f / scale(t) : 0.0f; });
  call.set_v_scale([&](int, int, int t) { return scale(t); });
}

/// q = 0, K of small numbers and a counting V.
inline void set_counting(Call& call) {
  call.set_q([](int, int, int) { return 0.0f; });
  call.set_k([](int, int, int t, int d) { return static_cast<float>((t + d) % 7) - 3; });
  set_counting_v(call);
}

/// Wrong values in the answer of a counting call. Each row must have used [position - window, position]: lse says how
/// many tokens, the counts say which; a row without any must be 0 with lse -inf.
inline int wrong_counts(const Call& call, const Answer& answer) {
  int wrong = 0;
  const int head_size = call.p.spec.head_size;
  for (int row = 0; row < call.rows(); ++row) {
    const int end = call.position(row) + 1;
    const int first = call.p.sliding_window > 0 ? std::max(0, end - 1 - call.p.sliding_window) : 0;
    const int n = std::max(0, end - first);
    std::vector<int> count(head_size, 0);
    for (int t = first; t < end; ++t) ++count[t % head_size];
    for (int head = 0; head < call.p.num_q_heads; ++head) {
      const float lse = answer.lse_at(row, head);
      wrong += n == 0 ? lse != minus_inf : !(std::abs(lse - std::log(static_cast<float>(n))) < 1e-5f);
      for (int d = 0; d < head_size; ++d) {
        const float value = answer.at(row, head, d);
        wrong += n == 0 ? value != 0 : !(std::abs(value * n - count[d]) <= count[d] * bf16_step);
      }
    }
  }
  return wrong;
}

/// Signatures: K of a token is a pattern of signs of its own, and a query that is four times that pattern picks the
/// token: every other score is lower by some hundred. Its answer is the V of that token to the last bit, which shows
/// token, KV head and sequence. Per-token scales differ from token to token, from head to head, and between K and V.
struct Signature {
  bool scaled;

  explicit Signature(const Call& call) : scaled(call.p.spec.quant == Scaling::per_token) {}

  static float sign(int t, int h, int d) {
    return bench::random_bits({std::uint64_t(t), std::uint64_t(h), std::uint64_t(d)}) & 1 ? 1.0f : -1.0f;
  }
  float k_scale(int h, int t) const { return scaled ? std::ldexp(1.0f, (t + 2 * h) % 4 - 1) : 1.0f; }
  float v_scale(int h, int t) const { return scaled ? std::ldexp(1.0f, (2 * t + h) % 5) : 1.0f; }
  float k_code(int h, int t, int d) const { return sign(t, h, d) / k_scale(h, t); }
  float v_code(int b, int h, int t, int d) const { return static_cast<float>(1 + (t * 7 + d * 3 + h * 5 + b) % 15); }

  /// Sets Q so that each row and head picks token target(row, head).
  template <class Target>
  static void set_q(Call& call, Target target) {
    call.p.softmax_scale = 1;
    call.set_q([&](int row, int head, int d) { return 4 * sign(target(row, head), head / call.group(), d); });
  }
  void set_kv(Call& call) const {
    call.set_k([&](int, int h, int t, int d) { return k_code(h, t, d); });
    call.set_v([&](int b, int h, int t, int d) { return v_code(b, h, t, d); });
    if (!scaled) return;
    call.set_k_scale([&](int, int h, int t) { return k_scale(h, t); });
    call.set_v_scale([&](int, int h, int t) { return v_scale(h, t); });
  }
  /// The number of values of the answer that are not V of the row's target.
  template <class Target>
  int wrong(const Call& call, const Answer& answer, Target target) const {
    int wrong = 0;
    for (int row = 0; row < call.rows(); ++row)
      for (int head = 0; head < call.p.num_q_heads; ++head) {
        const int t = target(row, head), h = head / call.group(), b = row / call.p.mtp;
        wrong += !(std::abs(answer.lse_at(row, head) - 4 * call.p.spec.head_size) < 1e-3f);
        for (int d = 0; d < call.p.spec.head_size; ++d)
          wrong += answer.at(row, head, d) != v_code(b, h, t, d) * v_scale(h, t);
      }
    return wrong;
  }
};

}  // namespace tilewave::test
