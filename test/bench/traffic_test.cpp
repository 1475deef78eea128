// SPDX-License-Identifier: MIT
// The kernels that measure the ceilings do move what they say, and notice what is not what was written.
#include "bench/harness/traffic.hpp"

#include <bit>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "bench/harness/ceiling.hpp"
#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

constexpr std::int64_t tiles = 3;

std::vector<Chunk> chunks_of(const DeviceBuffer& buffer) {
  std::vector<Chunk> chunks(buffer.bytes() / sizeof(Chunk));
  check_hip(hipMemcpy(chunks.data(), buffer.data(), buffer.bytes(), hipMemcpyDeviceToHost), "copying back");
  return chunks;
}
bool same(const Chunk& a, const Chunk& b) { return std::memcmp(&a, &b, sizeof(Chunk)) == 0; }

std::string name_of_entry(const TrafficEntry& e) {
  return std::string(name_of(e.arch)) + "/" + name_of(e.spec.kind) + "/" + name_of(e.policy);
}

/// Calls f(entry, bytes of three tiles) for every entry of a kind.
template <class F>
void each_entry_of(TrafficKind kind, const F& f) {
  int found = 0;
  for (const TrafficEntry* e : all_traffic_entries()) {
    if (e->spec.kind != kind) continue;
    f(*e, tiles * e->policy.tile_bytes());
    ++found;
  }
  CHECK(found > 0);
}

TEST_CASE("random chunks differ in every word, carry their tag, and hold about as many ones as zeros") {
  std::set<std::uint32_t> words;
  std::int64_t ones = 0;
  for (std::uint32_t i = 0; i < 4096; ++i) {
    const Chunk c = random_chunk(i, 5);
    CHECK((c[0] ^ c[1] ^ c[2] ^ c[3]) == chunk_tag(i));
    for (int w = 0; w < 4; ++w) {
      words.insert(c[w]);
      ones += std::popcount(c[w]);
    }
  }
  CHECK(words.size() > 4 * 4096 - 8);
  CHECK(ones > 0.49 * 4096 * 128);
  CHECK(ones < 0.51 * 4096 * 128);
  CHECK_FALSE(same(random_chunk(1, 5), random_chunk(1, 6)));
  CHECK(chunk_tag(0) != 0);
}

TEST_CASE("every writing kernel writes all chunks and no other") {
  each_entry_of(TrafficKind::write, [](const TrafficEntry& e, std::int64_t bytes) {
    const DeviceBuffer to(static_cast<std::size_t>(bytes) + sizeof(Chunk));
    to.fill(0xff);
    REQUIRE(e.launch({.to = to.data(), .bytes = bytes, .seed = 7}, {}).ok());
    const std::vector<Chunk> chunks = chunks_of(to);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i + 1 < chunks.size(); ++i) wrong += !same(chunks[i], random_chunk(i, 7));
    INFO(name_of_entry(e));
    CHECK(wrong == 0);
    CHECK(same(chunks.back(), Chunk{{~0u, ~0u, ~0u, ~0u}}));
  });
}

TEST_CASE("every copying kernel copies all chunks and no other") {
  each_entry_of(TrafficKind::copy, [](const TrafficEntry& e, std::int64_t bytes) {
    const DeviceBuffer from(static_cast<std::size_t>(bytes)), to(static_cast<std::size_t>(bytes) + sizeof(Chunk));
    fill_random(e.arch, from.data(), bytes, 11, {});
    to.fill(0xff);
    REQUIRE(e.launch({.from = from.data(), .to = to.data(), .bytes = bytes}, {}).ok());
    const std::vector<Chunk> chunks = chunks_of(to);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i + 1 < chunks.size(); ++i) wrong += !same(chunks[i], random_chunk(i, 11));
    INFO(name_of_entry(e));
    CHECK(wrong == 0);
    CHECK(same(chunks.back(), Chunk{{~0u, ~0u, ~0u, ~0u}}));
  });
}

TEST_CASE("every reading kernel reads to the end and notices one wrong bit, or chunks of another place") {
  each_entry_of(TrafficKind::read, [](const TrafficEntry& e, std::int64_t bytes) {
    INFO(name_of_entry(e));
    const auto chunks = static_cast<std::uint32_t>(bytes / sizeof(Chunk));
    const DeviceBuffer from(static_cast<std::size_t>(bytes)), verdict(sizeof(TrafficVerdict));
    const auto read = [&](std::int64_t offset) {
      verdict.fill(0);
      const TrafficProblem p{.from = static_cast<std::byte*>(from.data()) + offset,
                             .verdict = static_cast<TrafficVerdict*>(verdict.data()),
                             .bytes = bytes - tiles / 2 * e.policy.tile_bytes() * (offset != 0)};
      REQUIRE(e.launch(p, {}).ok());
      TrafficVerdict found;
      check_hip(hipMemcpy(&found, verdict.data(), sizeof(found), hipMemcpyDeviceToHost), "copying back");
      return found;
    };
    fill_random(e.arch, from.data(), bytes, 3, {});
    TrafficVerdict found = read(0);
    CHECK(found.wrong == 0);
    CHECK(found.read == chunks);
    CHECK(read(e.policy.tile_bytes()).wrong == 1);  // a block's chunks in place of the one's before
    for (const std::int64_t byte : {std::int64_t{0}, bytes / 2 + 5, bytes - 1}) {
      std::uint8_t value = 0;
      std::uint8_t* place = static_cast<std::uint8_t*>(from.data()) + byte;
      check_hip(hipMemcpy(&value, place, 1, hipMemcpyDeviceToHost), "copying back");
      value ^= 1;
      check_hip(hipMemcpy(place, &value, 1, hipMemcpyHostToDevice), "copying over");
      CHECK(read(0).wrong == 1);
      value ^= 1;
      check_hip(hipMemcpy(place, &value, 1, hipMemcpyHostToDevice), "copying over");
    }
    found = read(0);
    CHECK(found.wrong == 0);
  });
}

TEST_CASE("traffic kernels refuse what is no whole number of tiles, and launching nothing works") {
  for (const TrafficEntry* e : all_traffic_entries()) {
    INFO(name_of_entry(*e));
    CHECK(e->launch({.bytes = e->policy.tile_bytes() + 16}, {}).code == StatusCode::bad_extent);
    if (e->spec.kind == TrafficKind::nothing) CHECK(e->launch({}, {}).ok());
  }
}

}  // namespace
}  // namespace tilewave::bench
