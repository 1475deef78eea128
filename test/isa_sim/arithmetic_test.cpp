// SPDX-License-Identifier: MIT
// The same functions compiled for the chip and for this CPU: results must agree bit for bit.
#include "kernels/arithmetic.hpp"

#include <cmath>

#include "test/catch_compat.hpp"
#include "tilewave/core/dtype.hpp"
#include "toy.hpp"

namespace arithmetic_tests {
namespace {

using namespace tilewave::sim;
using namespace tilewave::sim::test;

constexpr Arch both[] = {Arch::gfx942, Arch::gfx950};

/// Random words, with the special values of integers and floats mixed in.
std::vector<u32> operands(int count, std::uint64_t seed) {
  constexpr u32 special[] = {0,          1,          0x7fffffff, 0x80000000, 0xffffffff, 0x3f800000, 0xbf800000,
                             0x00000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0x40490fdb, 0x3f000000, 0x4b000001};
  Patterns random(seed);
  std::vector<u32> words(3 * static_cast<std::size_t>(count));
  for (u32& word : words) {
    const u32 kind = random.next() % 8;
    word = kind == 0   ? special[random.next() % std::size(special)]
           : kind == 1 ? random.next() % 100
           : kind < 5  ? float_bits(random.unit() * 1000.0f)
                       : random.next();
    if ((word & 0x7f800000u) == 0x7f800000u)
      word &= ~0x40000000u;  // NaN payloads are not compared; infinities see below
  }
  return words;
}

/// Tells the operand when a hash differs.
template <class F>
int mismatches(const std::vector<u32>& in, int count, F agree) {
  int wrong = 0;
  for (int i = 0; i < count; ++i) {
    if (agree(i)) continue;
    if (wrong++ < 3)
      UNSCOPED_INFO("operands " << hex(in[3 * i]) << " " << hex(in[3 * i + 1]) << " " << hex(in[3 * i + 2]));
  }
  return wrong;
}

}  // namespace

TEST_CASE("vector arithmetic agrees with the CPU") {
  constexpr int count = 64 * 64;
  const std::vector<u32> in = operands(count, 11);
  for (const Arch arch : both) {
    std::vector<u64> out(6 * count, 0);
    Toy(arch).in(in).out(out).run("arithmetic", {count / 64, 1, 1});
    const auto a = [&](int i) { return in[3 * i]; };
    const auto b = [&](int i) { return in[3 * i + 1]; };
    const auto c = [&](int i) { return in[3 * i + 2]; };
    const auto f = [&](u32 bits) { return std::bit_cast<float>(bits); };
    CHECK(mismatches(in, count, [&](int i) { return out[6 * i] == integers(a(i), b(i), c(i)); }) == 0);
    CHECK(mismatches(in, count, [&](int i) {
            return out[6 * i + 1] == wide_integers(u64{a(i)} << 32 | b(i), u64{c(i)} << 32 | a(i), b(i));
          }) == 0);
    CHECK(mismatches(in, count, [&](int i) { return out[6 * i + 2] == floats(f(a(i)), f(b(i)), f(c(i))); }) == 0);
    CHECK(mismatches(in, count, [&](int i) { return out[6 * i + 3] == doubles(f(a(i)), f(b(i)), f(c(i))); }) == 0);
    CHECK(mismatches(in, count, [&](int i) { return out[6 * i + 4] == halves(f(a(i)), f(b(i))); }) == 0);
    CHECK(mismatches(in, count, [&](int i) { return out[6 * i + 5] == divergent(a(i), b(i)); }) == 0);
  }
}

TEST_CASE("scalar arithmetic agrees with the CPU") {
  constexpr int count = 2048;
  const std::vector<u32> in = operands(count, 12);
  for (const Arch arch : both) {
    std::vector<u64> out(3 * count, 0);
    const Counts counts = Toy(arch).in(in).out(out).run("scalar_arithmetic", {count, 1, 1});
    CHECK(counts.instructions[static_cast<int>(Class::salu)] > counts.instructions[static_cast<int>(Class::valu)]);
    CHECK(mismatches(in, count,
                     [&](int i) { return out[3 * i] == integers(in[3 * i], in[3 * i + 1], in[3 * i + 2]); }) == 0);
    CHECK(mismatches(in, count, [&](int i) {
            const u32 a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
            return out[3 * i + 1] == wide_integers(u64{a} << 32 | b, u64{c} << 32 | a, b);
          }) == 0);
    CHECK(mismatches(in, count, [&](int i) { return out[3 * i + 2] == divergent(in[3 * i], in[3 * i + 1]); }) == 0);
  }
}

TEST_CASE("shift and add sets the carry") {
  Patterns random(17);
  std::vector<u32> in(128), out(64, 9);
  for (u32& x : in) x = random.next() >> (random.next() % 4);
  for (const Arch arch : both) {
    Toy(arch).in(in).out(out).run("shift_add_carries", {64, 1, 1});
    int wrong = 0;
    for (int i = 0; i < 64; ++i) {
      const u64 one = (u64{in[2 * i]} << 1) + in[2 * i + 1], three = (u64{in[2 * i]} << 3) + in[2 * i + 1];
      wrong += out[i] != (one >> 32 != 0) + 2u * (three >> 32 != 0);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("exp2, log2, rcp and rsq are within an ulp and flush denormals") {
  for (const Arch arch : both) {
    Patterns random(13);
    std::vector<float> in(64), out(256, 0);
    for (int i = 0; i < 60; ++i) in[i] = random.unit() * 100.0f;
    in[60] = 0.0f, in[61] = -INFINITY, in[62] = -140.0f, in[63] = 0x1p-140f;
    Toy(arch).in(in).out(out).run("exponentials");
    const auto near = [](float actual, double expected) {
      return std::fabs(actual - expected) <= std::ldexp(std::fabs(expected), -23);
    };
    int wrong = 0;
    for (int i = 0; i < 60; ++i) {
      wrong += !near(out[4 * i], std::exp2(double{in[i]})) + !near(out[4 * i + 1], std::log2(std::fabs(double{in[i]})));
      wrong += !near(out[4 * i + 2], 1.0 / in[i]) + !near(out[4 * i + 3], 1.0 / std::sqrt(std::fabs(double{in[i]})));
    }
    CHECK(wrong == 0);
    CHECK((out[240] == 1.0f && out[241] == -INFINITY && out[242] == INFINITY && out[243] == INFINITY));
    CHECK((out[244] == 0.0f && out[245] == INFINITY && out[246] == 0.0f && out[247] == 0.0f));
    CHECK(out[248] == 0.0f);       // 2^-140 would be a denormal
    CHECK(out[253] == -INFINITY);  // so is this operand of log2
  }
}

TEST_CASE("f32 rounds to f16 with its denormals, and back") {
  for (const Arch arch : both) {
    Patterns random(18);
    std::vector<float> in(128), widened(128, 0);
    for (int i = 0; i < 128; ++i) {
      const auto code = static_cast<std::uint16_t>(i % 2 ? random.next() % 0x400 : random.next() % 0x7c00);
      const float tie =
          tilewave::f16_to_f32(code) + 0.5f * std::fabs(tilewave::f16_to_f32(code + 1) - tilewave::f16_to_f32(code));
      in[i] = i % 3 == 0 ? tie : i % 3 == 1 ? -std::nextafter(tie, 0.0f) : std::nextafter(tie, 1e9f);
    }
    in[0] = 65519.996f, in[1] = 65520.0f, in[2] = -INFINITY, in[3] = 0x1p-25f, in[4] = 0x1.8p-25f, in[5] = -0x1p-140f;
    std::vector<u32> out(64), swapped(64);
    Toy(arch).in(in).out(out).out(swapped).out(widened).run("f16_round");
    int wrong = 0;
    for (int i = 0; i < 128; ++i) {
      const u32 code = tilewave::f32_to_f16(in[i]);
      wrong += (out[i / 2] >> 16 * (i % 2) & 0xffff) != code;
      wrong += (swapped[i / 2] >> 16 * (1 - i % 2) & 0xffff) != code;
      wrong += float_bits(widened[i]) != float_bits(tilewave::f16_to_f32(static_cast<std::uint16_t>(code)));
    }
    CHECK(wrong == 0);
    CHECK(out[0] == 0x7c007bff);
    CHECK(out[1] == 0x0000fc00);
    CHECK(out[2] == 0x80000001);
  }
}

TEST_CASE("fp8 overflow is NaN, infinity too, but what rounds to the largest code is not") {
  for (const Arch arch : both) {
    const bool ocp = arch == Arch::gfx950;
    const float tie = ocp ? 464.0f : 248.0f;  // halfway to the code that the format does not have
    std::vector<float> in(256, 0.0f);
    in[0] = std::nextafter(tie, 0.0f), in[1] = tie, in[2] = -INFINITY, in[3] = NAN;
    std::vector<u32> out(64);
    Toy(arch).in(in).out(out).run("fp8_encode");
    CHECK((out[0] == (ocp ? 0x7fff7f7eu : 0x8080807fu)));
  }
}

TEST_CASE("denormals follow the kernel descriptor") {
  for (const Arch arch : both) {
    std::vector<float> in(64), kept(128, -1), dropped(128, -1);
    for (int i = 0; i < 64; ++i) in[i] = std::ldexp(1.0f + i, -149 + i % 30);
    Toy(arch).in(in).out(kept).run("denormals");
    Toy(arch, "toys_flush").in(in).out(dropped).run("denormals");
    int wrong = 0;
    for (int i = 0; i < 64; ++i) {
      const auto flush = [](float x) { return std::fabs(x) < 0x1p-126f ? 0.0f : x; };
      wrong += kept[i] != in[i] * 0.5f || kept[64 + i] != in[i] + in[i];
      wrong += dropped[i] != flush(flush(in[i]) * 0.5f) || dropped[64 + i] != flush(flush(in[i]) * 2.0f);
    }
    CHECK(wrong == 0);
    CHECK(kept != dropped);
  }
}

TEST_CASE("every width of load and store") {
  for (const Arch arch : both) {
    Patterns random(14);
    std::vector<std::uint8_t> in(1024), out(832 + 1024, 0);
    for (std::uint8_t& x : in) x = static_cast<std::uint8_t>(random.next() & 0x3f);  // no NaN as floats
    Toy(arch).in(in).out(out).run("widths");
    int wrong = 0;
    for (int i = 0; i < 64; ++i) {
      wrong += out[i] != static_cast<std::uint8_t>(in[i] + 1);
      wrong += load_bytes<std::int16_t>(&out[64 + 2 * i]) != static_cast<std::int8_t>(in[i]) - 300;
      wrong += load_bytes<std::uint16_t>(&out[192 + 2 * i]) != (load_bytes<std::uint16_t>(&in[2 * i]) ^ 0x5a5a);
      for (int c = 0; c < 2; ++c)
        wrong += load_bytes<float>(&out[320 + 8 * i + 4 * c]) != load_bytes<float>(&in[8 * i + 4 * c]) * 3.0f;
      for (int c = 0; c < 4; ++c)
        wrong += load_bytes<float>(&out[832 + 16 * i + 4 * c]) != load_bytes<float>(&in[16 * i + 4 * c]) + 1.0f;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("offsets of global and LDS accesses") {
  for (const Arch arch : both) {
    Patterns random(16);
    std::vector<u32> in(128), out(128, 0);
    for (u32& x : in) x = random.next();
    constexpr int n = 20;
    Toy(arch).in(in).out(out).value(n).run("offsets");
    int wrong = 0;
    for (int l = 0; l < 64; ++l) {
      wrong += out[l] != in[n + (l ^ 1) - 7] * 3 + in[n + (l ^ 1) + 9];
      const u32 x = in[63 - l];
      wrong += out[64 + l] != x + (x + 1) * 5 + (x + 3) * 7;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("private arrays live in scratch memory") {
  for (const Arch arch : both) {
    Patterns random(15);
    std::vector<u32> in(64), out(64, 0);
    for (u32& x : in) x = random.next();
    Toy(arch).in(in).out(out).run("scratch");
    int wrong = 0;
    for (int l = 0; l < 64; ++l) {
      u32 sum = 0;
      for (u32 i = 0; i < 24; ++i) sum = sum * 3 + in[l] + (in[l] + i * 5) % 24;
      wrong += out[l] != sum;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("atomics on LDS and global memory, blocks in parallel") {
  for (const Arch arch : both) {
    std::vector<u32> counters(5, 0), old(16 * 128, 0);
    Toy(arch).out(counters).out(old).run("atomics", {16, 1, 1}, {128, 1, 1}, {.threads = 2});
    CHECK(counters == std::vector<u32>{512, 512, 512, 512, 127});
    // Every old value 0..511 occurs once per counter, plus the block's LDS sum 0 + 1 + ... + 127.
    std::vector<int> seen(512 * 4, 0);
    for (std::size_t i = 0; i < old.size(); ++i) {
      const u32 value = old[i] - 127 * 64;
      REQUIRE(value < 512);
      ++seen[i % 4 * 512 + value];
    }
    CHECK(seen == std::vector<int>(512 * 4, 1));
  }
}

}  // namespace arithmetic_tests
