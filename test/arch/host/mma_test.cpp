// SPDX-License-Identifier: MIT
// The host room's mma against a plain matrix product, element by element and as the chained pair of attention.
#include <random>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::mma {
namespace {

template <class B>
struct MmaKernel {
  struct Args {
    const std::uint16_t* rows;  // [rows, k] bf16
    const std::uint16_t* kv;    // [kv, k] bf16
    float* acc;                 // [rows, kv], in and out
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes;

  static void run(const Args& args, Shared&) {
    constexpr AtomFacts a = B::atom;
    const int lane = B::lane_id();
    typename B::KvOperand kv{};
    typename B::RowsOperand rows{};
    typename B::Accumulator acc{};
    for (int i = 0; i < 2 * kv.size; ++i) {
      const AtomElement e = a.kv_operand(lane, i);
      kv[i / 2] |= std::uint32_t{args.kv[e.index * a.k + e.k]} << 16 * (i % 2);
    }
    for (int i = 0; i < 2 * rows.size; ++i) {
      const AtomElement e = a.rows_operand(lane, i);
      rows[i / 2] |= std::uint32_t{args.rows[e.index * a.k + e.k]} << 16 * (i % 2);
    }
    for (int i = 0; i < acc.size; ++i) {
      const AtomElement e = a.accumulator(lane, i);
      acc[i] = args.acc[e.index * a.kv + e.k];
    }
    acc = B::mma(kv, rows, acc);
    for (int i = 0; i < acc.size; ++i) {
      const AtomElement e = a.accumulator(lane, i);
      args.acc[e.index * a.kv + e.k] = acc[i];
    }
  }
};

/// Scores S = Q K^T of one wave, then O = S V, without moving a score between lanes (atom.hpp, "chained"). Tokens are
/// x per lane group; score tile j holds tokens x*g + C*j + c, product step s the tokens x*g + E*s + e.
template <class B>
struct ChainedKernel {
  static constexpr AtomFacts a = B::atom;
  static constexpr int steps = 2, x = a.k_per_lane * steps, tokens = AtomFacts::groups * x;
  struct Args {
    const std::uint16_t* q;  // [rows, k]
    const std::uint16_t* k;  // [tokens, k]
    const std::uint16_t* v;  // [kv, tokens]
    float* out;              // [rows, kv]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes;

  static void run(const Args& args, Shared&) {
    constexpr int R = a.rows_per_lane, C = a.kv_per_lane, E = a.k_per_lane;
    const int lane = B::lane_id(), g = a.group(lane), m = a.position(lane);
    typename B::RowsOperand q{};
    for (int i = 0; i < R * E; ++i) {
      const AtomElement e = a.rows_operand(lane, i);
      q[i / 2] |= std::uint32_t{args.q[e.index * a.k + e.k]} << 16 * (i % 2);
    }
    float scores[R][x];
    for (int j = 0; j < x / C; ++j) {
      const int token = x * (m / C) + C * j + m % C;  // the KV row this lane supplies
      typename B::KvOperand k{};
      for (int e = 0; e < E; ++e) k[e / 2] |= std::uint32_t{args.k[token * a.k + a.k_of(lane, e)]} << 16 * (e % 2);
      const typename B::Accumulator tile = B::mma(k, q, {});
      for (int r = 0; r < R; ++r) {
        for (int c = 0; c < C; ++c) scores[r][C * j + c] = tile[r * C + c];
      }
    }
    typename B::Accumulator out{};
    for (int s = 0; s < steps; ++s) {
      typename B::RowsOperand p{};
      typename B::KvOperand v{};
      for (int r = 0; r < R; ++r) {
        for (int e = 0; e < E; e += 2) {
          p[(r * E + e) / 2] = B::pack_bf16(scores[r][E * s + e], scores[r][E * s + e + 1]);
        }
      }
      for (int e = 0; e < E; ++e) {
        v[e / 2] |= std::uint32_t{args.v[m * tokens + x * g + E * s + e]} << 16 * (e % 2);
      }
      out = B::mma(v, p, out);
    }
    for (int i = 0; i < out.size; ++i) {
      const AtomElement e = a.accumulator(lane, i);
      args.out[e.index * a.kv + e.k] = out[i];
    }
  }
};

std::vector<std::uint16_t> small_integers(std::size_t n, int limit, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> values(n);
  for (auto& v : values) v = f32_to_bf16(static_cast<float>(static_cast<int>(random() % (2 * limit + 1)) - limit));
  return values;
}

}  // namespace

TEMPLATE_TEST_CASE("mma of unit vectors hits exactly one accumulator", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  constexpr AtomFacts a = B::atom;
  const std::uint16_t two = f32_to_bf16(2.0f), three = f32_to_bf16(3.0f);
  for (int k = 0; k < a.k; ++k) {
    // One row and one kv for each k, every row and kv among them.
    const int row = (k * 5) % a.rows, column = (k * 3 + 1) % a.kv;
    std::vector<std::uint16_t> rows(a.rows * a.k, 0), kv(a.kv * a.k, 0);
    std::vector<float> acc(a.rows * a.kv, 1.0f);
    rows[row * a.k + k] = two;
    kv[column * a.k + k] = three;
    REQUIRE(launch<B, MmaKernel<B>>(1, {rows.data(), kv.data(), acc.data()}).ok());
    for (int i = 0; i < a.rows * a.kv; ++i) CHECK(acc[i] == (i == row * a.kv + column ? 7.0f : 1.0f));
  }
}

TEMPLATE_TEST_CASE("mma equals the plain product", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  constexpr AtomFacts a = B::atom;
  // Integers up to 100 make every sum exact in f32, whatever the order.
  const auto rows = small_integers(a.rows * a.k, 100, 1), kv = small_integers(a.kv * a.k, 100, 2);
  std::vector<float> acc(a.rows * a.kv), expected(acc.size());
  for (int r = 0; r < a.rows; ++r) {
    for (int c = 0; c < a.kv; ++c) {
      float sum = acc[r * a.kv + c] = static_cast<float>(r - c);
      for (int k = 0; k < a.k; ++k) sum += bf16_to_f32(rows[r * a.k + k]) * bf16_to_f32(kv[c * a.k + k]);
      expected[r * a.kv + c] = sum;
    }
  }
  REQUIRE(launch<B, MmaKernel<B>>(1, {rows.data(), kv.data(), acc.data()}).ok());
  CHECK(acc == expected);
  CHECK(host::last_launch_counters().mma == 1);
}

TEMPLATE_TEST_CASE("the accumulators of one product feed the next", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  using K = ChainedKernel<B>;
  constexpr AtomFacts a = B::atom;
  // Scores up to 32 * 2 * 2 = 128 are exact in bf16.
  const auto q = small_integers(a.rows * a.k, 2, 3), k = small_integers(K::tokens * a.k, 2, 4),
             v = small_integers(a.kv * K::tokens, 5, 5);
  std::vector<float> out(a.rows * a.kv, -1.0f);
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    REQUIRE(launch<B, K>(1, {q.data(), k.data(), v.data(), out.data()}).ok());
    for (int r = 0; r < a.rows; ++r) {
      for (int d = 0; d < a.kv; ++d) {
        float sum = 0;
        for (int t = 0; t < K::tokens; ++t) {
          float score = 0;
          for (int i = 0; i < a.k; ++i) score += bf16_to_f32(q[r * a.k + i]) * bf16_to_f32(k[t * a.k + i]);
          sum += score * bf16_to_f32(v[d * K::tokens + t]);
        }
        CHECK(out[r * a.kv + d] == sum);
      }
    }
  }
}

}  // namespace tilewave::test::mma
