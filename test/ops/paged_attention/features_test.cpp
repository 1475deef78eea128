// SPDX-License-Identifier: MIT
// The feature specs: head sizes, value layouts, element types and block sizes beyond the default ones.
#include <cmath>

#include "test/ops/paged_attention/counting.hpp"
#include "test/ops/paged_attention/far_below.hpp"
#include "test/ops/paged_attention/feature_shapes.hpp"

namespace tilewave::test {
namespace {

/// Native products are among them.
template <class F>
void each_feature(F f) {
  each_of(all_paged_attention_feature_entries(), f);
  each_of(all_paged_attention_native_entries(), f);
}

TEST_CASE("every feature is right around all boundaries of its tiles") {
  each_feature([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = boundary_lengths(e);
    for (const FeatureShape& shape : shapes_of(e)) {
      const PagedAttentionCase c = case_of(e, shape, lengths);
      Call call(c, lengths);
      call.fill();
      const bench::Verdict verdict = call.verify(call.run(e, shape.splits), call.expected());
      INFO(name_of(c) << " splits " << shape.splits << ": " << verdict.reason);
      CHECK(verdict.pass);
      CHECK(verdict.elements == std::int64_t{c.batch} * c.mtp * c.num_q_heads * c.head_size);
    }
  });
}

TEST_CASE("f16: many tokens far below one keep their share, though their probabilities are as small as f16 goes") {
  int seen = 0;
  each_feature([&](const PagedAttentionEntry& e) {
    if (e.spec.kv != DType::f16) return;
    ++seen;
    CHECK(lost_shares(e, case_of(e, shapes_of(e)[0], {700})) == 0);
  });
  CHECK((seen > 0 || too_slow_here()));
}

TEST_CASE("every feature attends exactly the visible tokens, also in a window") {
  each_feature([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths = boundary_lengths(e);
    int turn = 0;
    for (const FeatureShape& shape : shapes_of(e)) {
      for (const int window : {0, tile_of(e) - 1}) {
        if (!all_entries() && (++turn / 2) % 2 > 0) continue;  // a shape with, the next without a window
        PagedAttentionCase c = case_of(e, shape, lengths);
        c.num_q_heads = 2 * c.num_kv_heads;
        c.sliding_window = window;
        Call call(c, lengths);
        set_counting(call);
        // Tokens before the window of every row may be gone: their values are NaN, and their pages are not in the
        // table.
        const auto first_seen = [&](int b) { return std::int64_t{window > 0 ? lengths[b] - c.mtp - window : 0}; };
        call.poison_tokens([&](int b, int t) { return t < first_seen(b); });
        for (int b = 0; b < c.batch; ++b)
          for (int column = 0; (column + 1) * c.block_size <= first_seen(b); ++column)
            call.table[b * call.p.table_row_stride + column] = -7;
        INFO(name_of(c) << " splits " << shape.splits);
        CHECK(wrong_counts(call, call.run(e, shape.splits)) == 0);
      }
    }
  });
}

TEST_CASE("every feature reads the dimensions of a token in their places") {
  each_feature([](const PagedAttentionEntry& e) {
    const int tile = tile_of(e);
    const std::vector<std::int32_t> lengths{2, tile, 2 * tile + 3};
    for (const FeatureShape& shape : shapes_of(e)) {
      PagedAttentionCase c = case_of(e, shape, lengths);
      c.mtp = std::min(c.mtp, 2);
      c.num_q_heads = 3 * c.num_kv_heads;
      Call call(c, lengths);
      const auto target = [&](int row, int head) {
        const int own = call.position(row), wanted[] = {own, 0, std::min(own, tile - 1)};
        return wanted[head % 3];
      };
      const Signature signature(call);
      signature.set_kv(call);
      Signature::set_q(call, target);
      INFO(name_of(c));
      CHECK(signature.wrong(call, call.run(e, 2), target) == 0);
    }
  });
}

TEST_CASE("512 query rows of a kv head: 8 tokens, 64 heads") {
  each_feature([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{6, 90};
    const PagedAttentionCase c = case_of(e, {16, 64, 8, false, 1}, lengths);
    Call call(c, lengths);
    call.fill();
    const bench::Verdict verdict = call.verify(call.run(e, 2), call.expected());
    INFO(verdict.reason);
    CHECK(verdict.pass);
    CHECK(verdict.elements == std::int64_t{2} * 512 * c.head_size);
  });
}

TEST_CASE("strides of K and V need not be alike, nor packed") {
  each_feature([](const PagedAttentionEntry& e) {
    if (e.spec.values != ValueLayout::token_major) return;
    const std::vector<std::int32_t> lengths{1, 70, 33};
    PagedAttentionCase c = case_for(e, lengths);
    c.num_kv_heads = 4;
    c.num_q_heads = 8;
    Call call(c, lengths);
    // The call takes every second head of a cache of four, with K in NHD and V in HND.
    call.p.num_kv_heads = 2;
    call.p.k_strides = nhd_key_strides(e.spec, 4, c.block_size);
    call.p.v_strides = hnd_value_strides(e.spec, 4, c.block_size);
    call.p.k_strides.head *= 2;
    call.p.v_strides.head *= 2;
    call.draw();
    const bench::Verdict verdict = call.verify(call.run(e, 2), call.expected());
    INFO(verdict.reason);
    CHECK(verdict.pass);
  });
}

TEST_CASE("scales of V from 1e-8 to 1e4 leave no type's range") {
  struct Range {
    float scale, code;  // the largest scale, the largest value before it
  };
  each_feature([](const PagedAttentionEntry& e) {
    if (e.spec.quant != Scaling::per_token) return;
    const std::vector<std::int32_t> lengths{1, 17, 1500};
    Call call(case_for(e, lengths), lengths);
    // Scores climb by 2^7 from the first tile to the last, which is less than what makes a wave raise its maximum.
    call.p.softmax_scale = 1;
    call.set_q([](int, int, int d) { return d == 0 ? 1.0f : 0.0f; });
    call.set_k([](int, int, int t, int d) { return d == 0 ? static_cast<float>(t) / 300 : 1.0f; });
    for (const Range& range : {Range{1e-8f, 200}, Range{1e-6f, 200}, Range{1, 1}, Range{1e4f, 1}}) {
      for (const bool mixed : {false, true}) {
        if (e.spec.out == DType::f16 && range.scale < 1e-6f) continue;  // 1e-8 is no f16
        call.set_v([&](int b, int h, int t, int d) { return range.code * (2 + drawn('v', b, h, t, d)) / 3; });
        // Scales are alike for all tokens, or go from the largest down to 1e-8.
        call.set_v_scale([&](int, int, int t) {
          return mixed && t % 5 != 0 ? range.scale * std::pow(1e-8f / range.scale, static_cast<float>(t % 37) / 36)
                                     : range.scale;
        });
        CAPTURE(range.scale, mixed);
        bench::Tolerance tolerance;
        tolerance.element *= std::max(1.0f, range.scale);  // the norm of a row says the rest
        const bench::Verdict verdict = call.verify(call.run(e, 1), call.expected(), tolerance);
        INFO(verdict.reason);
        CHECK(verdict.pass);
      }
    }
  });
}

TEST_CASE("features refuse what they cannot serve") {
  each_feature([](const PagedAttentionEntry& e) {
    Call call(case_for(e, {20, 5}), {20, 5});
    const PagedAttentionProblem good = call.prepare(1).p;
    const ArchFacts& facts = facts_of(e.arch);
    REQUIRE(paged_attention_check(good, facts).ok());
    const auto code = [&](void (*change)(PagedAttentionProblem&)) {
      PagedAttentionProblem p = good;
      p.out = reinterpret_cast<void*>(std::uintptr_t{1} << 46);  // apart, whatever the extents
      change(p);
      return paged_attention_check(p, facts).code;
    };
    using P = PagedAttentionProblem;
    using C = StatusCode;
    CHECK(code([](P& p) { p.block_size = 0; }) == C::unsupported_block_size);
    CHECK(code([](P& p) { p.block_size = -3; }) == C::unsupported_block_size);
    CHECK((code([](P& p) { p.block_size = 17; }) == C::unsupported_block_size) == !e.spec.any_block_size);
    CHECK(code([](P& p) { p.mtp = 8; }) == C::ok);
    CHECK(code([](P& p) { p.mtp = 9; }) == C::unsupported_mtp);
    CHECK(code([](P& p) { p.spec.out = p.spec.q == DType::f16 ? DType::bf16 : DType::f16; }) == C::unsupported_dtype);
    CHECK(code([](P& p) {
            p.spec.kv = p.spec.q == DType::f16 ? DType::bf16 : DType::f16;
            p.spec.quant = Scaling::none;
          }) == C::unsupported_dtype);
    if (e.spec.kv == e.spec.q) {
      CHECK(code([](P& p) { p.spec.quant = Scaling::per_token; }) == C::unsupported_scaling);
    }
    if (e.spec.values != ValueLayout::token_major) return;
    CHECK(code([](P& p) { p.v_strides.token = 0; }) == C::bad_stride);
    CHECK(code([](P& p) { p.v_strides.token += 4; }) == C::misaligned);
    CHECK(code([](P& p) { p.v_strides.unit = p.v_strides.dim = 1; }) == C::ok);  // of dim_major caches
  });
}

}  // namespace
}  // namespace tilewave::test
