// SPDX-License-Identifier: MIT
// The tests compare every entry with the reference in double, and against each other: the same tokens in every room.
#include <functional>
#include <map>

#include "test/ops/sampling/sampled.hpp"

namespace tilewave::test::sampling_tests {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

/// A row of each kind, and all filters at a time.
std::vector<RowSettings> of_all_kinds() {
  return {{.temperature = 0},
          {.seed = 2},
          {.temperature = 0.7f, .top_k = 5, .seed = 3},
          {.top_p = 0.6f, .seed = 4},
          {.temperature = 1.5f, .min_p = 0.2f, .seed = 5},
          {.temperature = 0.9f, .top_p = 0.8f, .min_p = 0.05f, .top_k = 40, .seed = 6, .offset = 7}};
}

bool takes(const SamplingEntry& e, const Sampled& s) {
  return e.spec == s.problem.spec && policy_takes(e.policy, e.spec.x, s.problem.columns, sampling_aligned(s.problem));
}

/// Returns the faults in the entry's results.
std::string faults(const SamplingEntry& e, Sampled& s) {
  const std::string error = s.run(&e, facts_of(e.arch));
  return error == "" ? s.wrong() : error;
}

/// Runs every entry that takes the shape, of other types than bf16 the small ones; all must be right, and alike.
void check_all(const SamplingShape& shape, int most_blocks = 1) {
  std::map<DType, std::vector<std::int32_t>> first;
  for (const SamplingEntry* e : all_sampling_entries()) {
    Sampled s(e->spec, shape);
    if (!takes(*e, s) || e->policy.blocks > most_blocks) continue;
    if (e->spec.x != DType::bf16 && e->policy.lanes > 512) continue;
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ", " << shape.columns
                          << " columns");
    CHECK(faults(*e, s) == "");
    const auto [known, unknown] = first.try_emplace(e->spec.x, s.tokens.host);
    if (!unknown) CHECK(known->second == s.tokens.host);
  }
}

TEST_CASE("every sampling entry draws the same tokens, which the filters leave, with their log probabilities") {
  for (const std::int32_t columns : {1, 8, 997}) {
    check_all({.rows = 6, .columns = columns, .settings = of_all_kinds()});
  }
  check_all({.rows = 6, .columns = 1024, .gap = 16, .settings = of_all_kinds(), .raw_logprobs = true}, 4);
  check_all({.rows = 4, .columns = 77, .gap = 3, .logprobs = false});
}

TEST_CASE("sampling entries at the borders of their tiles") {
  for (const SamplingEntry* e : all_sampling_entries()) {
    if (e->spec.x == DType::f16) continue;
    const int unit = e->policy.wide(e->spec.x) ? 16 / size_of(e->spec.x) : 1;
    const auto tile = static_cast<std::int32_t>(e->policy.columns(e->spec.x));
    if (tile > 40000) continue;  // clusters: below
    for (const std::int32_t columns : {tile - unit, tile, tile + unit}) {
      const SamplingShape shape{.rows = 1, .columns = columns, .settings = {of_all_kinds()[5]}};
      Sampled s(e->spec, shape);
      if (!takes(*e, s)) continue;
      INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ", " << columns << " columns");
      CHECK(faults(*e, s) == "");
    }
  }
}

TEST_CASE("a token is found wherever in the stretch of a wave it stands") {
  // Unaligned rows have more pieces than waves look through at a time.
  static constexpr std::int32_t targets[] = {0, 1249, 9000, 16391, 19999};
  const auto value = [](int row, int column) { return column == targets[row] ? 30.0f : -30.0f; };
  for (const std::int32_t columns : {20000, 20001}) {
    const SamplingShape shape{.rows = 5, .columns = columns, .value = value};
    for (const SamplingEntry* e : all_sampling_entries()) {
      Sampled s(e->spec, shape);
      if (e->spec.x != DType::bf16 || !takes(*e, s)) continue;
      INFO(name_of(e->arch) << "/" << name_of(e->policy) << ", " << columns << " columns");
      CHECK(faults(*e, s) == "");
      CHECK(std::equal(s.tokens.host.begin(), s.tokens.host.end(), std::begin(targets), std::end(targets)));
    }
  }
}

TEST_CASE("sampling of whole vocabularies draws the same tokens in every room") {
  for (const std::int32_t columns : {128256, 201088}) {
    SamplingShape shape{.rows = 1, .columns = columns, .amplitude = 8};
    shape.settings = {{.top_p = 0.5f, .top_k = 3000}};
    std::vector<std::int32_t> first;
    for (const ArchId arch : all_archs) {
      Sampled s({DType::bf16}, shape);
      const SamplingEntry* entry = nullptr;
      if (!sampling_select(s.problem, all_sampling_entries(), facts_of(arch), entry).ok()) continue;
      INFO(name_of(arch) << "/" << name_of(entry->policy));
      CHECK(faults(*entry, s) == "");
      if (first.empty()) first = s.tokens.host;
      CHECK(s.tokens.host == first);
    }
    CHECK_FALSE(first.empty());
  }
}

/// Every entry that shares rows by its workspace, of bf16 if not of `all` types, draws what it draws alone.
void check_shared(const SamplingShape& shape, bool all = false) {
  for (const SamplingEntry* e : all_sampling_entries()) {
    if (e->spec.x != DType::bf16 && !all) continue;
    Sampled alone(e->spec, shape);
    if (!takes(*e, alone) || sampling_part_bits(alone.problem, e->policy, facts_of(e->arch)) == 0) continue;
    SamplingShape with = shape;
    with.workspace = true;
    Sampled together(e->spec, with);
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy) << ", " << shape.columns
                          << " columns");
    CHECK(faults(*e, alone) == "");
    CHECK(faults(*e, together) == "");
    CHECK(together.tokens.host == alone.tokens.host);
    CHECK(together.logprobs.host == alone.logprobs.host);
  }
}

TEST_CASE("blocks that share a row by a workspace draw what one draws") {
  const std::vector<RowSettings> all = of_all_kinds();
  check_shared({.rows = 2, .columns = 65544, .settings = {all[5], all[0]}}, true);
  check_shared({.rows = 1, .columns = 70001, .settings = {all[3]}});
  check_shared({.rows = 2, .columns = 65536, .gap = 8, .settings = {all[1], all[4]}, .raw_logprobs = true});
  check_shared({.rows = 1, .columns = 65536, .logprobs = false});
  const auto shape = [&](float (*value)(int, int)) {
    return SamplingShape{.rows = 1, .columns = 65536, .settings = {all[5]}, .value = value};
  };
  check_shared(shape([](int, int) { return -inf; }));
  check_shared(shape([](int, int c) { return c == 17 || c == 40000 ? inf : c == 3 ? nan : 1.0f; }));
  check_shared(shape([](int, int c) { return c == 65535 ? 30.0f : -30.0f; }));
}

TEST_CASE("a workspace for shared rows is as large as was said, aligned, and apart") {
  for (const SamplingEntry* e : all_sampling_entries()) {
    const ArchFacts& facts = facts_of(e->arch);
    Sampled s(e->spec, {.rows = 2, .columns = 65536});
    if (!takes(*e, s) || sampling_part_bits(s.problem, e->policy, facts) == 0) continue;
    s.give_workspace(facts);
    const SamplingProblem whole = s.problem;
    const auto code = [&](void* workspace, std::int64_t bytes) {
      SamplingProblem p = whole;
      p.workspace = workspace;
      p.workspace_bytes = bytes;
      return std::string(name_of(e->launch(p, {}).code));
    };
    INFO(name_of(e->arch) << "/" << name_of(e->spec) << "/" << name_of(e->policy));
    CHECK(code(whole.workspace, whole.workspace_bytes - 1) == "workspace_too_small");
    CHECK(code(moved(whole.workspace, 8), whole.workspace_bytes) == "misaligned");
    CHECK(code(whole.workspace, -1) == "bad_value");
    CHECK(code(whole.tokens, whole.workspace_bytes) == "bad_value");
    bench::check_hip(hipDeviceSynchronize(), "running nothing");
    s.tokens.download();
    CHECK(s.tokens.host == std::vector<std::int32_t>(2, unwritten_word));
  }
}

TEST_CASE("rows are shared by as many blocks as the chip has room for, where they are long and have no clusters") {
  const SamplingPolicy again{.lanes = 1024, .held = false, .waves_per_simd = 4};
  SamplingProblem p;
  p.columns = 128256;
  const auto bits = [&](std::int32_t rows, ArchId arch, const SamplingPolicy& policy) {
    p.rows = rows;
    return sampling_part_bits(p, policy, facts_of(arch));
  };
  CHECK(bits(1, ArchId::gfx942, again) == 2);
  CHECK(bits(72, ArchId::gfx942, again) == 2);  // 76 CUs each
  CHECK(bits(73, ArchId::gfx942, again) == 1);
  CHECK(bits(152, ArchId::gfx942, again) == 1);
  CHECK(bits(153, ArchId::gfx942, again) == 0);
  CHECK(bits(128, ArchId::gfx950, again) == 1);
  CHECK(bits(129, ArchId::gfx950, again) == 0);
  CHECK(bits(1, ArchId::sm90, again) == 0);
  CHECK(bits(1, ArchId::gfx942, {.lanes = 64, .held = true}) == 0);
  std::size_t before = 0;
  for (const std::int32_t rows : {1, 8, 64, 152, 153, 100000}) {
    p.rows = rows;
    CHECK(sampling_workspace_size(p, facts_of(ArchId::sm90)) == 0);
    const std::size_t bytes = sampling_workspace_size(p, facts_of(ArchId::gfx942));
    CHECK(bytes >= before);
    before = bytes;
  }
  p.columns = 65535;
  CHECK(bits(1, ArchId::gfx942, again) == 0);
}

TEST_CASE("sampling of equal, NaN and infinite logits") {
  const std::vector<RowSettings> all = of_all_kinds(), kinds{all[0], all[2], all[5]};
  const auto shape = [&](float (*value)(int, int)) {
    return SamplingShape{.rows = 3, .columns = 256, .settings = kinds, .value = value};
  };
  check_all(shape([](int, int) { return 3.0f; }));
  check_all(shape([](int r, int c) { return c == 5 || c == 9 + r ? 2.0f : 1.0f; }));  // greedy: 5
  check_all(shape([](int, int) { return -inf; }));
  check_all(shape([](int, int) { return nan; }));
  check_all(shape([](int r, int c) {
    return c % 3 == r % 3 ? nan : c % 5 == 1 ? -inf : 0.01f * static_cast<float>(c);
  }));
  check_all(shape([](int r, int c) { return c == 17 + r || c == 100 ? inf : c == 3 ? nan : 1.0f; }));
  check_all(shape([](int, int c) { return c == 200 ? -1000.0f : -inf; }));
}

/// The tokens that a one-wave entry draws, from f32: without equals.
std::vector<std::int32_t> drawn_tokens(const SamplingShape& shape, const std::function<void(Sampled&)>& change) {
  const auto entries = all_sampling_entries();
  const SamplingEntry& e = **std::find_if(entries.begin(), entries.end(),
                                          [](const SamplingEntry* entry) { return entry->spec.x == DType::f32; });
  Sampled s(e.spec, shape);
  change(s);
  CHECK(s.run(&e, facts_of(e.arch)) == "");
  return s.tokens.host;
}

TEST_CASE("sampling entries draw the same under every schedule") {
  const SamplingShape shape{.rows = 6, .columns = 136, .settings = of_all_kinds()};
  for (const SamplingEntry* e : all_sampling_entries()) {
    Sampled first(e->spec, shape);
    if (e->spec.x != DType::bf16 || !takes(*e, first)) continue;
    INFO(name_of(e->arch) << "/" << name_of(e->policy));
    CHECK(faults(*e, first) == "");
    each_schedule([&] {
      Sampled again(e->spec, shape);
      CHECK(faults(*e, again) == "");
      CHECK(again.tokens.host == first.tokens.host);
    });
  }
}

TEST_CASE("what a seed draws stays what it is") {
  const SamplingShape shape{.rows = 12, .columns = 200, .settings = of_all_kinds()};
  const std::vector<std::int32_t> tokens{2, 123, 48, 136, 31, 142, 35, 85, 2, 141, 19, 156};
  CHECK(drawn_tokens(shape, [](Sampled&) {}) == tokens);
}

TEST_CASE("sampling parameters that are off change nothing, and a temperature next to 0 is greedy") {
  const SamplingShape shape{.rows = 40, .columns = 200};
  const auto plain = drawn_tokens(shape, [](Sampled&) {});
  CHECK(plain == drawn_tokens(shape, [](Sampled& s) { s.problem.top_k.value = -1; }));
  CHECK(plain == drawn_tokens(shape, [](Sampled& s) { s.problem.top_k.value = 200; }));
  CHECK(plain == drawn_tokens(shape, [](Sampled& s) { s.problem.top_k.value = 1 << 30; }));
  CHECK(plain != drawn_tokens(shape, [](Sampled& s) { s.problem.top_k.value = 3; }));
  const auto first = drawn_tokens(shape, [](Sampled& s) { s.problem.temperature.value = 0; });
  CHECK(plain != first);
  CHECK(first == drawn_tokens(shape, [](Sampled& s) { s.problem.temperature.value = 1e-6f; }));
  CHECK(first == drawn_tokens(shape, [](Sampled& s) { s.problem.top_p.value = 1e-20f; }));
  DeviceArray<float> odd({nan, -1.0f, 2.0f, inf});  // each means something on the device, too
  CHECK(first == drawn_tokens(shape, [&](Sampled& s) { s.problem.temperature = {0, odd.data(), true}; }));
  CHECK(first == drawn_tokens(shape, [&](Sampled& s) { s.problem.temperature = {0, odd.data() + 1, true}; }));
  CHECK(plain == drawn_tokens(shape, [&](Sampled& s) { s.problem.top_p = {0, odd.data(), true}; }));
  CHECK(plain == drawn_tokens(shape, [&](Sampled& s) { s.problem.top_p = {0, odd.data() + 2, true}; }));
  CHECK(first == drawn_tokens(shape, [&](Sampled& s) { s.problem.top_p = {0, odd.data() + 1, true}; }));
  CHECK(plain == drawn_tokens(shape, [&](Sampled& s) { s.problem.min_p = {0, odd.data(), true}; }));
  CHECK(plain == drawn_tokens(shape, [&](Sampled& s) { s.problem.min_p = {0, odd.data() + 1, true}; }));
  CHECK(first == drawn_tokens(shape, [&](Sampled& s) { s.problem.min_p = {0, odd.data() + 2, true}; }));
}

TEST_CASE("top_p keeps the fewest that add up to p, also where they do so exactly") {
  // A power of two a logit: probabilities are 1/2, 1/4, 1/8 and twice 1/16, to the bit.
  const SamplingShape shape{.rows = 400, .columns = 200, .value = [](int, int c) {
                              return c < 5 ? -static_cast<float>(std::min(c, 3)) : -inf;
                            }};
  const auto kept = [&](float p) {
    const auto tokens = drawn_tokens(shape, [&](Sampled& s) {
      s.problem.temperature.value = log2_e;
      s.problem.top_p.value = p;
    });
    return *std::max_element(tokens.begin(), tokens.end()) + 1;
  };
  for (const auto& [p, count] : {std::pair{0.5f, 1}, {0.75f, 2}, {0.875f, 3}}) {
    CHECK(kept(std::nextafter(p, 0.0f)) == count);
    CHECK(kept(p) == count);
    CHECK(kept(std::nextafter(p, 1.0f)) == (count == 3 ? 5 : count + 1));
  }
}

TEST_CASE("sampling takes any top_k, seed and offset that is on the device") {
  constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
  const SamplingShape shape{.rows = 40, .columns = 200};
  const auto plain = drawn_tokens(shape, [](Sampled&) {});
  DeviceArray<std::int32_t> none({least, -1, 0, 200, 201, std::numeric_limits<std::int32_t>::max()});
  for (std::size_t i = 0; i < none.host.size(); ++i)
    CHECK(plain == drawn_tokens(shape, [&](Sampled& s) { s.problem.top_k = {0, none.data() + i, true}; }));
  DeviceArray<std::uint64_t> most({~std::uint64_t{0}});
  for (const std::int32_t token : drawn_tokens(shape, [&](Sampled& s) {
         s.problem.seed = {0, most.data(), true};
         s.problem.offset = {0, most.data(), true};
       })) {
    CHECK(token >= 0);
    CHECK(token < 200);
  }
}

TEST_CASE("seeds and offsets say what is drawn, where a row stands only without a seed of its own") {
  constexpr auto same_row = [](int, int c) { return 0.02f * static_cast<float>(c % 50); };
  const SamplingShape shape{.rows = 64, .columns = 200, .value = same_row};
  const auto all = drawn_tokens(shape, [](Sampled&) {});
  CHECK(all == drawn_tokens(shape, [](Sampled&) {}));
  CHECK(std::count(all.begin(), all.end(), all[0]) < 10);  // rows draw their own
  CHECK(all != drawn_tokens(shape, [](Sampled& s) { s.problem.seed.value = 2; }));
  CHECK(all != drawn_tokens(shape, [](Sampled& s) { s.problem.seed.value += std::uint64_t{1} << 32; }));
  CHECK(all != drawn_tokens(shape, [](Sampled& s) { s.problem.offset.value = 1; }));
  CHECK(all != drawn_tokens(shape, [](Sampled& s) { s.problem.offset.value = std::uint64_t{1} << 32; }));

  DeviceArray<std::uint64_t> seeds(std::vector<std::uint64_t>(64, 11));
  const auto of_request = drawn_tokens(shape, [&](Sampled& s) { s.problem.seed.data = seeds.data(); });
  CHECK(std::count(of_request.begin(), of_request.end(), of_request[0]) == 64);

  // A captured graph launches the same arguments again: what it draws is in memory.
  DeviceArray<std::uint64_t> offset({0});
  const auto from_memory = [&](Sampled& s) { s.problem.offset = {0, offset.data(), true}; };
  CHECK(all == drawn_tokens(shape, from_memory));
  offset.host[0] = 1;
  offset.upload();
  CHECK(drawn_tokens(shape, from_memory) == drawn_tokens(shape, [](Sampled& s) { s.problem.offset.value = 1; }));
}

}  // namespace
}  // namespace tilewave::test::sampling_tests
