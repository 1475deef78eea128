// SPDX-License-Identifier: MIT
// Tests of whole layers of experts against a reference in double precision: shapes, routings, ranges of experts.
#include "test/ops/moe/call.hpp"
#include "test/turns.hpp"

namespace tilewave::test {
namespace {

/// Calls f(entry) for each spec and policy of each architecture. Where not all are asked for, a test case takes a third
/// of the usual policy's, another third than its neighbours, and with `whole` all of them; of results in slots one
/// architecture's, and of rows that are copied those whose routing is given. Weights of four bits, which no other spec
/// stands for, are in every case. What few tokens alone take has a case of its own.
template <class F>
void each_entry(const F& f, bool whole = false) {
  static int turn = 0;
  int number = ++turn;
  for (const MoeEntry* const entry : all_moe_entries()) {
    const bool slots = entry->policy.results == MoeResults::slots, copied = entry->policy.rows == MoeRows::copied;
    if (entry->policy.choosing != MoeChoosing::apart || entry->policy.h == MoeH::f32) continue;
    if (slots && entry->spec.four_bit()) continue;  // no list has products of MXFP4 that scatter
    const bool sampled = slots ? entry->arch == ArchId::gfx950 : entry->spec.routing == MoeRouting::given;
    const bool always = whole || entry->spec.four_bit();
    if (!all_entries() && (slots || copied ? !whole || !sampled : !always && ++number % 3 != 0)) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    f(*entry);
  }
}
/// Returns all parts, but of layers this entry alone.
MoeParts parts_of(const MoeEntry* const& entry) {
  MoeParts parts = all_moe_parts();
  parts.layers = {&entry, 1};
  return parts;
}
void check(const MoeEntry& e, const MoeShape& s) {
  INFO(s.tokens << " tokens, " << s.topk << " of " << s.experts);
  const MoeEntry* const entry = &e;
  CHECK(MoeCall(e.spec, s).run(facts_of(e.arch), parts_of(entry)) == "");
}
bool routed(const MoeEntry& e) { return !e.spec.masked(); }

TEST_CASE("every spec of a layer is right") {
  each_entry(
      [](const MoeEntry& e) {
        check(e, {.tokens = 1, .topk = 1});
        check(e, {.tokens = 37, .hidden = 384, .intermediate = 256, .bias = true, .residual = true, .gap = 1});
        if (routed(e)) check(e, {.tokens = 0});
      },
      true);
}

TEST_CASE("tokens choose as few and as many experts as there may be") {
  each_entry([](const MoeEntry& e) {
    if (!routed(e) || (e.spec.quantised() && !all_entries())) return;
    const std::int32_t most = 16 - e.spec.shared;
    check(e, {.tokens = 3, .experts = 896, .topk = most, .hidden = 128});
    check(e, {.tokens = 20, .experts = 16, .topk = most, .hidden = 128});
    check(e, {.tokens = 20, .experts = 1, .topk = 1, .hidden = 128});
  });
}

TEST_CASE("one block chooses the experts of few tokens and sorts the choices") {
  int turn = 0, met = 0;
  for (const MoeEntry* const entry : all_moe_entries()) {
    const bool beside_x = entry->policy.choosing == MoeChoosing::beside_x, keeps_h = entry->policy.h == MoeH::f32;
    if (entry->policy.choosing == MoeChoosing::apart || (!all_entries() && !beside_x && ++turn % 3 != 0)) continue;
    if (!all_entries() && beside_x && (entry->spec.shared || entry->spec.logits == DType::f32) != keeps_h) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    check(*entry, {.tokens = 1, .experts = 256, .topk = 8, .hidden = 128});
    check(*entry, {.tokens = 16, .experts = 8, .bias = !keeps_h, .residual = true});
    check(*entry, {.tokens = 7, .experts = 16, .topk = 4, .first_expert = 5, .local_experts = 6});
    check(*entry, {.tokens = 9, .experts = 16, .topk = 4, .residual = true, .map = true});
    if (!entry->spec.quantised())
      check(*entry,
            {.tokens = 5, .logit = [](std::int32_t t, std::int32_t x) { return t == 1 ? NAN : 0.5f * (x % 3); }});
    check(*entry, {.tokens = 14, .experts = 32, .topk = 4, .score = GatingScore::sigmoid, .gating_bias = true});
    for (const MoeShape& beyond :
         {MoeShape{.tokens = 17}, MoeShape{.tokens = 1, .experts = 264},
          MoeShape{.tokens = 1, .experts = 16, .topk = 9}, MoeShape{.tokens = 1, .batch_invariant = true}}) {
      MoeCall call(entry->spec, beyond);
      CHECK(call.launch(facts_of(entry->arch), parts_of(entry)).starts_with("no_matching_entry: one block chooses"));
    }
    if (beside_x) {
      MoeCall wide(entry->spec, {.tokens = 1, .hidden = 8320});
      CHECK(wide.launch(facts_of(entry->arch), parts_of(entry)).starts_with("no_matching_entry: blocks beside"));
    }
    ++met;
  }
  CHECK(met > 0);
}

TEST_CASE("h may leave the first product in f32, to be quantised by a launch of its own") {
  for (const MoeEntry* const entry : all_moe_entries()) {
    if (entry->policy.h == MoeH::quantised || entry->policy.choosing != MoeChoosing::apart) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec));
    check(*entry, {.tokens = 1, .topk = 1});
    check(*entry, {.tokens = 37, .topk = 3, .hidden = 384, .intermediate = 256, .residual = true, .gap = 1});
    check(*entry, {.tokens = 21, .experts = 16, .intermediate = 192, .local_experts = 5, .interleaved = true});
    check(*entry, {.tokens = 70, .id = [](std::int32_t, std::int32_t, std::int32_t) { return 3; }});
    MoeCall with_bias(entry->spec, {.bias = true});
    CHECK(with_bias.launch(facts_of(entry->arch), parts_of(entry)).starts_with("no_matching_entry: h in f32"));
  }
}

TEST_CASE("any ids that are given are taken") {
  each_entry([](const MoeEntry& e) {
    if (e.spec.routing != MoeRouting::given) return;
    check(e, {.tokens = 70, .id = [](std::int32_t, std::int32_t, std::int32_t) { return 3; }});  // twice each
    check(e, {.tokens = 9, .topk = 3, .id = [](std::int32_t t, std::int32_t s, std::int32_t experts) {
                const std::int32_t beside[] = {-1, experts, 1 << 30, -2147483647, 2};
                return s == 1 ? t % 8 : beside[(t + s) % 5];
              }});
    check(e, {.tokens = 4, .id = [](std::int32_t, std::int32_t, std::int32_t) { return -1; }, .seed = 1});
  });
}

TEST_CASE("experts of other devices are left out") {
  each_entry([](const MoeEntry& e) {
    if (!routed(e)) return;
    check(e, {.tokens = 19, .experts = 16, .topk = 4, .first_expert = 5, .local_experts = 6});
    check(e, {.tokens = 19, .experts = 16, .topk = 4, .residual = true, .map = true});
    check(e, {.tokens = 5, .experts = 16, .topk = 1, .first_expert = 15, .local_experts = 1});
  });
}

TEST_CASE("logits may be anything") {
  each_entry([](const MoeEntry& e) {
    if (e.spec.routing != MoeRouting::logits || e.spec.quantised()) return;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    check(e,
          {.tokens = 6, .logit = [](std::int32_t t, std::int32_t x) {
             return t == 1 ? NAN : t == 2 && x > 0 ? NAN : t == 3 ? -infinity : t == 4 && x == 5 ? infinity : 0.0f + x;
           }});
    check(e, {.tokens = 30, .experts = 16, .topk = 4, .score = GatingScore::sigmoid, .gating_bias = true});
    check(e, {.tokens = 130, .logit = [](std::int32_t, std::int32_t x) { return x < 2 ? 8.0f - x : -8.0f; }});
  });
}

TEST_CASE("tokens that lie by expert have any number of rows") {
  each_entry([](const MoeEntry& e) {
    if (!e.spec.masked()) return;
    check(e, {.tokens = 2, .rows = [](std::int32_t, std::int32_t) { return 0; }});
    check(e, {.tokens = 30, .capacity = 70, .bias = true, .rows = [](std::int32_t expert, std::int32_t capacity) {
                return expert % 3 == 0 ? capacity : expert % 3 == 1 ? 0 : 65;
              }});
    // Rows beyond the capacity do not exist, and a negative number of them is none.
    check(e, {.tokens = 8, .capacity = 8, .rows = [](std::int32_t expert, std::int32_t capacity) {
                return expert % 2 == 0 ? capacity + 5 : -3;
              }});
    check(e, {.capacity = 0});
  });
}

TEST_CASE("experts and rows may lie more than 2^31 elements apart") {
  if (!has_memory(std::size_t{64} << 30)) return;
  each_entry([](const MoeEntry& e) {
    if (!routed(e)) return;
    const MoeShape far{.tokens = 3, .experts = 3, .residual = true, .far = true};
    check(e, far);
    MoeShape far_x = far;
    far_x.far = false, far_x.far_x = true;
    if (facts_of(e.arch).matrix == Matrix::mma || e.spec.quantises_x()) return check(e, far_x);
    const MoeEntry* const entry = &e;  // CDNA gathers from less than 2 GiB, which is said before anything is queued
    MoeCall call(e.spec, far_x);
    CHECK(call.launch(facts_of(e.arch), parts_of(entry)) ==
          "bad_stride: the rows of one tile of a or b, or all that are gathered from, span 2 GiB or more");
    for (std::int32_t row = 0; row < far.tokens; ++row) CHECK(call.at("out").untouched(row, 0));
  });
}

TEST_CASE("gates and ups may be interleaved, and results do not depend on the batch where that is asked") {
  each_entry([](const MoeEntry& e) {
    const MoeEntry* const entry = &e;
    const MoeShape interleaved{.tokens = 21, .bias = true, .interleaved = true};
    if (e.spec.four_bit()) {  // a repack puts them in halves
      MoeCall call(e.spec, interleaved);
      CHECK(
          call.launch(facts_of(e.arch), parts_of(entry)) ==
          "unsupported_layout: gates and ups of weights of four bits, and on sm90 of preshuffled ones, lie in halves");
      for (std::int32_t row = 0; row < interleaved.tokens; ++row) CHECK(call.at("out").untouched(row, 0));
    } else {
      check(e, interleaved);
    }
    if (!routed(e)) return;
    const auto first_token = [&](std::int32_t tokens) {
      MoeCall call(e.spec, {.tokens = tokens, .batch_invariant = true});
      REQUIRE(call.run(facts_of(e.arch), parts_of(entry)) == "");
      std::vector<double> row;
      for (int c = 0; c < 256; ++c) row.push_back(call.at("out").at(0, c));
      return row;
    };
    CHECK(first_token(1) == first_token(90));
  });
}

}  // namespace
}  // namespace tilewave::test
