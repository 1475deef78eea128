// SPDX-License-Identifier: MIT
// Answers that are known without computing attention, by every entry of the default specs.
#include "test/ops/flash_attention/shapes.hpp"

namespace tilewave::test {
namespace {

/// Calls f(problem, query, head, elements of out, lse) for what each entry of the default specs gives.
template <class F>
void each_answer(FlashShape shape, const F& f) {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    shape.layout = entry->spec.paged() ? FlashLayout::nhd : FlashLayout::bshd;
    shape.lse = true;
    FlashCall call(entry->spec, shape);
    if (!flash_attention_takes(entry->policy, call.p).ok()) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    CHECK(call.run(*entry) == "");
    const std::vector<std::byte> all = call.answer();
    const FlashAttentionSpec& s = entry->spec;
    const std::int64_t values = call.host.q_tokens() * call.host.q_heads * s.value_size;
    int wrong = 0;
    for (std::int32_t i = 0; i < shape.q[0]; ++i)
      for (std::int32_t h = 0; h < shape.q_heads; ++h) {
        const auto out = [&](int d) {
          return reference::element(s.out, all.data(), (std::int64_t{i} * shape.q_heads + h) * s.value_size + d);
        };
        const double lse =
            reference::element(DType::f32, all.data() + values * size_of(s.out), h * call.host.lse_head_stride + i);
        wrong += f(call.host, i, h, out, lse);
      }
    CHECK(wrong == 0);
  }
}
double v_scale_of(const FlashAttentionProblem& p) { return is_fp8(p.spec.kv) ? p.v_scale[0] : 1.0; }
/// What products with rounded probabilities may lose, of a magnitude.
double loss(const FlashAttentionProblem& p) { return is_fp8(p.spec.q) ? 0x1p-3 : 0x1p-7; }

TEST_CASE("equal keys give the mean of what a query sees, and lse counts it") {
  constexpr std::int32_t queries = 35, keys = 150;
  FlashShape shape{.q = {queries}, .kv = {keys}, .causal = true};
  shape.q_of = [](auto, auto, auto, int) { return 0.0f; };
  shape.v_of = [](auto, std::int64_t i, auto, int d) { return (i + d) % 2 == 0 ? 1.0f : -1.0f; };
  each_answer(shape, [](const FlashAttentionProblem& p, std::int32_t i, std::int32_t, const auto& out, double lse) {
    const std::int32_t seen = keys - queries + i + 1;
    int wrong = !(std::abs(lse - std::log(double(seen))) <= 1e-4);
    for (int d = 0; d < p.spec.value_size; ++d) {
      const double mean = (seen % 2 == 0 ? 0.0 : d % 2 == 0 ? 1.0 : -1.0) / seen;
      wrong += !(std::abs(out(d) - mean * v_scale_of(p)) <= loss(p) * v_scale_of(p));
    }
    return wrong;
  });
}

TEST_CASE("constant V gives the constant, whatever q and K are") {
  FlashShape shape{.q = {33}, .kv = {140}, .sinks = false};
  shape.v_of = [](auto, auto, auto, int d) { return static_cast<float>(d % 8) - 3.5f; };
  each_answer(shape, [](const FlashAttentionProblem& p, std::int32_t, std::int32_t, const auto& out, double) {
    int wrong = 0;
    for (int d = 0; d < p.spec.value_size; ++d) {
      const double wanted = (d % 8 - 3.5) * v_scale_of(p);
      wrong += !(std::abs(out(d) - wanted) <= loss(p) * std::abs(wanted));
    }
    return wrong;
  });
}

/// Bit b of key t, repeated over the dimensions, as 1 or -1: the product of two keys' codes is largest for the same key.
float code(std::int64_t t, int d) { return t >> (d % 8) & 1 ? 1.0f : -1.0f; }

TEST_CASE("a query that points at one key gives that key's value, wherever the key lies in its tile") {
  constexpr std::int32_t keys = 130;
  const auto target = [](std::int64_t i, std::int32_t h) { return (i * 37 + h * 101 + 3) % keys; };
  FlashShape shape{.q = {34}, .kv = {keys}};
  shape.q_of = [&](auto, std::int64_t i, std::int32_t h, int d) { return 8 * code(target(i, h), d); };
  shape.k_of = [](auto, std::int64_t t, auto, int d) { return 2 * code(t, d); };
  shape.v_of = [](auto, std::int64_t t, auto, int d) { return code(t, d) * (d % 3 + 1); };
  each_answer(shape, [&](const FlashAttentionProblem& p, std::int32_t i, std::int32_t h, const auto& out, double) {
    if (p.spec.soft_cap) return 0;  // a cap of 3 keeps others in sight
    int wrong = 0;
    for (int d = 0; d < p.spec.value_size; ++d) {
      const double wanted = code(target(i, h), d) * (d % 3 + 1) * v_scale_of(p);
      wrong += !(std::abs(out(d) - wanted) <= loss(p) * std::abs(wanted));
    }
    return wrong;
  });
}

TEST_CASE("empty calls write nothing and read nothing") {
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    FlashAttentionProblem p;
    p.spec = entry->spec, p.q_heads = 2, p.kv_heads = 1, p.softmax_scale = 1.0f;
    p.soft_cap = p.spec.soft_cap ? 1.0f : 0.0f;
    p.block_size = p.spec.paged() ? 16 : 0;
    for (const auto& [batch, queries] : {std::pair{0, 5}, {3, 0}}) {
      p.batch = batch, p.q_length = queries;
      INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
      CHECK(entry->launch(p, {}).ok());
    }
  }
}

}  // namespace
}  // namespace tilewave::test
