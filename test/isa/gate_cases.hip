// SPDX-License-Identifier: MIT
// Kernels that break one rule of tools/isa each, and one that breaks none: gate_test.py shows every rule able to fail.
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

using Good = Loop<4, 2, 4>;
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

template __global__ void entry<CASE>(const LoopArgs);

}  // namespace tilewave::ROOM
