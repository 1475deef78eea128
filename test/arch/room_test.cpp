// SPDX-License-Identifier: MIT
// The primitives of a room as its device executes them: on silicon in a GPU build, in the three emulated rooms in a host
// build. ROOM_HEADER and ROOM_BACKENDS come from test/CMakeLists.txt.
#include ROOM_HEADER

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "bench/harness/device.hpp"
#include "test/catch_compat.hpp"
#include "tilewave/core/dtype.hpp"

namespace tilewave::test {
namespace {

/// Runs K on a copy of `in` and returns the `count` results it wrote; both are only read and written by the kernel.
template <class K, class In, class Out>
std::vector<Out> run_kernel(int blocks, const std::vector<In>& in, std::size_t count, Out poison) {
  bench::DeviceBuffer input(in.size() * sizeof(In)), output(count * sizeof(Out));
  std::vector<Out> out(count, poison);
  REQUIRE(hipMemcpy(input.data(), in.data(), input.bytes(), hipMemcpyHostToDevice) == hipSuccess);
  REQUIRE(hipMemcpy(output.data(), out.data(), output.bytes(), hipMemcpyHostToDevice) == hipSuccess);
  const typename K::Args args{static_cast<const In*>(input.data()), static_cast<Out*>(output.data())};
  const Status status = K::Room::template launch<K>({blocks, K::block_threads}, args, nullptr);
  INFO(status.reason);
  REQUIRE(status.ok());
  REQUIRE(hipDeviceSynchronize() == hipSuccess);
  REQUIRE(hipMemcpy(out.data(), output.data(), output.bytes(), hipMemcpyDeviceToHost) == hipSuccess);
  return out;
}

struct NoShared {};

template <class... Backends>
struct Rooms {
  template <class F>
  static void each(F f) {
    (f.template operator()<Backends>(), ...);
  }
};
using AllRooms = Rooms<ROOM_BACKENDS>;

template <class B>
std::string room_name() {
  return std::string(name_of(B::facts.id));
}

// --- mma -------------------------------------------------------------------------------------------------------------

template <class B>
struct MmaKernel {
  using Room = B;
  struct Operands {
    typename B::KvOperand kv;
    typename B::RowsOperand rows;
  };
  struct Args {
    const Operands* in;            // [grid, wave_lanes]
    typename B::Accumulator* out;  // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = B::mma(args.in[i].kv, args.in[i].rows, args.out[i]);
  }
};

/// One block per k: ROWS is (1 + row) at that k and 0 elsewhere, so the product is (1 + row) * kv_value(kv, k): the row,
/// the kv and the k of every operand element and the place of every accumulator show. Starts from accumulators of 1/2.
template <class B, class KvValue>
void check_mma(KvValue kv_value) {
  constexpr AtomFacts atom = B::atom;
  using Kernel = MmaKernel<B>;
  constexpr int kv_size = B::KvOperand::size * 2, rows_size = B::RowsOperand::size * 2;
  std::vector<typename Kernel::Operands> in(atom.k * atom.lanes);
  for (int k = 0; k < atom.k; ++k) {
    for (int lane = 0; lane < atom.lanes; ++lane) {
      typename Kernel::Operands& o = in[k * atom.lanes + lane];
      for (int e = 0; e < kv_size; ++e) {
        const AtomElement at = atom.kv_operand(lane, e);
        const std::uint32_t code = f32_to_bf16(static_cast<float>(kv_value(at.index, at.k)));
        o.kv[e / 2] = e % 2 ? o.kv[e / 2] | code << 16 : code;
      }
      for (int e = 0; e < rows_size; ++e) {
        const AtomElement at = atom.rows_operand(lane, e);
        const std::uint32_t code = f32_to_bf16(at.k == k ? static_cast<float>(1 + at.index) : 0.0f);
        o.rows[e / 2] = e % 2 ? o.rows[e / 2] | code << 16 : code;
      }
    }
  }
  typename B::Accumulator half;
  for (int i = 0; i < B::Accumulator::size; ++i) half[i] = 0.5f;
  const auto out = run_kernel<Kernel>(atom.k, in, in.size(), half);
  for (int k = 0; k < atom.k; ++k) {
    for (int lane = 0; lane < atom.lanes; ++lane) {
      for (int i = 0; i < B::Accumulator::size; ++i) {
        const AtomElement at = atom.accumulator(lane, i);
        CAPTURE(room_name<B>(), k, lane, i, at.index, at.k);
        REQUIRE(out[k * atom.lanes + lane][i] == 0.5f + static_cast<float>((1 + at.index) * kv_value(at.k, k)));
      }
    }
  }
}

struct KvIndex {
  int operator()(int kv, int) const { return 1 + kv; }
};
struct KIndex {
  int operator()(int, int k) const { return 1 + k; }
};
struct CheckMma {
  template <class B>
  void operator()() const {
    check_mma<B>(KvIndex{});
    check_mma<B>(KIndex{});
  }
};

// --- lanes -----------------------------------------------------------------------------------------------------------

constexpr int exchange_results = 12;

template <class B>
struct ExchangeKernel {
  using Room = B;
  struct Args {
    const int* in;
    int* out;  // [block_threads, exchange_results]
  };
  using Shared = NoShared;
  static constexpr int waves = 2, block_threads = waves * B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    constexpr int lanes = B::facts.wave_lanes;
    const int lane = B::lane_id(), wave = B::wave_id(), id = wave * lanes + lane;
    int* out = args.out + id * exchange_results;
    out[0] = lane;
    out[1] = wave;
    out[2] = B::shuffle(id, (lane * 5 + 3) % lanes);
    for (int bit = 0; bit < 5; ++bit) out[3 + bit] = B::shuffle_xor(id, 1 << bit);
    out[8] = B::shuffle_xor(id, lanes / 2);
    out[9] = B::template group_broadcast<3>(id);
    out[10] = B::any(lane == 7 && wave == 1);
    out[11] = B::uniform(100 + wave);
  }
};

struct CheckExchange {
  template <class B>
  void operator()() const {
    constexpr AtomFacts atom = B::atom;
    constexpr int lanes = B::facts.wave_lanes, threads = ExchangeKernel<B>::block_threads;
    const auto out = run_kernel<ExchangeKernel<B>>(1, std::vector<int>{0}, std::size_t{threads} * exchange_results, -1);
    for (int id = 0; id < threads; ++id) {
      const int lane = id % lanes, wave = id / lanes, first = wave * lanes;
      const int* got = out.data() + id * exchange_results;
      CAPTURE(room_name<B>(), id);
      CHECK(got[0] == lane);
      CHECK(got[1] == wave);
      CHECK(got[2] == first + (lane * 5 + 3) % lanes);
      for (int bit = 0; bit < 5; ++bit) CHECK(got[3 + bit] == first + (lane ^ (1 << bit)));
      CHECK(got[8] == first + (lane ^ (lanes / 2)));
      CHECK(got[9] == first + atom.lane_of(3, atom.group(lane)));
      CHECK(got[10] == (wave == 1));
      CHECK(got[11] == 100 + wave);
    }
  }
};

// --- numbers ---------------------------------------------------------------------------------------------------------

template <class B>
struct WidenKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;     // [wave_lanes]: four fp8 codes each
    Vec<std::uint32_t, 2>* out;  // [wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = 64, waves_per_simd = 1;  // 64 words hold all 256 codes

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    args.out[i] = B::widen_fp8(args.in[i]);
  }
};

struct CheckWiden {
  template <class B>
  void operator()() const {
    std::vector<std::uint32_t> words(64);
    for (std::uint32_t code = 0; code < 256; ++code) words[code / 4] |= code << (8 * (code % 4));
    const auto out = run_kernel<WidenKernel<B>>(1, words, words.size(), Vec<std::uint32_t, 2>{});
    for (int code = 0; code < 256; ++code) {
      const std::uint32_t pair = out[code / 4][code % 4 / 2];
      const float got = bf16_to_f32(static_cast<std::uint16_t>(code % 2 ? pair >> 16 : pair));
      const float expected = fp8_to_f32(B::facts.fp8, static_cast<std::uint8_t>(code));
      CAPTURE(room_name<B>(), code, got, expected);
      if (std::isnan(expected)) {
        CHECK(std::isnan(got));
      } else {
        CHECK(got == expected);
      }
    }
  }
};

struct NumberResults {
  float exp2, log2;
  std::uint32_t packed;  // (x, -x)
};

template <class B>
struct NumbersKernel {
  using Room = B;
  struct Args {
    const float* in;     // [grid, wave_lanes]
    NumberResults* out;  // [grid, wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * B::facts.wave_lanes + B::lane_id();
    const float x = args.in[i];
    args.out[i] = {B::exp2(x), B::log2(x), B::pack_bf16(x, -x)};
  }
};

bool rounds_to(float value, std::uint16_t code) {
  const std::uint16_t even = f32_to_bf16(value);
  const bool tie = (std::bit_cast<std::uint32_t>(value) & 0xffffu) == 0x8000u;
  return code == even || (tie && code == even + 1);  // a tie may round away from zero
}

struct CheckNumbers {
  template <class B>
  void operator()() const {
    std::vector<float> in{0.0f, -0.0f, 1.0f, 2.0f, 0.5f, -std::numeric_limits<float>::infinity(), -1000.0f};
    for (int i = 0; i < 4096; ++i) in.push_back(-120.0f + 0.0585f * static_cast<float>(i));
    for (std::uint32_t i = 0; i < 64; ++i)
      in.push_back(std::bit_cast<float>(0x3f800000u + (i << 14)));  // ties among them
    while (in.size() % 64 != 0) in.push_back(1.0f);
    const auto out =
        run_kernel<NumbersKernel<B>>(static_cast<int>(in.size()) / B::facts.wave_lanes, in, in.size(), NumberResults{});
    for (std::size_t i = 0; i < in.size(); ++i) {
      CAPTURE(room_name<B>(), in[i], out[i].exp2, out[i].log2, out[i].packed);
      const float exact = static_cast<float>(std::exp2(static_cast<double>(in[i])));
      CHECK(std::fabs(out[i].exp2 - exact) <= 1e-6f * exact);
      if (in[i] > 0) CHECK(std::fabs(out[i].log2 - std::log2(static_cast<double>(in[i]))) <= 2e-6);
      if (std::isinf(in[i])) continue;
      CHECK(rounds_to(in[i], static_cast<std::uint16_t>(out[i].packed)));
      CHECK(rounds_to(-in[i], static_cast<std::uint16_t>(out[i].packed >> 16)));
    }
  }
};

// --- memory and sync -------------------------------------------------------------------------------------------------

/// Two stages of async copies, the second still open while the first is read backwards by other waves.
template <class B>
struct CopyKernel {
  using Room = B;
  static constexpr int block_threads = 2 * B::facts.wave_lanes, waves_per_simd = 1;
  struct Args {
    const Chunk* in;  // [grid, 2, block_threads]
    Chunk* out;       // [grid, 2, block_threads]
  };
  struct Shared {
    Chunk stage[2][block_threads];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int id = B::wave_id() * B::facts.wave_lanes + B::lane_id();
    const int first = B::block_id() * 2 * block_threads;
    for (int s = 0; s < 2; ++s) {
      B::copy_async(&shared.stage[s][id], args.in + first + s * block_threads + id);
      B::commit();
    }
    B::template wait<1>();
    B::barrier();
    B::store(args.out + first + id, shared.stage[0][block_threads - 1 - id]);
    B::template wait<0>();
    B::barrier();
    B::store(args.out + first + block_threads + id, shared.stage[1][block_threads - 1 - id]);
  }
};

struct CheckCopy {
  template <class B>
  void operator()() const {
    constexpr int threads = CopyKernel<B>::block_threads, blocks = 9;
    std::vector<Chunk> in(blocks * 2 * threads);
    for (std::size_t i = 0; i < in.size(); ++i) {
      for (int e = 0; e < 4; ++e) in[i][e] = static_cast<std::uint32_t>(4 * i + e);
    }
    const auto out = run_kernel<CopyKernel<B>>(blocks, in, in.size(), Chunk{});
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t from = i / threads * threads + (threads - 1 - i % threads);
      CAPTURE(room_name<B>(), i, from);
      for (int e = 0; e < 4; ++e) REQUIRE(out[i][e] == in[from][e]);
    }
  }
};

struct Widths {
  std::uint16_t two;
  std::uint32_t four;
  std::uint64_t eight;
  Chunk sixteen, streamed;
};

template <class B>
struct WidthsKernel {
  using Room = B;
  struct Args {
    const Widths* in;  // [wave_lanes]
    Widths* out;       // [wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const Widths* in = args.in + B::lane_id();
    Widths* out = args.out + B::lane_id();
    B::store(&out->two, B::load(&in->two));
    B::store(&out->four, B::load(&in->four));
    B::store(&out->eight, B::load(&in->eight));
    B::store(&out->sixteen, B::load(&in->sixteen));
    B::store(&out->streamed, B::load_stream(&in->streamed));
  }
};

struct CheckWidths {
  template <class B>
  void operator()() const {
    std::vector<Widths> in(B::facts.wave_lanes);
    for (std::uint32_t i = 0; i < in.size(); ++i) {
      in[i] = {static_cast<std::uint16_t>(60000 + i),
               0xfedc0000u + i,
               0xfedcba9800000000u + i,
               {{i, i + 1, i + 2, i + 3}},
               {{~i, i, ~i, i}}};
    }
    const auto out = run_kernel<WidthsKernel<B>>(1, in, in.size(), Widths{});
    for (std::size_t i = 0; i < in.size(); ++i) {
      CAPTURE(room_name<B>(), i);
      CHECK(out[i].two == in[i].two);
      CHECK(out[i].four == in[i].four);
      CHECK(out[i].eight == in[i].eight);
      for (int e = 0; e < 4; ++e) CHECK(out[i].sixteen[e] == in[i].sixteen[e]);
      for (int e = 0; e < 4; ++e) CHECK(out[i].streamed[e] == in[i].streamed[e]);
    }
  }
};

}  // namespace

TEST_CASE("unit vectors prove the atom's maps") { AllRooms::each(CheckMma{}); }
TEST_CASE("lanes exchange values inside their wave") { AllRooms::each(CheckExchange{}); }
TEST_CASE("all fp8 codes widen to the bf16 of the same value") { AllRooms::each(CheckWiden{}); }
TEST_CASE("exp2, log2 and bf16 pairs are as near as promised") { AllRooms::each(CheckNumbers{}); }
TEST_CASE("async copies arrive by their wait and a barrier shows them to other waves") { AllRooms::each(CheckCopy{}); }
TEST_CASE("loads and stores move 2, 4, 8 and 16 bytes") { AllRooms::each(CheckWidths{}); }

}  // namespace tilewave::test
