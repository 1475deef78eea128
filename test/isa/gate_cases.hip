// SPDX-License-Identifier: MIT
// Kernels that break one rule of tilewave isa gate each, and one that breaks none: gate_test.py shows every rule able to fail.
// Compiled once per case, with ROOM (gfx942, gfx950) and CASE defined.

#define STRING_OF(x) #x
// clang-format off
#define BACKEND_OF(room) STRING_OF(tilewave/arch/room/backend.hpp)
// clang-format on
#include BACKEND_OF(ROOM)

namespace tilewave::ROOM {

struct LoopArgs {
  const Chunk* kv;
  float* out;
  std::int32_t steps;
  std::int64_t stride;  // words between the parts of a narrow load
};

/// out = sum over steps of kv kv^T on `tiles` accumulators: 16-byte loads, one matrix product each.
template <int tiles, int waves, int words_per_load>
struct Loop {
  using Room = Backend;
  using Args = LoopArgs;
  struct Shared {};
  static constexpr int block_threads = 256;
  static constexpr int waves_per_simd = waves;

  TILEWAVE_DEVICE static Chunk load(const Args& a, std::int64_t chunk) {
    if constexpr (words_per_load == 4) return Backend::load(a.kv + chunk);
    Chunk value;
    const auto* words = reinterpret_cast<const std::uint32_t*>(a.kv + chunk);
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) value[i] = Backend::load(words + i * a.stride);
    return value;
  }

  TILEWAVE_DEVICE static void run(const Args& a, Shared&) {
    const int lane = Backend::wave_id() * 64 + Backend::lane_id();
    Acc acc[tiles] = {};
    for (int step = 0; step < a.steps; ++step) {
      Chunk kv[tiles];
      TILEWAVE_UNROLL
      for (int i = 0; i < tiles; ++i) kv[i] = load(a, (std::int64_t{step} * tiles + i) * 256 + lane);
      Backend::sched_fence();
      TILEWAVE_UNROLL
      for (int i = 0; i < tiles; ++i) multiply(kv[i], acc[i]);
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < tiles; ++i)
      Backend::store(reinterpret_cast<Chunk*>(a.out) + i * 256 + lane, __builtin_bit_cast(Chunk, acc[i]));
  }

 private:
  using Acc = Backend::Accumulator;
  using Operand = Backend::KvOperand;
  TILEWAVE_DEVICE static void multiply(const Chunk& kv, Acc& acc) {
    struct Operands {
      Operand part[sizeof(Chunk) / sizeof(Operand)];
    };
    const auto operands = __builtin_bit_cast(Operands, kv);
    TILEWAVE_UNROLL
    for (const Operand& part : operands.part) acc = Backend::mma(part, part, acc);
  }
};

/// Blocks that repeat the loop for every piece of work. Wide loads around it, as those of Q, say nothing about KV.
template <int words_per_load>
struct Persistent : Loop<4, 2, words_per_load> {
  using Inner = Loop<4, 2, words_per_load>;
  TILEWAVE_DEVICE static void run(const LoopArgs& a, typename Inner::Shared& shared) {
    const int lane = Backend::wave_id() * 64 + Backend::lane_id();
    for (int work = 0; work < a.steps; ++work) {
      Chunk all{};
      TILEWAVE_UNROLL
      for (int i = 0; i < 8; ++i) {
        const Chunk q = Backend::load(a.kv + (work * 8 + i) * 256 + lane);
        TILEWAVE_UNROLL
        for (int w = 0; w < 4; ++w) all[w] ^= q[w];
      }
      LoopArgs piece = a;
      piece.kv += work * a.stride;
      piece.out += work * a.stride;
      Inner::run(piece, shared);
      Backend::store(reinterpret_cast<Chunk*>(piece.out) + 1024 + lane, all);
    }
  }
};

using Good = Loop<4, 2, 4>;
using GoodPersistent = Persistent<4>;
using NarrowPersistent = Persistent<1>;
using NarrowLoads = Loop<4, 2, 1>;
using Spilling = Loop<24, 8, 4>;  // 192 live registers where 8 waves per SIMD leave 64
using OneWave = Loop<40, 1, 4>;   // 320 live registers: one wave per SIMD

/// Half of the room's LDS and a little more: one block of 4 waves per CU.
struct MuchLds : Loop<4, 2, 4> {
  struct Shared {
    Chunk tile[Backend::facts.lds_bytes / 32 + 1];
  };
  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const int lane = Backend::lane_id();
    shared.tile[lane * 8] = Backend::load(a.kv + lane);
    Backend::barrier();
    Backend::store(reinterpret_cast<Chunk*>(a.out) + lane, shared.tile[a.steps]);
    Loop::Shared nothing;
    Loop::run(a, nothing);
  }
};

/// A function that stays one.
struct Calling : Loop<4, 2, 4> {
  __attribute__((noinline)) static __device__ float outside(float x) { return Backend::exp2(x) + Backend::log2(x); }
  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    Loop::run(a, shared);
    Backend::store(a.out, outside(Backend::load(a.out)));
  }
};

enum class Fault { none, narrow_load, narrow_store, early_wait, exchange, through_lds, second_barrier };

/// out = kv + the sum of kv over the block: 4 chunks a lane, one reduction.
template <Fault fault>
struct Rows {
  using Room = Backend;
  using Args = LoopArgs;
  struct Shared {
    float partial[4];
    float lanes[fault == Fault::through_lds ? 256 : 1];
  };
  static constexpr int block_threads = 256, waves_per_simd = 8, chunks = 4;

  TILEWAVE_DEVICE static void run(const Args& a, Shared& shared) {
    const int wave = Backend::wave_id(), thread = wave * 64 + Backend::lane_id();
    const Backend::Window<true> in{a.kv, static_cast<std::uint32_t>(a.steps)};
    const Backend::Window<true> out{a.out, static_cast<std::uint32_t>(a.steps)};
    Chunk row[chunks];
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; ++c) {
      row[c] = in.load_stream<Chunk>((c * 256 + thread) * 16);
      if (fault == Fault::early_wait && c == 1) {
        row[c][0] = Backend::opaque(row[c][0]);
        Backend::sched_fence();
      }
    }
    Backend::sched_fence();
    if (fault == Fault::narrow_load) row[0][0] ^= in.load_stream<std::uint32_t>(thread * 4);
    float sum = 0;
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; ++c) sum += __builtin_bit_cast(float, row[c][c]);
    if (fault == Fault::through_lds) {
      shared.lanes[thread] = sum;
      Backend::sched_fence();
      sum += shared.lanes[thread ^ 1];
    }
    sum = fault == Fault::exchange ? Backend::shuffle_xor(sum, 32) : Backend::reduce<64>(sum, Sum{});
    if (fault != Fault::through_lds) {
      if (Backend::lane_id() == 0) shared.partial[wave] = sum;
      Backend::barrier();
      sum = Backend::reduce<4>(shared.partial[thread % 4], Sum{});
    }
    if (fault == Fault::second_barrier) Backend::barrier();
    TILEWAVE_UNROLL
    for (int c = 0; c < chunks; ++c) {
      row[c][0] = __builtin_bit_cast(std::uint32_t, sum);
      out.store_stream((c * 256 + thread) * 16, row[c]);
    }
    if (fault == Fault::narrow_store) out.store(thread * 4, sum);
  }
};

using RowsGood = Rows<Fault::none>;
using RowsNarrowLoad = Rows<Fault::narrow_load>;
using RowsNarrowStore = Rows<Fault::narrow_store>;
using RowsEarlyWait = Rows<Fault::early_wait>;
using RowsExchange = Rows<Fault::exchange>;
using RowsThroughLds = Rows<Fault::through_lds>;
using RowsSecondBarrier = Rows<Fault::second_barrier>;

template __global__ void entry<CASE>(const LoopArgs);

}  // namespace tilewave::ROOM
