// SPDX-License-Identifier: MIT
// Heads of latent attention, as DeepSeek-V4 has them. There is no V, the last dimensions are rotated, and fp8 codes of
// q and K have scales of groups, which are found before rotation.
#include "test/ops/kv_cache_write/call.hpp"

#if !defined(LATENT_ENTRIES)  // kv_cache_write_latent's
#define LATENT_ENTRIES all_kv_cache_write_entries
#endif

namespace tilewave::test {
namespace {

struct LatentShape {
  int tokens, q_heads, kv_heads, head_size, rotary, rotary_first, block_size;
};

/// q and k are slices of one tensor. The cache is a page of tokens side by side, and its scales are blocks of groups.
class LatentCall {
 public:
  KvCacheWriteProblem host, device;

  LatentCall(const KvCacheWriteSpec& spec, const LatentShape& s)
      : heads_(s.q_heads + s.kv_heads),
        groups_(spec.group > 0 ? s.head_size / spec.group : 0),
        pages_(s.tokens / s.block_size + 2),
        qk_(spec.x, s.tokens * heads_, s.head_size, heads_, {std::int64_t{heads_} * s.head_size + 16, s.head_size}),
        out_(spec.q_out, s.tokens * s.q_heads, s.head_size, 1, {s.head_size, 0}),
        keys_(spec.x, s.tokens * s.kv_heads, s.head_size, 1, {s.head_size, 0}),
        weight_(spec.x, s.head_size),
        cos_(spec.table, table_rows, s.rotary / 2, 1, {s.rotary, 0}),
        sin_(spec.table, table_rows, s.rotary / 2, 1, {s.rotary, 0}),
        cache_(std::int64_t{pages_} * s.block_size * s.kv_heads * s.head_size * size_of(spec.kv)),
        k_scale_(std::int64_t{pages_} * s.block_size * s.kv_heads * groups_ * scale_size(spec)),
        q_scale_(std::int64_t{s.tokens} * s.q_heads * groups_ * scale_size(spec)),
        slots_(s.tokens * 8),
        positions_(s.tokens * 4) {
    // Groups differ in magnitude. One head is zero except for the dimensions that are rotated.
    qk_.set(s.tokens * heads_, s.head_size, [&](int r, int d) {
      return r == 1 && d < s.rotary_first ? 0.0f : std::ldexp(drawn('x', r, d), (r + d / 32 * 3) % 7 - 3);
    });
    weight_.set(1, s.head_size, [](int, int d) { return 1 + drawn('w', 0, d) / 4; });
    const reference::RopeAngles angles = reference::rope_angles(s.rotary, 10000);
    cos_.set(table_rows, s.rotary / 2,
             [&](int r, int c) { return static_cast<float>(reference::rope_cos(spec.rope(), angles, r, c)); });
    sin_.set(table_rows, s.rotary / 2,
             [&](int r, int c) { return static_cast<float>(reference::rope_sin(spec.rope(), angles, r, c)); });
    for (std::int32_t t = 0; t < s.tokens; ++t) {
      const std::int64_t slot = t == 2 ? -1 : std::int64_t{pages_} * s.block_size - 1 - 2 * t;
      const std::int32_t position = t * 5 % table_rows;
      std::memcpy(&slots_.host[8 * t], &slot, 8);
      std::memcpy(&positions_.host[4 * t], &position, 4);
    }
    slots_.upload();
    positions_.upload();
    KvCacheWriteProblem p;
    p.spec = spec;
    p.tokens = s.tokens;
    p.q_heads = s.q_heads;
    p.kv_heads = s.kv_heads;
    p.head_size = s.head_size;
    p.rotary = s.rotary;
    p.rotary_first = s.rotary_first;
    p.table_rows = table_rows;
    p.table_stride = s.rotary;
    p.block_size = s.block_size;
    p.num_pages = pages_;
    p.q_strides = p.k_strides = {std::int64_t{heads_} * s.head_size + 16, s.head_size};
    p.q_out_strides = {std::int64_t{s.q_heads} * s.head_size, s.head_size};
    p.k_out_strides = {std::int64_t{s.kv_heads} * s.head_size, s.head_size};
    p.k_cache_strides =
        nhd_key_strides(PagedAttentionSpec{.kv = spec.kv, .head_size = s.head_size}, s.kv_heads, s.block_size);
    p.scale_page_stride = groups_ > 0 ? std::int64_t{s.kv_heads} * s.block_size : 0;
    p.scale_head_stride = groups_ > 0 ? s.block_size : 0;
    host = device = p;
    place(device, [](const auto& t) { return t.device(); });
    place(host, [](const auto& t) { return host_of(t); });
  }

  void check() {
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    for (Bytes* b : {&cache_, &k_scale_, &q_scale_}) b->download();
    out_.download();
    keys_.download();
    std::int64_t cached = 0;
    for (int t = 0; t < host.tokens; ++t) {
      for (int h = 0; h < host.q_heads; ++h) {
        const int row = t * host.q_heads + h;
        check_head(reference::HeadOf::q, t, h, q_scale_, row, [&](int d) { return out_.at(row, d); });
      }
      for (int h = 0; h < host.kv_heads; ++h) {
        const std::vector<double> want = reference::written_head(host, reference::HeadOf::k, t, h);
        for (int d = 0; d < host.head_size; ++d) {
          const double got = keys_.at(t * host.kv_heads + h, d);
          const double slack = half_step(host.spec.x, want[d]) * 1.001 + 4e-6 * (1 + std::abs(want[d]));
          if (!(std::abs(got - want[d]) <= slack)) FAIL("k_out of token " << t << ", dimension " << d << ": " << got);
        }
      }
      const std::int64_t slot = reference::slot_of(host, t);
      for (int h = 0; slot >= 0 && h < host.kv_heads; ++h) {
        ++cached;
        check_head(reference::HeadOf::k, t, h, k_scale_, reference::scale_index(host, slot, h), [&](int d) {
          return reference::element(host.spec.kv, cache_.host.data(), reference::key_index(host, slot, h, d));
        });
      }
    }
    const auto written = [](const Bytes& b) {
      return static_cast<std::int64_t>(b.host.size()) - std::count(b.host.begin(), b.host.end(), unwritten_byte);
    };
    CHECK(written(cache_) <= cached * host.head_size * size_of(host.spec.kv));
    CHECK(written(k_scale_) <= cached * groups_ * scale_size(host.spec));
  }

 private:
  static constexpr int table_rows = 29;
  static int scale_size(const KvCacheWriteSpec& s) { return s.e8m0 ? 1 : 4; }
  static const void* host_of(const Tensor& t) { return t.host(); }
  static const void* host_of(const Bytes& b) { return b.host.data(); }

  template <class At>
  void place(KvCacheWriteProblem& p, const At& at) {
    p.q = at(qk_);
    p.k = static_cast<const std::byte*>(p.q) + std::int64_t{p.q_heads} * p.head_size * size_of(p.spec.x);
    p.q_out = const_cast<void*>(static_cast<const void*>(at(out_)));
    p.k_out = const_cast<void*>(static_cast<const void*>(at(keys_)));
    p.k_cache = const_cast<void*>(static_cast<const void*>(at(cache_)));
    p.k_norm = at(weight_);  // q has none
    p.cos = at(cos_);
    p.sin = at(sin_);
    p.slots = at(slots_);
    p.positions = at(positions_);
    if (groups_ == 0) return;
    p.k_scale = const_cast<void*>(static_cast<const void*>(at(k_scale_)));
    p.q_scale = const_cast<void*>(static_cast<const void*>(at(q_scale_)));
  }
  template <class Got>
  void check_head(reference::HeadOf what, int token, int head, const Bytes& scales, std::int64_t block,
                  const Got& got) const {
    INFO((what == reference::HeadOf::q ? "q" : "k") << " of token " << token << ", head " << head);
    const std::vector<double> unrotated = reference::unrotated_head(host, what, token, head);
    const std::vector<double> want = reference::written_head(host, what, token, head);
    const DType type = what == reference::HeadOf::q ? host.spec.q_out : host.spec.kv;
    for (int d = 0; d < host.head_size; ++d) {
      const int group = groups_ > 0 ? d / host.spec.group : 0;
      double scale = 1;
      if (groups_ > 0) {
        scale = reference::group_scale(host, scales.host.data(), block * groups_ + group);
        const double low = reference::expected_group_scale(host, unrotated, group, 1 - 4e-6);
        const double high = reference::expected_group_scale(host, unrotated, group, 1 + 4e-6);
        if (!(scale >= low && scale <= high)) FAIL("scale " << scale << " of group " << group << ", not " << low);
      }
      const double slack = half_step(type, want[d] / scale) * scale * 1.001 + 4e-6 * (1 + std::abs(want[d]));
      if (!(std::abs(got(d) * scale - want[d]) <= slack)) {
        FAIL("dimension " << d << ": " << got(d) * scale << ", not " << want[d]);
      }
    }
  }

  int heads_, groups_, pages_;
  Tensor qk_, out_, keys_, weight_, cos_, sin_;
  Bytes cache_, k_scale_, q_scale_, slots_, positions_;
};

/// Specs with groups, and the 16-bit spec of the same heads.
template <class F>
void each_latent_entry(const F& f) {
  int seen = 0;
  for (const KvCacheWriteEntry* e : LATENT_ENTRIES()) {
    const KvCacheWriteSpec& s = e->spec;
    if (!s.norm || s.pairs != RopePairs::neighbours) continue;
    INFO("entry " << name_of(e->arch) << "/" << name_of(s) << "/" << name_of(e->policy));
    f(*e);
    ++seen;
  }
  CHECK(seen > 0);
}

TEST_CASE("kv_cache_write: latent heads turn at their end, their groups are scaled, K alone is cached") {
  each_latent_entry([](const KvCacheWriteEntry& e) {
    const auto size = static_cast<int>(e.policy.columns(e.spec.x));
    for (const LatentShape& s :
         {LatentShape{5, 3, 1, size, size == 512 ? 64 : 32, size == 512 ? 448 : size - 32, 4},
          LatentShape{7, 2, 2, size, 16, size / 2, 16}, LatentShape{1, 1, 1, size, size, 0, 1}}) {
      INFO(s.tokens << " tokens, " << s.rotary << " dimensions turn from " << s.rotary_first);
      LatentCall call(e.spec, s);
      const Status status = e.launch(call.device, {});
      INFO(status.reason);
      REQUIRE(status.ok());
      call.check();
    }
  });
}

TEST_CASE("kv_cache_write: latent heads are right in every order of waves") {
  each_latent_entry([](const KvCacheWriteEntry& e) {
    if (e.policy.columns(e.spec.x) != 128) return;
    each_schedule([&] {
      LatentCall call(e.spec, {9, 3, 2, 128, 32, 96, 4});
      REQUIRE(e.launch(call.device, {}).ok());
      call.check();
    });
  });
}

TEST_CASE("kv_cache_write: what is no latent call is refused by name") {
  using P = KvCacheWriteProblem;
  using C = StatusCode;
  const Wrong<P> wrongs[] = {
      {"rotary_first 8", C::bad_extent, [](P& p) { p.rotary_first = 8; }},
      {"rotary_first -16", C::bad_extent, [](P& p) { p.rotary_first = -16; }},
      {"rotary_first with too little behind it", C::bad_extent, [](P& p) { p.rotary_first = p.head_size - 16; }},
      {"halves from the middle on", C::unsupported_layout,
       [](P& p) { p.spec = {.fused = true, .norm = true, .table = p.spec.table}; }},
      {"v without v_cache", C::null_pointer,
       [](P& p) {
         p.spec = {.fused = true, .norm = true, .pairs = RopePairs::neighbours, .table = p.spec.table};
         p.k_scale = p.q_scale = nullptr;
         p.scale_page_stride = p.scale_head_stride = 0;
         p.v = p.k;
       }},
      {"v with groups", C::bad_value, [](P& p) { p.v = p.k, p.v_cache = p.k_cache; }},
      {"v_scale without v", C::bad_value, [](P& p) { p.v_scale = static_cast<float*>(p.k_scale); }},
      {"e8m0 without groups", C::unsupported_scaling, [](P& p) { p.spec.group = 0, p.spec.e8m0 = true; }},
      {"groups of 48", C::unsupported_scaling, [](P& p) { p.spec.group = 48; }},
      {"groups without a norm", C::unsupported_scaling, [](P& p) { p.spec.norm = false; }},
      {"groups of halves", C::unsupported_scaling, [](P& p) { p.spec.pairs = RopePairs::halves; }},
      {"q in 16 bits", C::unsupported_scaling, [](P& p) { p.spec.q_out = p.spec.x; }},
      {"heads of 1.5 groups", C::unsupported_head_size,
       [](P& p) { p.head_size = p.spec.group + p.spec.group / 2, p.rotary = 16, p.rotary_first = 0; }},
      {"q_scale null", C::null_pointer, [](P& p) { p.q_scale = nullptr; }},
      {"q_scale is q", C::bad_value, [](P& p) { p.q_scale = const_cast<void*>(p.q); }},
      {"k_scale is k_cache", C::bad_value, [](P& p) { p.k_scale = p.k_cache; }},
  };
  each_latent_entry([&](const KvCacheWriteEntry& e) {
    if (e.spec.group == 0 || e.policy.columns(e.spec.x) != 512) return;
    LatentCall call(e.spec, {5, 3, 1, 512, 64, 448, 4});
    check_refused<KvCacheWriteEntry, P>(e, call.device, wrongs, kv_cache_write_check, kv_cache_write_select,
                                        LATENT_ENTRIES());
  });
}

}  // namespace
}  // namespace tilewave::test
