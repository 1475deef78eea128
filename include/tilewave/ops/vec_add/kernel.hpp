// SPDX-License-Identifier: MIT
// Computes out = a + b. Grid: one block per tile of P.tile_bytes() of each tensor; tiles start at a multiple of 16
// bytes. Only the first and the last tile can stick out of the tensors: their elements are added one by one. Bound:
// memory.
#pragma once

#include "tilewave/core/math.hpp"
#include "tilewave/ops/vec_add/policy.hpp"
#include "tilewave/ops/vec_add/problem.hpp"

namespace tilewave {

struct VecAddArgs {
  const void* a;
  const void* b;
  void* out;
  std::int64_t count;
  int lead;  // elements between the last multiple of 16 bytes at or below the tensors' start and that start
};

template <class B, VecAddSpec S, VecAddPolicy P>
struct VecAdd {
  static_assert(vec_add_policy_status(B::facts, S.x, P).ok(),
                "a law of policies is broken: vec_add_policy_status(facts, x, policy).reason says which");
  using Room = B;
  using Args = VecAddArgs;
  struct Shared {};
  static constexpr int block_threads = P.lanes, waves_per_simd = P.waves_per_simd;
  static constexpr int unit = P.vec / size_of(S.x), tile = P.tile_bytes() / size_of(S.x);  // both in elements

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const int thread = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    const std::int64_t first = std::int64_t{B::block_id()} * tile - a.lead;
    if (first >= 0 && first + tile <= a.count) {
      const std::int64_t mine = first + thread * unit;
      Packed<S.x, unit> x[P.chunks], y[P.chunks];
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        x[c] = load<unit>(a.a, mine + c * P.lanes * unit);
        y[c] = load<unit>(a.b, mine + c * P.lanes * unit);
      }
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) store<unit>(a.out, mine + c * P.lanes * unit, sum<unit>(x[c], y[c]));
    } else {
      for (int e = thread; e < tile; e += P.lanes) {
        const std::int64_t i = first + e;
        if (i >= 0 && i < a.count) store<1>(a.out, i, sum<1>(load<1>(a.a, i), load<1>(a.b, i)));
      }
    }
  }

 private:
  template <int n>
  TILEWAVE_DEVICE static Packed<S.x, n> load(const void* data, std::int64_t element) {
    const auto* from = reinterpret_cast<const Packed<S.x, n>*>(static_cast<const Storage<S.x>*>(data) + element);
    if constexpr (P.stream && n == unit) {
      return __builtin_bit_cast(Packed<S.x, n>, B::load_stream(reinterpret_cast<const Chunk*>(from)));
    } else {
      return B::load(from);
    }
  }
  template <int n>
  TILEWAVE_DEVICE static void store(void* data, std::int64_t element, const Packed<S.x, n>& value) {
    auto* to = reinterpret_cast<Packed<S.x, n>*>(static_cast<Storage<S.x>*>(data) + element);
    if constexpr (P.stream && n == unit) {
      B::store_stream(reinterpret_cast<Chunk*>(to), __builtin_bit_cast(Chunk, value));
    } else {
      B::store(to, value);
    }
  }
  template <int n>
  TILEWAVE_DEVICE static Packed<S.x, n> sum(const Packed<S.x, n>& x, const Packed<S.x, n>& y) {
    Vec<float, n> v = widen<B, S.x, n>(x);
    const Vec<float, n> w = widen<B, S.x, n>(y);
    TILEWAVE_UNROLL
    for (int e = 0; e < n; ++e) v[e] += w[e];
    return narrow<B, S.x, n>(v);
  }
};

}  // namespace tilewave
