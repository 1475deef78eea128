// SPDX-License-Identifier: MIT
// Tests of products that write their heads into a paged cache (GemmProblem::cache_write), and of who refuses them.
#include "entries/gemm.hpp"
#include "test/ops/gemm/call.hpp"
#include "test/turns.hpp"
#include "tilewave/ops/kv_cache_write/problem.hpp"
#include "tilewave/reference/rope.hpp"

namespace tilewave::test {
namespace {

constexpr int page_tokens = 16, pages = 9, table_rows = 21;

/// A product whose out is heads of q, k and v, and the caches that k and v go to. Every fifth token has no slot, and
/// every fourth a position outside the tables.
class CacheWriteCall {
 public:
  CacheWriteCall(const GemmSpec& spec, GemmShape s, int q_heads, int kv_heads, int head_size)
      : spec_(spec),
        s_((s.n = (q_heads + 2 * kv_heads) * head_size, s)),
        product_(spec, s_),
        caches_{cache(kv_heads * head_size), cache(kv_heads * head_size)},
        cos_(DType::f32, table_rows, head_size / 2, 1, {head_size / 2, 0}),
        sin_(DType::f32, table_rows, head_size / 2, 1, {head_size / 2, 0}),
        positions_(s.m * sizeof(std::int32_t)),
        slots_(s.m * sizeof(std::int64_t)) {
    const RopeSpec rope{spec.out, DType::f32, RopePairs::neighbours};
    const reference::RopeAngles angles = reference::rope_angles(head_size, 10000);
    cos_.set(table_rows, head_size / 2, [&](int r, int c) { return reference::rope_cos(rope, angles, r, c); });
    sin_.set(table_rows, head_size / 2, [&](int r, int c) { return reference::rope_sin(rope, angles, r, c); });
    std::vector<std::int32_t> positions;
    std::vector<std::int64_t> slots;
    for (int t = 0; t < s.m; ++t) positions.push_back(position(t)), slots.push_back(slot(t));
    bench::check_hip(hipMemcpy(positions_.data(), positions.data(), positions_.bytes(), hipMemcpyHostToDevice), "copy");
    bench::check_hip(hipMemcpy(slots_.data(), slots.data(), slots_.bytes(), hipMemcpyHostToDevice), "copy");
    write_.spec = {.x = spec.out, .kv = spec.out, .fused = true, .q_out = spec.out, .pairs = RopePairs::neighbours};
    write_.tokens = s.m, write_.q_heads = q_heads, write_.kv_heads = kv_heads;
    write_.head_size = write_.rotary = head_size;
    write_.block_size = page_tokens, write_.num_pages = pages;
    write_.slots = slots_.data(), write_.positions = positions_.data();
    write_.cos = cos_.device(), write_.sin = sin_.device();
    write_.table_rows = table_rows, write_.table_stride = head_size / 2;
    const std::int64_t token = std::int64_t{kv_heads} * head_size;
    write_.k_cache = const_cast<void*>(caches_[0].device()), write_.v_cache = const_cast<void*>(caches_[1].device());
    write_.k_cache_strides = {.page = page_tokens * token, .head = head_size, .unit = 8, .token = token};
    write_.v_cache_strides = {.page = page_tokens * token, .head = head_size, .token = token};
  }

  GemmProblem problem() {
    GemmProblem p = product_.on_device();
    auto* const out = static_cast<std::uint16_t*>(p.out);
    write_.q = write_.q_out = out;
    write_.k = out + write_.q_heads * write_.head_size;
    write_.v = out + (write_.q_heads + write_.kv_heads) * write_.head_size;
    write_.q_strides = write_.q_out_strides = write_.k_strides = write_.v_strides = {p.out_stride, write_.head_size};
    p.cache_write = &write_;
    return p;
  }
  KvCacheWriteProblem& write() { return write_; }

  /// Runs the product alone, then with the write, and returns what is wrong with what the latter leaves.
  std::string run(const GemmEntry& entry) {
    if (const std::string wrong = product_.run(entry); wrong != "") return wrong;
    std::vector<double> plain;
    for (int row = 0; row < s_.m; ++row)
      for (int column = 0; column < s_.n; ++column) plain.push_back(product_.out().at(row, column));
    const Status status = entry.launch(problem(), s_.splits, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    for (Tensor* t : {&product_.out(), &caches_[0], &caches_[1]}) t->download();
    std::vector<bool> written(pages * page_tokens);
    const int head_size = write_.head_size, turned = write_.q_heads + write_.kv_heads;
    for (int t = 0; t < s_.m; ++t) {
      const bool known = position(t) >= 0 && position(t) < table_rows;
      if (slot(t) >= 0) written[slot(t)] = true;
      for (int column = 0; column < s_.n; ++column) {
        const int head = column / head_size, dim = column % head_size;
        const auto of = [&](int c) { return plain[t * s_.n + c]; };
        double right = of(column);
        if (head < turned && !known) right = std::nan("");
        if (head < turned && known) {
          const double cosine = cos_.at(position(t), dim / 2), sine = sin_.at(position(t), dim / 2);
          right = dim % 2 == 0 ? right * cosine - of(column + 1) * sine : right * cosine + of(column - 1) * sine;
        }
        const std::string where = "token " + std::to_string(t) + " column " + std::to_string(column) + ": ";
        if (head >= write_.q_heads && product_.out().at(t, column) != of(column))
          return where + "k or v of out changed";
        if (head >= write_.q_heads && slot(t) < 0) continue;
        const Tensor& cache = caches_[head < turned ? 0 : 1];
        const double got =
            head < write_.q_heads
                ? product_.out().at(t, column)
                : cache.at(slot(t), (head - (head < turned ? write_.q_heads : turned)) * head_size + dim);
        if (std::isnan(right) ? !std::isnan(got)
                              : !(std::abs(got - right) <= 1.01 * half_step(spec_.out, right) + 1e-6))
          return where + std::to_string(got) + ", not " + std::to_string(right);
      }
    }
    for (int slot = 0; slot < pages * page_tokens; ++slot)
      for (int i = 0; i < write_.kv_heads * head_size && !written[slot]; ++i)
        if (!caches_[0].untouched(slot, i) || !caches_[1].untouched(slot, i)) return "wrote a slot of no token";
    return "";
  }

 private:
  Tensor cache(int columns) const { return {spec_.out, pages * page_tokens, columns, 1, {columns, 0}}; }
  static int position(int token) { return token % 4 == 3 ? (token % 8 == 3 ? -1 : table_rows) : token % table_rows; }
  static int slot(int token) { return token % 5 == 4 ? -1 : (7 * token + 5) % (pages * page_tokens); }

  GemmSpec spec_;
  GemmShape s_;
  GemmCall product_;
  Tensor caches_[2], cos_, sin_;
  bench::DeviceBuffer positions_, slots_;
  KvCacheWriteProblem write_;
};

TEST_CASE("a product rotates its heads and writes them into a cache") {
  for (const auto entries : {all_gemm_entries(), all_gemm_feature_entries()}) {
    for (const GemmEntry* const entry : in_turn(entries)) {
      const GemmPolicy& p = entry->policy;
      if (!gemm_spec_takes_norm(entry->spec) || entry->spec.gated || size_of(entry->spec.out) != 2) continue;
      if (entry->spec.in_strips()) continue;
      INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(p));
      const auto check = [&](GemmShape s, int q_heads, int kv_heads, int head_size) {
        INFO(name_of(s));
        const std::string wrong = CacheWriteCall(entry->spec, s, q_heads, kv_heads, head_size).run(*entry);
        if (detail::gemm_writes_squares(entry->spec, p)) {
          CHECK(wrong == "");
        } else {
          CHECK(wrong.starts_with("no_matching_entry"));
        }
      };
      check({.m = 1, .k = 64, .bias = true}, 2, 1, 64);
      if (!detail::gemm_writes_squares(entry->spec, p)) continue;
      check({.m = p.rows + 5, .k = 200, .gap = 8}, 3, 2, 48);
      if (p.splits > 1) check({.m = p.rows - 1, .k = 1024, .bias = true, .splits = p.splits}, 1, 1, 128);
    }
  }
}

TEST_CASE("a cache write that is not of the product's heads is refused") {
  const auto code = [](void (*change)(GemmProblem&, KvCacheWriteProblem&)) {
    CacheWriteCall call(GemmSpec{}, {.m = 4, .k = 64}, 2, 1, 64);
    GemmProblem p = call.problem();
    change(p, call.write());
    return gemm_check(p, sm90_facts).code;
  };
  using G = GemmProblem;
  using W = KvCacheWriteProblem;
  CHECK(code([](G&, W&) {}) == StatusCode::ok);
  CHECK(code([](G&, W& w) { w.positions = nullptr; }) == StatusCode::null_pointer);
  CHECK(code([](G&, W& w) { w.spec.pairs = RopePairs::halves; }) == StatusCode::unsupported_layout);
  CHECK(code([](G&, W& w) { w.spec.norm = true; }) == StatusCode::unsupported_layout);
  CHECK(code([](G&, W& w) { w.rotary = 32, w.table_stride = 16; }) == StatusCode::unsupported_layout);
  CHECK(code([](G&, W& w) { w.tokens = 3; }) == StatusCode::bad_extent);
  CHECK(code([](G&, W& w) { w.q_heads = 1; }) == StatusCode::bad_extent);
  CHECK(code([](G&, W& w) { std::swap(w.k, w.v); }) == StatusCode::bad_value);
  CHECK(code([](G&, W& w) { w.q_strides.token += 8; }) == StatusCode::bad_value);
  CHECK(code([](G& p, W&) { p.residual = p.a, p.residual_stride = p.n; }) == StatusCode::bad_value);
  CHECK(code([](G& p, W&) { p.spec.out = DType::f32; }) == StatusCode::unsupported_layout);
  CHECK(code([](G& p, W& w) { w.k_cache = const_cast<void*>(p.b); }) == StatusCode::bad_value);
  CHECK(code([](G&, W& w) { w.slots = w.v; }) == StatusCode::bad_value);
  CHECK(code([](G&, W& w) { w.cos = w.k; }) == StatusCode::bad_value);
  for (const bool table : {false, true}) {
    CacheWriteCall call(GemmSpec{}, {.m = 4, .k = 64}, 2, 1, 64);
    GemmProblem p = call.problem();
    p.workspace = table ? const_cast<void*>(call.write().positions) : call.write().v_cache, p.workspace_bytes = 16;
    CHECK(gemm_check(p, sm90_facts).reason == std::string_view("workspace overlaps another tensor"));
  }
}

}  // namespace
}  // namespace tilewave::test
