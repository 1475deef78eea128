// SPDX-License-Identifier: MIT
#include "bench/ops/paged_attention/tensors.hpp"

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "test/catch_compat.hpp"

namespace tilewave::bench {
namespace {

PagedAttentionCase small_case(DType kv, Scaling quant) {
  PagedAttentionCase c;
  c.kv = kv;
  c.quant = quant;
  c.batch = 3;
  c.context_length = 70;
  c.block_size = 32;
  c.head_size = 64;
  c.num_kv_heads = 2;
  c.mtp = 2;
  c.kv_varlen = true;
  c.distinct_pages = true;  // a small pool; short sequences still leave pages unused
  return c;
}

/// Stored code and decoded value of (page, head, slot, d), through the layouts of the contract.
struct Reader {
  const PagedAttentionCase& c;
  const PagedAttentionProblem& p;

  float decode(const void* cache, std::int64_t at) const {
    return is_fp8(c.kv) ? fp8_to_f32(c.kv, static_cast<const std::uint8_t*>(cache)[at])
                        : bf16_to_f32(static_cast<const std::uint16_t*>(cache)[at]);
  }
  float k(std::int64_t page, int h, int t, int d) const {
    const int x = p.spec.unit();
    return decode(p.k, (((page * c.num_kv_heads + h) * (c.head_size / x) + d / x) * c.block_size + t) * x + d % x);
  }
  float v(std::int64_t page, int h, int t, int d) const {
    const int x = p.spec.unit();
    const std::int64_t head = page * c.num_kv_heads + h;
    return decode(p.v, c.trans_v ? ((head * (c.block_size / x) + t / x) * c.head_size + d) * x + t % x
                                 : (head * c.head_size + d) * c.block_size + t);
  }
  float scale(const float* scales, std::int64_t page, int h, int t) const {
    if (c.quant == Scaling::none) return 1;
    return scales[c.quant == Scaling::per_tensor ? 0 : (page * c.num_kv_heads + h) * c.block_size + t];
  }
};

TEST_CASE("pools hold the drawn values where they are used and NaN everywhere else") {
  const auto [kv, quant] =
      GENERATE(std::pair{DType::bf16, Scaling::none}, std::pair{DType::fp8_e4m3fn, Scaling::per_tensor},
               std::pair{DType::fp8_e4m3fn, Scaling::per_token}, std::pair{DType::fp8_e4m3fnuz, Scaling::per_token});
  const Inputs inputs = GENERATE(Inputs::uniform, Inputs::varied);
  const bool trans_v = GENERATE(true, false);
  CAPTURE(std::string(name_of(kv)), std::string(name_of(quant)), std::string(name_of(inputs)), trans_v);
  PagedAttentionCase c = small_case(kv, quant);
  c.inputs = inputs;
  c.trans_v = trans_v;
  KvPoolCache pools(2);
  const CaseTensors tensors(c, pools);
  const PagedAttentionProblem& p = tensors.host_problem();
  const Reader read{c, p};
  const std::vector<std::int32_t> used = used_slots(c, tensors.lengths(), tensors.table());
  std::int64_t values = 0, poisoned = 0;
  double largest_error = 0, largest = 0;
  for (std::int64_t page = 0; page < c.num_pages(); ++page)
    for (int h = 0; h < c.num_kv_heads; ++h)
      for (int t = 0; t < c.block_size; ++t) {
        const std::uint64_t keys[] = {
            random_bits({c.seed, 'k', std::uint64_t(page), std::uint64_t(h), std::uint64_t(t)}),
            random_bits({c.seed, 'v', std::uint64_t(page), std::uint64_t(h), std::uint64_t(t)})};
        const float scales[] = {read.scale(p.k_scale, page, h, t), read.scale(p.v_scale, page, h, t)};
        if (quant == Scaling::per_token && t >= used[page]) REQUIRE((std::isnan(scales[0]) && std::isnan(scales[1])));
        for (int d = 0; d < c.head_size; ++d) {
          const float stored[] = {read.k(page, h, t, d), read.v(page, h, t, d)};
          if (t >= used[page]) {
            poisoned += 2;
            REQUIRE((std::isnan(stored[0]) && std::isnan(stored[1])));
            continue;
          }
          values += 2;
          for (int side = 0; side < 2; ++side) {
            const float factor =
                inputs == Inputs::uniform ? 1 : std::exp2(float(random_below(keys[side], 17) - 8) / 4 - side);
            const float drawn = bf16_to_f32(f32_to_bf16(factor * random_uniform(keys[side], d)));
            const double error = std::abs(double{stored[side]} * scales[side] - drawn);
            // Half a step: 2^-4 of the value for fp8, 2^-10 of the scale below its normal range.
            const double allowed =
                is_fp8(kv) ? std::max(std::abs(drawn) / 16.0, std::ldexp(1.0, -10) * scales[side]) * 1.0001 : 0;
            REQUIRE(error <= allowed);
            largest_error = std::max(largest_error, error);
            largest = std::max(largest, double{std::abs(stored[side])});
          }
        }
      }
  std::int64_t slots = 0;
  for (const std::int32_t n : used) slots += n;
  CHECK(values == slots * c.num_kv_heads * c.head_size * 2);
  CHECK(poisoned == c.num_pages() * c.block_size * c.num_kv_heads * c.head_size * 2 - values);
  if (is_fp8(kv)) {
    CHECK(largest_error > 0);
    CHECK(largest == fp8_max(kv));  // the scale uses the whole range
  }
}

/// Compares what the device holds, not what the host wrote.
bool same_bytes(const TwinBuffer& a, const TwinBuffer& b) {
  a.download();
  b.download();
  return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.host(), b.host(), a.bytes()) == 0);
}
bool same_pools(const KvPool& a, const KvPool& b) {
  return same_bytes(a.k(), b.k()) && same_bytes(a.v(), b.v()) && same_bytes(a.k_scale(), b.k_scale()) &&
         same_bytes(a.v_scale(), b.v_scale());
}

TEST_CASE("a few changed pages reach the device as well as many do") {
  const Scaling quant = GENERATE(Scaling::none, Scaling::per_tensor, Scaling::per_token);
  PagedAttentionCase c = small_case(quant == Scaling::none ? DType::bf16 : DType::fp8_e4m3fn, quant);
  c.batch = 30;
  const KvPoolKey key = pool_key_of(c);
  REQUIRE(key.num_pages == 90);
  std::vector<std::int32_t> used(90, 5);
  KvPool updated(key, 2), fresh(key, 2);
  updated.use(used);
  used[3] = 32;
  used[4] = 0;
  used[89] = 6;
  updated.use(used);
  fresh.use(used);
  CHECK(same_pools(updated, fresh));
  KvPool other(key, 1);
  other.use(std::vector<std::int32_t>(90, 5));
  CHECK_FALSE(same_pools(updated, other));
}

TEST_CASE("a pool brought up to date equals a fresh one, byte for byte") {
  const Scaling quant = GENERATE(Scaling::none, Scaling::per_token);
  const PagedAttentionCase c = small_case(quant == Scaling::none ? DType::bf16 : DType::fp8_e4m3fnuz, quant);
  PagedAttentionCase other = c;
  other.mtp = 4;  // other lengths, hence other used slots
  const auto use = [](const PagedAttentionCase& x) {
    const std::vector<std::int32_t> lengths = lengths_of(x);
    return used_slots(x, lengths, table_of(x, lengths));
  };
  REQUIRE(use(c) != use(other));
  REQUIRE(pool_key_of(c) == pool_key_of(other));
  KvPoolCache pools(2), fresh_pools(1);
  (void)pools.get(pool_key_of(c), use(c));
  (void)pools.get(pool_key_of(other), use(other));
  const KvPool& updated = pools.get(pool_key_of(c), use(c));
  CHECK(pools.size() == 1);
  const KvPool& fresh = fresh_pools.get(pool_key_of(c), use(c));
  CHECK(same_pools(updated, fresh));
  CHECK(std::memcmp(fresh.k().host(), fresh.v().host(), fresh.k().bytes()) != 0);
}

/// True if two calls find the same in the pages of a key, on the device and on the host.
bool same_caches(const CaseTensors& a, const CaseTensors& b, const KvPoolKey& key) {
  const auto on_device = [](const void* data, std::size_t bytes) {
    std::vector<std::byte> copy(bytes);
    if (bytes > 0) check_hip(hipMemcpy(copy.data(), data, bytes, hipMemcpyDeviceToHost), "copying from the device");
    return copy;
  };
  const auto same = [&](const void* (*member)(const PagedAttentionProblem&), std::size_t bytes) {
    return on_device(member(a.problem()), bytes) == on_device(member(b.problem()), bytes) &&
           (bytes == 0 || std::memcmp(member(a.host_problem()), member(b.host_problem()), bytes) == 0);
  };
  return same([](const PagedAttentionProblem& p) -> const void* { return p.k; }, key.cache_bytes()) &&
         same([](const PagedAttentionProblem& p) -> const void* { return p.v; }, key.cache_bytes()) &&
         same([](const PagedAttentionProblem& p) -> const void* { return p.k_scale; }, key.scale_bytes()) &&
         same([](const PagedAttentionProblem& p) -> const void* { return p.v_scale; }, key.scale_bytes());
}

TEST_CASE("a smaller case takes the first pages of a larger pool, and finds there what its own would hold") {
  const Scaling quant = GENERATE(Scaling::none, Scaling::per_tensor, Scaling::per_token);
  PagedAttentionCase large = small_case(quant == Scaling::none ? DType::bf16 : DType::fp8_e4m3fn, quant);
  large.batch = 30;
  PagedAttentionCase small = large;
  small.batch = 20;
  small.context_length = 40;  // other lengths, fewer pages
  REQUIRE(pool_key_of(large).begins_with(pool_key_of(small)));
  REQUIRE_FALSE(pool_key_of(small).begins_with(pool_key_of(large)));
  KvPoolCache pools(2), own(1);
  const void* const place = CaseTensors(large, pools).problem().k;
  {
    const CaseTensors shared(small, pools), alone(small, own);
    CHECK(shared.problem().k == place);
    CHECK(shared.problem().num_pages == alone.problem().num_pages);
    CHECK(same_caches(shared, alone, pool_key_of(small)));
  }
  // Shorter lengths: pages that the smaller case changed, and those it left alone, are brought up to date.
  large.mtp = 1;
  const CaseTensors again(large, pools), fresh(large, own);
  CHECK(again.problem().k == place);
  CHECK(pools.size() == 1);
  CHECK(same_caches(again, fresh, pool_key_of(large)));
}

TEST_CASE("the pool cache stays within its budget and drops the oldest") {
  PagedAttentionCase c = small_case(DType::bf16, Scaling::none);
  const std::size_t one = pool_key_of(c).bytes();
  KvPoolCache pools(1, 2 * one + one / 2);
  const auto get = [&](std::uint64_t seed) {
    c.seed = seed;
    const std::vector<std::int32_t> lengths = lengths_of(c);
    return &pools.get(pool_key_of(c), used_slots(c, lengths, table_of(c, lengths)));
  };
  const KvPool* first = get(1);
  (void)get(2);
  CHECK(get(1) == first);
  (void)get(3);  // drops 2
  CHECK(pools.size() == 2);
  CHECK(pools.bytes() <= 2 * one + one / 2);
  CHECK(get(1) == first);
}

TEST_CASE("Q is a slice of fused rows whose other columns are NaN") {
  const PagedAttentionCase c = small_case(DType::fp8_e4m3fn, Scaling::per_token);
  KvPoolCache pools(1);
  const CaseTensors tensors(c, pools);
  const PagedAttentionProblem& p = tensors.host_problem();
  CHECK(p.q_row_stride == (8 + 2 * 2) * 64);
  CHECK(p.q_head_stride == 64);
  const auto* q = static_cast<const std::uint16_t*>(p.q);
  for (int row = 0; row < c.batch * c.mtp; ++row)
    for (int i = 0; i < p.q_row_stride; ++i) {
      const float value = bf16_to_f32(q[row * p.q_row_stride + i]);
      REQUIRE(std::isnan(value) == (i >= 8 * 64));
      REQUIRE_FALSE(std::abs(value) > 1);
    }
}

TEST_CASE("outputs and workspace are poisoned") {
  const PagedAttentionCase c = small_case(DType::fp8_e4m3fn, Scaling::per_token);
  KvPoolCache pools(1);
  CaseTensors tensors(c, pools);
  tensors.set_workspace(4096);
  CHECK(tensors.problem().workspace_bytes == 4096);
  tensors.poison_outputs();
  tensors.download_outputs();
  for (int i = 0; i < c.batch * c.mtp * 8 * 64; ++i) REQUIRE(std::isnan(bf16_to_f32(tensors.out()[i])));
  for (int i = 0; i < c.batch * c.mtp * 8; ++i) REQUIRE(std::isnan(tensors.lse()[i]));
  std::vector<float> workspace(1024);
  REQUIRE(hipMemcpy(workspace.data(), tensors.problem().workspace, 4096, hipMemcpyDeviceToHost) == hipSuccess);
  for (const float x : workspace) REQUIRE(std::isnan(x));
}

}  // namespace
}  // namespace tilewave::bench
