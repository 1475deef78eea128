// SPDX-License-Identifier: MIT
// Products of operands as copies of boxes leave them, in the rooms that have those, against plain loops (sums of small
// integers, so exact in any order); and what goes with them: straight stores of fragments, registers handed on.
#include <cstdint>
#include <vector>

#include "test/arch/group_room.hpp"
#include "test/arch/tensor_room.hpp"

namespace tilewave::test::multiply {
namespace {

// --- products --------------------------------------------------------------------------------------------------------

inline constexpr int a_row = 8, b_row = 16;  // where the operands begin

/// For every width it sums over four slices of k, starting afresh, and then adds the last slice once more. Operand a is
/// in shared memory or in registers.
template <class B, DType element, bool from_registers, int... all_columns>
struct MultiplyKernel {
  using Room = B;
  static constexpr DType type = element;
  static constexpr int widths[sizeof...(all_columns)] = {all_columns...}, columns_in_all = (all_columns + ...);
  static constexpr int most = 256, block_threads = group_lanes, waves_per_simd = 1;
  struct Args {
    const Chunk *a, *b;  // [grid, 64, 8], [grid, 256, 8]
    float* out;          // [grid, 2, columns_in_all, 64]
  };
  struct Shared {
    alignas(1024) Chunk a[a_row + rows][8];
    alignas(1024) Chunk b[b_row + most][8];
  };

  template <int columns>
  TILEWAVE_DEVICE static float* run_width(const Place<B>& me, const Chunk* a, const Shared& shared, float* out) {
    Vec<ProductSum<type>, columns / 2> acc;
    TILEWAVE_UNROLL
    for (int i = 0; i < columns / 2; ++i) acc[i] = static_cast<ProductSum<type>>(from_registers ? 0.0f : 1e9f);
    Chunk registers[4];
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < 4; ++k_slice) {
      registers[k_slice] = me.registers(reinterpret_cast<const std::uint32_t*>(a), 32, 8 * k_slice);
    }
    const auto multiply = [&](int k_slice, bool add) TILEWAVE_INLINE_LAMBDA {
      const SwizzledOperand b{shared.b, b_row, k_slice};
      if constexpr (from_registers) {
        B::template group_multiply<type, columns>(registers[k_slice], b, acc);
      } else {
        B::template group_multiply<type, columns>(SwizzledOperand{shared.a, a_row, k_slice}, b, acc, add);
      }
    };
    B::group_mma_fence(acc);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < 4; ++k_slice) multiply(k_slice, k_slice != 0);
    B::group_mma_end();
    B::template group_mma_wait<0>();
    TILEWAVE_UNROLL
    for (int i = 0; i < columns / 2; ++i) B::store(out + me.column(i) * rows + me.row(i), float(acc[i]));
    B::group_mma_fence(acc);
    B::group_mma_begin();
    multiply(3, true);
    B::group_mma_end();
    B::template group_mma_wait<0>();
    TILEWAVE_UNROLL
    for (int i = 0; i < columns / 2; ++i) B::store(out + (columns + me.column(i)) * rows + me.row(i), float(acc[i]));
    return out + 2 * columns * rows;
  }

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    const auto fill = [&](Chunk(*to)[8], const Chunk* from, int count) {
      for (int i = me.id; i < 8 * count; i += group_lanes) {
        B::store(&to[i / 8][i % 8 ^ i / 8 % 8], B::load(from + B::block_id() * 8 * count + i));
      }
    };
    fill(shared.a + a_row, args.a, rows);
    fill(shared.b + b_row, args.b, most);
    B::shared_written();
    B::group_barrier();
    float* out = args.out + B::block_id() * 2 * columns_in_all * rows;
    ((out = run_width<all_columns>(me, args.a + B::block_id() * 8 * rows, shared, out)), ...);
  }
};

struct CheckProducts {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      check<MultiplyKernel<B, DType::bf16, false, 8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224,
                           240, 256>>();
      check<MultiplyKernel<B, DType::f16, false, 8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240,
                           256>>();
      check<MultiplyKernel<B, B::facts.fp8, false, 8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224,
                           240, 256>>();
      check<MultiplyKernel<B, DType::i8, false, 16, 64, 128, 256>>();
      check<MultiplyKernel<B, DType::bf16, true, 8, 16, 32, 48, 64, 80, 128, 160>>();
      check<MultiplyKernel<B, DType::f16, true, 8, 16, 32, 64, 128, 160>>();
      check<MultiplyKernel<B, B::facts.fp8, true, 8, 16, 32, 64, 128, 160, 192>>();
    }
  }
  template <class K>
  static void check() {
    constexpr int blocks = 2, k = 128 / size_of(K::type), last = 3 * k / 4;
    std::vector<std::uint32_t> a_words, b_words;
    Matrix expected;
    for (unsigned block = 0; block < blocks; ++block) {
      const Matrix a = random_integers(rows * k, 4, 2 * block), b = random_integers(K::most * k, 4, 2 * block + 1);
      append(a_words, K::type, a);
      append(b_words, K::type, b);
      Matrix a_last(a), b_last(b);  // without the first three slices of k
      for (std::size_t i = 0; i < a.size(); ++i) a_last[i] = static_cast<int>(i % k) < last ? 0 : a[i];
      const Matrix once = product(b, a, k), again = product(b, a_last, k);
      for (const int columns : K::widths) {
        for (int i = 0; i < columns * rows; ++i) expected.push_back(once[i]);
        for (int i = 0; i < columns * rows; ++i) expected.push_back(once[i] + again[i]);
      }
    }
    const Device<std::uint32_t> a_in(a_words), b_in(b_words);
    Device<float> out(Matrix(expected.size(), -1.0f));
    const auto chunks = [](const Device<std::uint32_t>& d) {
      return static_cast<const Chunk*>(static_cast<const void*>(d.data()));
    };
    launch_kernel<K>(blocks, 1, {chunks(a_in), chunks(b_in), out.data()});
    CAPTURE(std::string(name_of(K::type)));
    CHECK((out.values() == expected));
  }
};

// --- bytes ---------------------------------------------------------------------------------------------------------

/// Bytes by a selector that each lane has for itself, in the rooms that have it.
template <class B>
struct PermuteKernel {
  using Room = B;
  struct Args {
    const std::uint32_t* in;  // [3, wave_lanes]: low, high, selector
    std::uint32_t* out;       // [wave_lanes]
  };
  using Shared = NoShared;
  static constexpr int block_threads = B::facts.wave_lanes, waves_per_simd = 1;

  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int i = B::lane_id(), lanes = B::facts.wave_lanes;
    args.out[i] = B::permute_bytes(args.in[i], args.in[lanes + i], args.in[2 * lanes + i]);
  }
};

struct CheckPermute {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      constexpr int lanes = B::facts.wave_lanes;
      std::vector<std::uint32_t> in(3 * lanes);
      for (int i = 0; i < 3 * lanes; ++i) in[i] = 0x9e3779b9u * static_cast<std::uint32_t>(i + 1);
      for (int i = 2 * lanes; i < 3 * lanes; ++i) in[i] &= 0x7777u;
      const auto out = run_kernel<PermuteKernel<B>>(1, in, lanes, std::uint32_t{});
      for (int i = 0; i < lanes; ++i) {
        const std::uint64_t all = std::uint64_t{in[lanes + i]} << 32 | in[i];
        std::uint32_t expected = 0;
        for (int b = 0; b < 4; ++b)
          expected |= static_cast<std::uint32_t>(all >> 8 * (in[2 * lanes + i] >> 4 * b & 7u) & 0xffu) << 8 * b;
        CAPTURE(room_name<B>(), i);
        CHECK(out[i] == expected);
      }
    }
  }
};

// --- transposed operands ---------------------------------------------------------------------------------------------

/// Does the same for bf16 with the rows of one operand or of both side by side; b begins in the second of its boxes.
/// Operand a may come from registers.
template <class B, bool a_transposed, bool b_transposed, bool from_registers = false>
struct TransposedKernel {
  using Room = B;
  static constexpr int k = 64, b_row = 64, columns = 128, block_threads = group_lanes, waves_per_simd = 1;
  struct Args {
    const std::uint16_t *a, *b;  // [64, k], [b_row + columns, k]
    float* out;                  // [columns, 64]
  };
  struct Shared {
    alignas(1024) std::uint16_t a[rows * k];
    alignas(1024) std::uint16_t b[(b_row + columns) * k];
  };

  template <bool transposed>
  TILEWAVE_DEVICE static int place(int row, int i) {
    if (!transposed) return row * k + 8 * (i / 8 ^ row % 8) + i % 8;
    return (row / 64 * k + i) * 64 + 8 * (row % 64 / 8 ^ i % 8) + row % 8;
  }
  template <bool transposed>
  TILEWAVE_DEVICE static auto operand(const std::uint16_t* at, int row, int k_slice) {
    if constexpr (transposed) {
      return TransposedOperand{at, k, row, k_slice};
    } else {
      return SwizzledOperand{at, row, k_slice};
    }
  }
  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    for (int i = me.id; i < rows * k; i += group_lanes)
      shared.a[place<a_transposed>(i / k, i % k)] = B::load(args.a + i);
    for (int i = me.id; i < (b_row + columns) * k; i += group_lanes)
      shared.b[place<b_transposed>(i / k, i % k)] = B::load(args.b + i);
    B::shared_written();
    B::group_barrier();
    Vec<float, columns / 2> acc{};
    Chunk registers[4];
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < 4; ++k_slice) {
      registers[k_slice] = me.registers(reinterpret_cast<const std::uint32_t*>(args.a), k / 2, 8 * k_slice);
    }
    B::group_mma_fence(acc);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int k_slice = 0; k_slice < 4; ++k_slice) {
      const auto from_b = operand<b_transposed>(shared.b, b_row, k_slice);
      if constexpr (from_registers) {
        B::template group_multiply<DType::bf16, columns>(registers[k_slice], from_b, acc);
      } else {
        B::template group_multiply<DType::bf16, columns>(operand<a_transposed>(shared.a, 0, k_slice), from_b, acc,
                                                         true);
      }
    }
    B::group_mma_end();
    B::template group_mma_wait<0>();
    TILEWAVE_UNROLL
    for (int i = 0; i < columns / 2; ++i) B::store(args.out + me.column(i) * rows + me.row(i), acc[i]);
  }
};

struct CheckTransposed {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      check<TransposedKernel<B, false, true>>();
      check<TransposedKernel<B, true, false>>();
      check<TransposedKernel<B, true, true>>();
      check<TransposedKernel<B, false, true, true>>();
    }
  }
  template <class K>
  static void check() {
    const Matrix a = random_integers(rows * K::k, 4, 1), b = random_integers((K::b_row + K::columns) * K::k, 4, 2);
    std::vector<std::uint16_t> a_codes, b_codes;
    for (const float v : a) a_codes.push_back(f32_to_bf16(v));
    for (const float v : b) b_codes.push_back(f32_to_bf16(v));
    const Device<std::uint16_t> a_in(a_codes), b_in(b_codes);
    Device<float> out(Matrix(K::columns * rows, -1.0f));
    launch_kernel<K>(1, 1, {a_in.data(), b_in.data(), out.data()});
    CHECK((out.values() == product(Matrix(b.begin() + K::b_row * K::k, b.end()), a, K::k)));
  }
};

// --- fragments -------------------------------------------------------------------------------------------------------

/// Four matrices stored by one wave, in rows that lie apart.
template <class B>
struct StraightKernel {
  using Room = B;
  static constexpr int lanes = B::facts.wave_lanes, block_threads = lanes, waves_per_simd = 1;
  struct Args {
    const Chunk* in;  // [lanes]
    Chunk* out;       // [lanes]
  };
  struct Shared {
    Chunk row[lanes];
  };

  TILEWAVE_DEVICE static constexpr int row_of(int lane) { return lane * 13 % lanes; }
  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const int lane = B::lane_id();
    B::template store_matrices_straight<4>(&shared.row[row_of(lane)], B::load(args.in + lane));
    B::barrier();
    B::store(args.out + lane, B::load(&shared.row[lane]));
  }
};

struct CheckStraight {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      using K = StraightKernel<B>;
      std::vector<Chunk> in(K::lanes);
      for (int lane = 0; lane < K::lanes; ++lane) {
        for (int m = 0; m < 4; ++m) in[lane][m] = static_cast<std::uint32_t>(4 * lane + m) * 2654435761u;
      }
      const auto out = run_kernel<K>(1, in, in.size(), Chunk{});
      for (int lane = 0; lane < K::lanes; ++lane) {
        for (int m = 0; m < 4; ++m) {
          CAPTURE(lane, m);
          CHECK(out[(8 * m + lane / 4) * 13 % K::lanes][lane % 4] == in[lane][m]);
        }
      }
    }
  }
};

// --- registers -------------------------------------------------------------------------------------------------------

/// One group gives registers, two take them; all go on.
template <class B>
struct RegistersKernel {
  using Room = B;
  static constexpr int block_threads = 3 * group_lanes, waves_per_simd = 3;
  struct Args {
    const int* in;  // [block_threads]
    int* out;       // [block_threads]
  };
  using Shared = NoShared;
  TILEWAVE_DEVICE static void run(const Args& args, Shared&) {
    const int group = B::wave_id() / 4, id = B::block_lane_id();
    if (group == 0) {
      B::template give_registers<40>();
    } else {
      B::template take_registers<232>();
    }
    B::store(args.out + id, B::load(args.in + id) + group);
  }
};

struct CheckRegisters {
  template <class B>
  void operator()() const {
    if constexpr (TensorBackend<B>) {
      using K = RegistersKernel<B>;
      std::vector<int> in(K::block_threads), expected(K::block_threads);
      for (int i = 0; i < K::block_threads; ++i) expected[i] = (in[i] = 7 * i) + i / group_lanes;
      CHECK((run_kernel<K>(1, in, in.size(), -1) == expected));
    }
  }
};

}  // namespace

TEST_CASE("a group multiplies swizzled operands of all widths and types") { AllRooms::each(CheckProducts{}); }
TEST_CASE("a group multiplies operands whose rows lie side by side") { AllRooms::each(CheckTransposed{}); }
TEST_CASE("store_matrices_straight stores four matrices row by row") { AllRooms::each(CheckStraight{}); }
TEST_CASE("each lane permutes the bytes of two words as its selector says") { AllRooms::each(CheckPermute{}); }
TEST_CASE("groups hand registers on") { AllRooms::each(CheckRegisters{}); }

}  // namespace tilewave::test::multiply
