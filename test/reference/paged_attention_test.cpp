// SPDX-License-Identifier: MIT
// The reference against closed forms, answers that are known without computing attention.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "test/catch_compat.hpp"
#include "test/reference/small_call.hpp"

namespace tilewave {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double bf16_half_step = 1.0 / 256;  // relative rounding error of a value stored as bf16

PagedAttentionSpec bf16_spec(int head_size = 64) { return {.kv = DType::bf16, .head_size = head_size}; }

TEST_CASE("visible tokens: causal over the mtp queries, W + 1 keys in a window") {
  using reference::visible_tokens;
  CHECK(visible_tokens(10, 1, 0, 0).count() == 10);
  CHECK(visible_tokens(10, 3, 0, 0).count() == 8);
  CHECK(visible_tokens(10, 3, 2, 0).count() == 10);
  CHECK(visible_tokens(10, 3, 1, 4).first == 4);
  CHECK(visible_tokens(10, 3, 1, 4).end == 9);
  CHECK(visible_tokens(10, 1, 0, 100).count() == 10);
  CHECK(visible_tokens(0, 1, 0, 0).count() == 0);
  CHECK(visible_tokens(1, 3, 0, 5).count() == 0);
  CHECK(visible_tokens(1, 3, 2, 5).count() == 1);
}

TEST_CASE("q = 0 gives the mean of the visible V and lse = log of their number") {
  const int window = GENERATE(0, 1, 7, 200);
  const bool shuffled = GENERATE(true, false);
  CAPTURE(window, shuffled);
  Call c(bf16_spec(), {1, 15, 16, 17, 63, 64, 65, 130}, 3, 4, 2, 16, shuffled);
  c.p.sliding_window = window;
  c.fill_q(0);
  // V shows its index: token t of head h holds t + 1 in the even dimensions, and minus that in the odd ones.
  c.each_token([&](int b, int h, int t) {
    for (int d = 0; d < 64; ++d) {
      c.set_k(b, h, t, d, 1.0f);
      c.set_v(b, h, t, d, static_cast<float>((d % 2 ? -1 : 1) * (t + 1)), shuffled);
    }
  });
  const auto r = reference::paged_attention(c.p, 2);
  for (int b = 0; b < c.p.batch; ++b)
    for (int i = 0; i < 3; ++i) {
      // The contract is written out again: a query at position L - mtp + i sees itself and W tokens before it.
      const int position = c.lengths[b] - 3 + i;
      const int first = window > 0 ? std::max(0, position - window) : 0, count = position - first + 1;
      for (int head = 0; head < 4; ++head) {
        CAPTURE(b, i, head);
        const double lse = r.lse[(b * 3 + i) * 4 + head];
        if (count <= 0) {
          CHECK(lse == -inf);
          CHECK(c.out(r, b * 3 + i, head, 5) == 0);
          continue;
        }
        CHECK(lse == test::Approx(std::log(count)).epsilon(1e-12));
        const double mean = (first + position) / 2.0 + 1;
        CHECK(c.out(r, b * 3 + i, head, 0) == test::Approx(mean).epsilon(1e-12));
        CHECK(c.out(r, b * 3 + i, head, 63) == test::Approx(-mean).epsilon(1e-12));
      }
    }
}

TEST_CASE("a one-hot K picks its row of V, through every layout, type and scale") {
  const auto spec =
      GENERATE(PagedAttentionSpec{.kv = DType::bf16, .head_size = 128},
               PagedAttentionSpec{.kv = DType::fp8_e4m3fn, .quant = Scaling::per_tensor, .head_size = 64},
               PagedAttentionSpec{.kv = DType::fp8_e4m3fnuz, .quant = Scaling::per_token, .head_size = 256});
  const bool shuffled = GENERATE(true, false);
  CAPTURE(name_of(spec), shuffled);
  Call c(spec, {70, 100}, 1, 4, 2, 32, shuffled);
  // Token t has its only value at dimension t % 64. t and t + 64 share a dimension and differ in the value.
  c.fill_q(0);
  c.each_token([&](int b, int h, int t) {
    c.k_scale[c.scale_at(b, h, t)] = spec.quant == Scaling::per_token ? 0.5f + 0.001f * t : 0.25f;
    c.v_scale[c.scale_at(b, h, t)] = spec.quant == Scaling::per_token ? 2.0f + 0.01f * t : 3.0f;
    for (int d = 0; d < spec.head_size; ++d) {
      c.set_k(b, h, t, d, d == t % 64 ? (t < 64 ? 4.0f : 2.0f) : 0.0f);
      c.set_v(b, h, t, d, static_cast<float>((t * 7 + d * 3 + h) % 13), shuffled);
    }
  });
  if (spec.quant == Scaling::per_tensor) {
    c.k_scale[0] = 0.25f;
    c.v_scale[0] = 3.0f;
  }
  for (int head = 0; head < 4; ++head) {
    c.set_q(0, head, 11 + head, 1000.0f);
    c.set_q(1, head, 40 + head, 1000.0f);
  }
  const auto r = reference::paged_attention(c.p, 1);
  for (int b = 0; b < 2; ++b)
    for (int head = 0; head < 4; ++head) {
      const int t = (b == 0 ? 11 : 40) + head, h = head / 2;
      const double k =
          spec.quant == Scaling::none ? 1 : c.k_scale[spec.quant == Scaling::per_token ? c.scale_at(b, h, t) : 0];
      const double v =
          spec.quant == Scaling::none ? 1 : c.v_scale[spec.quant == Scaling::per_token ? c.scale_at(b, h, t) : 0];
      CAPTURE(b, head);
      CHECK(r.lse[b * 4 + head] == test::Approx(1000 * 4 * k).epsilon(bf16_half_step));
      for (int d = 0; d < spec.head_size; ++d)
        CHECK(c.out(r, b, head, d) == test::Approx(v * ((t * 7 + d * 3 + h) % 13)));
    }
}

TEST_CASE("two tokens weigh as the softmax of their scores says") {
  Call c(bf16_spec(), {2});
  c.p.softmax_scale = 0.125f;
  c.fill_q(0);
  for (int head = 0; head < 4; ++head) c.set_q(0, head, 3, 2.0f + head);
  c.each_token([&](int b, int h, int t) {
    for (int d = 0; d < 64; ++d) {
      c.set_k(b, h, t, d, t == 0 ? 0.0f : 4.0f);
      c.set_v(b, h, t, d, t == 0 ? -1.0f : 3.0f);
    }
  });
  const auto r = reference::paged_attention(c.p);
  for (int head = 0; head < 4; ++head) {
    const double weight = std::exp(0.125 * (2 + head) * 4), sum = 1 + weight;
    CHECK(c.out(r, 0, head, 0) == test::Approx((3 * weight - 1) / sum).epsilon(1e-12));
    CHECK(r.lse[head] == test::Approx(std::log(sum)).epsilon(1e-12));
  }
}

TEST_CASE("large logits neither overflow nor meet a finite mask value") {
  const float size = GENERATE(1e4f, -1e4f);
  Call c(bf16_spec(), {40}, 2);
  c.fill_q(size);
  c.each_token([&](int b, int h, int t) {
    for (int d = 0; d < 64; ++d) {
      c.set_k(b, h, t, d, 100.0f);
      c.set_v(b, h, t, d, 1.0f);
    }
  });
  const auto r = reference::paged_attention(c.p);
  for (const double value : r.out) CHECK(value == test::Approx(1.0));
  const double score = double{bf16_to_f32(f32_to_bf16(size))} * 100 * 64;
  CHECK(r.lse[0] == test::Approx(score + std::log(39)).epsilon(1e-12));  // row 0 sees all but the last
}

TEST_CASE("empty sequences and rows give 0 and lse -inf") {
  Call c(bf16_spec(), {0, -3, 2}, 4);
  c.fill_q(1);
  c.each_token([&](int b, int h, int t) {
    for (int d = 0; d < 64; ++d) {
      c.set_k(b, h, t, d, 1.0f);
      c.set_v(b, h, t, d, 5.0f);
    }
  });
  const auto r = reference::paged_attention(c.p);
  for (int row = 0; row < 12; ++row) {
    const bool empty = row < 10;  // sequence 2 has two tokens: its last two queries see one and two
    for (int head = 0; head < 4; ++head) {
      CAPTURE(row, head);
      CHECK((r.lse[row * 4 + head] == -inf) == empty);
      CHECK(c.out(r, row, head, 17) == test::Approx(empty ? 0.0 : 5.0));
    }
  }
}

TEST_CASE("a sink adds to the sum, once for each head and unscaled, and has no value") {
  Call c(bf16_spec(), {0, 3}, 2);
  c.p.softmax_scale = 0.125f;
  const std::vector<float> sinks{0.5f, -4.0f, 3.0f, static_cast<float>(-inf)};
  c.p.sinks = sinks.data();
  c.fill_q(0);
  c.each_token([&](int b, int h, int t) {
    for (int d = 0; d < 64; ++d) {
      c.set_k(b, h, t, d, 1.0f);
      c.set_v(b, h, t, d, 2.0f);
    }
  });
  const auto r = reference::paged_attention(c.p);
  for (int row = 0; row < 4; ++row)
    for (int head = 0; head < 4; ++head) {
      const int n = row < 2 ? 0 : row;  // two and three tokens
      const double sum = n + std::exp(double{sinks[head]});
      CAPTURE(row, head);
      CHECK(c.out(r, row, head, 7) == test::Approx(n == 0 ? 0 : 2 * n / sum).epsilon(1e-12));
      if (sum == 0) {
        CHECK(r.lse[row * 4 + head] == -inf);
      } else {
        CHECK(r.lse[row * 4 + head] == test::Approx(std::log(sum)).epsilon(1e-12));
      }
    }
}

TEST_CASE("soft-cap, then alibi: two tokens weigh as the softmax of their final scores says") {
  Call c({.kv = DType::bf16, .head_size = 64, .soft_cap = true, .alibi = true}, {3}, 2);
  c.p.softmax_scale = 0.5f;
  c.p.soft_cap = 3.0f;
  const std::vector<float> slopes{0.5f, 0.25f, 0.0f, -1.0f};
  c.p.alibi_slopes = slopes.data();
  c.fill_q(0);
  for (int row = 0; row < 2; ++row)
    for (int head = 0; head < 4; ++head) c.set_q(row, head, 3, 2.0f + head);
  c.each_token([&](int b, int h, int t) {
    for (int d = 0; d < 64; ++d) {
      c.set_k(b, h, t, d, d == 3 ? static_cast<float>(4 * t - 4) : 0.0f);
      c.set_v(b, h, t, d, static_cast<float>(1 << t));
    }
  });
  const auto r = reference::paged_attention(c.p);
  for (int row = 0; row < 2; ++row)
    for (int head = 0; head < 4; ++head) {
      const int position = row + 1;
      double sum = 0, value = 0;
      for (int t = 0; t <= position; ++t) {
        const double score = 0.5 * (2 + head) * (4 * t - 4);
        const double weight = std::exp(3 * std::tanh(score / 3) + slopes[head] * (t - position));
        sum += weight;
        value += weight * (1 << t);
      }
      CAPTURE(row, head);
      CHECK(c.out(r, row, head, 9) == test::Approx(value / sum).epsilon(1e-12));
      CHECK(r.lse[row * 4 + head] == test::Approx(std::log(sum)).epsilon(1e-12));
    }
}

TEST_CASE("scales per head: each kv head its own, at a stride") {
  Call c({.kv = DType::fp8_e4m3fn, .quant = Scaling::per_head, .head_size = 64}, {1}, 1, 4, 2);
  c.p.scale_head_stride = 3;
  c.k_scale[0] = 0.5f;
  c.k_scale[3] = 2.0f;
  c.v_scale[0] = 3.0f;
  c.v_scale[3] = 0.25f;
  c.fill_q(0.125f);
  c.each_token([&](int b, int h, int t) {
    for (int d = 0; d < 64; ++d) {
      c.set_k(b, h, t, d, 1.0f);
      c.set_v(b, h, t, d, 4.0f);
    }
  });
  const auto r = reference::paged_attention(c.p);
  for (int head = 0; head < 4; ++head) {
    CHECK(r.lse[head] == test::Approx(8 * (head < 2 ? 0.5 : 2.0)));
    CHECK(c.out(r, 0, head, 11) == test::Approx(head < 2 ? 12.0 : 1.0));
  }
}

TEST_CASE("sampled pairs equal the full answer and leave the rest NaN") {
  Call c(bf16_spec(), {33, 90, 7}, 4, 20, 2);  // 40 rows a pair: two tasks
  c.fill_q(0.5f);
  c.each_token([&](int b, int h, int t) {
    for (int d = 0; d < 64; ++d) {
      c.set_k(b, h, t, d, static_cast<float>((t * 5 + d + h) % 7) / 8);
      c.set_v(b, h, t, d, static_cast<float>((t * 3 + d) % 11) / 4);
    }
  });
  const auto all = reference::paged_attention(c.p, 2);
  const std::vector<reference::PagedAttentionPair> pairs{{1, 1}, {2, 0}};
  const auto some = reference::paged_attention(c.p, 2, pairs);
  int compared = 0;
  for (int row = 0; row < 12; ++row)
    for (int head = 0; head < 20; ++head) {
      const bool asked = (row / 4 == 1 && head >= 10) || (row / 4 == 2 && head < 10);
      CAPTURE(row, head);
      CHECK(std::isnan(some.lse[row * 20 + head]) == !asked);
      if (!asked) continue;
      ++compared;
      CHECK(some.lse[row * 20 + head] == all.lse[row * 20 + head]);
      for (int d = 0; d < 64; ++d) CHECK(c.out(some, row, head, d) == c.out(all, row, head, d));
    }
  CHECK(compared == 80);
}

TEST_CASE("NHD and HND caches, in f16 and bf16, with head sizes and pages of any size") {
  const bool nhd = GENERATE(true, false);
  const DType type = GENERATE(DType::f16, DType::bf16);
  CAPTURE(nhd, std::string(name_of(type)));
  const int block_size = 5, heads = 2, head_size = 80;
  const PagedAttentionSpec spec{.q = type,
                                .kv = type,
                                .out = type,
                                .head_size = head_size,
                                .values = ValueLayout::token_major,
                                .any_block_size = true};
  Call c(spec, {7, 23}, 1, 4, heads, block_size);
  c.p.k_strides = nhd ? nhd_key_strides(spec, heads, block_size) : hnd_key_strides(spec, heads, block_size);
  c.p.v_strides = nhd ? nhd_value_strides(spec, heads, block_size) : hnd_value_strides(spec, heads, block_size);
  const auto store = [&](std::vector<std::uint8_t>& cache, std::int64_t element, float value) {
    const std::uint16_t bits = type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    cache[2 * element] = static_cast<std::uint8_t>(bits);
    cache[2 * element + 1] = static_cast<std::uint8_t>(bits >> 8);
  };
  // Each head picks one token, whose key is the only one along the query. The layouts are written out.
  const auto target = [&](int b, int head) { return (3 * head + b) % c.lengths[b]; };
  c.each_token([&](int b, int h, int t) {
    const std::int64_t page = c.page(b, t), slot = t % block_size;
    const std::int64_t first = (nhd ? (page * block_size + slot) * heads + h : (page * heads + h) * block_size + slot);
    for (int d = 0; d < head_size; ++d) {
      store(c.k, first * head_size + d, d == t ? 64.0f : 0.0f);
      store(c.v, first * head_size + d, static_cast<float>((t * 3 + d + 7 * h + b) % 128));
    }
  });
  for (int b = 0; b < 2; ++b)
    for (int head = 0; head < 4; ++head)
      for (int d = 0; d < head_size; ++d) {
        const float value = d == target(b, head) ? 64.0f : 0.0f;
        c.q[b * c.p.q_row_stride + head * c.p.q_head_stride + d] =
            type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      }
  const auto r = reference::paged_attention(c.p, 2);
  for (int b = 0; b < 2; ++b)
    for (int head = 0; head < 4; ++head) {
      CHECK(r.lse[b * 4 + head] == 64.0 * 64.0);
      int wrong = 0;
      for (int d = 0; d < head_size; ++d) {
        wrong += c.out(r, b, head, d) != (target(b, head) * 3 + d + 7 * (head / 2) + b) % 128;
      }
      CHECK(wrong == 0);
    }
}

}  // namespace
}  // namespace tilewave
