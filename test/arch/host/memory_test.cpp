// SPDX-License-Identifier: MIT
// Loads, stores, async copies and the poison of shared memory.
#include <cmath>

#include "test/arch/host/host_room.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::test {
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

/// Two groups of copies, all but `pending` of them waited for (-1: no wait at all), then what shared memory holds.
template <class B, int pending>
struct AsyncKernel {
  static constexpr int lanes = B::facts.wave_lanes, block_threads = 2 * lanes;
  struct Args {
    const Chunk* in;  // [2, block_threads]
    Chunk* out;       // [2, block_threads]
  };
  struct Shared {
    Chunk chunks[2][block_threads];
  };
  static void run(const Args& args, Shared& shared) {
    const int id = B::wave_id() * lanes + B::lane_id();
    for (int group = 0; group < 2; ++group) {
      B::copy_async(&shared.chunks[group][id], args.in + group * block_threads + id);
      B::commit();
    }
    if constexpr (pending >= 0) B::template wait<pending>();
    B::barrier();
    const int other = block_threads - 1 - id;
    for (int group = 0; group < 2; ++group) args.out[group * block_threads + id] = shared.chunks[group][other];
  }
};

enum class AsyncFault { none, uncommitted, outside, scattered, short_commit, too_many, misaligned };

template <class B, AsyncFault fault>
struct FaultyAsyncKernel {
  static constexpr int lanes = B::facts.wave_lanes, block_threads = lanes;
  struct Args {
    const Chunk* in;  // [2 * lanes]
    Chunk* out;       // [lanes]
  };
  struct Shared {
    Chunk chunks[2 * lanes];
  };
  static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id();
    const bool odd = lane == lanes - 1;
    const Chunk* const from = args.in + lane;
    switch (fault) {
      case AsyncFault::none: B::copy_async(&shared.chunks[lane], from); break;
      case AsyncFault::uncommitted:
        B::copy_async(&shared.chunks[lane], from);
        B::template wait<0>();  // a commit is missing, so nothing is waited for
        break;
      case AsyncFault::outside: B::copy_async(args.out + lane, from); break;
      case AsyncFault::scattered: B::copy_async(&shared.chunks[lane + (odd ? 1 : 0)], from); break;
      case AsyncFault::short_commit:
        B::copy_async(&shared.chunks[lane], from);
        B::commit();
        B::commit();
        B::template wait<1>();
        break;
      case AsyncFault::too_many:
        for (int i = 0; i < 1000; ++i) B::copy_async(&shared.chunks[lane], from);
        break;
      case AsyncFault::misaligned:
        B::copy_async(&shared.chunks[lane],
                      reinterpret_cast<const Chunk*>(reinterpret_cast<const std::byte*>(from) + (odd ? 8 : 0)));
        break;
    }
    if (fault != AsyncFault::uncommitted) {
      B::commit();
      B::template wait<0>();
    }
    args.out[lane] = shared.chunks[lane];
  }
};

/// Reads shared memory that nobody wrote, then fills it for a next block to find, should it not be poisoned again.
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
bool all_poison(const Chunk& c) { return c[0] == ~0u && c[1] == ~0u && c[2] == ~0u && c[3] == ~0u; }

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

TEMPLATE_TEST_CASE("async copies are performed at their wait", "", Gfx942, Gfx950, Sm90) {
  using B = TestType;
  constexpr int n = AsyncKernel<B, 0>::block_threads;
  const std::vector<Chunk> in = chunks(2 * n);
  for (const host::Options& options : all_options()) {
    INFO(name_of(options));
    const WithOptions with(options);
    std::vector<Chunk> both(2 * n), first(2 * n), none(2 * n);
    REQUIRE(launch<B, AsyncKernel<B, 0>>(1, {in.data(), both.data()}).ok());
    CHECK(host::last_launch_counters().async_bytes == 2 * n * 16);
    CHECK(host::last_launch_counters().async_dropped_bytes == 0);
    REQUIRE(launch<B, AsyncKernel<B, 1>>(1, {in.data(), first.data()}).ok());
    CHECK(host::last_launch_counters().async_dropped_bytes == n * 16);
    REQUIRE(launch<B, AsyncKernel<B, -1>>(1, {in.data(), none.data()}).ok());
    CHECK(host::last_launch_counters().async_dropped_bytes == 2 * n * 16);
    for (int id = 0; id < n; ++id) {
      const int other = n - 1 - id;
      CHECK(same(both[id], in[other]));
      CHECK(same(both[n + id], in[n + other]));
      CHECK(same(first[id], in[other]));
      CHECK(all_poison(first[n + id]));
      CHECK(all_poison(none[id]));
      CHECK(all_poison(none[n + id]));
    }
  }
}

namespace {

template <class B, AsyncFault fault>
Status run_async(std::vector<Chunk>& out) {
  using K = FaultyAsyncKernel<B, fault>;
  const std::vector<Chunk> in = chunks(2 * K::lanes);
  out.assign(K::lanes, Chunk{});
  return launch<B, K>(1, {in.data(), out.data()});
}

}  // namespace

TEMPLATE_TEST_CASE("async copies that hardware cannot do are reported", "", Gfx942, Sm90) {
  using B = TestType;
  std::vector<Chunk> out;
  REQUIRE(run_async<B, AsyncFault::none>(out).ok());
  CHECK(same(out[1], chunks(2)[1]));
  REQUIRE(run_async<B, AsyncFault::uncommitted>(out).ok());
  CHECK(all_poison(out[1]));
  CHECK(contains(run_async<B, AsyncFault::outside>(out).reason, "not in shared memory"));
  if (B::facts.copies_lane_linear) {
    CHECK(contains(run_async<B, AsyncFault::scattered>(out).reason, "another lane of the wave"));
    CHECK(contains(run_async<B, AsyncFault::short_commit>(out).reason, "holds only 0 copies"));
  } else {
    CHECK(run_async<B, AsyncFault::scattered>(out).ok());
    CHECK(run_async<B, AsyncFault::short_commit>(out).ok());
    CHECK(same(out[1], chunks(2)[1]));
  }
  CHECK(contains(run_async<B, AsyncFault::too_many>(out).reason, "more than 256 async copies"));
  CHECK(contains(run_async<B, AsyncFault::misaligned>(out).reason, "misaligned access of 16 bytes"));
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

}  // namespace tilewave::test
