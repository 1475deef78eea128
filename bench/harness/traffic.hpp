// SPDX-License-Identifier: MIT
// Kernels that only read, copy or write memory, or do nothing. They measure the ceilings, and displace the caches
// before a cold sample. Buffers hold random bits, since zeros may be moved faster.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "tilewave/arch/backend.hpp"
#include "tilewave/core/hip.hpp"
#include "tilewave/ops/vec_add/policy.hpp"

namespace tilewave {

enum class TrafficKind : int { nothing, read, copy, write };

constexpr const char* name_of(TrafficKind k) {
  constexpr const char* names[] = {"nothing", "read", "copy", "write"};
  return names[static_cast<int>(k)];
}

struct TrafficSpec {
  TrafficKind kind = TrafficKind::read;
  friend constexpr bool operator==(const TrafficSpec&, const TrafficSpec&) = default;
};

/// Memory is walked as in a vector addition, 16 bytes an access.
using TrafficPolicy = VecAddPolicy;

/// Returns the word that makes chunk i of a buffer recognisable: the xor of its four words. It reveals a chunk that was
/// read in place of another, and one of four equal words, like memory that nobody wrote.
TILEWAVE_HOST_DEVICE constexpr std::uint32_t chunk_tag(std::uint32_t i) { return (i + 1) * 0x9e3779b9u; }

/// Returns chunk i of a buffer of random bits: three words by the finaliser of MurmurHash3 (Appleby) and two
/// multiplicative steps, and the fourth for chunk_tag(). It is cheap enough to be made while it is written.
TILEWAVE_HOST_DEVICE constexpr Chunk random_chunk(std::uint32_t i, std::uint32_t seed) {
  std::uint32_t x = i + seed * 0x85ebca77u;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  x ^= x >> 16;
  const std::uint32_t y = (x ^ (x >> 15)) * 0x2c1b3c6du, z = (y ^ (y >> 12)) * 0x297a2d39u;
  return {{x, y, z, x ^ y ^ z ^ chunk_tag(i)}};
}

/// The result of the reading kernel: `wrong` becomes 1 where a chunk has a wrong tag; `read` becomes the number of
/// chunks once the last has been read.
struct TrafficVerdict {
  std::uint32_t wrong = 0, read = 0;
};

struct TrafficProblem {
  const void* from = nullptr;         // for read and copy: chunks as random_chunk() makes them
  void* to = nullptr;                 // for copy and write
  TrafficVerdict* verdict = nullptr;  // for read; on the device
  std::int64_t bytes = 0;             // bytes of one buffer; a multiple of the policy's tile_bytes()
  std::uint32_t seed = 0;             // for write
};

struct TrafficArgs {
  const Chunk* from;
  Chunk* to;
  TrafficVerdict* verdict;
  std::int64_t chunks;
  std::uint32_t seed;
};

/// Grid: one block per tile, in the order of memory; `nothing` has one block. Bound: memory.
template <class B, TrafficSpec S, TrafficPolicy P>
struct Traffic {
  static_assert(vec_add_policy_status(B::facts, DType::f32, P).ok() && P.vec == sizeof(Chunk),
                "traffic is accesses of 16 bytes by a legal policy: see vec_add_policy_status");
  using Room = B;
  using Args = TrafficArgs;
  struct Shared {};
  static constexpr int block_threads = P.lanes, waves_per_simd = P.waves_per_simd;

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    if constexpr (S.kind != TrafficKind::nothing) {
      const int thread = B::wave_id() * B::facts.wave_lanes + B::lane_id();
      const std::int64_t first = std::int64_t{B::block_id()} * (P.lanes * P.chunks) + thread;
      Chunk chunks[P.chunks];
      TILEWAVE_UNROLL
      for (int c = 0; c < P.chunks; ++c) {
        const std::int64_t i = first + c * P.lanes;
        if constexpr (S.kind == TrafficKind::write) {
          chunks[c] = random_chunk(static_cast<std::uint32_t>(i), a.seed);
        } else {
          chunks[c] = P.stream ? B::load_stream(a.from + i) : B::load(a.from + i);
        }
      }
      if constexpr (S.kind == TrafficKind::read) {
        check(a, first, chunks);
      } else {
        TILEWAVE_UNROLL
        for (int c = 0; c < P.chunks; ++c) {
          if constexpr (P.stream) {
            B::store_stream(a.to + first + c * P.lanes, chunks[c]);
          } else {
            B::store(a.to + first + c * P.lanes, chunks[c]);
          }
        }
      }
    }
  }

 private:
  /// It also keeps the loads alive: no compiler can know that nothing is wrong.
  TILEWAVE_DEVICE static void check(const Args& a, std::int64_t first, const Chunk (&chunks)[P.chunks]) {
    std::uint32_t wrong = 0;
    TILEWAVE_UNROLL
    for (int c = 0; c < P.chunks; ++c) {
      wrong |= chunks[c][0] ^ chunks[c][1] ^ chunks[c][2] ^ chunks[c][3] ^
               chunk_tag(static_cast<std::uint32_t>(first + c * P.lanes));
    }
    if (wrong != 0) B::store(&a.verdict->wrong, 1u);
    if (first + (P.chunks - 1) * P.lanes + 1 == a.chunks) {
      B::store(&a.verdict->read, static_cast<std::uint32_t>(a.chunks));
    }
  }
};

/// Errors: bad_extent if the bytes are not whole tiles; launch_failed.
template <class B, TrafficSpec S, TrafficPolicy P>
Status traffic_launch(const TrafficProblem& p, hipStream_t stream) {
  if (p.bytes % P.tile_bytes() != 0) return {StatusCode::bad_extent, "bytes are not whole tiles of the policy"};
  const std::int64_t blocks = S.kind == TrafficKind::nothing ? 1 : p.bytes / P.tile_bytes();
  const TrafficArgs args{static_cast<const Chunk*>(p.from), static_cast<Chunk*>(p.to), p.verdict,
                         p.bytes / std::int64_t{sizeof(Chunk)}, p.seed};
  return B::template launch<Traffic<B, S, P>>({blocks, P.lanes}, args, stream);
}

struct TrafficEntry {
  ArchId arch;
  bool emulated;
  TrafficSpec spec;
  TrafficPolicy policy;
  Status (*launch)(const TrafficProblem&, hipStream_t);
};

constexpr std::array<TrafficSpec, 4> traffic_specs(ArchId) {
  return {{{TrafficKind::nothing}, {TrafficKind::read}, {TrafficKind::copy}, {TrafficKind::write}}};
}

/// Returns policies of one, four and eight accesses a lane, with and without hints to the caches. The best on an H200
/// comes first: eight for a read, and one where something is written.
constexpr std::array<TrafficPolicy, 6> traffic_policies(const TrafficSpec& s) {
  const int best = s.kind == TrafficKind::read ? 8 : 1, other = 9 - best;
  return {{{.chunks = best},
           {.chunks = best, .stream = true},
           {.chunks = 4},
           {.chunks = 4, .stream = true},
           {.chunks = other},
           {.chunks = other, .stream = true}}};
}
constexpr std::size_t traffic_policy_count(const TrafficSpec& s) {
  return s.kind == TrafficKind::nothing ? 1 : traffic_policies(s).size();
}

template <class B, TrafficSpec S>
inline constexpr auto traffic_entries = []<std::size_t... i>(std::index_sequence<i...>) {
  constexpr auto policies = traffic_policies(S);
  return std::array{TrafficEntry{B::facts.id, B::emulated, S, policies[i], &traffic_launch<B, S, policies[i]>}...};
}
(std::make_index_sequence<traffic_policy_count(S)>{});

}  // namespace tilewave
