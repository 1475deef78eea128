// SPDX-License-Identifier: MIT
// Compiled toy kernels whose results are known: the simulator executes clang's code for both chips.
#include <cmath>

#include "kernels/arithmetic.hpp"
#include "test/catch_compat.hpp"
#include "tilewave/arch/atom.hpp"
#include "tilewave/core/dtype.hpp"
#include "toy.hpp"

namespace kernels_tests {
namespace {

using namespace tilewave::sim;
using namespace tilewave::sim::test;
using tilewave::ArchId;
using tilewave::DType;

constexpr Arch both[] = {Arch::gfx942, Arch::gfx950};
ArchId id_of(Arch arch) { return arch == Arch::gfx942 ? ArchId::gfx942 : ArchId::gfx950; }
DType fp8_of(Arch arch) { return arch == Arch::gfx942 ? DType::fp8_e4m3fnuz : DType::fp8_e4m3fn; }

bool same(float a, float b) { return std::isnan(a) ? std::isnan(b) : std::bit_cast<u32>(a) == std::bit_cast<u32>(b); }

}  // namespace

TEST_CASE("vector add stops at its tail") {
  for (const Arch arch : both) {
    for (const int threads : {1, 2}) {
      constexpr int n = 1000;
      Patterns random(1);
      std::vector<float> a(n), b(n), c(n, -1.0f);
      for (int i = 0; i < n; ++i) a[i] = random.unit(), b[i] = random.unit();
      const Counts counts =
          Toy(arch).in(a).in(b).out(c).value(n).run("vector_add", {4, 1, 1}, {256, 1, 1}, {.threads = threads});
      int wrong = 0;
      for (int i = 0; i < n; ++i) wrong += c[i] != a[i] + b[i];
      CHECK(wrong == 0);
      CHECK(counts.waves == 16);
      CHECK(counts.loaded.at(4) == 2 * 4 * n);
      CHECK(counts.stored == 4 * n);
    }
  }
}

TEST_CASE("ids of blocks and work-items arrive in their registers") {
  for (const Arch arch : both) {
    std::vector<u32> out(2 * 3 * 2 * 240, 0);
    Toy(arch).out(out).run("ids", {2, 3, 2}, {16, 5, 3});
    int wrong = 0;
    for (u32 block = 0; block < 12; ++block)
      for (u32 z = 0; z < 3; ++z)
        for (u32 y = 0; y < 5; ++y)
          for (u32 x = 0; x < 16; ++x)
            wrong += out[block * 240 + (z * 5 + y) * 16 + x] != (block << 24 | z << 16 | y << 8 | x);
    CHECK(wrong == 0);
  }
}

TEST_CASE("a tile is transposed through LDS") {
  for (const Arch arch : both) {
    for (const bool reverse : {false, true}) {
      std::vector<float> in(256), out(256, 0);
      for (int i = 0; i < 256; ++i) in[i] = static_cast<float>(i);
      const Counts counts = Toy(arch).in(in).out(out).run("transpose", {1, 1, 1}, {256, 1, 1}, {.reverse = reverse});
      int wrong = 0;
      for (int i = 0; i < 256; ++i) wrong += out[i] != in[i % 16 * 16 + i / 16];
      CHECK(wrong == 0);
      CHECK(counts.barriers == 4);
      CHECK(counts.lds_bytes == 2 * 1024);
    }
  }
}

TEST_CASE("lanes exchange values as the ISA guides say") {
  for (const Arch arch : both) {
    Patterns random(2);
    std::vector<u32> in(64), out(28 * 64, 0xabcdu);
    for (u32& x : in) x = random.next() | 1u;
    Toy(arch).in(in).out(out).run("lane_exchanges");
    const auto check = [&](int row, auto expected) {
      INFO("row " << row);
      int wrong = 0;
      for (int l = 0; l < 64; ++l) wrong += out[row * 64 + l] != expected(l);
      CHECK(wrong == 0);
    };
    const u32 kept = 0xffffffffu;  // the old value of update_dpp
    check(0, [&](int l) { return in[l ^ 21]; });
    check(1, [&](int l) { return in[l * 13 % 64]; });  // 13 is the inverse of 5 modulo 64
    check(2, [&](int l) { return in[l ^ 3]; });
    check(3, [&](int l) { return l % 16 >= 3 ? in[l - 3] : kept; });
    check(4, [&](int l) { return l % 16 < 14 ? in[l + 2] : 0u; });
    check(5, [&](int l) { return in[l / 16 * 16 + (l + 11) % 16]; });
    check(6, [&](int l) { return in[l ^ 15]; });
    check(7, [&](int l) { return in[l ^ 7]; });
    check(8, [&](int l) { return l >= 16 ? in[l / 16 * 16 - 1] : kept; });
    check(9, [&](int l) { return l >= 32 ? in[31] : kept; });
    check(10, [&](int l) { return in[l / 16 * 16 + 7]; });
    check(11, [&](int l) { return (l / 16) % 2 == 1 && (l % 16 / 4) % 2 == 0 && l % 16 ? in[l - 1] : kept; });
    check(12, [&](int l) { return in[l ^ 1]; });
    check(13, [&](int l) { return in[l ^ 1]; });
    check(14, [&](int) { return in[37]; });
    check(15, [&](int l) { return l == 12 ? 99u : in[l]; });
    check(16, [&](int l) {
      u32 count = 0;
      for (int i = 0; i < l; ++i) count += i < 32 ? i >= 16 : (0x0f0f0f0fu >> (i - 32)) & 1u;
      return count;
    });
    // Lanes 0, 3, 6, ... are switched off: they keep -7 and read as 0; the first active lane is 1.
    check(17, [&](int l) { return l % 3 ? ((l + 1) % 64 % 3 ? in[(l + 1) % 64] : 0u) + in[1] : static_cast<u32>(-7); });
    // An inactive source lane counts as outside the row, and does not vote.
    check(18, [&](int l) {
      if (l % 3 == 0) return static_cast<u32>(-7);
      return l % 16 && (l - 1) % 3 ? in[l - 1] : static_cast<u32>(-9);
    });
    check(26, [&](int l) {
      if (l % 3 == 0) return static_cast<u32>(-7);
      return l % 16 && (l - 1) % 3 ? in[l - 1] : 0u;
    });
    u32 votes = 0;
    for (int l = 0; l < 64; ++l) votes += l % 3 && (in[l] & 4);
    check(19, [&](int l) { return l % 3 ? votes : static_cast<u32>(-7); });
    check(20, [&](int l) { return 0xff000000u | (in[l ^ 1] >> 8 & 0xff) << 8 | in[l] >> 24; });
    check(21, [&](int l) {
      const u32 own = in[l], other = in[l ^ 1];
      const auto sign = [](u32 x, int bit) { return x >> bit & 1 ? 0xffu : 0u; };
      return sign(other, 15) << 24 | sign(own, 15) << 16 | sign(own, 31) << 8 | sign(other, 31);
    });
    if (arch == Arch::gfx950) {
      check(27, [&](int l) {  // bit a * 4 + b * 2 + c of a table, a from a high half and to a high half
        const u32 a = in[l] >> 16, b = in[l ^ 1], c = ~in[l] * 5;
        u32 high = 0;
        for (int i = 0; i < 16; ++i) high |= (0x6cu >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i;
        return high << 16 | (in[l] & 0xffffu);
      });
      check(22, [&](int l) { return l < 32 ? in[l] : 0u - in[l - 32]; });
      check(23, [&](int l) { return l < 32 ? in[l + 32] : 0u - in[l]; });
      check(24, [&](int l) { return l / 16 % 2 == 0 ? in[l] : 0u - in[l - 16]; });
      check(25, [&](int l) { return l / 16 % 2 == 0 ? in[l + 16] : 0u - in[l]; });
    }
  }
}

TEST_CASE("all 256 fp8 codes decode in the chip's own flavour") {
  for (const Arch arch : both) {
    std::vector<u32> words(64);
    for (u32 i = 0; i < 64; ++i) words[i] = (4 * i) | (4 * i + 1) << 8 | (4 * i + 2) << 16 | (4 * i + 3) << 24;
    std::vector<float> out(64 * 8, 0);
    Toy(arch).in(words).out(out).run("fp8_decode");
    int wrong = 0;
    for (int code = 0; code < 256; ++code) {
      const float expected = tilewave::fp8_to_f32(fp8_of(arch), static_cast<std::uint8_t>(code));
      wrong += !same(out[code / 4 * 8 + code % 4], expected) + !same(out[code / 4 * 8 + 4 + code % 4], expected);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("f32 rounds to fp8 and to bf16 as the library says") {
  for (const Arch arch : both) {
    const DType type = fp8_of(arch);
    Patterns random(3);
    std::vector<float> in(256);
    for (int i = 0; i < 256; ++i) {
      // Ties, values between codes and denormals; beyond the largest the chip gives NaN where the library saturates.
      const float code = tilewave::fp8_to_f32(type, static_cast<std::uint8_t>(i & 0x77));
      in[i] = i % 3 == 0 ? code * 1.0625f : i % 3 == 1 ? code * random.unit() : std::ldexp(random.unit(), -4 - i % 8);
    }
    std::vector<u32> out(64), rounded(128);
    Toy(arch).in(in).out(out).run("fp8_encode");
    Toy(arch).in(in).out(rounded).run("bf16_round", {1, 1, 1}, {128, 1, 1});
    int wrong = 0;
    for (int i = 0; i < 256; ++i) {
      wrong += (out[i / 4] >> 8 * (i % 4) & 0xff) != tilewave::f32_to_fp8(type, in[i]);
      wrong += (rounded[i / 2] >> 16 * (i % 2) & 0xffff) != tilewave::f32_to_bf16(in[i]);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("the atom multiplies as its lane maps say") {
  for (const Arch arch : both) {
    const tilewave::AtomFacts& atom = tilewave::atom_of(id_of(arch));
    Patterns random(4);
    std::vector<std::uint16_t> kv(64 * atom.k_per_lane), rows(64 * atom.k_per_lane);
    std::vector<float> c(256), out(256, 0);
    for (auto* operand : {&kv, &rows})
      for (std::uint16_t& x : *operand) x = tilewave::f32_to_bf16(random.unit());
    for (float& x : c) x = random.unit();
    const Counts counts = Toy(arch).in(kv).in(rows).in(c).out(out).run("mfma_atom");
    CHECK(counts.instructions[static_cast<int>(Class::mfma)] == 1);
    std::vector<double> a(16 * 32), b(16 * 32);
    for (int l = 0; l < 64; ++l)
      for (int e = 0; e < atom.k_per_lane; ++e) {
        const auto at = atom.kv_operand(l, e), bt = atom.rows_operand(l, e);
        a[at.index * 32 + at.k] = tilewave::bf16_to_f32(kv[l * atom.k_per_lane + e]);
        b[bt.index * 32 + bt.k] = tilewave::bf16_to_f32(rows[l * atom.k_per_lane + e]);
      }
    double worst = 0;
    for (int l = 0; l < 64; ++l)
      for (int i = 0; i < 4; ++i) {
        const auto at = atom.accumulator(l, i);
        double sum = c[l * 4 + i];
        for (int k = 0; k < atom.k; ++k) sum += b[at.index * 32 + k] * a[at.k * 32 + k];
        worst = std::max(worst, std::fabs(sum - out[l * 4 + i]));
      }
    CHECK(worst < 1e-5);
  }
}

TEST_CASE("the 32x32 and fp8 matrix instructions multiply as the ISA guide says") {
  for (const Arch arch : both) {
    Patterns random(5);
    std::vector<std::uint16_t> a(256), b(256);
    std::vector<float> c(1024), out(1024, 0);
    for (auto* operand : {&a, &b})
      for (std::uint16_t& x : *operand) x = tilewave::f32_to_bf16(random.unit());
    for (float& x : c) x = random.unit();
    Toy(arch).in(a).in(b).in(c).out(out).run("mfma_32x32x8");
    double worst = 0;
    for (int l = 0; l < 64; ++l)
      for (int r = 0; r < 16; ++r) {
        const int row = 8 * (r / 4) + 4 * (l / 32) + r % 4;
        double sum = c[l * 16 + r];
        for (int k = 0; k < 8; ++k)
          sum += double{tilewave::bf16_to_f32(a[(row + 32 * (k / 4)) * 4 + k % 4])} *
                 tilewave::bf16_to_f32(b[(l % 32 + 32 * (k / 4)) * 4 + k % 4]);
        worst = std::max(worst, std::fabs(sum - out[l * 16 + r]));
      }
    CHECK(worst < 1e-5);

    std::vector<std::uint8_t> a8(512), b8(512);
    for (auto* operand : {&a8, &b8})
      for (std::uint8_t& x : *operand) x = tilewave::f32_to_fp8(fp8_of(arch), random.unit());
    const auto value = [&](std::uint8_t code) { return double{tilewave::fp8_to_f32(fp8_of(arch), code)}; };
    Toy(arch).in(a8).in(b8).in(c).out(out).run("mfma_fp8");
    worst = 0;
    for (int l = 0; l < 64; ++l)
      for (int r = 0; r < 4; ++r) {
        double sum = c[l * 4 + r];
        for (int k = 0; k < 32; ++k)
          sum +=
              value(a8[(4 * (l / 16) + r + 16 * (k / 8)) * 8 + k % 8]) * value(b8[(l % 16 + 16 * (k / 8)) * 8 + k % 8]);
        worst = std::max(worst, std::fabs(sum - out[l * 4 + r]));
      }
    CHECK(worst < 1e-5);
  }
}

}  // namespace kernels_tests
