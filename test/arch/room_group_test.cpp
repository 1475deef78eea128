// SPDX-License-Identifier: MIT
// Matrix products, barriers and votes of wave groups, in the rooms that have them, against plain loops. All sums are of
// small integers, so exact in any order.
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "test/arch/room.hpp"

namespace tilewave::test {
namespace {

constexpr int group_lanes = 128, rows = 64;  // of a group, of its products

std::uint32_t code_of(DType type, float value) {
  return type == DType::bf16 ? f32_to_bf16(value) : type == DType::f16 ? f32_to_f16(value) : f32_to_fp8(type, value);
}

using Matrix = std::vector<float>;  // row by row

Matrix random_integers(int count, int limit, unsigned seed) {
  std::mt19937 random(seed);
  Matrix values(count);
  for (float& v : values) v = static_cast<float>(static_cast<int>(random() % (2 * limit + 1)) - limit);
  return values;
}

/// Appends the elements in the order given, as `type`.
void append(std::vector<std::uint32_t>& words, DType type, const Matrix& values) {
  const std::size_t per_word = 4 / size_of(type);
  for (std::size_t i = 0; i < values.size(); i += per_word) {
    std::uint32_t word = 0;
    for (std::size_t e = 0; e < per_word; ++e) word |= code_of(type, values[i + e]) << 8 * size_of(type) * e;
    words.push_back(word);
  }
}
void append(std::vector<std::uint32_t>& words, const Matrix& values) {
  for (const float v : values) words.push_back(__builtin_bit_cast(std::uint32_t, v));
}

/// What a lane knows of its place in the group.
template <class B>
struct Place {
  int lane = B::lane_id(), wave = B::wave_id() % 4, group = B::wave_id() / 4;
  int id = 32 * wave + lane;

  TILEWAVE_DEVICE int row(int i) const { return 16 * wave + lane / 4 + 4 * (i & 2); }
  TILEWAVE_DEVICE int column(int i) const { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; }
  /// Operand a as registers hold it, of a matrix with rows of `pitch` words (of two elements), from word `first` on.
  TILEWAVE_DEVICE Chunk registers(const std::uint32_t* matrix, int pitch, int first) const {
    Chunk a;
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int a_row = 16 * wave + lane / 4 + 8 * (i % 2);
      a[i] = B::load(matrix + a_row * pitch + first + 4 * (i / 2) + lane % 4);
    }
    return a;
  }
};

/// The two pieces of each of `count` rows (32 bytes each in `from`) go where `to` wants them.
template <class B>
TILEWAVE_DEVICE void place_operand(const GroupOperand& to, const std::uint32_t* from, int count, int id) {
  if (id >= 2 * count) return;
  const int row = id / 2, piece = id % 2;
  auto* const at = static_cast<char*>(const_cast<void*>(to.at)) + row / 8 * to.eight_rows + row % 8 * 16;
  B::store(reinterpret_cast<Chunk*>(at + piece * to.next_piece), B::load(reinterpret_cast<const Chunk*>(from) + id));
}

// --- one product -----------------------------------------------------------------------------------------------------

struct Strides {
  int eight_rows, next_piece;
};

/// Each of the block's two groups multiplies a problem of its own.
template <class B, DType element, int width, bool from_registers>
struct ProductKernel {
  using Room = B;
  static constexpr DType type = element;
  static constexpr int columns = width, k = size_of(type) == 1 ? 32 : 16, groups = 2;
  static constexpr bool in_registers = from_registers;
  static constexpr int block_threads = groups * group_lanes, waves_per_simd = 2;
  static constexpr int header = 4, a_words = rows * 8, b_words = columns * 8;
  static constexpr int problem_words = header + a_words + b_words + rows * columns;
  struct Args {
    const std::uint32_t* in;  // [grid, groups, problem_words]: strides of a and b, a, b, acc
    float* out;               // [grid, groups, rows, columns]
  };
  struct Shared {
    Chunk a[groups][256], b[groups][128];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    const int problem = B::block_id() * groups + me.group;
    const std::uint32_t* const strides = args.in + problem * problem_words;
    const std::uint32_t *const a_in = strides + header, *const b_in = a_in + a_words, *const acc_in = b_in + b_words;
    const GroupOperand a{shared.a[me.group], static_cast<int>(B::load(strides)),
                         static_cast<int>(B::load(strides + 1))};
    const GroupOperand b{shared.b[me.group], static_cast<int>(B::load(strides + 2)),
                         static_cast<int>(B::load(strides + 3))};
    if (!in_registers) place_operand<B>(a, a_in, rows, me.id);
    place_operand<B>(b, b_in, columns, me.id);
    B::shared_written();
    B::group_barrier();
    Vec<float, columns / 2> acc;
    TILEWAVE_UNROLL
    for (int i = 0; i < columns / 2; ++i) {
      acc[i] = __builtin_bit_cast(float, B::load(acc_in + me.row(i) * columns + me.column(i)));
    }
    if constexpr (in_registers) {
      const Chunk a_registers = me.registers(a_in, 8, 0);
      B::group_mma_begin();
      B::template group_mma<type, columns>(a_registers, b, acc);
      B::group_mma_end();
      B::template group_mma_wait<0>();
    } else {
      B::group_mma_begin();
      B::template group_mma<type, columns>(a, b, acc);
      B::group_mma_end();
      B::template group_mma_wait<0>();
    }
    TILEWAVE_UNROLL
    for (int i = 0; i < columns / 2; ++i) {
      B::store(args.out + (problem * rows + me.row(i)) * columns + me.column(i), acc[i]);
    }
  }
};

/// Problems and their answers, group by group.
struct Problems {
  std::vector<std::uint32_t> in;
  Matrix expected;

  void add(DType type, Strides a_strides, Strides b_strides, const Matrix& a, const Matrix& b, const Matrix& acc) {
    for (const int s : {a_strides.eight_rows, a_strides.next_piece, b_strides.eight_rows, b_strides.next_piece}) {
      in.push_back(static_cast<std::uint32_t>(s));
    }
    append(in, type, a);
    append(in, type, b);
    append(in, acc);
    const std::size_t k = a.size() / rows, columns = acc.size() / rows;
    for (std::size_t i = 0; i < acc.size(); ++i) {
      float sum = acc[i];
      for (std::size_t e = 0; e < k; ++e) sum += a[i / columns * k + e] * b[i % columns * k + e];
      expected.push_back(sum);
    }
  }
};

template <class K>
int wrong_products(const Problems& problems) {
  const int blocks = static_cast<int>(problems.in.size()) / (K::groups * K::problem_words);
  return run_kernel<K>(blocks, problems.in, problems.expected.size(), -1.0f) == problems.expected ? 0 : 1;
}

constexpr Strides a_strides[] = {{128, 1024}, {256, 128}, {144, 1168}, {400, 144}};
constexpr Strides b_strides[] = {{128, 256}, {256, 128}, {272, 144}, {176, 400}};

/// Each k in turn meets in one row and one column.
template <class K>
int wrong_unit_vectors() {
  Problems problems;
  for (int e = 0; e < 2 * rows; ++e) {
    Matrix a(rows * K::k, 0.0f), b(K::columns * K::k, 0.0f);
    a[e % rows * K::k + e * 5 % K::k] = 2.0f;
    b[e * 3 % K::columns * K::k + e * 5 % K::k] = 3.0f;
    problems.add(K::type, a_strides[e % 4], b_strides[e / 4 % 4], a, b, Matrix(rows * K::columns, 1.0f));
  }
  return wrong_products<K>(problems);
}

template <class K>
int wrong_random() {
  Problems problems;
  for (unsigned i = 0; i < 16; ++i) {
    problems.add(K::type, a_strides[i % 4], b_strides[i / 4], random_integers(rows * K::k, 8, 3 * i),
                 random_integers(K::columns * K::k, 8, 3 * i + 1), random_integers(rows * K::columns, 100, 3 * i + 2));
  }
  return wrong_products<K>(problems);
}

struct CheckProducts {
  template <class B>
  void operator()() const {
    if constexpr (GroupBackend<B>) {
      CHECK(wrong<ProductKernel<B, DType::bf16, 8, false>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::bf16, 8, true>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::bf16, 16, false>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::bf16, 16, true>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 8, false>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 8, true>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 16, false>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 16, true>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 8, false>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 16, false>>() == 0);
    }
  }
  template <class K>
  static int wrong() {
    return wrong_unit_vectors<K>() + wrong_random<K>();
  }
};

}  // namespace

TEST_CASE("a group multiplies operands in shared memory and in registers") { AllRooms::each(CheckProducts{}); }

}  // namespace tilewave::test
