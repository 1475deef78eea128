// SPDX-License-Identifier: MIT
// What must not change the bits of an answer: the batch of a batch-invariant call, other query tokens, and a second run;
// and what must change it little: how the cache is stored.
#include "test/graph.hpp"
#include "test/ops/mla_decode/call.hpp"

namespace tilewave::test {
namespace {

/// Runs a call and returns the bytes of a sequence's answer.
std::vector<std::byte> answer(const MlaDecodeEntry& entry, const MlaShape& shape, std::int32_t sequence) {
  MlaCall call(entry.spec, shape);
  INFO(name_of(entry.arch) << " " << name_of(entry.spec) << " " << name_of(entry.policy));
  REQUIRE(call.run(entry) == "");
  return call.answer(sequence);
}
bool takes(const MlaDecodeEntry& entry, const MlaShape& shape) {
  return mla_decode_takes(entry.policy, MlaCall(entry.spec, shape).p, facts_of(entry.arch)).ok();
}

TEST_CASE("a batch-invariant answer does not depend on the batch") {
  const MlaShape alone{.lengths = {300}, .heads = 20, .split_tokens = 128};
  MlaShape together = alone;
  together.lengths = {300, 5, 0, 700}, together.spare_columns = 9;
  int ran = 0;
  for (const MlaDecodeEntry* entry : all_mla_decode_entries()) {
    if (!(entry->spec == MlaDecodeSpec{}) || !takes(*entry, alone)) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->policy));
    CHECK(answer(*entry, alone, 0) == answer(*entry, together, 0));
    ++ran;
  }
  CHECK(ran > 0);
}

TEST_CASE("a query token among several is the same as alone") {
  const MlaShape several{.lengths = {150}, .heads = 7, .query_tokens = 3, .lse = false, .split_tokens = 1 << 20};
  int ran = 0;
  for (const MlaDecodeEntry* entry : all_mla_decode_entries()) {
    if (!(entry->spec == MlaDecodeSpec{}) || !takes(*entry, several)) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->policy));
    MlaCall all(entry->spec, several);
    REQUIRE(all.run(*entry) == "");
    for (std::int32_t i = 0; i < 3; ++i) {
      MlaCall one(entry->spec, {.lengths = {148 + i}, .heads = 7, .lse = false, .split_tokens = 1 << 20});
      one.set([&](int, int t, int d) { return drawn('k', t, d); },
              [&](int, int, int h, int d) { return drawn('q', i * 131 + h, d); });
      REQUIRE(one.run(*entry) == "");
      for (std::int32_t h = 0; h < 7; ++h) {
        for (int d = 0; d < latent_value_size; ++d) REQUIRE(one.value(0, 0, h, d) == all.value(0, i, h, d));
      }
    }
    ++ran;
  }
  CHECK(ran > 0);
}

TEST_CASE("a second run has the same bits, with another workspace") {
  for (const MlaDecodeEntry* entry : in_turn(all_mla_decode_entries())) {
    const MlaShape shape{.lengths = {333, 40}, .heads = 40};
    if (!takes(*entry, shape)) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    CHECK(answer(*entry, shape, 0) == answer(*entry, shape, 0));
  }
}

TEST_CASE("caches of all layouts agree where their codes are exact") {
  // Rows of few bits have the same value in every layout, so that only the order of sums differs.
  const auto row = [](int t, int d) { return static_cast<float>((t * 7 + d * 5) % 9 - 4) / 4; };
  const auto query = [](int h, int d) { return static_cast<float>((h * 3 + d) % 5 - 2) / 8; };
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950, ArchId::sm90}) {
    std::vector<double> first;
    for (const MlaDecodeEntry* entry : all_mla_decode_entries()) {
      if (entry->arch != arch || entry->spec.head_size != 576) continue;
      const MlaShape shape{.lengths = {201}, .heads = 4, .least_scale = -2, .scales = 1};
      if (!takes(*entry, shape)) continue;
      MlaCall call(entry->spec, shape);
      const float unscale = is_fp8(entry->spec.q) ? 1 / 0.75f : 1.0f;  // that call's q_scale
      call.set([&](int, int t, int d) { return row(t, d); },
               [&](int, int, int h, int d) { return unscale * query(h, d); });
      INFO(name_of(arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
      REQUIRE(call.run(*entry) == "");
      std::vector<double> out;
      for (int h = 0; h < 4; ++h) {
        for (int d = 0; d < latent_value_size; ++d) out.push_back(call.value(0, 0, h, d));
      }
      if (first.empty()) first = out;
      const double bound = is_fp8(entry->spec.q) ? 0x1p-4 : 0x1p-7;  // fp8 q is rounded
      for (std::size_t i = 0; i < out.size(); ++i) REQUIRE(std::abs(out[i] - first[i]) <= bound);
    }
  }
}

#if TILEWAVE_ON_GPU_COMPILER
TEST_CASE("a graph serves other lengths when it is replayed") {
  for (const MlaDecodeEntry* entry : all_mla_decode_entries()) {
    const MlaShape shape{.lengths = {500, 64}, .heads = 24};
    if (!takes(*entry, shape)) continue;
    MlaCall call(entry->spec, shape);
    INFO(name_of(entry->spec) << " " << name_of(entry->policy));
    REQUIRE(call.run(*entry) == "");
    const std::vector<std::vector<std::int32_t>> lengths{{500, 64}, {3, 0}, {129, 63}};
    CHECK(replayed([&](hipStream_t stream) { return entry->launch(call.p, stream); }, lengths,
                   [&](const std::vector<std::int32_t>& of) { call.set_lengths(of); },
                   [&](const std::vector<std::int32_t>&) { return call.wrong(); }) == "");
  }
}
#endif

}  // namespace
}  // namespace tilewave::test
