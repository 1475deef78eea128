// SPDX-License-Identifier: MIT
// Whatever numbers and addresses a problem has, an op answers with a status, and its arithmetic overflows nowhere.
// UndefinedBehaviorSanitizer (preset host-asan) sees the second; here one sees the first.
#include <functional>
#include <limits>
#include <random>
#include <string_view>
#include <type_traits>
#include <vector>

#include "test/catch_compat.hpp"
#include "tilewave/tilewave.hpp"

namespace tilewave::test::hostile_numbers {
namespace {

template <class Problem>
using Fields = std::vector<std::function<void(Problem&, std::int64_t)>>;

/// Sets a field to a number, as its type has it.
template <class T>
void set(T& field, std::int64_t value) {
  if constexpr (std::is_pointer_v<T>) {
    field = reinterpret_cast<T>(static_cast<std::uintptr_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    field = value == 0 ? std::nanf("") : value % 2 != 0 ? std::numeric_limits<float>::infinity() : 1e30f;
  } else {
    field = static_cast<T>(value);
  }
}
template <class Problem, class... Members>
void add(Fields<Problem>& fields, Members... members) {
  (fields.push_back([=](Problem& p, std::int64_t value) { set(p.*members, value); }), ...);
}
template <class Problem, class... Members>
void add_strides(Fields<Problem>& fields, auto Problem::*strides, Members... members) {
  (fields.push_back([=](Problem& p, std::int64_t value) { set(p.*strides.*members, value); }), ...);
}

std::int64_t hostile(std::mt19937& random) {
  static constexpr std::int64_t values[] = {0, 1, -1, 2, 3, 7, 16, 64, 1000, 65535, 65536};
  const int kind = static_cast<int>(random() % 4), power = static_cast<int>(random() % 63);
  if (kind < 2) return values[random() % std::size(values)];
  const std::int64_t near = (std::int64_t{1} << power) + static_cast<int>(random() % 3) - 1;
  return kind == 2 ? near : -near;
}

/// A tensor that is nowhere: no check reads it.
template <class T>
T* tensor(int number) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(number + 1) << 40);
}

/// Changes one to four fields of a problem that is right, and asks for an answer. Returns how many were accepted.
template <class Problem, class Answer>
int ask(const Problem& right, const Fields<Problem>& fields, const Answer& answer) {
  std::mt19937 random(123);
  REQUIRE(answer(right).ok());
  int accepted = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    Problem p = right;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes)
      fields[random() % fields.size()](p, hostile(random));
    const Status s = answer(p);
    if (s.ok() != (std::string_view(s.reason).empty())) FAIL("a status without a reason, or a reason without one");
    accepted += s.ok();
  }
  return accepted;
}

/// Asks for the workspace, as a plan that is kept is asked before the launch checks the problem.
template <class Registry>
std::size_t workspace_of(const typename Registry::Problem& p, const auto& policy, const ArchFacts& facts, int splits) {
  if constexpr (requires { Registry::workspace_bytes(p, policy, facts, splits); }) {
    return Registry::workspace_bytes(p, policy, facts, splits);
  } else {
    return 0;
  }
}
/// Asks for the workspace, the op's check, and whether each policy takes the problem.
template <class Registry>
auto check_and_takes(ArchId arch) {
  return [arch](const typename Registry::Problem& p) {
    const ArchFacts& facts = facts_of(arch);
    const Status s = Registry::check(p, facts);
    for (const auto& policy : Registry::policies(arch, p.spec)) {
      const std::size_t bytes = workspace_of<Registry>(p, policy, facts, 1);
      if (s.ok() && Registry::takes(policy, p, facts).ok()) CHECK(bytes < std::size_t{1} << 62);
    }
    return s;
  };
}

TEST_CASE("flash attention answers whatever numbers it gets") {
  using P = FlashAttentionProblem;
  Fields<P> fields;
  add(fields, &P::q, &P::k, &P::v, &P::out, &P::lse, &P::q_starts, &P::kv_starts, &P::kv_lengths, &P::block_table,
      &P::item_counter, &P::workspace, &P::workspace_bytes, &P::softmax_scale, &P::soft_cap, &P::window_left,
      &P::window_right, &P::batch, &P::q_length, &P::kv_length, &P::total_q, &P::total_kv, &P::q_heads, &P::kv_heads,
      &P::block_size, &P::table_columns);
  add(fields, &P::num_pages, &P::table_row_stride, &P::lse_head_stride, &P::scale_page_stride);
  for (TokenStrides P::*const strides : {&P::q_strides, &P::k_strides, &P::v_strides, &P::out_strides})
    add_strides(fields, strides, &TokenStrides::sequence, &TokenStrides::token, &TokenStrides::head);
  add_strides(fields, &P::k_page_strides, &PagedKeyStrides::page, &PagedKeyStrides::head, &PagedKeyStrides::unit,
              &PagedKeyStrides::token);
  P p;
  p.q = tensor<void>(0), p.k = tensor<void>(1), p.v = tensor<void>(2), p.out = tensor<void>(3);
  p.lse = tensor<float>(4);
  p.batch = 3, p.q_length = p.kv_length = 100, p.q_heads = 8, p.kv_heads = 2;
  for (const ArchId arch : {ArchId::gfx942, ArchId::sm90}) {
    const auto answer = check_and_takes<FlashAttentionRegistry>(arch);
    CHECK(ask(P::bshd(p), fields, answer) > 0);
    P ragged = p;
    ragged.q_starts = tensor<std::int32_t>(5), ragged.kv_starts = tensor<std::int32_t>(6);
    ragged.total_q = ragged.total_kv = 250;
    CHECK(ask(P::ragged(ragged), fields, answer) > 0);
    P paged = p;
    paged.spec.storage = KvStorage::paged;
    paged.kv_lengths = tensor<std::int32_t>(5), paged.block_table = tensor<std::int32_t>(6);
    paged.kv_length = 0, paged.block_size = 16, paged.table_columns = 10, paged.num_pages = 50;
    CHECK(ask(P::nhd(paged), fields, answer) > 0);
  }
}

TEST_CASE("paged attention answers whatever numbers it gets") {
  using P = PagedAttentionProblem;
  Fields<P> fields;
  add(fields, &P::q, &P::k, &P::v, &P::out, &P::lse, &P::block_table, &P::context_lengths, &P::workspace, &P::sinks,
      &P::workspace_bytes, &P::softmax_scale, &P::split_tokens, &P::sliding_window, &P::batch, &P::mtp, &P::num_q_heads,
      &P::num_kv_heads, &P::block_size, &P::table_columns, &P::num_pages, &P::q_row_stride, &P::q_head_stride,
      &P::out_row_stride, &P::out_head_stride, &P::table_row_stride);
  add_strides(fields, &P::k_strides, &PagedKeyStrides::page, &PagedKeyStrides::head, &PagedKeyStrides::unit,
              &PagedKeyStrides::token);
  P p;
  p.spec.kv = DType::bf16, p.spec.quant = Scaling::none;
  p.q = tensor<void>(0), p.k = tensor<void>(1), p.v = tensor<void>(2), p.out = tensor<void>(3);
  p.block_table = tensor<std::int32_t>(4), p.context_lengths = tensor<std::int32_t>(5);
  p.softmax_scale = 0.1f;
  p.batch = 4, p.num_q_heads = 16, p.num_kv_heads = 2, p.block_size = 64, p.table_columns = 8, p.num_pages = 40;
  for (const ArchId arch : {ArchId::gfx950, ArchId::sm90}) {
    const auto answer = [arch](const P& problem) {
      const ArchFacts& facts = facts_of(arch);
      const Status s = paged_attention_check(problem, facts);
      for (const PagedAttentionPolicy& policy : paged_attention_policies(arch, problem.spec)) {
        for (const int splits : {1, 8}) {
          const std::size_t bytes = workspace_of<PagedAttentionRegistry>(problem, policy, facts, splits);
          if (s.ok() && paged_attention_takes(problem, policy, facts, splits).ok()) CHECK(bytes < std::size_t{1} << 62);
        }
      }
      return s;
    };
    CHECK(ask(P::in_units(p, false), fields, answer) > 0);
  }
}

TEST_CASE("latent attention answers whatever numbers it gets") {
  using P = MlaDecodeProblem;
  Fields<P> fields;
  add(fields, &P::q, &P::kv, &P::out, &P::lse, &P::q_scale, &P::kv_scale, &P::sinks, &P::block_table,
      &P::context_lengths, &P::workspace, &P::workspace_bytes, &P::softmax_scale, &P::split_tokens, &P::batch,
      &P::query_tokens, &P::num_q_heads, &P::block_size, &P::table_columns, &P::num_pages, &P::q_row_stride,
      &P::q_head_stride, &P::out_row_stride, &P::out_head_stride, &P::page_stride, &P::token_stride,
      &P::table_row_stride);
  P p;
  p.q = tensor<void>(0), p.kv = tensor<void>(1), p.out = tensor<void>(2);
  p.block_table = tensor<std::int32_t>(3), p.context_lengths = tensor<std::int32_t>(4);
  p.softmax_scale = 0.07f;
  p.batch = 4, p.num_q_heads = 16, p.block_size = 64, p.table_columns = 8, p.num_pages = 40;
  for (const ArchId arch : {ArchId::gfx950, ArchId::sm90})
    CHECK(ask(P::dense(p), fields, check_and_takes<MlaDecodeRegistry>(arch)) > 0);
}

TEST_CASE("prefill of latent attention answers whatever numbers it gets") {
  using P = MlaPrefillProblem;
  Fields<P> fields;
  add(fields, &P::q, &P::kv, &P::up, &P::out, &P::lse, &P::kv_scale, &P::q_starts, &P::kv_lengths, &P::block_table,
      &P::softmax_scale, &P::batch, &P::total_q, &P::q_length, &P::q_heads, &P::context_tokens, &P::chunk_tokens,
      &P::block_size, &P::table_columns, &P::num_pages, &P::q_token_stride, &P::q_head_stride, &P::out_token_stride,
      &P::out_head_stride, &P::up_stride, &P::page_stride, &P::token_stride, &P::table_row_stride, &P::lse_head_stride);
  P p;
  p.q = tensor<void>(0), p.kv = tensor<void>(1), p.up = tensor<void>(2), p.out = tensor<void>(3);
  p.q_starts = tensor<std::int32_t>(4), p.kv_lengths = tensor<std::int32_t>(5);
  p.block_table = tensor<std::int32_t>(6), p.softmax_scale = 0.07f;
  p.batch = 2, p.total_q = 100, p.q_length = 60, p.q_heads = 16, p.context_tokens = 300, p.chunk_tokens = 128;
  p.block_size = 64, p.table_columns = 8, p.num_pages = 40;
  const auto answer = [](const P& problem) {
    if (Status s = mla_prefill_check(problem, facts_of(ArchId::sm90)); !s.ok()) return s;
    CHECK((problem.context_tokens > 0) == (problem.chunks() > 0));
    return Status{};
  };
  CHECK(ask(P::dense(p), fields, answer) > 0);
}

TEST_CASE("a write into a latent cache answers whatever numbers it gets") {
  using P = LatentCacheWriteProblem;
  Fields<P> fields;
  add(fields, &P::latent, &P::rope, &P::kv, &P::kv_scale, &P::slots, &P::q, &P::q_out, &P::cos, &P::sin, &P::positions,
      &P::slot_type, &P::position_type, &P::tokens, &P::q_heads, &P::table_rows, &P::block_size, &P::num_pages,
      &P::latent_stride, &P::rope_stride, &P::page_stride, &P::token_stride, &P::table_stride);
  for (HeadStrides P::*const strides : {&P::q_strides, &P::q_out_strides})
    add_strides(fields, strides, &HeadStrides::token, &HeadStrides::head);
  P p;
  p.latent = tensor<void>(0), p.rope = tensor<void>(1), p.kv = tensor<void>(2), p.slots = tensor<void>(3);
  p.q = tensor<void>(4), p.q_out = tensor<void>(5), p.cos = tensor<void>(6), p.sin = tensor<void>(7);
  p.positions = tensor<void>(8);
  p.tokens = 20, p.q_heads = 16, p.table_rows = 4096, p.block_size = 64, p.num_pages = 10;
  CHECK(ask(P::dense(p), fields, check_and_takes<LatentCacheWriteRegistry>(ArchId::gfx942)) > 0);
  p.spec = {.kv = DType::fp8_e4m3fn, .layout = LatentLayout::groups_64, .head_size = 512};
  CHECK(ask(P::dense(p), fields, check_and_takes<LatentCacheWriteRegistry>(ArchId::gfx950)) > 0);
}

TEST_CASE("a product answers whatever numbers it gets") {
  using P = GemmProblem;
  Fields<P> fields;
  add(fields, &P::a, &P::b, &P::out, &P::residual, &P::bias, &P::workspace, &P::workspace_bytes, &P::m, &P::n, &P::k,
      &P::batch, &P::a_stride, &P::b_stride, &P::out_stride, &P::a_batch_stride, &P::b_batch_stride,
      &P::out_batch_stride, &P::a_scale, &P::b_scale, &P::groups, &P::group_offsets, &P::group_rows, &P::alpha);
  for (const ArchId arch : {ArchId::gfx942, ArchId::gfx950, ArchId::sm90}) {
    for (const bool rows_scaled : {false, true}) {
      GemmSpec spec;
      if (rows_scaled) spec.a = spec.b = facts_of(arch).fp8, spec.scale = Scaling::per_row;
      P p = P::packed(spec, tensor<void>(0), tensor<void>(1), tensor<void>(2), 100, 256, 512);
      if (rows_scaled) p.a_scale = tensor<float>(3), p.b_scale = tensor<float>(4);
      std::vector<GemmEntry> built;
      std::vector<const GemmEntry*> entries;
      for (const GemmPolicy& policy : gemm_policies(arch, spec))
        built.push_back({arch, true, spec, policy, nullptr, 0});
      for (const GemmEntry& entry : built) entries.push_back(&entry);
      const auto answer = [&](const P& problem) {
        GemmPlan plan;
        const Status s = gemm_select(problem, entries, facts_of(arch), plan);
        if (s.ok()) CHECK(plan.workspace_bytes(problem) < std::size_t{1} << 62);
        for (const GemmEntry& entry : built)
          static_cast<void>(workspace_of<GemmRegistry>(problem, entry.policy, facts_of(arch), entry.policy.splits));
        return s;
      };
      CHECK(ask(p, fields, answer) > 0);
    }
  }
}

TEST_CASE("a layer of experts answers whatever numbers it gets") {
  using P = MoeProblem;
  Fields<P> fields;
  add(fields, &P::x, &P::x_scale, &P::residual, &P::out, &P::logits, &P::gating_bias, &P::topk_ids, &P::topk_weights,
      &P::expert_rows, &P::expert_map, &P::weight_scale, &P::expert_groups, &P::kept_groups, &P::tokens, &P::hidden,
      &P::intermediate, &P::experts, &P::topk, &P::first_expert, &P::local_experts, &P::capacity, &P::x_stride,
      &P::out_stride, &P::residual_stride, &P::x_expert_stride, &P::out_expert_stride, &P::logits_stride,
      &P::ids_stride, &P::weights_stride);
  for (MoeWeights P::*const weights : {&P::w1, &P::w2}) {
    add_strides(fields, weights, &MoeWeights::data, &MoeWeights::scale, &MoeWeights::bias, &MoeWeights::stride,
                &MoeWeights::expert_stride, &MoeWeights::scale_stride, &MoeWeights::bias_expert_stride);
  }
  const auto answer = [](const P& problem) {
    constexpr ArchId arch = ArchId::gfx950;
    for (const MoePolicy& policy : moe_policies(arch, problem.spec))
      if (Status s = moe_check(problem, policy, facts_of(arch), moe_no_workspace(), {}); !s.ok()) return s;
    return Status{};
  };
  P p;
  p.x = tensor<void>(0), p.out = tensor<void>(1), p.logits = tensor<void>(2);
  p.tokens = 20, p.hidden = 256, p.intermediate = 128, p.experts = p.local_experts = 8, p.topk = 2;
  p.x_stride = p.out_stride = 256, p.logits_stride = 8;
  p.w1 = MoeWeights::packed(p.spec, tensor<void>(3), 256, 256);
  p.w2 = MoeWeights::packed(p.spec, tensor<void>(4), 256, 128);
  CHECK(ask(p, fields, answer) > 0);
  p.spec.shared = true;
  CHECK(ask(p, fields, answer) > 0);
  P blocks = p;  // the layer quantises x and h
  blocks.spec.weights = DType::fp8_e4m3fn, blocks.spec.scale = Scaling::per_block;
  blocks.w1 = MoeWeights::packed(blocks.spec, tensor<void>(3), 256, 256);
  blocks.w2 = MoeWeights::packed(blocks.spec, tensor<void>(4), 256, 128);
  blocks.w1.scale = tensor<float>(6), blocks.w2.scale = tensor<float>(7);
  CHECK(ask(blocks, fields, answer) > 0);
  p.spec.shared = false, p.spec.routing = MoeRouting::masked;
  p.logits = nullptr, p.logits_stride = 0, p.topk = p.experts = 0;
  p.expert_rows = tensor<std::int32_t>(5), p.capacity = 16, p.x_expert_stride = p.out_expert_stride = 16 * 256;
  CHECK(ask(p, fields, answer) > 0);
}

/// Lets each tensor that is written begin where another one does.
template <class Problem, class Check>
void check_apart(const Problem& right, const Fields<Problem>& written, const Fields<Problem>& read,
                 const Check& check) {
  REQUIRE(check(right).ok());
  Fields<Problem> all = written;
  all.insert(all.end(), read.begin(), read.end());
  for (std::size_t w = 0; w < written.size(); ++w) {
    for (std::size_t other = 0; other < all.size(); ++other) {
      Problem p = right;
      for (const std::size_t field : {w, other}) all[field](p, std::int64_t{1} << 52);
      CAPTURE(w, other);
      CHECK(check(p).ok() == (w == other));
    }
  }
}

TEST_CASE("what attention writes lies on nothing else") {
  const auto small = [](int number) { return tensor<std::int32_t>(number); };
  const auto scale = [](int number) { return tensor<float>(number); };
  using F = FlashAttentionProblem;
  F f;
  f.spec.q = f.spec.kv = f.spec.out = sm90_facts.fp8, f.spec.quant = Scaling::per_head;
  f.spec.bit_mask = f.spec.alibi = true;
  f.q = tensor<void>(0), f.k = tensor<void>(1), f.v = tensor<void>(2), f.out = tensor<void>(3), f.lse = scale(4);
  f.q_scale = scale(5), f.k_scale = scale(6), f.v_scale = scale(7), f.out_scale = scale(8), f.sinks = scale(9);
  f.alibi_slopes = scale(10), f.mask = tensor<std::uint32_t>(11), f.item_counter = tensor<std::uint32_t>(12);
  f.q_starts = small(13), f.kv_starts = small(14), f.workspace = tensor<void>(15), f.workspace_bytes = 4096;
  f.batch = 3, f.q_length = f.kv_length = 100, f.total_q = f.total_kv = 250, f.q_heads = 8, f.kv_heads = 2;
  Fields<F> written, read;
  add(written, &F::out, &F::lse, &F::item_counter, &F::workspace);
  add(read, &F::q, &F::k, &F::v, &F::q_scale, &F::k_scale, &F::v_scale, &F::out_scale, &F::sinks, &F::alibi_slopes,
      &F::mask, &F::q_starts, &F::kv_starts);
  check_apart(F::ragged(f), written, read, [](const F& p) { return flash_attention_check(p, sm90_facts); });

  using M = MlaDecodeProblem;
  M m;
  m.spec.q = m.spec.kv = sm90_facts.fp8;
  m.q = tensor<void>(0), m.kv = tensor<void>(1), m.out = tensor<void>(2), m.lse = scale(3), m.q_scale = scale(4);
  m.kv_scale = scale(5), m.sinks = scale(6), m.block_table = small(7), m.context_lengths = small(8);
  m.workspace = tensor<void>(9), m.workspace_bytes = 4096, m.softmax_scale = 0.07f;
  m.batch = 4, m.num_q_heads = 16, m.block_size = 64, m.table_columns = 8, m.num_pages = 40;
  Fields<M> mla_written, mla_read;
  add(mla_written, &M::out, &M::lse, &M::workspace);
  add(mla_read, &M::q, &M::kv, &M::q_scale, &M::kv_scale, &M::sinks, &M::block_table, &M::context_lengths);
  check_apart(M::dense(m), mla_written, mla_read, [](const M& p) { return mla_decode_check(p, sm90_facts); });
}

TEST_CASE("numbers that overflowed once are answered") {
  constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
  MlaPrefillProblem prefill;
  prefill.context_tokens = 100000, prefill.chunk_tokens = int_max;  // all earlier tokens at once
  CHECK(prefill.chunks() == 1);
  CHECK(prefill.chunk() == 100000);

  MoeProblem layer;
  layer.spec.shared = true;
  layer.hidden = layer.intermediate = 128, layer.tokens = 1, layer.experts = layer.local_experts = 8;
  layer.topk = int_max;
  CHECK(moe_check(layer, facts_of(ArchId::gfx950)).code == StatusCode::bad_extent);
  layer.topk = 2, layer.local_experts = int_max;
  CHECK(moe_check(layer, facts_of(ArchId::gfx950)).code == StatusCode::bad_extent);

  FlashAttentionProblem pages;  // no page of the table is in use, so no stride of a page is looked at
  pages.spec.storage = KvStorage::paged;
  pages.q = tensor<void>(0), pages.k = tensor<void>(1), pages.v = tensor<void>(2), pages.out = tensor<void>(3);
  pages.kv_lengths = tensor<std::int32_t>(4), pages.block_table = tensor<std::int32_t>(5);
  pages.batch = 1, pages.q_length = 4, pages.q_heads = pages.kv_heads = 1;
  pages.block_size = 64, pages.num_pages = 50;
  pages = FlashAttentionProblem::nhd(pages);
  pages.k_page_strides.token = pages.v_page_strides.token = 0;
  CHECK(flash_attention_check(pages, facts_of(ArchId::sm90)).ok());
  for (const FlashAttentionPolicy& policy : flash_attention_policies(ArchId::sm90, pages.spec))
    CHECK(flash_attention_takes(policy, pages).ok() == (policy.path == FlashAttentionPath::registers));

  LatentCacheWriteProblem write;
  write.spec = {.kv = DType::fp8_e4m3fn, .layout = LatentLayout::groups_64, .head_size = 512};
  write.kv = tensor<void>(0), write.rope = tensor<void>(4), write.slots = tensor<void>(5);
  write.latent = static_cast<char*>(write.kv) + (std::int64_t{1} << 36);  // inside the one page
  write.tokens = 1, write.block_size = int_max, write.num_pages = 1;
  CHECK(latent_cache_write_check(LatentCacheWriteProblem::dense(write), facts_of(ArchId::gfx950)).reason ==
        std::string_view("kv overlaps another tensor"));
}

}  // namespace
}  // namespace tilewave::test::hostile_numbers
