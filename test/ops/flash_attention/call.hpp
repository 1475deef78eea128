// SPDX-License-Identifier: MIT
// FlashCall is a call of flash attention on host and device, and compares its answer with the reference.
#pragma once

#include <algorithm>
#include <functional>

#include "entries/flash_attention.hpp"
#include "test/ops/rows.hpp"
#include "test/uploads.hpp"
#include "tilewave/reference/flash_attention.hpp"

namespace tilewave::test {

enum class FlashLayout { bshd, bhsd, ragged, nhd, hnd, plain, shuffled };  // the last four are for pages

/// The value of element d in a head of token i of sequence b.
using FlashValues = std::function<float(std::int32_t b, std::int64_t i, std::int32_t head, int d)>;

struct FlashShape {
  std::vector<std::int32_t> q, kv;  // lengths of sequences
  std::int32_t q_heads = 2, kv_heads = 1;
  FlashLayout layout = FlashLayout::bshd;
  bool causal = false;
  std::int32_t left = no_window, right = no_window;
  bool sinks = false, lse = true;
  std::int32_t block_size = 16;
  std::int32_t q_capacity = 0, kv_capacity = 0;  // 0: the longest
  float spread = 1.0f;                           // multiplies q and k: how far apart scores lie
  bool packed_qkv = false;                       // q, K and V of a token are one row
  bool by_counter = false;                       // blocks take work by a counter on the device
  bool workspace = false;                        // there is one, so that keys may be cut into splits
  std::int32_t scale_gap = 0;                    // elements between scales of kv heads, which are NaN
  FlashValues q_of{}, k_of{}, v_of{};            // drawn at random if empty
  // Says what the bit mask lets query i of sequence b see; drawn at random if empty.
  std::function<bool(std::int32_t b, std::int64_t i, std::int64_t key)> sees{};
};

/// All that is no query, key or value is NaN: K and V beyond a sequence's keys, and pages and gaps that nobody sees.
class FlashCall {
 public:
  FlashAttentionProblem host, p;

  FlashCall(const FlashAttentionSpec& spec, const FlashShape& s) : shape_(s) {
    const auto batch = static_cast<std::int32_t>(s.q.size());
    const bool paged = spec.paged(), ragged = s.layout == FlashLayout::ragged;
    const auto longest = [](const std::vector<std::int32_t>& of) {
      return of.empty() ? 0 : *std::ranges::max_element(of);
    };
    const auto total = [](const std::vector<std::int32_t>& of) {
      std::vector<std::int32_t> starts{0};
      for (const std::int32_t n : of) starts.push_back(starts.back() + n);
      return starts;
    };
    FlashAttentionProblem h;
    h.spec = spec;
    h.batch = batch, h.q_heads = s.q_heads, h.kv_heads = s.kv_heads;
    h.causal = s.causal, h.window_left = s.left, h.window_right = s.right;
    h.q_length = std::max(longest(s.q), s.q_capacity);
    h.soft_cap = spec.soft_cap ? 3.0f : 0.0f;
    const bool alike = std::ranges::all_of(s.q, [&](auto n) { return n == h.q_length; });
    if (ragged || !alike) {
      q_starts_ = total(s.q);
      h.q_starts = q_starts_.data(), h.total_q = q_starts_.back();
    }
    const std::int32_t keys = std::max(longest(s.kv), s.kv_capacity);
    if (paged) {
      h.block_size = s.block_size, h.table_columns = ceil_div(keys, s.block_size) + 1;
      for (const std::int32_t n : s.kv) h.num_pages += ceil_div(n, s.block_size);
      h.num_pages = std::max<std::int64_t>(1, h.num_pages);
      table_.assign(std::size_t(batch) * h.table_columns, 1 << 30);
      std::int32_t page = 0;
      for (std::int32_t b = 0; b < batch; ++b)
        for (std::int32_t i = 0; i < ceil_div(s.kv[b], s.block_size); ++i, ++page)
          table_[b * h.table_columns + i] =
              static_cast<std::int32_t>(std::int64_t{page} * 7919 % h.num_pages);  // 7919 divides no test's pages
      h.block_table = table_.data();
    } else {
      h.kv_length = keys;
    }
    if (ragged) {
      kv_starts_ = total(s.kv);
      h.kv_starts = kv_starts_.data(), h.total_kv = kv_starts_.back();
    } else if (paged || std::ranges::any_of(s.kv, [&](auto n) { return n != keys; })) {
      h.kv_lengths = shape_.kv.data();
    }
    switch (s.layout) {
      case FlashLayout::bshd: h = FlashAttentionProblem::bshd(h); break;
      case FlashLayout::bhsd: h = FlashAttentionProblem::bhsd(h); break;
      case FlashLayout::ragged: h = FlashAttentionProblem::ragged(h); break;
      case FlashLayout::nhd: h = FlashAttentionProblem::nhd(h); break;
      case FlashLayout::hnd: h = FlashAttentionProblem::hnd(h); break;
      case FlashLayout::plain: h = FlashAttentionProblem::in_units(h, false); break;
      case FlashLayout::shuffled: h = FlashAttentionProblem::in_units(h, true); break;
    }
    if (s.packed_qkv) {  // [tokens, q_heads + 2 kv_heads, head_size]
      const std::int64_t row = (h.q_heads + 2 * std::int64_t{h.kv_heads}) * spec.head_size;
      for (TokenStrides* of : {&h.q_strides, &h.k_strides, &h.v_strides}) {
        of->token = row, of->sequence = row * h.q_length, of->head = spec.head_size;
      }
      k_from_ = std::int64_t{h.q_heads} * spec.head_size;
      v_from_ = k_from_ + std::int64_t{h.kv_heads} * spec.head_size;
    }
    if (spec.quant == Scaling::per_head) h.scale_head_stride += s.scale_gap;
    host = h;
    const std::int64_t kv_tokens = paged    ? h.num_pages * h.block_size
                                   : ragged ? h.total_kv
                                            : std::int64_t{batch} * keys;
    q_ = bytes(h.q_tokens() * (s.packed_qkv ? h.q_strides.token : h.q_heads * spec.head_size) * size_of(spec.q),
               unread_byte);
    if (!s.packed_qkv) {
      k_ = bytes(kv_tokens * h.kv_heads * spec.head_size * size_of(spec.kv), unread_byte);
      v_ = bytes(kv_tokens * h.kv_heads * spec.value_size * size_of(spec.kv), unread_byte);
    }
    out_ = bytes(h.q_tokens() * h.q_heads * spec.value_size * size_of(spec.out), unwritten_byte);
    lse_ = bytes(s.lse ? h.q_tokens() * h.q_heads * 4 : 0, unwritten_byte);
    host.q = q_.data(), host.k = k_.data(), host.v = v_.data(), host.out = out_.data();
    if (s.packed_qkv) {
      host.k = q_.data() + k_from_ * size_of(spec.kv), host.v = q_.data() + v_from_ * size_of(spec.kv);
    }
    fill();
    const auto floats = [](std::vector<float>& to, bool there, std::int64_t count, char seed, float least, int by = 1) {
      for (std::int64_t i = 0; there && i < count; ++i)
        to.push_back(i % by == 0 ? least + std::abs(drawn(seed, int(i), 0)) : std::numeric_limits<float>::quiet_NaN());
      return there ? to.data() : nullptr;
    };
    const bool scaled = spec.quant != Scaling::none, heads = spec.quant == Scaling::per_head;
    const std::int64_t scales = spec.quant == Scaling::per_token ? h.num_pages * h.kv_heads * h.block_size
                                : heads                          ? (h.kv_heads - 1) * h.scale_head_stride + 1
                                                                 : 1;
    host.q_scale = floats(scale_[0], is_fp8(spec.q), heads ? h.q_heads : 1, 'a', 0.5f);
    host.k_scale = floats(scale_[1], scaled, scales, 'b', 0.5f, heads ? 1 + s.scale_gap : 1);
    host.v_scale = floats(scale_[2], scaled, scales, 'c', 0.5f, heads ? 1 + s.scale_gap : 1);
    host.out_scale = floats(scale_[3], is_fp8(spec.out), 1, 'd', 2.0f);
    host.sinks = floats(scale_[4], s.sinks, h.q_heads, 'e', 0.0f);
    host.alibi_slopes = floats(scale_[5], spec.alibi, h.q_heads, 'f', 0.1f);
    if (spec.bit_mask) {
      mask_.resize(h.q_tokens() * h.mask_token_stride);
      for (std::size_t i = 0; i < mask_.size(); ++i)
        mask_[i] = static_cast<std::uint32_t>(bench::random_bits({i, 'm'}));
      host.mask = mask_.data();
      if (s.sees) set_mask();
    }
    host.lse = s.lse ? reinterpret_cast<float*>(lse_.data()) : nullptr;

    p = host;
    p.q = upload_(q_);
    if (s.packed_qkv) {
      p.k = static_cast<const std::byte*>(p.q) + k_from_ * size_of(spec.kv);
      p.v = static_cast<const std::byte*>(p.q) + v_from_ * size_of(spec.kv);
    } else {
      p.k = upload_(k_), p.v = upload_(v_);
    }
    p.out = device_out_ = upload_(out_);
    if (s.lse) p.lse = device_lse_ = static_cast<float*>(upload_(lse_));
    const auto over = [&](auto*& at, const auto& from) {
      if (at != nullptr) at = static_cast<std::remove_reference_t<decltype(at)>>(upload_(from));
    };
    over(p.q_scale, scale_[0]), over(p.k_scale, scale_[1]), over(p.v_scale, scale_[2]), over(p.out_scale, scale_[3]);
    over(p.sinks, scale_[4]), over(p.alibi_slopes, scale_[5]), over(p.mask, mask_);
    over(p.q_starts, q_starts_), over(p.kv_starts, kv_starts_), over(p.block_table, table_);
    over(p.kv_lengths, shape_.kv);
    if (s.by_counter) p.item_counter = static_cast<std::uint32_t*>(upload_(std::vector<std::uint32_t>{0}));
    for (const FlashAttentionPolicy& policy : flash_attention_policies(ArchId::sm90, spec))
      if (s.workspace) p.workspace_bytes = std::max(p.workspace_bytes, flash_attention_workspace_size(p, policy));
    if (p.workspace_bytes > 0) p.workspace = upload_(bytes(p.workspace_bytes, unwritten_byte));
  }
  /// Returns the counter by which blocks have taken work.
  std::uint32_t counter() const {
    std::uint32_t value = 0;
    bench::check_hip(hipMemcpy(&value, p.item_counter, sizeof(value), hipMemcpyDeviceToHost), "reading the counter");
    return value;
  }

  /// Gives the sequences other lengths, none above those of the shape and not more tokens in all, in place: what a
  /// captured launch reads. Queries, keys and values are new, and all else is NaN.
  void set_lengths(const std::vector<std::int32_t>& q, const std::vector<std::int32_t>& kv) {
    shape_.q = q;
    std::ranges::copy(kv, shape_.kv.begin());
    const auto again = [](std::vector<std::int32_t>& starts, const std::vector<std::int32_t>& of) {
      for (std::size_t i = 0; i < of.size() && !starts.empty(); ++i) starts[i + 1] = starts[i] + of[i];
    };
    again(q_starts_, q), again(kv_starts_, kv);
    for (Bytes* tensor : {&q_, &k_, &v_}) std::ranges::fill(*tensor, std::byte(unread_byte));
    fill();
    const auto over = [](const void* to, const auto& from) {
      if (to != nullptr && !from.empty())
        bench::check_hip(
            hipMemcpy(const_cast<void*>(to), from.data(), from.size() * sizeof(from[0]), hipMemcpyHostToDevice),
            "copying over");
    };
    over(p.q, q_), over(p.k, k_), over(p.v, v_);
    over(p.q_starts, q_starts_), over(p.kv_starts, kv_starts_), over(p.kv_lengths, shape_.kv);
    bench::check_hip(hipMemset(device_out_, unwritten_byte, out_.size()), "poisoning out");
    if (!lse_.empty()) bench::check_hip(hipMemset(device_lse_, unwritten_byte, lse_.size()), "poisoning lse");
  }

  /// Gives all queries in fp8 this scale.
  void set_query_scale(float scale) {
    std::ranges::fill(scale_[0], scale);
    bench::check_hip(hipMemcpy(const_cast<float*>(p.q_scale), scale_[0].data(), scale_[0].size() * sizeof(float),
                               hipMemcpyHostToDevice),
                     "copying over");
  }
  /// Runs the call by this entry. Returns an empty text, or the first thing that is wrong.
  std::string run(const FlashAttentionEntry& entry) {
    if (!out_.empty()) {
      bench::check_hip(hipMemset(device_out_, unwritten_byte, out_.size()), "poisoning out");
      if (!lse_.empty()) bench::check_hip(hipMemset(device_lse_, unwritten_byte, lse_.size()), "poisoning lse");
    }
    const Status status = entry.launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    return wrong();
  }
  /// Lets the device read K and V at these strides. Bytes between rows hold what the allocation holds.
  void move_keys(const TokenStrides& strides) {
    p.k_strides = p.v_strides = strides;
    p.k = scattered(k_, host.k_strides, strides, host.spec.head_size);
    p.v = scattered(v_, host.v_strides, strides, host.spec.value_size);
  }
  /// The same for the pages of a cache, `stride` elements apart.
  void move_pages(std::int64_t stride) {
    const auto move = [&](const Bytes& from, std::int64_t dense) {
      return spread_out(from, host.num_pages, dense * size_of(host.spec.kv), stride * size_of(host.spec.kv));
    };
    p.k = move(k_, host.k_page_strides.page), p.v = move(v_, host.v_page_strides.page);
    p.k_page_strides.page = p.v_page_strides.page = stride;
  }
  /// Waits for the device. Returns an empty text, or the first thing that is wrong.
  std::string wrong() {
    download();
    for (std::int32_t b = 0; b < host.batch; ++b) {
      const reference::FlashAttentionTokens tokens = reference::flash_attention_tokens(host, b);
      for (std::int32_t i = 0; i < tokens.q_count; ++i) {
        for (std::int32_t h = 0; h < host.q_heads; ++h) {
          const std::string found = wrong_row(reference::flash_attention_row(host, b, i, h), b, tokens.q_first, i, h);
          if (!found.empty()) {
            return "sequence " + std::to_string(b) + ", query " + std::to_string(i) + ", head " + std::to_string(h) +
                   ", " + found;
          }
        }
      }
    }
    return "";
  }
  /// Returns the bytes of out, and behind them those of lse.
  std::vector<std::byte> answer() {
    download();
    std::vector<std::byte> all = out_;
    all.insert(all.end(), lse_.begin(), lse_.end());
    return all;
  }

 private:
  using Bytes = std::vector<std::byte>;
  static Bytes bytes(std::int64_t count, int value) { return Bytes(static_cast<std::size_t>(count), std::byte(value)); }
  void set_mask() {
    std::ranges::fill(mask_, 0u);
    for (std::int32_t b = 0; b < host.batch; ++b) {
      const reference::FlashAttentionTokens t = reference::flash_attention_tokens(host, b);
      for (std::int64_t i = 0; i < t.q_count; ++i)
        for (std::int64_t key = 0; key < t.kv_count; ++key)
          if (shape_.sees(b, i, key)) mask_[(t.q_first + i) * host.mask_token_stride + key / 32] |= 1u << key % 32;
    }
  }
  /// Returns device memory with `count` pieces of `from`, `dense` bytes each, that lie `apart` bytes apart.
  void* spread_out(const Bytes& from, std::int64_t count, std::int64_t dense, std::int64_t apart) {
    bench::DeviceBuffer& to = upload_.buffers.emplace_back(static_cast<std::size_t>((count - 1) * apart + dense));
    for (std::int64_t i = 0; i < count; ++i)
      bench::check_hip(hipMemcpy(static_cast<std::byte*>(to.data()) + i * apart, from.data() + i * dense, dense,
                                 hipMemcpyHostToDevice),
                       "copying over");
    return to.data();
  }
  /// The same for sequences of tokens, with new strides.
  void* scattered(const Bytes& from, const TokenStrides& dense, const TokenStrides& strides, int size) {
    const std::int64_t element = size_of(host.spec.kv), heads = host.kv_heads, length = host.kv_length;
    const auto offset = [&](const TokenStrides& s, std::int64_t b, std::int64_t i, std::int64_t h) {
      return (b * s.sequence + i * s.token + h * s.head) * element;
    };
    bench::DeviceBuffer& to = upload_.buffers.emplace_back(
        static_cast<std::size_t>(offset(strides, host.batch - 1, length - 1, heads - 1) + size * element));
    for (std::int64_t b = 0; b < host.batch; ++b)
      for (std::int64_t i = 0; i < length; ++i)
        for (std::int64_t h = 0; h < heads; ++h)
          bench::check_hip(hipMemcpy(static_cast<std::byte*>(to.data()) + offset(strides, b, i, h),
                                     from.data() + offset(dense, b, i, h), size * element, hipMemcpyHostToDevice),
                           "copying over");
    return to.data();
  }
  void download() {
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    if (!out_.empty())
      bench::check_hip(hipMemcpy(out_.data(), device_out_, out_.size(), hipMemcpyDeviceToHost), "copying back");
    if (!lse_.empty())
      bench::check_hip(hipMemcpy(lse_.data(), device_lse_, lse_.size(), hipMemcpyDeviceToHost), "copying back");
  }
  static void put(Bytes& to, DType type, std::int64_t element, float value) {
    const std::uint32_t bits = encode(type, value);
    std::memcpy(&to[element * size_of(type)], &bits, size_of(type));
  }

  void fill() {
    const FlashAttentionSpec& s = host.spec;
    Bytes &of_k = shape_.packed_qkv ? q_ : k_, &of_v = shape_.packed_qkv ? q_ : v_;
    for (std::int32_t b = 0; b < host.batch; ++b) {
      const reference::FlashAttentionTokens t = reference::flash_attention_tokens(host, b);
      for (std::int64_t i = 0; i < t.q_count; ++i)
        for (std::int32_t h = 0; h < host.q_heads; ++h)
          for (int d = 0; d < s.head_size; ++d)
            put(q_, s.q, at(host.q_strides, host.q_starts, t.q_first, b, i, h) + d,
                shape_.q_of ? shape_.q_of(b, i, h, d) : shape_.spread * drawn('q', int(b * 10007 + i * 61 + h), d));
      for (std::int64_t i = 0; i < shape_.kv[b]; ++i)
        for (std::int32_t h = 0; h < host.kv_heads; ++h) {
          const int seed = int(b * 10007 + i * 61 + h);
          for (int d = 0; d < s.head_size; ++d)
            put(of_k, s.kv, k_from_ + key_at(t, b, i, h, d),
                shape_.k_of ? shape_.k_of(b, i, h, d) : shape_.spread * drawn('k', seed, d));
          for (int d = 0; d < s.value_size; ++d)
            put(of_v, s.kv, v_from_ + value_at(t, b, i, h, d),
                shape_.v_of ? shape_.v_of(b, i, h, d) : drawn('v', seed, d));
        }
    }
  }
  static std::int64_t at(const TokenStrides& s, const std::int32_t* starts, std::int64_t first, std::int64_t b,
                         std::int64_t i, std::int64_t h) {
    return (starts != nullptr ? first * s.token : b * s.sequence) + i * s.token + h * s.head;
  }
  std::int64_t page(std::int32_t b, std::int64_t i) const {
    return table_[b * host.table_row_stride + i / host.block_size];
  }
  std::int64_t key_at(const reference::FlashAttentionTokens& t, std::int32_t b, std::int64_t i, int h, int d) const {
    if (!host.spec.paged()) return at(host.k_strides, host.kv_starts, t.kv_first, b, i, h) + d;
    const PagedKeyStrides& s = host.k_page_strides;
    const int x = host.spec.unit();
    return page(b, i) * s.page + h * s.head + i % host.block_size * s.token + d / x * s.unit + d % x;
  }
  std::int64_t value_at(const reference::FlashAttentionTokens& t, std::int32_t b, std::int64_t i, int h, int d) const {
    if (!host.spec.paged()) return at(host.v_strides, host.kv_starts, t.kv_first, b, i, h) + d;
    const PagedValueStrides& s = host.v_page_strides;
    const std::int64_t x = host.spec.unit(), in_page = i % host.block_size;
    const bool dims = host.spec.values == ValueLayout::dim_major;
    return page(b, i) * s.page + h * s.head +
           (dims ? in_page / x * s.unit + d * s.dim + in_page % x : in_page * s.token + d);
  }

  /// Returns what is wrong with a row. The bound is the rounding of probabilities and of the output, and the error of exp2
  /// and of sums in f32.
  std::string wrong_row(const reference::FlashAttentionRow& want, std::int32_t b, std::int64_t q_first, std::int32_t i,
                        std::int32_t h) const {
    const FlashAttentionSpec& s = host.spec;
    const double probability = is_fp8(s.q) ? 0x1p-4 : is_fp8(s.kv) || s.kv == DType::bf16 ? 0x1p-8 : 0x1p-10;
    // Native fp8 products take codes below 2^-6 for numbers of that size when they align sums, which have 14 bits.
    const double floor = is_fp8(s.out) ? 0x1p-9 : is_fp8(s.q) ? 0x1p-13 : 0x1p-24;
    const double rounding = is_fp8(s.out) ? 0x1p-4 : s.out == DType::bf16 ? 0x1p-8 : 0x1p-10;
    const std::int64_t to = at(host.out_strides, host.q_starts, q_first, b, i, h);
    for (int d = 0; d < s.value_size; ++d) {
      const double got = reference::element(s.out, out_.data(), to + d), wanted = want.out[d];
      const double bound = probability * want.magnitudes[d] + rounding * std::abs(wanted) + floor;
      const bool good = std::isnan(wanted) ? std::isnan(got) : std::abs(got - wanted) <= bound;
      if (!good)
        return "dimension " + std::to_string(d) + ": " + std::to_string(got) + ", not " + std::to_string(wanted);
    }
    if (host.lse == nullptr) return "";
    const double got = host.lse[h * host.lse_head_stride + q_first + i];
    const double relative = is_fp8(s.q) ? 1e-3 : 1e-4;  // sums of native fp8 products keep 14 bits
    const bool good = std::isnan(want.lse)
                          ? std::isnan(got)
                          : got == want.lse || std::abs(got - want.lse) <= relative * (1 + std::abs(want.lse));
    return good ? "" : "lse: " + std::to_string(got) + ", not " + std::to_string(want.lse);
  }

  FlashShape shape_;
  std::int64_t k_from_ = 0, v_from_ = 0;  // of packed_qkv: elements from a token's q to its K and V
  Bytes q_, k_, v_, out_, lse_;
  std::vector<float> scale_[6];
  std::vector<std::uint32_t> mask_;
  std::vector<std::int32_t> table_, q_starts_, kv_starts_;
  Uploads upload_;
  void* device_out_ = nullptr;
  float* device_lse_ = nullptr;
};

/// Runs a shape by every entry of specs that `wanted` takes.
template <class Wanted>
void check_flash(const FlashShape& shape, const Wanted& wanted) {
  int ran = 0;
  for (const FlashAttentionEntry* entry : all_flash_attention_entries()) {
    if (!wanted(entry->spec)) continue;
    FlashCall call(entry->spec, shape);
    if (!flash_attention_takes(entry->policy, call.p).ok()) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    CHECK(call.run(*entry) == "");
    ++ran;
  }
  CHECK(ran > 0);
}

}  // namespace tilewave::test
