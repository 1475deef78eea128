// SPDX-License-Identifier: MIT
// Loads, stores and the poison of shared memory.
#include <cmath>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test::memory {
namespace {

template <class B>
struct CopyKernel {
  static constexpr int block_threads = B::facts.wave_lanes;
  struct Args {
    const Chunk* in;  // [grid, block_threads]
    Chunk* out;
  };
  struct Shared {
    Chunk chunks[block_threads];
  };
  static void run(const Args& args, Shared& shared) {
    const int at = B::block_id() * block_threads + B::lane_id();
    B::store(&shared.chunks[B::lane_id()], B::load_stream(args.in + at));
    const auto* halves = reinterpret_cast<const std::uint16_t*>(args.in + at);
    const std::uint16_t half = B::load(halves + 7);
    const std::uint8_t byte = B::load(reinterpret_cast<const std::uint8_t*>(args.in + at) + 1);
    Chunk chunk = B::load(&shared.chunks[B::lane_id()]);
    chunk[0] = (chunk[0] & 0xffff00ffu) | static_cast<std::uint32_t>(byte) << 8;
    chunk[3] = (chunk[3] & 0xffffu) | static_cast<std::uint32_t>(half) << 16;
    B::store_stream(args.out + at, chunk);
  }
};

enum class Fault { misaligned_load, misaligned_store, misaligned_stream, misaligned_stream_store, null_load };

template <class B, Fault fault>
struct FaultyKernel {
  static constexpr int block_threads = 2 * B::facts.wave_lanes;
  struct Args {
    std::byte* bytes;  // [block_threads, 16], aligned to 16
  };
  using Shared = NoShared;
  static void run(const Args& args, Shared&) {
    const bool odd = B::wave_id() == 1 && B::lane_id() == 20;
    std::byte* const mine = args.bytes + 16 * (B::wave_id() * B::facts.wave_lanes + B::lane_id());
    switch (fault) {
      case Fault::misaligned_load: (void)B::load(reinterpret_cast<const float*>(mine + (odd ? 2 : 0))); break;
      case Fault::misaligned_store: B::store(reinterpret_cast<Chunk*>(mine + (odd ? 8 : 0)), Chunk{}); break;
      case Fault::misaligned_stream: (void)B::load_stream(reinterpret_cast<const Chunk*>(mine + (odd ? 4 : 0))); break;
      case Fault::misaligned_stream_store:
        B::store_stream(reinterpret_cast<Chunk*>(mine + (odd ? 12 : 0)), Chunk{});
        break;
      case Fault::null_load: (void)B::load(odd ? static_cast<const int*>(nullptr) : reinterpret_cast<int*>(mine));
    }
  }
};

template <class B>
struct PoisonKernel {
  static constexpr int block_threads = B::facts.wave_lanes;
  struct Args {
    std::uint32_t* out;  // [grid, block_threads]
  };
  struct Shared {
    std::uint32_t words[block_threads];
  };
  static void run(const Args& args, Shared& shared) {
    args.out[B::block_id() * block_threads + B::lane_id()] = shared.words[B::lane_id()];
    shared.words[B::lane_id()] = 1;
  }
};

std::vector<Chunk> chunks(int n) {
  std::vector<Chunk> values(n);
  for (int i = 0; i < n; ++i) {
    for (int w = 0; w < 4; ++w) values[i][w] = static_cast<std::uint32_t>((4 * i + w) * 0x10003);
  }
  return values;
}
bool same(const Chunk& a, const Chunk& b) { return std::memcmp(&a, &b, sizeof(Chunk)) == 0; }

}  // namespace

TEMPLATE_TEST_CASE("loads and stores move and count their bytes", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  using K = CopyKernel<B>;
  constexpr int grid = 4;
  const std::vector<Chunk> in = chunks(grid * K::block_threads);
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<Chunk> out(in.size());
    REQUIRE(launch<B, K>(grid, {in.data(), out.data()}).ok());
    for (std::size_t i = 0; i < in.size(); ++i) CHECK(same(out[i], in[i]));
    const std::int64_t lanes = grid * K::block_threads;
    host::LaunchCounters expected;
    expected.blocks = grid;
    expected.stream_bytes = expected.lds_stores_bytes = expected.lds_loads_bytes = expected.stores_bytes = 16 * lanes;
    expected.loads_bytes = 3 * lanes;
    CHECK(host::last_launch_counters() == expected);
  }
}

namespace {

template <class B, Fault fault>
void check_fault(const char* reason) {
  alignas(16) static std::byte bytes[16 * FaultyKernel<B, fault>::block_threads];
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    const Status status = launch<B, FaultyKernel<B, fault>>(1, {bytes});
    INFO(status.reason);
    CHECK(status.code == StatusCode::launch_failed);
    CHECK(contains(status.reason, "block 0 wave 1 lane 20: "));
    CHECK(contains(status.reason, reason));
    CHECK(contains(status.reason, "memory_test.cpp"));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("misaligned and null accesses are reported with their lane", "", Gfx950, Sm90) {
  using B = TestType;
  check_fault<B, Fault::misaligned_load>("misaligned access of 4 bytes");
  check_fault<B, Fault::misaligned_store>("misaligned access of 16 bytes");
  check_fault<B, Fault::misaligned_stream>("misaligned access of 16 bytes");
  check_fault<B, Fault::misaligned_stream_store>("misaligned access of 16 bytes");
  check_fault<B, Fault::null_load>("null access of 4 bytes");
}

TEST_CASE("every block finds shared memory poisoned") {
  using K = PoisonKernel<Gfx950>;
  constexpr int grid = 6;
  for (const int threads : {1, 3}) {
    const WithOptions with({.threads = threads});
    std::vector<std::uint32_t> out(grid * K::block_threads, 0);
    REQUIRE(launch<Gfx950, K>(grid, {out.data()}).ok());
    for (const std::uint32_t word : out) CHECK(word == ~0u);
  }
  // NaN in every type whose arithmetic a kernel does on it.
  CHECK(std::isnan(std::bit_cast<float>(~0u)));
  CHECK(std::isnan(bf16_to_f32(0xffffu)));
  CHECK(std::isnan(fp8_to_f32(DType::fp8_e4m3fn, 0xffu)));
}

}  // namespace tilewave::test::memory
