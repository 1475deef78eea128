// SPDX-License-Identifier: MIT
// LDS accesses, copies to LDS, atomics and wave modes that compiled kernels seldom use.
#include "test/catch_compat.hpp"
#include "toy.hpp"

namespace memory_tests {
namespace {

using namespace tilewave::sim;
using namespace tilewave::sim::test;
using u32 = std::uint32_t;

constexpr Arch both[] = {Arch::gfx942, Arch::gfx950};

std::vector<u32> random_words(std::size_t count, std::uint64_t seed) {
  Patterns random(seed);
  std::vector<u32> words(count);
  for (u32& x : words) x = random.next();
  return words;
}

}  // namespace

TEST_CASE("LDS is read and written in every width") {
  for (const Arch arch : both) {
    const std::vector<u32> in = random_words(256, 21);
    std::vector<u32> out(16 * 64, 0);
    Toy(arch, "memory").in(in).out(out).run("lds_widths");
    int wrong = 0;
    for (std::size_t l = 0; l < 64; ++l) {
      const u32* x = &in[4 * l];
      const auto half = static_cast<std::int16_t>(x[0] >> 16);
      const u32 expected[] = {
          x[0], x[1], x[2], x[3], x[0], x[1], x[2], x[0], x[1], x[1], x[0] >> 8 & 0xff, static_cast<u32>(half),
          x[0], x[3]};
      for (std::size_t i = 0; i < std::size(expected); ++i) wrong += out[16 * l + i] != expected[i];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("copies to LDS land where M0 and the offset say") {
  for (const Arch arch : both) {
    const std::vector<u32> in = random_words(80, 22);
    std::vector<u32> out(256, 0), expected(256, 7);
    Toy(arch, "memory").in(in).out(out).run("copy_dword");
    for (std::size_t l = 0; l < 64; ++l) expected[(64 + 16) / 4 + l] = in[l + 4];
    for (std::size_t l = 0; l < 64; l += 2) expected[(64 + 512) / 4 + l] = in[l / 4] >> 8 * (l % 4) & 0xff;
    CHECK(out == expected);
    std::vector<u32> through(64, 0);
    Toy(arch, "memory").in(in).out(through).run("copy_buffer");
    int wrong = 0;
    for (std::size_t l = 0; l < 64; ++l) wrong += through[l] != (l < 50 ? in[l] : 0u);
    CHECK(wrong == 0);
  }
  for (const u32 dwords : {3u, 4u}) {
    const std::vector<u32> in = random_words(256, 23);
    std::vector<u32> out(256, 0);
    Toy(Arch::gfx950, "memory").in(in).out(out).run("global_load_lds_dwordx" + std::to_string(dwords));
    int wrong = 0;
    for (u32 l = 0; l < 64; ++l)
      for (u32 i = 0; i < 4; ++i) wrong += out[4 * l + i] != (i < dwords ? in[4 * (l ^ 3) + i] : 7u);
    CHECK(wrong == 0);
  }
}

TEST_CASE("transposed reads give each lane a column of its sixteen") {
  const std::vector<u32> in = random_words(256, 24);
  struct Read {
    const char* kernel;
    u32 bits, words, step;  // lanes are `step` bytes apart
  };
  for (const Read& r : {Read{"ds_read_b64_tr_b16", 16, 2, 8}, Read{"ds_read_b64_tr_b8", 8, 2, 8},
                        Read{"ds_read_b64_tr_b4", 4, 2, 8}, Read{"ds_read_b96_tr_b6", 6, 3, 16}}) {
    std::vector<u32> out(64 * r.words, 0);
    Toy(Arch::gfx950, "memory").in(in).out(out).run(r.kernel);
    const auto bit = [](const std::vector<u32>& words, u32 at) { return words[at / 32] >> at % 32 & 1u; };
    // Row r of the 16 x rows matrix is 16 elements: those of 16 / per_lane lanes, one after the other.
    const u32 per_lane = 32 * r.words / r.bits;
    int wrong = 0;
    for (u32 l = 0; l < 64; ++l)
      for (u32 row = 0; row < per_lane; ++row)
        for (u32 b = 0; b < r.bits; ++b) {
          const u32 element = 16 * row + l % 16, holder = (l / 16 * 16 + element / per_lane) ^ 5u;
          wrong += bit(out, 32 * r.words * l + r.bits * row + b) !=
                   bit(in, 8 * r.step * holder + element % per_lane * r.bits + b);
        }
    INFO(r.kernel);
    CHECK(wrong == 0);
  }
}

TEST_CASE("swizzled buffers lay records side by side where there is an index") {
  for (const Arch arch : both) {
    const std::vector<u32> in = random_words(128, 25);
    std::vector<u32> out(192, 0);
    Toy(arch, "memory").in(in).out(out).run("swizzled_buffers");
    int wrong = 0;
    for (u32 l = 0; l < 64; ++l) {
      for (u32 word = 0; word < 2; ++word) wrong += out[l / 8 * 16 + word * 8 + l % 8] != in[64 * word + l];
      wrong += out[128 + l] != in[32 + l];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("rows of lanes change places whatever inactive lanes would give") {
  const std::vector<u32> in = random_words(128, 26);
  std::vector<u32> out(256, 0);
  Toy(Arch::gfx950, "memory").in(in).out(out).run("swapped_rows");
  int wrong = 0;
  for (u32 l = 0; l < 64; ++l)
    for (const u32 rows : {16u, 32u}) {
      const std::size_t at = rows == 16 ? 0 : 128;
      wrong += out[at + l] != (l & rows ? in[64 + l - rows] : in[l]);
      wrong += out[at + 64 + l] != (l & rows ? in[64 + l] : in[l + rows]);
    }
  CHECK(wrong == 0);
}

TEST_CASE("packed and scalar atomics and scalar stores") {
  for (const Arch arch : both) {
    std::vector<u32> bf16(4, 0x40004000u), f16(4, 0), counters{0, 5, 0, 0}, old(64, 1);
    Toy(arch, "memory").out(bf16).out(f16).out(counters).out(old).run("packed_atomics");
    CHECK(bf16 == std::vector<u32>(4, 0x41904190u));  // 2 + 16
    CHECK(f16 == std::vector<u32>(4, 0x4c00cc00u));   // 16 and -16
    CHECK(old == std::vector<u32>(64, 0));
    CHECK(counters == std::vector<u32>{5, 0, 0x1234, 0});  // wrapped at 5
  }
}

TEST_CASE("registers by index, skipped vector instructions and MODE") {
  for (const Arch arch : both) {
    const std::vector<u32> in{100, 200, 300, 400};
    std::vector<u32> out(256, 0);
    Toy(arch, "memory").in(in).out(out).run("modes");
    int wrong = 0;
    for (u32 l = 0; l < 64; ++l)
      wrong += out[4 * l] != 300 + l || out[4 * l + 1] != 1 || out[4 * l + 2] != 1 || out[4 * l + 3] != 0;
    CHECK(wrong == 0);
  }
}

}  // namespace memory_tests
