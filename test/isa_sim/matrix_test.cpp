// SPDX-License-Identifier: MIT
// Every matrix instruction against a plain sum over k, with the lane of each element written from the other side than in
// the simulator: from the element to its lane and place.
#include <cmath>

#include "micro_values.hpp"
#include "test/catch_compat.hpp"
#include "toy.hpp"

namespace matrix_tests {
namespace {

using namespace tilewave::sim;
using namespace tilewave::sim::test;

enum class Type { bf16, f16, f32, f64, i8, fp8, bf8 };
constexpr int bits_of[] = {16, 16, 32, 64, 8, 8, 8};

struct Tile {
  const char* kernel;
  int m, k, blocks;
  Type a, b;
  bool only_gfx950 = false;
};
constexpr Tile tiles[] = {
    {"f32_16x16x16bf16_1k", 16, 16, 1, Type::bf16, Type::bf16},
    {"f32_32x32x8bf16_1k", 32, 8, 1, Type::bf16, Type::bf16},
    {"f32_32x32x4bf16_1k", 32, 4, 2, Type::bf16, Type::bf16},
    {"f32_16x16x4bf16_1k", 16, 4, 4, Type::bf16, Type::bf16},
    {"f32_4x4x4bf16_1k", 4, 4, 16, Type::bf16, Type::bf16},
    {"f32_16x16x16f16", 16, 16, 1, Type::f16, Type::f16},
    {"f32_32x32x8f16", 32, 8, 1, Type::f16, Type::f16},
    {"f32_32x32x4f16", 32, 4, 2, Type::f16, Type::f16},
    {"f32_16x16x4f16", 16, 4, 4, Type::f16, Type::f16},
    {"f32_4x4x4f16", 4, 4, 16, Type::f16, Type::f16},
    {"f32_16x16x4f32", 16, 4, 1, Type::f32, Type::f32},
    {"f32_32x32x2f32", 32, 2, 1, Type::f32, Type::f32},
    {"f32_32x32x1f32", 32, 1, 2, Type::f32, Type::f32},
    {"f32_16x16x1f32", 16, 1, 4, Type::f32, Type::f32},
    {"f32_4x4x1f32", 4, 1, 16, Type::f32, Type::f32},
    {"f64_16x16x4f64", 16, 4, 1, Type::f64, Type::f64},
    {"f64_4x4x4f64", 4, 4, 4, Type::f64, Type::f64},
    {"i32_16x16x32_i8", 16, 32, 1, Type::i8, Type::i8},
    {"i32_32x32x16_i8", 32, 16, 1, Type::i8, Type::i8},
    {"i32_32x32x4i8", 32, 4, 2, Type::i8, Type::i8},
    {"i32_16x16x4i8", 16, 4, 4, Type::i8, Type::i8},
    {"i32_4x4x4i8", 4, 4, 16, Type::i8, Type::i8},
    {"f32_16x16x32_fp8_fp8", 16, 32, 1, Type::fp8, Type::fp8},
    {"f32_16x16x32_fp8_bf8", 16, 32, 1, Type::fp8, Type::bf8},
    {"f32_16x16x32_bf8_fp8", 16, 32, 1, Type::bf8, Type::fp8},
    {"f32_32x32x16_fp8_fp8", 32, 16, 1, Type::fp8, Type::fp8},
    {"f32_32x32x16_bf8_bf8", 32, 16, 1, Type::bf8, Type::bf8},
    {"f32_16x16x32_bf16", 16, 32, 1, Type::bf16, Type::bf16, true},
    {"f32_32x32x16_bf16", 32, 16, 1, Type::bf16, Type::bf16, true},
    {"f32_16x16x32_f16", 16, 32, 1, Type::f16, Type::f16, true},
    {"f32_32x32x16_f16", 32, 16, 1, Type::f16, Type::f16, true},
    {"i32_16x16x64_i8", 16, 64, 1, Type::i8, Type::i8, true},
    {"i32_32x32x32_i8", 32, 32, 1, Type::i8, Type::i8, true},
};

double value_of(Arch arch, Type type, std::uint64_t bits) {
  switch (type) {
    case Type::bf16: return std::bit_cast<float>(static_cast<std::uint32_t>(bits << 16));
    case Type::f16:
      return (bits & 0x8000 ? -1 : 1) * std::ldexp(1024 + (bits & 0x3ff), static_cast<int>(bits >> 10 & 31) - 25);
    case Type::f32: return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case Type::f64: return std::bit_cast<double>(bits);
    case Type::i8: return static_cast<std::int8_t>(bits);
    default:
      return micro_value({type == Type::fp8 ? 4 : 5, type == Type::fp8 ? 3 : 2, arch == Arch::gfx942},
                         static_cast<unsigned>(bits));
  }
}

/// Random bits of a finite number, floats between 1/8 and 4 in magnitude.
std::uint64_t random_bits(Arch arch, Type type, Patterns& random) {
  const float x = std::copysign(std::exp2(random.unit() * 2.4f - 0.4f), random.unit());
  switch (type) {
    case Type::bf16: return std::bit_cast<std::uint32_t>(x) >> 16;
    case Type::f16: return (random.next() & 0x83ffu) | (13 + random.next() % 4) << 10;
    case Type::f32: return std::bit_cast<std::uint32_t>(x);
    case Type::f64: return std::bit_cast<std::uint64_t>(double{x} * 1.0000001);
    case Type::i8: return random.next() & 0xff;
    default: break;
  }
  const int m = type == Type::fp8 ? 3 : 2, bias = (type == Type::fp8 ? 7 : 15) + (arch == Arch::gfx942);
  return (random.next() & (0x80u | ((1u << m) - 1))) | (static_cast<unsigned>(bias - 3) + random.next() % 5) << m;
}

/// Registers of 64 lanes as bytes; element e of a lane at its place.
struct Lanes64 {
  std::vector<std::uint8_t> bytes;
  int lane_bytes;

  Lanes64(int elements, int bits)
      : bytes(static_cast<std::size_t>(8 * elements * bits)), lane_bytes(elements * bits / 8) {}
  std::uint8_t* at(int lane, int e, int bits) {
    return &bytes[static_cast<std::size_t>(lane * lane_bytes + e * bits / 8)];
  }
};

struct Where {
  int lane, place;
};
/// Who holds element (row or column i, k) of block b.
Where operand_at(const Tile& t, int b, int i, int k) {
  const int per_lane = t.k * t.m * t.blocks / 64;
  if (t.a == Type::f64 && t.blocks == 4) return {i + 4 * b + 16 * k, 0};
  if (t.blocks > 1) return {i + t.m * b, k};
  return {i + t.m * (k / per_lane), k % per_lane};
}
Where result_at(const Tile& t, int b, int row, int column) {
  if (t.a == Type::f64)
    return t.blocks == 4 ? Where{column + 4 * b + 16 * row, 0} : Where{column + 16 * (row % 4), row / 4};
  if (t.m == 4) return {column + 4 * b, row};
  if (t.m == 16) return {column + 16 * (row / 4), 4 * b + row % 4};
  return {column + 32 * (row / 4 % 2), 16 * b + 4 * (row / 8) + row % 4};
}

template <class T>
double worst_error(Arch arch, const Tile& t, Patterns& random) {
  const int per_lane = t.k * t.m * t.blocks / 64, results = t.m * t.m * t.blocks / 64;
  Lanes64 a(per_lane, bits_of[static_cast<int>(t.a)]), b(per_lane, bits_of[static_cast<int>(t.b)]);
  std::vector<T> c(static_cast<std::size_t>(64 * results)), d(c.size());
  for (T& x : c) x = static_cast<T>(random.unit() * 50);
  const auto fill = [&](Lanes64& lanes, Type type) {
    const int bits = bits_of[static_cast<int>(type)];
    for (int l = 0; l < 64; ++l)
      for (int e = 0; e < per_lane; ++e) {
        const std::uint64_t x = random_bits(arch, type, random);
        std::memcpy(lanes.at(l, e, bits), &x, static_cast<std::size_t>(bits / 8));
      }
  };
  fill(a, t.a);
  fill(b, t.b);
  Toy(arch, "matrix").in(a.bytes).in(b.bytes).in(c).out(d).run(t.kernel);
  const auto element = [&](Lanes64& lanes, Type type, int block, int i, int k) {
    const Where at = operand_at(t, block, i, k);
    std::uint64_t x = 0;
    const int bits = bits_of[static_cast<int>(type)];
    std::memcpy(&x, lanes.at(at.lane, at.place, bits), static_cast<std::size_t>(bits / 8));
    return value_of(arch, type, x);
  };
  double worst = 0;
  for (int block = 0; block < t.blocks; ++block)
    for (int row = 0; row < t.m; ++row)
      for (int column = 0; column < t.m; ++column) {
        const Where at = result_at(t, block, row, column);
        const auto i = static_cast<std::size_t>(at.lane * results + at.place);
        double sum = static_cast<double>(c[i]), size = std::fabs(sum);
        for (int k = 0; k < t.k; ++k) {
          const double product = element(a, t.a, block, row, k) * element(b, t.b, block, column, k);
          sum += product, size += std::fabs(product);
        }
        worst = std::max(worst, std::fabs(sum - static_cast<double>(d[i])) / size);
      }
  return worst;
}

/// A sparse product against the sum over A's values, each at the k that its two index bits say.
template <class T>
double worst_sparse_error(Arch arch, const Tile& t, int set, Patterns& random) {
  const int of_b = t.k * t.m / 64, of_a = of_b / 2, results = t.m * t.m / 64;
  const int bits = bits_of[static_cast<int>(t.a)];
  Lanes64 a(of_a, bits), b(of_b, bits);
  std::vector<T> c(static_cast<std::size_t>(64 * results)), d(c.size());
  std::vector<std::uint32_t> index(64);
  for (T& x : c) x = static_cast<T>(random.unit() * 50);
  for (std::uint32_t& x : index) x = random.next();
  const auto fill = [&](Lanes64& lanes, int count, Type type) {
    for (int l = 0; l < 64; ++l)
      for (int e = 0; e < count; ++e) {
        const std::uint64_t x = random_bits(arch, type, random);
        std::memcpy(lanes.at(l, e, bits), &x, static_cast<std::size_t>(bits / 8));
      }
  };
  fill(a, of_a, t.a);
  fill(b, of_b, t.b);
  const std::string kernel = "sparse_" + std::string(t.kernel) + "_" + std::to_string(set);
  Toy(arch, "matrix").in(a.bytes).in(b.bytes).in(c).out(d).in(index).run(kernel);
  const auto value = [&](Lanes64& lanes, Type type, int lane, int e) {
    std::uint64_t x = 0;
    std::memcpy(&x, lanes.at(lane, e, bits), static_cast<std::size_t>(bits / 8));
    return value_of(arch, type, x);
  };
  double worst = 0;
  for (int row = 0; row < t.m; ++row)
    for (int column = 0; column < t.m; ++column) {
      const Where at = result_at(t, 0, row, column);
      const auto i = static_cast<std::size_t>(at.lane * results + at.place);
      double sum = static_cast<double>(c[i]), size = std::fabs(sum);
      for (int group = 0; group < t.k / 4; ++group)  // of four k, of which a lane's neighbours have two each
        for (const int which : {0, 1}) {
          const int lane = t.m * (4 * group / of_b), e = 4 * group % of_b / 2 + which;
          const auto word = index[static_cast<std::size_t>(lane + row)] >> 2 * of_a * set;
          const int k = static_cast<int>(word >> 2 * e & 3);
          const double product = value(a, t.a, lane + row, e) * value(b, t.b, lane + column, 4 * group % of_b + k);
          sum += product, size += std::fabs(product);
        }
      worst = std::max(worst, std::fabs(sum - static_cast<double>(d[i])) / size);
    }
  return worst;
}

constexpr MicroFormat8 mx_formats[] = {{4, 3}, {5, 2}, {2, 3}, {3, 2}, {2, 1}};

/// D of a scaled tile against the sum by blocks of 32; `scales` false: the instruction without.
double worst_scaled_error(const std::string& name, int m, int k, int fa, int fb, int byte_a, int byte_b, bool scaled,
                          Patterns& random) {
  const int results = m * m / 64;
  std::vector<std::uint32_t> a(64 * 8), b(64 * 8), scales(128);
  std::vector<float> c(static_cast<std::size_t>(64 * results)), d(c.size());
  for (float& x : c) x = random.unit() * 50;
  for (std::uint32_t& x : scales) x = random.next() & 0x0f0f0f0fu, x += 0x78787878u;  // exponents 120 to 135
  const auto fill = [&](std::vector<std::uint32_t>& words, int format) {
    // The top exponent bit of 8-bit floats stays clear: no infinity, no NaN.
    for (std::uint32_t& x : words) x = random.next() & (format < 2 ? 0xbfbfbfbfu : ~0u);
  };
  fill(a, fa);
  fill(b, fb);
  Toy toy(Arch::gfx950, "matrix");
  toy.in(a).in(b).in(c).out(d);
  if (scaled) toy.in(scales);
  toy.run((scaled ? "scaled_" : "plain_") + name);
  const auto element = [&](const std::vector<std::uint32_t>& words, int format, int i, int kk) {
    const int bits = 1 + mx_formats[format].exponent + mx_formats[format].mantissa;
    // 8 bits: runs of 16 in k go round the lanes that share the row; narrower: runs of 32.
    const int run = bits == 8 ? 16 : 32, lanes = 64 / m, lane = i + m * (kk / run % lanes);
    const int e = kk % run + run * (kk / (run * lanes)), at = bits * e;
    const std::uint32_t* w = &words[static_cast<std::size_t>(8 * lane + at / 32)];
    std::uint64_t pair = w[0];
    if (at % 32 + bits > 32) pair |= std::uint64_t{w[1]} << 32;
    return micro_value(mx_formats[format], static_cast<unsigned>(pair >> at % 32) & ((1u << bits) - 1));
  };
  const auto scale = [&](int first, int i, int block, int byte) {
    return scaled
               ? std::exp2(
                     static_cast<int>(scales[static_cast<std::size_t>(first + i + m * block)] >> 8 * byte & 0xff) - 127)
               : 1.0;
  };
  double worst = 0;
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < m; ++column) {
      const Where at = result_at({"", m, k, 1, Type::fp8, Type::fp8}, 0, row, column);
      const auto i = static_cast<std::size_t>(at.lane * results + at.place);
      double sum = c[i], size = std::fabs(sum);
      for (int kk = 0; kk < k; ++kk) {
        const double product = element(a, fa, row, kk) * element(b, fb, column, kk) * scale(0, row, kk / 32, byte_a) *
                               scale(64, column, kk / 32, byte_b);
        sum += product, size += std::fabs(product);
      }
      worst = std::max(worst, std::fabs(sum - static_cast<double>(d[i])) / size);
    }
  return worst;
}

}  // namespace

TEST_CASE("every dense matrix instruction sums over k") {
  for (const Arch arch : {Arch::gfx942, Arch::gfx950}) {
    Patterns random(11);
    for (const Tile& tile : tiles) {
      if (tile.only_gfx950 && arch == Arch::gfx942) continue;
      INFO(tile.kernel << (arch == Arch::gfx942 ? " gfx942" : " gfx950"));
      const double worst = tile.a == Type::f64  ? worst_error<double>(arch, tile, random)
                           : tile.a == Type::i8 ? worst_error<std::int32_t>(arch, tile, random)
                                                : worst_error<float>(arch, tile, random);
      CHECK(worst <= (tile.a == Type::f64 ? 1e-15 : tile.a == Type::i8 ? 0 : 2e-6));
    }
  }
}

TEST_CASE("sparse matrix instructions sum over what their indices name") {
  struct Case {
    Tile tile;
    int set;
  };
  for (const Arch arch : {Arch::gfx942, Arch::gfx950}) {
    Patterns random(13);
    for (const auto& [tile, set] : {Case{{"f32_16x16x32_f16", 16, 32, 1, Type::f16, Type::f16}, 0},
                                    Case{{"f32_16x16x32_f16", 16, 32, 1, Type::f16, Type::f16}, 3},
                                    Case{{"f32_32x32x16_f16", 32, 16, 1, Type::f16, Type::f16}, 1},
                                    Case{{"f32_16x16x32_bf16", 16, 32, 1, Type::bf16, Type::bf16}, 2},
                                    Case{{"f32_32x32x16_bf16", 32, 16, 1, Type::bf16, Type::bf16}, 0},
                                    Case{{"i32_16x16x64_i8", 16, 64, 1, Type::i8, Type::i8}, 1},
                                    Case{{"i32_32x32x32_i8", 32, 32, 1, Type::i8, Type::i8}, 0},
                                    Case{{"f32_16x16x64_fp8_bf8", 16, 64, 1, Type::fp8, Type::bf8}, 1},
                                    Case{{"f32_32x32x32_bf8_bf8", 32, 32, 1, Type::bf8, Type::bf8}, 0}}) {
      INFO(tile.kernel << (arch == Arch::gfx942 ? " gfx942" : " gfx950"));
      const double worst = tile.a == Type::i8 ? worst_sparse_error<std::int32_t>(arch, tile, set, random)
                                              : worst_sparse_error<float>(arch, tile, set, random);
      CHECK(worst <= (tile.a == Type::i8 ? 0 : 2e-6));
    }
  }
}

TEST_CASE("scaled matrix instructions of all formats") {
  Patterns random(12);
  struct Case {
    const char* name;
    int m, k, fa, fb, byte_a, byte_b;
  };
  for (const Case& c :
       {Case{"16_00", 16, 128, 0, 0, 0, 3}, Case{"16_14", 16, 128, 1, 4, 1, 2}, Case{"16_23", 16, 128, 2, 3, 2, 1},
        Case{"16_44", 16, 128, 4, 4, 3, 0}, Case{"32_01", 32, 64, 0, 1, 0, 1}, Case{"32_42", 32, 64, 4, 2, 2, 2},
        Case{"32_30", 32, 64, 3, 0, 3, 3}})
    for (const bool scaled : {true, false}) {
      INFO(c.name << (scaled ? " scaled" : " plain"));
      CHECK(worst_scaled_error(c.name, c.m, c.k, c.fa, c.fb, c.byte_a, c.byte_b, scaled, random) < 1e-6);
    }
}

}  // namespace matrix_tests
