// SPDX-License-Identifier: MIT
// Native fp8 products: what they round and what they refuse. features_test.cpp tests that they are right otherwise.
#include <cmath>

#include "test/ops/paged_attention/call.hpp"
#include "test/ops/paged_attention/feature_shapes.hpp"

namespace tilewave::test {
namespace {

template <class F>
void each_native(F f) {
  each_of(all_paged_attention_native_entries(), f);
}

/// The norm of the difference of a row from the reference, over the norm of the reference.
double relative_error(const Answer& answer, const reference::PagedAttentionResult& wanted, int row, int head) {
  const std::size_t at = (std::size_t(row) * answer.heads + head) * answer.head_size;
  double difference = 0, norm = 0;
  for (int d = 0; d < answer.head_size; ++d) {
    const double x = wanted.out[at + d];
    difference += (answer.at(row, head, d) - x) * (answer.at(row, head, d) - x);
    norm += x * x;
  }
  return std::sqrt(difference / norm);
}

TEST_CASE("rounding q and probabilities to fp8 costs 3.5 % of a row, probabilities alone 2.5 %") {
  each_native([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{700, 1500};
    PagedAttentionCase c = case_of(e, {64, 4, 2, false, 1}, lengths);
    c.inputs = bench::Inputs::uniform;
    Call call(c, lengths);
    call.fill();
    call.p.softmax_scale *= 3;  // scores of variance 1, as of normally distributed q and k
    const Answer answer = call.run(e, 2);
    const reference::PagedAttentionResult as_rounded = call.expected();
    call.p.spec.native = false;
    const reference::PagedAttentionResult exact = call.expected();
    double probabilities = 0, all = 0, lse = 0;
    const int rows = static_cast<int>(call.rows()), heads = call.p.num_q_heads;
    for (int row = 0; row < rows; ++row)
      for (int head = 0; head < heads; ++head) {
        probabilities += relative_error(answer, as_rounded, row, head) / (rows * heads);
        all += relative_error(answer, exact, row, head) / (rows * heads);
        lse = std::max(lse, std::abs(answer.lse_at(row, head) - as_rounded.lse[row * heads + head]));
      }
    CAPTURE(probabilities, all, lse);
    CHECK((probabilities > 0.015 && probabilities < 0.03));
    CHECK((all > 0.03 && all < 0.04));
    CHECK(lse < 0.01);  // of many tokens, rounded either way
  });
}

TEST_CASE("a row of q may be of any magnitude: only its ratios are rounded") {
  each_native([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{130};
    const PagedAttentionCase c = case_of(e, {16, 5, 1, false, 1}, lengths);
    Answer first;
    for (const int power : {0, -90, 100}) {
      Call call(c, lengths);
      call.fill();
      call.set_q([&](int row, int head, int d) {
        const auto bits = bench::random_bits({'q', std::uint64_t(row), std::uint64_t(head)});
        return std::ldexp(bench::random_uniform(bits, d), power - head);
      });
      call.p.softmax_scale = std::ldexp(0.25f, -power);
      const Answer answer = call.run(e, 1);
      if (power == 0) {
        first = answer;
        const bench::Verdict verdict = call.verify(answer, call.expected());
        INFO(verdict.reason);
        CHECK(verdict.pass);
      }
      CHECK(same_bits(answer, first));
    }
  });
}

TEST_CASE("a row of q with infinities or NaN is NaN, though fp8 has no infinities, and others are as without it") {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  each_native([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{130};
    const PagedAttentionCase c = case_of(e, {16, 5, 1, false, 1}, lengths);
    Call call(c, lengths);
    call.fill();
    const Answer clean = call.run(e, 1);
    for (const float bad : {inf, -inf, nan}) {
      call.set_q([&](int row, int head, int d) {
        const auto bits = bench::random_bits({c.seed, 'q', std::uint64_t(row), std::uint64_t(head)});
        return head == 3 && d == 5 ? bad : bench::random_uniform(bits, d);
      });
      const Answer answer = call.run(e, 1);
      int wrong = 0;
      for (int head = 0; head < call.p.num_q_heads; ++head)
        for (int d = 0; d < e.spec.head_size; ++d)
          wrong += head == 3 ? !std::isnan(answer.at(0, head, d)) : answer.at(0, head, d) != clean.at(0, head, d);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("many tokens far below one keep their share of native products down to 2^-12, and lose it below 2^-16") {
  each_native([](const PagedAttentionEntry& e) {
    const std::vector<std::int32_t> lengths{700};
    PagedAttentionCase c = case_of(e, {16, 1, 1, false, 1}, lengths);
    Call call(c, lengths);
    call.set_q([](int, int, int d) { return d == 0 ? 1.0f : 0.0f; });
    call.set_k([](int, int, int t, int d) { return t == 0 && d == 0 ? 16.0f : 0.0f; });
    call.set_v([](int, int, int t, int d) { return t == 0 ? 0.0f : static_cast<float>(1 + d % 3); });
    struct Depth {
      float below;  // nats
      double least, most;
    };
    // e^-8 is 2^-11.5; e^-10, between the codes of 2^-15 and 2^-14, becomes one of them; e^-11.5 is 2^-16.6. Wave
    // groups and blocks that do not have the one measure the others by themselves.
    const bool together = e.policy.wave_groups() == 1 && !e.policy.balanced();
    for (const Depth& depth : {Depth{3, 0.93, 1.07}, Depth{5, 0.93, 1.07}, Depth{8, 0.93, 1.07}, Depth{10, 0.6, 1.4},
                               Depth{11.5, 0, together ? 0 : 1.07}}) {
      call.p.softmax_scale = depth.below / 16;
      const Answer answer = call.run(e, 1);
      const double others = 699 * std::exp(-double{depth.below}), share = others / (1 + others);
      int wrong = 0;
      for (int d = 0; d < e.spec.head_size; ++d) {
        const double kept = answer.at(0, 0, d) / (share * (1 + d % 3));
        wrong += !(kept >= depth.least && kept <= depth.most);
      }
      CAPTURE(depth.below);
      CHECK(wrong == 0);
    }
  });
}

TEST_CASE("native products refuse what they cannot serve, each architecture by name") {
  const auto code = [](ArchId arch, PagedAttentionSpec spec) {
    PagedAttentionProblem p;
    p.softmax_scale = 1;
    p.spec = spec;
    p.num_q_heads = p.num_kv_heads = 1;
    p.block_size = 16;
    const Status status = paged_attention_check(p, facts_of(arch));
    CHECK((status.ok() || status.reason[0] != '\0'));
    return status.code;
  };
  for (const ArchId arch : all_archs) {
    for (PagedAttentionSpec spec : paged_attention_native_specs(arch)) {
      using C = StatusCode;
      const bool served = arch == ArchId::sm90;
      CHECK(code(arch, spec) == (served ? C::ok : C::unsupported_dtype));
      CHECK((paged_attention_policies(arch, spec).size() > 0) == served);
      if (!served) continue;
      const auto with = [&](auto change) {
        PagedAttentionSpec other = spec;
        change(other);
        return code(arch, other);
      };
      using S = PagedAttentionSpec;
      CHECK(with([](S& s) { s.quant = Scaling::per_head; }) == C::ok);
      CHECK(with([](S& s) { s.quant = Scaling::per_token; }) == C::unsupported_scaling);
      CHECK(with([](S& s) { s.kv = DType::bf16, s.quant = Scaling::none; }) == C::unsupported_scaling);
      CHECK(with([](S& s) { s.values = ValueLayout::token_major; }) == C::unsupported_layout);
      CHECK(with([](S& s) { s.head_size = 256; }) == C::unsupported_head_size);
      for (const Scaling quant : {Scaling::none, Scaling::per_tensor, Scaling::per_token, Scaling::per_head})
        for (const ValueLayout values : {ValueLayout::dim_major, ValueLayout::token_major})
          for (const int head_size : paged_attention_head_sizes) {
            S other = spec;
            other.quant = quant, other.values = values, other.head_size = head_size;
            CHECK((paged_attention_policies(arch, other).size() > 0) == (code(arch, other) == C::ok));
          }
    }
  }
}

TEST_CASE("native products have no batch-invariant cuts and no plain V, and say so") {
  if (too_slow_here() || all_paged_attention_native_entries().empty()) return;
  const std::span<const PagedAttentionEntry* const> entries = all_paged_attention_native_entries();
  const PagedAttentionEntry& e = *entries[0];
  for (const bool plain : {false, true}) {
    PagedAttentionCase c = case_of(e, {64, 2, 1, false, 1}, {40});
    c.trans_v = !plain;
    Call call(c, {40});
    PagedAttentionProblem p = call.prepare(1).p;
    PagedAttentionPlan plan;
    if (!plain) {
      CHECK(paged_attention_select(p, entries, facts_of(e.arch), plan).ok());
      p.split_tokens = 256;
    }
    const Status status = paged_attention_select(p, entries, facts_of(e.arch), plan);
    CHECK(status.code == StatusCode::no_matching_entry);
    CHECK(std::string(status.reason).find(plain ? "16-byte steps" : "batch-invariant") != std::string::npos);
    CHECK(plan.entry == nullptr);
  }
}

}  // namespace
}  // namespace tilewave::test
