// SPDX-License-Identifier: MIT
// A cache write for tests, with slices of a fused qkv tensor, caches of any layout, and some tokens without a slot.
#pragma once

#include "entries/kv_cache_write.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/reference/kv_cache_write.hpp"

namespace tilewave::test {

enum class CacheLayout { plain, shuffled, nhd, hnd };
inline constexpr CacheLayout cache_layouts[] = {CacheLayout::plain, CacheLayout::shuffled, CacheLayout::nhd,
                                                CacheLayout::hnd};

/// What k_out of a fused spec is: none, a tensor of its own, or k.
enum class KeyOut { none, own, in_place };

struct CacheShape {
  int tokens, q_heads, kv_heads, head_size, rotary, block_size, pages;
};

/// Bytes with the same contents on host and device, unwritten_byte at first.
class Bytes {
 public:
  explicit Bytes(std::int64_t bytes) : host(static_cast<std::size_t>(bytes), unwritten_byte), device_(host.size()) {
    upload();
  }
  void upload() const { copy(device_.data(), host.data(), hipMemcpyHostToDevice); }
  void download() { copy(host.data(), device_.data(), hipMemcpyDeviceToHost); }
  void* device() const { return device_.data(); }

  std::vector<std::uint8_t> host;

 private:
  void copy(void* to, const void* from, hipMemcpyKind kind) const {
    if (!host.empty()) bench::check_hip(hipMemcpy(to, from, host.size(), kind), "copying");
  }
  bench::DeviceBuffer device_;
};

/// Tensors on host and device, and the problem for both. Every fifth token has no slot, and every fourth has a position
/// outside the tables.
class CacheCall {
 public:
  static constexpr int table_rows = 37;

  KvCacheWriteProblem host, device;
  Bytes k_cache, v_cache, k_scale, v_scale;

  CacheCall(const KvCacheWriteSpec& spec, const CacheShape& s, CacheLayout layout, IndexType index, bool in_place,
            KeyOut key_out = KeyOut::none)
      : k_cache(cache_bytes(spec, s)),
        v_cache(cache_bytes(spec, s)),
        k_scale(scale_bytes(spec, s)),
        v_scale(scale_bytes(spec, s)),
        heads_((spec.fused ? s.q_heads : 0) + 2 * s.kv_heads),
        qkv_strides_{std::int64_t{heads_} * s.head_size + 16, s.head_size},
        qkv_(spec.x, s.tokens * heads_, s.head_size, heads_, qkv_strides_),
        after_(spec.x, s.tokens * heads_, s.head_size, heads_, qkv_strides_),
        out_strides_(in_place ? qkv_strides_ : RowStrides{std::int64_t{s.q_heads} * s.head_size + 32, s.head_size}),
        key_strides_(key_out == KeyOut::in_place ? qkv_strides_
                                                 : RowStrides{s.kv_heads * (s.head_size + 8) + 8, s.head_size + 8}),
        out_(spec.q_out, in_place ? 0 : s.tokens * s.q_heads, s.head_size, std::max(s.q_heads, 1), out_strides_),
        keys_(spec.x, key_out == KeyOut::own ? s.tokens * s.kv_heads : 0, s.head_size, s.kv_heads, key_strides_),
        weights_(spec.x, 2, s.head_size, 1, {s.head_size, 0}),
        cos_(spec.table, table_rows, std::max(s.rotary / 2, 1), 1, {s.rotary, 0}),
        sin_(spec.table, table_rows, std::max(s.rotary / 2, 1), 1, {s.rotary, 0}),
        slots_(s.tokens * size_of(index)),
        positions_(s.tokens * size_of(index)),
        q_scale_(4),
        in_place_(in_place),
        key_out_(spec.fused ? key_out : KeyOut::none) {
    qkv_.set(s.tokens * heads_, s.head_size, [](auto r, auto c) { return drawn('x', r, c); });
    weights_.set(2, s.head_size, [](auto r, auto c) { return 1 + drawn('w', r, c) / 4; });
    const reference::RopeAngles angles = reference::rope_angles(std::max(s.rotary, 2), 10000);
    const auto table = [&](double (*value)(const RopeSpec&, const reference::RopeAngles&, std::int64_t, int)) {
      return [&angles, &spec, value](int r, int c) { return static_cast<float>(value(spec.rope(), angles, r, c)); };
    };
    cos_.set(table_rows, s.rotary / 2, table(reference::rope_cos));
    sin_.set(table_rows, s.rotary / 2, table(reference::rope_sin));
    set_indices(s, index);
    if (spec.quant != Scaling::per_token) {
      for (std::size_t i = 0; i < k_scale.host.size() / 4; ++i) {
        put(k_scale, i, 0.1f + 0.01f * static_cast<float>(i));
        put(v_scale, i, 0.05f + 0.01f * static_cast<float>(i));
      }
    }
    put(q_scale_, 0, 0.0625f);
    for (const Bytes* b : {&k_scale, &v_scale, &q_scale_, &slots_, &positions_}) b->upload();
    describe(spec, s, layout, index);
  }

  /// Draws other slots, and positions that are all inside the tables.
  template <class F>
  void set_slots(const F& slot) {
    for (int t = 0; t < host.tokens; ++t) {
      put_index(slots_, host.slot_type, t, slot(t));
      put_index(positions_, host.slot_type, t, t % table_rows);
    }
    slots_.upload();
    positions_.upload();
  }

  /// Resets the caches, and the scales that are found.
  void clear() {
    for (Bytes* b : {&k_cache, &v_cache, &k_scale, &v_scale}) {
      if ((b == &k_scale || b == &v_scale) && host.spec.quant != Scaling::per_token) continue;
      std::fill(b->host.begin(), b->host.end(), unwritten_byte);
      b->upload();
    }
  }

  /// Compares what was written with the reference, and checks that nothing else was written.
  void check() {
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    for (Bytes* b : {&k_cache, &v_cache, &k_scale, &v_scale}) b->download();
    check_cache(reference::HeadOf::k, k_cache, k_scale);
    check_cache(reference::HeadOf::v, v_cache, v_scale);
    if (host.spec.fused) check_heads();
  }

 private:
  static std::int64_t cache_bytes(const KvCacheWriteSpec& spec, const CacheShape& s) {
    return std::int64_t{s.pages} * s.kv_heads * s.block_size * s.head_size * size_of(spec.kv);
  }
  static std::int64_t scale_bytes(const KvCacheWriteSpec& spec, const CacheShape& s) {
    switch (spec.quant) {
      case Scaling::per_tensor: return 4;
      case Scaling::per_head: return 4 * s.kv_heads;
      case Scaling::per_token: return std::int64_t{4} * s.pages * s.kv_heads * s.block_size;
      default: return 0;
    }
  }
  static void put(Bytes& bytes, std::size_t i, float value) { std::memcpy(&bytes.host[4 * i], &value, 4); }
  static void put_index(Bytes& bytes, IndexType type, int i, std::int64_t value) {
    const auto narrow = static_cast<std::int32_t>(value);
    std::memcpy(&bytes.host[static_cast<std::size_t>(i) * size_of(type)],
                type == IndexType::i64 ? static_cast<const void*>(&value) : &narrow, size_of(type));
  }
  void set_indices(const CacheShape& s, IndexType index) {
    const std::int64_t all = std::int64_t{s.pages} * s.block_size;
    for (int t = 0; t < s.tokens; ++t) {
      // The stride has no common divisor with any number of slots here. The first tokens are neighbours, as in a
      // prefill.
      const std::int64_t slot = t < s.tokens / 2 ? all - 1 - t : t * 7919 % (all - s.tokens / 2);
      put_index(slots_, index, t, t % 5 == 4 ? outside_table(index, all, t / 5) : slot);
      put_index(positions_, index, t, t % 4 == 3 ? outside_table(index, table_rows, t / 4) : t * 5 % table_rows);
    }
  }

  void describe(const KvCacheWriteSpec& spec, const CacheShape& s, CacheLayout layout, IndexType index) {
    KvCacheWriteProblem p;
    p.spec = spec;
    p.slot_type = index;
    p.tokens = s.tokens;
    p.q_heads = spec.fused ? s.q_heads : 0;
    p.kv_heads = s.kv_heads;
    p.head_size = s.head_size;
    p.block_size = s.block_size;
    p.num_pages = s.pages;
    p.k_strides = p.v_strides = {qkv_strides_.outer, qkv_strides_.inner};
    const PagedAttentionSpec cache{.kv = spec.kv, .head_size = s.head_size};
    p.values =
        layout == CacheLayout::nhd || layout == CacheLayout::hnd ? ValueLayout::token_major : ValueLayout::dim_major;
    if (layout == CacheLayout::nhd) {
      p.k_cache_strides = nhd_key_strides(cache, s.kv_heads, s.block_size);
      p.v_cache_strides = nhd_value_strides(cache, s.kv_heads, s.block_size);
    } else if (layout == CacheLayout::hnd) {
      p.k_cache_strides = hnd_key_strides(cache, s.kv_heads, s.block_size);
      p.v_cache_strides = hnd_value_strides(cache, s.kv_heads, s.block_size);
    } else {
      p.k_cache_strides = packed_key_strides(cache, s.kv_heads, s.block_size);
      p.v_cache_strides = packed_value_strides(cache, s.kv_heads, s.block_size, layout == CacheLayout::shuffled);
    }
    if (spec.quant == Scaling::per_token) p.scale_page_stride = s.kv_heads * s.block_size;
    if (spec.quant == Scaling::per_token) p.scale_head_stride = s.block_size;
    if (spec.quant == Scaling::per_head) p.scale_head_stride = 1;
    if (spec.fused) {
      p.position_type = index;
      p.rotary = s.rotary;
      p.table_rows = table_rows;
      p.table_stride = s.rotary;
      p.q_strides = p.k_strides;
      p.q_out_strides = {out_strides_.outer, out_strides_.inner};
      if (key_out_ != KeyOut::none) p.k_out_strides = {key_strides_.outer, key_strides_.inner};
    }
    host = device = p;
    place(host, qkv_.host(), [](const auto& b) -> const void* { return address(b, false); });
    place(device, qkv_.device(), [](const auto& b) -> const void* { return address(b, true); });
  }
  static const void* address(const Tensor& t, bool on_device) { return on_device ? t.device() : t.host(); }
  static const void* address(const Bytes& b, bool on_device) {
    return b.host.empty() ? nullptr : on_device ? b.device() : static_cast<const void*>(b.host.data());
  }
  template <class At>
  void place(KvCacheWriteProblem& p, const void* qkv, const At& at) {
    const auto slice = [&](int head) {
      return static_cast<const std::byte*>(qkv) + std::int64_t{head} * p.head_size * size_of(p.spec.x);
    };
    p.k = slice(p.q_heads);
    p.v = slice(p.q_heads + p.kv_heads);
    p.k_cache = const_cast<void*>(at(k_cache));
    p.v_cache = const_cast<void*>(at(v_cache));
    p.k_scale = static_cast<float*>(const_cast<void*>(at(k_scale)));
    p.v_scale = static_cast<float*>(const_cast<void*>(at(v_scale)));
    p.slots = at(slots_);
    p.tables_ready = p.tokens % 2 == 1;  // true of all, and said of half of them
    if (!p.spec.fused) return;
    p.q = qkv;
    p.q_out = const_cast<void*>(in_place_ ? qkv : at(out_));
    if (key_out_ == KeyOut::own) p.k_out = const_cast<void*>(at(keys_));
    if (key_out_ == KeyOut::in_place) p.k_out = const_cast<void*>(p.k);
    p.cos = at(cos_);
    p.sin = at(sin_);
    p.positions = at(positions_);
    if (is_fp8(p.spec.q_out)) p.q_scale = const_cast<void*>(at(q_scale_));
    if (!p.spec.norm) return;
    p.q_norm = at(weights_);
    p.k_norm = static_cast<const std::byte*>(at(weights_)) + p.head_size * size_of(p.spec.x);
  }

  /// Half a step of the stored type, plus the error of f32. NaN must be NaN.
  static bool close(double got, double want, DType type, double scale) {
    if (std::isnan(want)) return std::isnan(got);
    return std::abs(got - want) <= half_step(type, want / scale) * scale * 1.001 + 4e-6 * (1 + std::abs(want));
  }
  void check_cache(reference::HeadOf what, const Bytes& cache, const Bytes& scales) const {
    const bool k = what == reference::HeadOf::k, found = host.spec.quant == Scaling::per_token;
    const int size = size_of(host.spec.kv);
    std::vector<bool> used(cache.host.size()), used_scale(scales.host.size());
    const auto* scale = reinterpret_cast<const float*>(scales.host.data());
    for (int t = 0; t < host.tokens; ++t) {
      const std::int64_t slot = reference::slot_of(host, t);
      for (int h = 0; slot >= 0 && h < host.kv_heads; ++h) {
        const std::vector<double> want = reference::written_head(host, what, t, h);
        const std::int64_t scale_at = reference::scale_index(host, slot, h);
        const double factor = scales.host.empty() ? 1.0 : scale[scale_at];
        if (found) {
          std::fill_n(used_scale.begin() + 4 * scale_at, 4, true);
          const double wanted = reference::scale_of(reference::amax(want, 0, host.head_size), host.spec.kv);
          if (!(std::abs(factor - wanted) <= 1e-5 * wanted)) FAIL("scale " << factor << ", not " << wanted);
        }
        for (int d = 0; d < host.head_size; ++d) {
          const std::int64_t i = k ? reference::key_index(host, slot, h, d) : reference::value_index(host, slot, h, d);
          std::fill_n(used.begin() + i * size, size, true);
          const double got = reference::element(host.spec.kv, cache.host.data(), i) * factor;
          if (close(got, want[d], host.spec.kv, factor)) continue;
          FAIL((k ? "k" : "v") << " of token " << t << ", head " << h << ", dimension " << d << ": " << got << ", not "
                               << want[d]);
        }
      }
    }
    std::int64_t strays = 0;
    for (std::size_t i = 0; i < used.size(); ++i) strays += !used[i] && cache.host[i] != unwritten_byte;
    for (std::size_t i = 0; found && i < used_scale.size(); ++i)
      strays += !used_scale[i] && scales.host[i] != unwritten_byte;
    CHECK(strays == 0);
  }
  void check_head(reference::HeadOf what, int token, int head, const Tensor& in, int row, DType type,
                  double scale) const {
    const std::vector<double> want = reference::written_head(host, what, token, head);
    for (int d = 0; d < host.head_size; ++d) {
      const double got = in.at(row, d) * scale;
      if (close(got, want[d], type, scale)) continue;
      FAIL("token " << token << ", head " << head << (what == reference::HeadOf::q ? " of q_out" : " of k_out")
                    << ", dimension " << d << ": " << got << ", not " << want[d]);
    }
  }
  /// Compares q_out and k_out, and checks that nothing else of qkv has changed.
  void check_heads() {
    after_.download(qkv_);
    out_.download();
    keys_.download();
    const double scale = is_fp8(host.spec.q_out) ? 0.0625 : 1;
    for (int t = 0; t < host.tokens; ++t)
      for (int of = 0; of < heads_; ++of) {
        const bool q = of < host.q_heads, k = !q && of < host.q_heads + host.kv_heads;
        const int row = t * heads_ + of, h = k ? of - host.q_heads : of;
        if (q)
          check_head(reference::HeadOf::q, t, h, in_place_ ? after_ : out_, in_place_ ? row : t * host.q_heads + h,
                     host.spec.q_out, scale);
        if (k && key_out_ != KeyOut::none) {
          const bool own = key_out_ == KeyOut::own;
          check_head(reference::HeadOf::k, t, h, own ? keys_ : after_, own ? t * host.kv_heads + h : row, host.spec.x,
                     1);
        }
        if ((q && in_place_) || (k && key_out_ == KeyOut::in_place)) continue;
        for (int d = 0; d < host.head_size; ++d) {
          if (after_.at(row, d) != qkv_.at(row, d)) FAIL("token " << t << ", head " << of << " of qkv is overwritten");
        }
      }
    CHECK(after_.gaps_kept(host.tokens * heads_, host.head_size));
    CHECK(out_.gaps_kept(in_place_ ? 0 : host.tokens * host.q_heads, host.head_size));
    CHECK(keys_.gaps_kept(key_out_ == KeyOut::own ? host.tokens * host.kv_heads : 0, host.head_size));
  }

  int heads_;  // of qkv
  RowStrides qkv_strides_;
  Tensor qkv_, after_;  // as it came in; as it is then
  RowStrides out_strides_;
  RowStrides key_strides_;
  Tensor out_, keys_, weights_, cos_, sin_;
  Bytes slots_, positions_, q_scale_;
  bool in_place_;
  KeyOut key_out_;
};

}  // namespace tilewave::test
