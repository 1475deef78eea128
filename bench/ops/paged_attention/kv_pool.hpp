// SPDX-License-Identifier: MIT
// Paged K and V pools whose contents are a pure function of (seed, page, head, token, dim), and a small cache of them.
//
// Slots that no sequence uses hold NaN, in K, V and their scales. A kernel that lets one of them through answers NaN.
// Neighbouring configs differ in which slots they use, not in values. So for each config a pool is only updated.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <list>
#include <vector>

#include "bench/harness/device.hpp"
#include "bench/harness/element.hpp"
#include "bench/harness/model_time.hpp"
#include "bench/ops/paged_attention/case.hpp"
#include "tilewave/reference/parallel.hpp"

namespace tilewave::bench {

/// What distinguishes one pool from another.
struct KvPoolKey {
  DType kv;
  Scaling quant;
  int num_kv_heads, head_size, block_size;
  std::int64_t num_pages;
  KvLayout layout;
  bool trans_v;
  Inputs inputs;
  std::uint64_t seed;
  friend constexpr bool operator==(const KvPoolKey&, const KvPoolKey&) = default;

  /// Whether the first pages of such a pool are those of the other. Neither positions nor values depend on how many
  /// pages follow.
  constexpr bool begins_with(KvPoolKey other) const {
    const bool large_enough = num_pages >= other.num_pages;
    other.num_pages = num_pages;
    return large_enough && *this == other;
  }
  std::size_t slots() const { return static_cast<std::size_t>(num_pages) * num_kv_heads * block_size; }
  std::size_t cache_bytes() const { return slots() * head_size * size_of(kv); }        // of K, and of V
  int common_scales() const { return quant == Scaling::per_head ? num_kv_heads : 1; }  // not of tokens
  std::size_t scale_bytes() const {
    return quant == Scaling::none ? 0 : sizeof(float) * (quant == Scaling::per_token ? slots() : common_scales());
  }
  std::size_t bytes() const { return 2 * (cache_bytes() + scale_bytes()); }
};

constexpr KvPoolKey pool_key_of(const PagedAttentionCase& c) {
  return {c.kv,          c.quant,  c.num_kv_heads, c.head_size, c.block_size,
          c.num_pages(), c.layout, c.trans_v,      c.inputs,    c.seed};
}

class KvPool {
 public:
  KvPool(const KvPoolKey& key, int threads)
      : key_(key), threads_(threads), sides_{Side(key), Side(key)}, used_(static_cast<std::size_t>(key.num_pages), 0) {
    constexpr std::size_t task_bytes = std::size_t{1} << 24;
    if (!fills(key.bytes())) return;
    for (Side& side : sides_) {
      const auto tasks = static_cast<std::int64_t>((key.cache_bytes() + task_bytes - 1) / task_bytes);
      reference::parallel_for(tasks, threads, [&](std::int64_t i) {
        std::memset(side.cache.host() + i * task_bytes, poison_byte(key.kv),
                    std::min(task_bytes, key.cache_bytes() - i * task_bytes));
      });
      std::fill_n(side.scales.host(), key.scale_bytes(), std::byte{0xff});  // NaN in f32
      const bool common = key.quant == Scaling::per_tensor || key.quant == Scaling::per_head;
      for (int i = 0; common && i < key.common_scales(); ++i) scales(side)[i] = common_scale(side_index(side), i);
    }
  }
  KvPool(KvPool&&) = delete;

  const KvPoolKey& key() const { return key_; }
  const TwinBuffer& k() const { return sides_[0].cache; }
  const TwinBuffer& v() const { return sides_[1].cache; }
  const TwinBuffer& k_scale() const { return sides_[0].scales; }
  const TwinBuffer& v_scale() const { return sides_[1].scales; }

  /// Gives slots [0, used[page]) of each of the first pages their values, and all other slots of them NaN, on the
  /// device and on the host. Pages from used.size() on are left alone, since no table of a smaller case names them.
  void use(const std::vector<std::int32_t>& used) {
    if (!fills(key_.bytes())) return;
    std::vector<std::int64_t> changed;
    for (std::int64_t page = 0; page < std::ssize(used); ++page) {
      if (used[page] != used_[page]) changed.push_back(page);
    }
    const int heads = key_.num_kv_heads;
    reference::parallel_for(std::ssize(changed) * heads, threads_, [&](std::int64_t i) {
      const std::int64_t page = changed[i / heads];
      for (Side& side : sides_) {
        fill(side, page, static_cast<int>(i % heads), used_[page], used[page]);
        poison(side, page, static_cast<int>(i % heads), used[page], used_[page]);
      }
    });
    std::copy(used.begin(), used.end(), used_.begin());
    upload(changed);
  }

 private:
  struct Side {  // K or V
    explicit Side(const KvPoolKey& key) : cache(key.cache_bytes()), scales(key.scale_bytes()) {}
    TwinBuffer cache, scales;
  };
  int side_index(const Side& side) const { return &side == &sides_[1]; }
  static float* scales(const Side& side) { return reinterpret_cast<float*>(side.scales.host()); }

  // Among enough values of U(-1, 1) there is always one that bf16 rounds to 1, so the largest magnitude needs no
  // search. The largest factor of varied inputs is 4, for V 2. Heads with scales of their own each take a larger scale
  // than they need, so that mixed-up scales show.
  float common_scale(int side, int head) const {
    const float amax = key_.inputs == Inputs::uniform ? 1.0f : side == 0 ? 4.0f : 2.0f;
    return amax / fp8_max(key_.kv) * (key_.quant == Scaling::per_head ? 1.0f + 0.25f * (head % 4 + side) : 1.0f);
  }
  std::int64_t scale_index(std::int64_t page, int head, int slot) const {
    return (page * key_.num_kv_heads + head) * key_.block_size + slot;
  }
  // The index of element (page, head, slot, d = 0), the distance between 16-byte units of d in K or between d in V, and
  // the unit.
  struct SlotPosition {
    std::int64_t base, step;
    int unit;
    std::int64_t element(int d) const { return base + d / unit * step + d % unit; }
  };
  SlotPosition position(int side, std::int64_t page, int head, int slot) const {
    const PagedAttentionSpec spec{.kv = key_.kv, .head_size = key_.head_size};
    const int x = spec.unit();
    if (side == 0) {
      const PagedKeyStrides s = key_strides(spec, key_.layout, key_.num_kv_heads, key_.block_size);
      return {page * s.page + head * s.head + slot * s.token, s.unit, x};
    }
    const PagedValueStrides s = value_strides(spec, key_.layout, key_.trans_v, key_.num_kv_heads, key_.block_size);
    const std::int64_t base = page * s.page + head * s.head;
    if (key_.layout != KvLayout::units) return {base + slot * s.token, 1, 1};
    return {base + slot / x * s.unit + slot % x, s.dim, 1};
  }
  template <class Code>
  void write(Side& side, const SlotPosition& at, const Code& code) const {
    const auto write_as = [&]<class Stored>(Stored* cache) {
      for (int unit = 0; unit < key_.head_size; unit += at.unit) {
        Stored* const to = cache + at.element(unit);
        for (int i = 0; i < std::min(at.unit, key_.head_size - unit); ++i) to[i] = static_cast<Stored>(code(unit + i));
      }
    };
    if (is_fp8(key_.kv)) return write_as(reinterpret_cast<std::uint8_t*>(side.cache.host()));
    write_as(reinterpret_cast<std::uint16_t*>(side.cache.host()));
  }

  void fill(Side& side, std::int64_t page, int head, int first, int end) {
    const int which = side_index(side);
    const std::uint64_t tensor = which == 0 ? 'k' : 'v';
    std::vector<float> values(key_.head_size);
    for (int slot = first; slot < end; ++slot) {
      const std::uint64_t token = random_bits({key_.seed, tensor, static_cast<std::uint64_t>(page),
                                               static_cast<std::uint64_t>(head), static_cast<std::uint64_t>(slot)});
      // Factors are quarter octaves from 2^-2 to 2^2, for V from 2^-3 to 2.
      const float factor = key_.inputs == Inputs::uniform
                               ? 1.0f
                               : std::exp2(static_cast<float>(random_below(token, 17) - 8) / 4.0f - which);
      float amax = 0;
      random_uniforms(token, key_.head_size, values.data());
      for (int d = 0; d < key_.head_size; ++d) {
        values[d] *= factor;
        if (key_.kv != DType::f16) values[d] = bf16_to_f32(f32_to_bf16(values[d]));
        amax = std::max(amax, std::abs(values[d]));
      }
      const SlotPosition at = position(which, page, head, slot);
      if (key_.quant == Scaling::none) {
        write(side, at, [&](int d) { return key_.kv == DType::f16 ? f32_to_f16(values[d]) : f32_to_bf16(values[d]); });
        continue;
      }
      // FlyDSL tests/utils.py, pertoken_quant: scale = amax / dtype max, or 1 where that is 0.
      float scale = common_scale(which, head);
      if (key_.quant == Scaling::per_token) {
        scale = amax > 0 ? amax / fp8_max(key_.kv) : 1.0f;
        scales(side)[scale_index(page, head, slot)] = scale;
      }
      write(side, at, [&](int d) { return f32_to_fp8(key_.kv, values[d] / scale); });
    }
  }
  void poison(Side& side, std::int64_t page, int head, int first, int end) {
    const int byte = poison_byte(key_.kv);
    for (int slot = first; slot < end; ++slot) {
      write(side, position(side_index(side), page, head, slot), [&](int) { return byte * 0x101; });
      if (key_.quant == Scaling::per_token) {
        scales(side)[scale_index(page, head, slot)] = std::bit_cast<float>(0xffffffffu);
      }
    }
  }

  // A few changed pages are uploaded as runs of neighbours. Many pages, or a new pool, are uploaded at once.
  void upload(const std::vector<std::int64_t>& changed) {
    const bool whole = fresh_ || std::ssize(changed) > key_.num_pages / 8;
    fresh_ = false;
    for (const Side& side : sides_) {
      for (const TwinBuffer* buffer : {&side.cache, &side.scales}) {
        const bool paged = buffer == &side.cache || key_.quant == Scaling::per_token;
        if (whole || !paged) {
          buffer->upload();
          continue;
        }
        const std::size_t page_bytes = buffer->bytes() / key_.num_pages;
        for (std::size_t i = 0, n = 1; i < changed.size(); i += n) {
          for (n = 1; i + n < changed.size() && changed[i + n] == changed[i] + static_cast<std::int64_t>(n);) ++n;
          buffer->upload(changed[i] * page_bytes, n * page_bytes);
        }
      }
    }
  }

  KvPoolKey key_;
  int threads_;
  Side sides_[2];
  std::vector<std::int32_t> used_;  // [num_pages], slots [0, used) hold values
  bool fresh_ = true;
};

/// The pools of the last configs, the most recent first, within a budget of bytes. A single pool may exceed it.
class KvPoolCache {
 public:
  /// On the emulated device the budget is small: the system gives a process its first gigabytes more slowly than memory
  /// that the process had before, and filling a pool there takes as long as launching its kernels.
  static constexpr std::size_t default_budget = std::size_t{emulated_device ? 128 : 3072} << 20;

  explicit KvPoolCache(int threads, std::size_t budget = default_budget) : threads_(threads), budget_(budget) {}

  /// The pool of a case, or else a larger one of its kind, with the slots that `used` says (see KvPool::use). It is
  /// valid until the next call.
  KvPool& get(const KvPoolKey& key, const std::vector<std::int32_t>& used) {
    auto hit = std::find_if(pools_.begin(), pools_.end(), [&](const KvPool& p) { return p.key() == key; });
    if (hit == pools_.end()) {
      hit = std::find_if(pools_.begin(), pools_.end(), [&](const KvPool& p) { return p.key().begins_with(key); });
    }
    if (hit != pools_.end()) {
      pools_.splice(pools_.begin(), pools_, hit);
    } else {
      while (!pools_.empty() && bytes() + key.bytes() > budget_) pools_.pop_back();
      pools_.emplace_front(key, threads_);
    }
    pools_.front().use(used);
    return pools_.front();
  }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const KvPool& pool : pools_) sum += pool.key().bytes();
    return sum;
  }
  std::size_t size() const { return pools_.size(); }
  int threads() const { return threads_; }

 private:
  int threads_;
  std::size_t budget_;
  std::list<KvPool> pools_;
};

}  // namespace tilewave::bench
