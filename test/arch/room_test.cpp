// SPDX-License-Identifier: MIT
// The primitives of a room as its device executes them: on silicon in a GPU build, in the three emulated rooms in a
// host
// build. Numbers are in room_numbers_test.cpp.
#include "test/arch/room.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tilewave/core/dtype.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/core/static_for.hpp"

namespace tilewave::test {
namespace {

// --- mma -------------------------------------------------------------------------------------------------------------

template <class B, DType type>
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
    if constexpr (is_fp8(type)) {
      args.out[i] = B::mma_fp8(args.in[i].kv, args.in[i].rows, args.out[i]);
    } else if constexpr (type == DType::f16) {
      args.out[i] = B::mma_f16(args.in[i].kv, args.in[i].rows, args.out[i]);
    } else {
      args.out[i] = B::mma(args.in[i].kv, args.in[i].rows, args.out[i]);
    }
  }
};

/// One block per k: ROWS is (1 + row) at that k and 0 elsewhere, so the product is (1 + row) * kv_value(kv, k): the
/// row,
/// the kv and the k of every operand element and the place of every accumulator show. Starts from accumulators of 1/2.
template <class B, DType type, class KvValue>
void check_mma(KvValue kv_value) {
  constexpr AtomFacts atom = is_fp8(type) ? gfx942_fp8_atom : B::atom;
  using Kernel = MmaKernel<B, type>;
  const auto encode = [](int value) {
    const auto x = static_cast<float>(value);
    if (is_fp8(type)) return std::uint32_t{f32_to_fp8(type, x)};
    return std::uint32_t{type == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x)};
  };
  constexpr int in_word = 4 / size_of(type);
  constexpr int kv_size = B::KvOperand::size * in_word, rows_size = B::RowsOperand::size * in_word;
  const auto put = [](std::uint32_t& word, int e, std::uint32_t code) {
    word = e % in_word ? word | code << 32 / in_word * (e % in_word) : code;
  };
  std::vector<typename Kernel::Operands> in(atom.k * atom.lanes);
  for (int k = 0; k < atom.k; ++k) {
    for (int lane = 0; lane < atom.lanes; ++lane) {
      typename Kernel::Operands& o = in[k * atom.lanes + lane];
      for (int e = 0; e < kv_size; ++e) {
        const AtomElement at = atom.kv_operand(lane, e);
        const std::uint32_t code = encode(kv_value(at.index, at.k));
        put(o.kv[e / in_word], e, code);
      }
      for (int e = 0; e < rows_size; ++e) {
        const AtomElement at = atom.rows_operand(lane, e);
        const std::uint32_t code = encode(at.k == k ? 1 + at.index : 0);
        put(o.rows[e / in_word], e, code);
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
/// One for each k that has four bits, as fp8 does.
struct KCode {
  int operator()(int, int k) const { return (8 + k % 8) << k / 8; }
};
/// bf16 lacks these properties of f16: 11 bits of significand, and subnormals from 2^-24 on.
template <class B>
void check_halves() {
  using Kernel = MmaKernel<B, DType::f16>;
  std::vector<typename Kernel::Operands> in(B::atom.lanes);
  for (auto& o : in) {
    for (int i = 0; i < B::KvOperand::size; ++i) o.kv[i] = 0x00010001u;      // 2^-24
    for (int i = 0; i < B::RowsOperand::size; ++i) o.rows[i] = 0x67ff67ffu;  // 2047
  }
  const auto out = run_kernel<Kernel>(1, in, in.size(), typename B::Accumulator{});
  for (const auto& acc : out) {
    for (int i = 0; i < B::Accumulator::size; ++i) {
      CAPTURE(room_name<B>(), i);
      REQUIRE(acc[i] == static_cast<float>(B::atom.k) * 2047 * 0x1p-24f);
    }
  }
}

struct CheckMma {
  template <class B>
  void operator()() const {
    check_mma<B, DType::bf16>(KvIndex{});
    check_mma<B, DType::bf16>(KIndex{});
    check_mma<B, DType::f16>(KvIndex{});
    check_mma<B, DType::f16>(KIndex{});
    check_halves<B>();
    if constexpr (Fp8AtomBackend<B>) {
      check_mma<B, B::facts.fp8>(KvIndex{});
      check_mma<B, B::facts.fp8>(KCode{});
    }
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

// --- reduce ----------------------------------------------------------------------------------------------------------

/// Commutative, and far from associative: any other tree shows.
struct Distance {
  TILEWAVE_HOST_DEVICE float operator()(float a, float b) const {
    const float d = a - b;
    return d > 0 ? d : 0.0f - d;  // +0 whichever zero comes first
  }
};

struct Reduced {
  float sum, max, distance;
};
constexpr int reduced_sizes = 7;  // groups of 1, 2, 4, ... lanes, up to the wave

template <class B>
struct ReduceKernel {
  using Room = B;
  struct Args {
    const float* in;  // [grid, block_threads]
    Reduced* out;     // [grid, block_threads, reduced_sizes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = 2 * B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::block_id() * block_threads + B::wave_id() * B::facts.wave_lanes + B::lane_id();
    const float x = B::load(args.in + i);
    const float product = 0.7f * x;  // contracted into an addition of the sum, it would differ from lane to lane
    static_for<reduced_sizes>([&](auto size) {
      constexpr int lanes = 1 << int{size};
      if constexpr (lanes <= B::facts.wave_lanes) {
        args.out[i * reduced_sizes + size] = {B::template reduce<lanes>(product, Sum{}),
                                              B::template reduce<lanes>(x, Max{}),
                                              B::template reduce<lanes>(x, Distance{})};
      }
    });
  }
};

template <class Op>
std::vector<float> butterfly(std::vector<float> values, int lanes, Op op) {
  for (int mask = 1; mask < lanes; mask *= 2) {
    const std::vector<float> before = values;
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = op(before[i], before[i ^ static_cast<std::size_t>(mask)]);
  }
  return values;
}

struct HostMax {
  float operator()(float a, float b) const {
    if (std::isnan(a)) return b;
    if (a == b) return std::signbit(a) ? b : a;
    return a < b ? b : a;
  }
};

/// Equal bits, or both NaN: whose payload survives is not promised.
bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

struct CheckReduce {
  template <class B>
  void operator()() const {
    constexpr int threads = ReduceKernel<B>::block_threads, blocks = 12;
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> in(blocks * threads);
    std::uint32_t state = 1;
    for (std::size_t i = 0; i < in.size(); ++i) {
      state = state * 1664525u + 1013904223u;  // Numerical Recipes, section 7.1
      const float unit = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
      in[i] = unit * std::exp2(static_cast<float>(state >> 8 & 15u));  // sums that round, and depend on their order
      const int block = static_cast<int>(i) / threads;
      if (block == 1) in[i] = -std::fabs(in[i]);      // a zero that leaks in would be the largest
      if (block == 2 && state % 5 == 0) in[i] = nan;  // a number wins
      if (block == 3) in[i] = state & 0x10000 ? -0.0f : 0.0f;
      if (block == 4) in[i] = i % 9 ? -infinity : -3.0f;                // a masked row
      if (block == 5) in[i] = std::bit_cast<float>(1 + (state >> 12));  // subnormals
      if (block == 6) in[i] = nan;
      if (block == 7) in[i] = -0.0f;
      if (block == 8 && state % 5 == 0) in[i] = std::bit_cast<float>(0x7fa00000u);  // signalling
    }
    std::vector<float> products = in;
    for (float& x : products) x *= 0.7f;
    const auto out = run_kernel<ReduceKernel<B>>(blocks, in, in.size() * reduced_sizes, Reduced{7, 7, 7});
    for (int size = 0; 1 << size <= B::facts.wave_lanes; ++size) {
      const int lanes = 1 << size;
      const auto sums = butterfly(products, lanes, [](float a, float b) { return a + b; });
      const auto maxima = butterfly(in, lanes, HostMax{});
      const auto distances = butterfly(in, lanes, Distance{});
      for (std::size_t i = 0; i < in.size(); ++i) {
        const Reduced& got = out[i * reduced_sizes + size];
        CAPTURE(room_name<B>(), lanes, i, in[i], got.sum, sums[i], got.max, maxima[i], got.distance, distances[i]);
        CHECK(same(got.sum, sums[i]));
        CHECK(same(got.distance, distances[i]));
        CHECK(same(got.max, maxima[i]));
      }
    }
  }
};

// --- memory and sync -------------------------------------------------------------------------------------------------

struct Widths {
  std::uint8_t one;
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
    B::store(&out->one, B::load(&in->one));
    B::store(&out->two, B::load(&in->two));
    B::store(&out->four, B::load(&in->four));
    B::store(&out->eight, B::load(&in->eight));
    B::store(&out->sixteen, B::load(&in->sixteen));
    B::store_stream(&out->streamed, B::load_stream(&in->streamed));
  }
};

struct CheckWidths {
  template <class B>
  void operator()() const {
    std::vector<Widths> in(B::facts.wave_lanes);
    for (std::uint32_t i = 0; i < in.size(); ++i) {
      in[i] = {static_cast<std::uint8_t>(200 + i),
               static_cast<std::uint16_t>(60000 + i),
               0xfedc0000u + i,
               0xfedcba9800000000u + i,
               {{i, i + 1, i + 2, i + 3}},
               {{~i, i, ~i, i}}};
    }
    const auto out = run_kernel<WidthsKernel<B>>(1, in, in.size(), Widths{});
    for (std::size_t i = 0; i < in.size(); ++i) {
      CAPTURE(room_name<B>(), i);
      CHECK(out[i].one == in[i].one);
      CHECK(out[i].two == in[i].two);
      CHECK(out[i].four == in[i].four);
      CHECK(out[i].eight == in[i].eight);
      for (int e = 0; e < 4; ++e) CHECK(out[i].sixteen[e] == in[i].sixteen[e]);
      for (int e = 0; e < 4; ++e) CHECK(out[i].streamed[e] == in[i].streamed[e]);
    }
  }
};

// --- counters
// ----------------------------------------------------------------------------------------------------------

template <class B>
struct CountersKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [block_threads]
    std::uint32_t* out;       // [3]
  };
  struct Shared {
    std::uint32_t count[3];
  };
  static constexpr int block_threads = 4 * B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int lane = B::block_lane_id();
    if (lane < 3) shared.count[lane] = 0xffffffffu;  // counts go round
    B::barrier();
    B::add_shared(&shared.count[lane % 7 % 3], B::load(args.in + lane));
    B::barrier();
    if (lane < 3) B::store(args.out + lane, shared.count[lane]);
  }
};

struct CheckCounters {
  template <class B>
  void operator()() const {
    std::vector<std::uint32_t> in(CountersKernel<B>::block_threads), wanted(3, 0xffffffffu);
    for (std::uint32_t i = 0; i < in.size(); ++i) wanted[i % 7 % 3] += in[i] = 3 * i + 1;
    CAPTURE(room_name<B>());
    CHECK(run_kernel<CountersKernel<B>>(1, in, 3, std::uint32_t{77}) == wanted);
  }
};

}  // namespace

TEST_CASE("unit vectors prove the atom's maps") { AllRooms::each(CheckMma{}); }
TEST_CASE("lanes exchange values inside their wave") { AllRooms::each(CheckExchange{}); }
TEST_CASE("reduce is one butterfly, to the bit") { AllRooms::each(CheckReduce{}); }
TEST_CASE("loads and stores move 1, 2, 4, 8 and 16 bytes") { AllRooms::each(CheckWidths{}); }

TEST_CASE("lanes of several waves add to words in shared memory") { AllRooms::each(CheckCounters{}); }

}  // namespace tilewave::test
