// SPDX-License-Identifier: MIT
// Matrix products of wave groups, in the rooms that have them, against plain loops. All sums are of
// small integers, so exact in any order.
#include <cstdint>
#include <vector>

#include "test/arch/group_room.hpp"

namespace tilewave::test {
namespace {

// --- one product -----------------------------------------------------------------------------------------------------

struct Strides {
  int eight_rows, next_unit, offset;
};

/// Each of the block's two groups multiplies a problem of its own.
template <class B, DType element, int width, bool from_registers>
struct ProductKernel {
  using Room = B;
  static constexpr DType type = element;
  static constexpr int columns = width, k = size_of(type) == 1 ? 32 : 16, groups = 2;
  static constexpr bool in_registers = from_registers;
  static constexpr int block_threads = groups * group_lanes, waves_per_simd = 2;
  static constexpr int header = 8, a_words = rows * 8, b_words = columns * 8;
  static constexpr int problem_words = header + a_words + b_words + rows * columns;
  struct Args {
    const std::uint32_t* in;  // [grid, groups, problem_words]: strides of a and b, their offsets, 0, 0, a, b, acc
    float* out;               // [grid, groups, rows, columns]
  };
  struct Shared {
    Chunk a[groups][320], b[groups][320];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    const int problem = B::block_id() * groups + me.group;
    const std::uint32_t* const strides = args.in + problem * problem_words;
    const std::uint32_t *const a_in = strides + header, *const b_in = a_in + a_words, *const acc_in = b_in + b_words;
    const auto word = [&](int i) { return static_cast<int>(B::load(strides + i)); };
    const GroupOperand a{shared.a[me.group], word(0), word(1), word(4)};
    const GroupOperand b{shared.b[me.group], word(2), word(3), word(5)};
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
    for (const int s : {a_strides.eight_rows, a_strides.next_unit, b_strides.eight_rows, b_strides.next_unit}) {
      in.push_back(static_cast<std::uint32_t>(s));
    }
    for (const int s : {a_strides.offset, b_strides.offset, 0, 0}) in.push_back(static_cast<std::uint32_t>(s));
    append(in, type, a);
    append(in, type, b);
    append(in, acc);
    const Matrix sums = product(a, b, a.size() / rows);
    for (std::size_t i = 0; i < acc.size(); ++i) expected.push_back(acc[i] + sums[i]);
  }
};

template <class K>
int wrong_products(const Problems& problems) {
  const int blocks = static_cast<int>(problems.in.size()) / (K::groups * K::problem_words);
  return run_kernel<K>(blocks, problems.in, problems.expected.size(), -1.0f) == problems.expected ? 0 : 1;
}

constexpr Strides a_strides[] = {{128, 1024, 0}, {256, 128, 1024}, {144, 1168, 16}, {400, 144, 0}};
/// The 16-byte units of all rows apart, those of eight rows side by side, and with gaps.
constexpr Strides b_strides(int columns, int i) {
  const Strides all[] = {
      {128, 16 * columns, 0}, {256, 128, 48}, {272, 144, 0}, {176, 22 * columns, 2048 - 16 * columns}};
  return all[i];
}

/// Each k in turn meets in one row and one column.
template <class K>
int wrong_unit_vectors() {
  Problems problems;
  for (int e = 0; e < 2 * rows; ++e) {
    Matrix a(rows * K::k, 0.0f), b(K::columns * K::k, 0.0f);
    a[e % rows * K::k + e * 5 % K::k] = 2.0f;
    b[e * 3 % K::columns * K::k + e * 5 % K::k] = 3.0f;
    problems.add(K::type, a_strides[e % 4], b_strides(K::columns, e / 4 % 4), a, b, Matrix(rows * K::columns, 1.0f));
  }
  return wrong_products<K>(problems);
}

template <class K>
int wrong_random() {
  Problems problems;
  for (unsigned i = 0; i < 16; ++i) {
    problems.add(K::type, a_strides[i % 4], b_strides(K::columns, i / 4), random_integers(rows * K::k, 8, 3 * i),
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
      CHECK(wrong<ProductKernel<B, DType::bf16, 32, false>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::bf16, 64, true>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 8, false>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 8, true>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 16, false>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 16, true>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 32, true>>() == 0);
      CHECK(wrong<ProductKernel<B, DType::f16, 64, false>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 8, false>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 8, true>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 16, false>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 16, true>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 32, false>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 32, true>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 64, false>>() == 0);
      CHECK(wrong<ProductKernel<B, B::facts.fp8, 64, true>>() == 0);
    }
  }
  template <class K>
  static int wrong() {
    return wrong_unit_vectors<K>() + wrong_random<K>();
  }
};

// --- batches ---------------------------------------------------------------------------------------------------------

/// x = 2 first b, y = second b + first b: the first is taken while the second is under way, to which a third adds.
template <class B>
struct BatchesKernel {
  using Room = B;
  static constexpr int columns = 8, k = 16, block_threads = group_lanes, waves_per_simd = 1;
  static constexpr int a_words = rows * k / 2, problem_words = 2 * a_words + columns * k / 2;
  struct Args {
    const std::uint32_t* in;  // [grid, problem_words]: first, second, b
    float* out;               // [grid, 2, rows, columns]
  };
  struct Shared {
    Chunk first[128], b[16];
  };

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    const std::uint32_t* const in = args.in + B::block_id() * problem_words;
    const GroupOperand first{shared.first, 256, 128}, b{shared.b, 128, 128};
    place_operand<B>(first, in, rows, me.id);
    place_operand<B>(b, in + 2 * a_words, columns, me.id);
    B::shared_written();
    B::group_barrier();
    const Chunk second = me.registers(in + a_words, 8, 0);
    Vec<float, 4> x{}, y{};
    B::group_mma_begin();
    B::template group_mma<DType::bf16, columns>(first, b, x);
    B::template group_mma<DType::bf16, columns>(first, b, x);
    B::group_mma_end();
    B::group_mma_begin();
    B::template group_mma<DType::bf16, columns>(second, b, y);
    B::group_mma_end();
    B::template group_mma_wait<1>();
    float* const out = args.out + B::block_id() * 2 * rows * columns;
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) B::store(out + me.row(i) * columns + me.column(i), x[i]);
    B::group_mma_begin();
    B::template group_mma<DType::bf16, columns>(first, b, y);
    B::group_mma_end();
    B::template group_mma_wait<0>();
    TILEWAVE_UNROLL
    for (int i = 0; i < 4; ++i) B::store(out + (rows + me.row(i)) * columns + me.column(i), y[i]);
  }
};

struct CheckBatches {
  template <class B>
  void operator()() const {
    if constexpr (GroupBackend<B>) {
      using K = BatchesKernel<B>;
      constexpr int blocks = 5;
      std::vector<std::uint32_t> in;
      Matrix expected;
      for (unsigned block = 0; block < blocks; ++block) {
        const Matrix first = random_integers(rows * K::k, 8, 3 * block),
                     second = random_integers(rows * K::k, 8, 3 * block + 1),
                     b = random_integers(K::columns * K::k, 8, 3 * block + 2);
        for (const Matrix* m : {&first, &second, &b}) append(in, DType::bf16, *m);
        const Matrix x = product(first, b, K::k), y = product(second, b, K::k);
        for (const float v : x) expected.push_back(2 * v);
        for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(x[i] + y[i]);
      }
      CHECK((run_kernel<K>(blocks, in, expected.size(), -1.0f) == expected));
    }
  }
};

// --- the chained pair ------------------------------------------------------------------------------------------------

/// scores^T = K Q^T, rounded and stored as operand b of out^T = V^T P^T. K comes from shared memory, V from there or
/// from registers.
template <class B, DType element, int width, bool from_registers>
struct ChainKernel {
  using Room = B;
  static constexpr DType type = element;
  static constexpr int columns = width, size = 64;  // of the head; also the tokens
  static constexpr int block_threads = group_lanes, waves_per_simd = 1, steps = size / 16, units = 2 * steps;
  static constexpr int matrix_words = size * size / 2, problem_words = 2 * matrix_words + columns * size / 2;
  struct Args {
    const std::uint32_t* in;  // [grid, problem_words]: K [tokens, size], V^T [size, tokens], Q [columns, size]
    float* out;               // [grid, size, columns]
  };
  struct Shared {
    Chunk keys[units][size], values[units][size], queries[units][columns], p[units][columns];
  };

  template <int count>
  TILEWAVE_DEVICE static void fill(Chunk (&to)[units][count], const std::uint32_t* from, int id) {
    for (int i = id; i < units * count; i += group_lanes) {
      B::store(&to[i % units][i / units], B::load(reinterpret_cast<const Chunk*>(from) + i));
    }
  }
  template <int count>
  TILEWAVE_DEVICE static GroupOperand step_of(const Chunk (&matrix)[units][count], int step) {
    return {matrix[2 * step], 128, count * 16};
  }

  TILEWAVE_DEVICE static void run(const Args& args, Shared& shared) {
    const Place<B> me;
    const std::uint32_t* const in = args.in + B::block_id() * problem_words;
    fill(shared.keys, in, me.id);
    fill(shared.values, in + matrix_words, me.id);
    fill(shared.queries, in + 2 * matrix_words, me.id);
    B::shared_written();
    B::group_barrier();
    Vec<float, columns / 2> scores{}, out{};
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int s = 0; s < steps; ++s) {
      B::template group_mma<type, columns>(step_of(shared.keys, s), step_of(shared.queries, s), scores);
    }
    B::group_mma_end();
    B::template group_mma_wait<0>();

    // Matrix 2 j + h: queries 8 j .. as rows, tokens 16 wave + 8 h ..
    Vec<std::uint32_t, columns / 4> words;
    TILEWAVE_UNROLL
    for (int m = 0; m < columns / 4; ++m) {
      const float low = scores[2 * m], high = scores[2 * m + 1];
      words[m] = type == DType::f16 ? B::pack_f16(low, high) : B::pack_bf16(low, high);
    }
    const int matrix = me.lane / 8 % (columns / 4);
    B::template store_matrices<columns / 4>(&shared.p[2 * me.wave + matrix % 2][matrix / 2 * 8 + me.lane % 8], words);
    B::shared_written();
    B::group_barrier();

    Chunk values[steps];
    TILEWAVE_UNROLL
    for (int s = 0; s < steps; ++s) values[s] = me.registers(in + matrix_words, size / 2, 8 * s);
    B::group_mma_begin();
    TILEWAVE_UNROLL
    for (int s = 0; s < steps; ++s) {
      if constexpr (from_registers) {
        B::template group_mma<type, columns>(values[s], step_of(shared.p, s), out);
      } else {
        B::template group_mma<type, columns>(step_of(shared.values, s), step_of(shared.p, s), out);
      }
    }
    B::group_mma_end();
    B::template group_mma_wait<0>();
    TILEWAVE_UNROLL
    for (int i = 0; i < columns / 2; ++i) {
      B::store(args.out + (B::block_id() * size + me.row(i)) * columns + me.column(i), out[i]);
    }
  }
};

/// Scores are at most 64, exact in either type.
template <class K>
int wrong_chains() {
  constexpr int blocks = 4;
  std::vector<std::uint32_t> in;
  Matrix expected;
  for (unsigned block = 0; block < blocks; ++block) {
    const Matrix keys = random_integers(K::size * K::size, 1, 3 * block),
                 values = random_integers(K::size * K::size, 4, 3 * block + 1),
                 queries = random_integers(K::columns * K::size, 1, 3 * block + 2);
    for (const Matrix* m : {&keys, &values, &queries}) append(in, K::type, *m);
    const Matrix out = product(values, product(queries, keys, K::size), K::size);
    expected.insert(expected.end(), out.begin(), out.end());
  }
  return run_kernel<K>(blocks, in, expected.size(), -1.0f) == expected ? 0 : 1;
}

struct CheckChains {
  template <class B>
  void operator()() const {
    if constexpr (GroupBackend<B>) {
      CHECK(wrong_chains<ChainKernel<B, DType::bf16, 8, false>>() == 0);
      CHECK(wrong_chains<ChainKernel<B, DType::bf16, 16, true>>() == 0);
      CHECK(wrong_chains<ChainKernel<B, DType::f16, 8, true>>() == 0);
      CHECK(wrong_chains<ChainKernel<B, DType::f16, 16, false>>() == 0);
    }
  }
};

}  // namespace

TEST_CASE("a group multiplies operands in shared memory and in registers") { AllRooms::each(CheckProducts{}); }
TEST_CASE("batches of a group's products end in order") { AllRooms::each(CheckBatches{}); }
TEST_CASE("the accumulators of one group product feed the next") { AllRooms::each(CheckChains{}); }

}  // namespace tilewave::test
