// SPDX-License-Identifier: MIT
// Latent decode by its entries against the reference: lengths around tiles, pages, layouts, several query tokens.
#include <algorithm>

#include "test/ops/mla_decode/call.hpp"

namespace tilewave::test {
namespace {

bool plain(const MlaDecodeSpec& s) { return s == MlaDecodeSpec{}; }
bool in_groups(const MlaDecodeSpec& s) { return s.layout != LatentLayout::plain; }

TEST_CASE("lengths of 0, 1 and around tiles") {
  check_mla({.lengths = {0, 1, 63, 64, 65, 129}, .heads = 16}, any_spec);
}

TEST_CASE("pages of any size and order") {
  for (const std::int32_t block_size : {1, 16, 61, 64}) {
    check_mla({.lengths = {200, 70}, .heads = 16, .block_size = block_size}, any_spec);
  }
}

TEST_CASE("scales of groups keep up with their tiles") {
  // On a chip a tile's place is filled again while others are multiplied.
  const std::int32_t length = TILEWAVE_ON_GPU_COMPILER ? 8000 : 400;
  check_mla({.lengths = {length}, .heads = 16, .block_size = 64}, in_groups);
}

TEST_CASE("heads that fill no row tile, and more rows than a block has") {
  check_mla({.lengths = {100}, .heads = 5}, plain);
  check_mla({.lengths = {150, 40}, .heads = 128, .block_size = 64}, any_spec);
}

TEST_CASE("waves of combine have several rows each") {
  // 2240 rows are more than the chip holds waves for. Sequences have no partial results, one, two or three.
  std::vector<std::int32_t> lengths(140);
  for (int i = 0; i < 140; ++i) lengths[i] = i % 7 == 0 ? 130 : i % 50;
  for (const MlaDecodeEntry* entry : all_mla_decode_entries()) {
    const MlaDecodePolicy& policy = entry->policy;
    if (!plain(entry->spec) || policy.path != MlaDecodePath::tensor || !policy.balanced() || policy.gathered) continue;
    MlaCall call(entry->spec, {.lengths = lengths, .heads = 16, .block_size = 64, .sinks = true});
    CHECK(call.host.output_rows() > mla_combine_held_waves(facts_of(entry->arch)));
    CHECK(call.run(*entry) == "");
  }
}

TEST_CASE("several query tokens are causal among themselves") {
  check_mla({.lengths = {70, 2, 1}, .heads = 16, .query_tokens = 2}, any_spec);
  check_mla({.lengths = {67, 3}, .heads = 11, .query_tokens = 4, .sinks = true}, plain);
}

TEST_CASE("sinks join the sum and the lse, and lse may be left out") {
  check_mla({.lengths = {90, 0}, .sinks = true}, plain);
  check_mla({.lengths = {90}, .lse = false}, plain);
}

TEST_CASE("q of any magnitude") {
  const auto wanted = [](const MlaDecodeSpec& s) { return !in_groups(s) && s.q == DType::bf16; };
  for (const int exponent : {-120, 100}) {
    const float q = std::ldexp(1.0f, exponent);
    check_mla({.lengths = {130}, .heads = 40, .spread = q, .softmax_scale = 0.1147f / q}, wanted);
    check_mla({.lengths = {70}, .heads = 6, .spread = q, .softmax_scale = 0.1147f / q}, wanted);
  }
}

TEST_CASE("scales from 2^-126 to 2^126") {
  // Codes are 1 to 2 in magnitude, so that rows are normal numbers of bf16. With q of 2^-120 scores stay small.
  const auto code = [](int t, int d) { return std::copysign(1.0f + std::abs(drawn('x', t, d)) / 2, drawn('z', t, d)); };
  for (const int exponent : {-126, 126}) {
    for (const MlaDecodeEntry* entry : in_turn(all_mla_decode_entries())) {
      if (!in_groups(entry->spec)) continue;
      MlaCall call(entry->spec, {.lengths = {40}, .least_scale = exponent, .scales = 1, .softmax_scale = 1.0f});
      call.set([&](int, int t, int d) { return d < 448 ? std::ldexp(code(t, d), exponent) : 0.0f; },
               [&](int, int, int h, int d) { return std::ldexp(drawn('y', h, d), exponent < 0 ? 118 : -122); });
      INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy) << " " << exponent);
      CHECK(call.run(*entry) == "");
    }
  }
}

TEST_CASE("scales that are no powers of two") {
  const auto wanted = [](const MlaDecodeSpec& s) { return s.layout == LatentLayout::groups_128; };
  const auto has_it = [&](const MlaDecodeEntry* entry) { return wanted(entry->spec); };
  // On gfx942 the simulator's program has groups with e8m0 scales alone.
  if (std::ranges::any_of(all_mla_decode_entries(), has_it)) check_mla({.lengths = {130}, .odd_scale = 1.37f}, wanted);
}

TEST_CASE("a sequence beyond the block table becomes NaN") {
  for (const MlaDecodeEntry* entry : in_turn(all_mla_decode_entries())) {
    if (!plain(entry->spec)) continue;
    MlaCall call(entry->spec, {.lengths = {60, 33}, .block_size = 16, .spare_columns = 0});
    call.host.table_columns = call.p.table_columns = 3;
    INFO(name_of(entry->arch) << " " << name_of(entry->policy));
    CHECK(call.run(*entry) == "");
  }
}

TEST_CASE("equal rows give the row") {
  for (const MlaDecodeEntry* entry : in_turn(all_mla_decode_entries())) {
    MlaCall call(entry->spec, {.lengths = {77, 300}, .heads = 3, .block_size = 61});
    const auto row = [](int d) { return std::ldexp(1.0f, d % 5 - 2); };
    call.set([&](int, int, int d) { return row(d); }, [](int, int, int h, int d) { return drawn('q', h, d); });
    if (!mla_decode_takes(entry->policy, call.p, facts_of(entry->arch)).ok()) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    CHECK(call.run(*entry) == "");
    for (int d = 0; d < latent_value_size; ++d) {
      REQUIRE(std::abs(call.value(1, 0, 2, d) - row(d)) <= row(d) * 0x1p-7);
    }
  }
}

}  // namespace
}  // namespace tilewave::test
