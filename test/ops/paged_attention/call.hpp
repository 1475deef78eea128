// SPDX-License-Identifier: MIT
// One call of paged-attention decode on the device of this build. A test sets every value of Q, K, V and their scales.
// What it does not set is NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/ops/paged_attention/kv_pool.hpp"
#include "bench/ops/paged_attention/verify.hpp"
#include "test/ops/paged_attention/each_entry.hpp"
#include "test/ops/values.hpp"
#include "test/poison.hpp"

namespace tilewave::test {

using bench::DeviceBuffer;

/// The bits of a value in an element type of Q, K and V, and back for those of 16 bits.
inline std::uint16_t encode(DType type, float value) { return static_cast<std::uint16_t>(bits_of_value(type, value)); }
inline float decode(DType type, std::uint16_t bits) {
  return type == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

/// A value in (-1, 1), drawn from the name of a tensor and a position in it.
inline float drawn(std::uint64_t tensor, int a, int b, int c, int d) { return drawn_of_row(tensor, a, b, c, d); }

/// What a call has written.
struct Answer {
  int heads = 0, head_size = 0;
  std::vector<std::uint16_t> out;  // [batch * mtp, heads, head_size], bits of `type`
  std::vector<float> lse;          // [batch * mtp, heads]
  bool padding_kept = true;        // no byte between the rows and heads of out was touched
  DType type = DType::bf16;

  float at(int row, int head, int d) const {
    return decode(type, out[(std::size_t(row) * heads + head) * head_size + d]);
  }
  float lse_at(int row, int head) const { return lse[std::size_t(row) * heads + head]; }
};

/// Whether two answers are equal to the last bit, NaN included.
inline bool same_bits(const Answer& a, const Answer& b) {
  return a.out == b.out && a.lse.size() == b.lse.size() &&
         std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
}
/// The largest difference of two answers, in out relative to the larger magnitude in its row, and in lse.
struct Difference {
  double out = 0, lse = 0;
};
inline Difference difference(const Answer& a, const Answer& b) {
  Difference most;
  for (std::size_t row = 0; row < a.lse.size(); ++row) {
    double largest = 0, apart = 0;
    for (int d = 0; d < a.head_size; ++d) {
      const double x = decode(a.type, a.out[row * a.head_size + d]), y = decode(b.type, b.out[row * a.head_size + d]);
      largest = std::max(largest, std::max(std::abs(x), std::abs(y)));
      apart = std::max(apart, bench::detail::distance(x, y));
    }
    if (apart > 0) most.out = std::max(most.out, apart / largest);
    most.lse = std::max(most.lse, bench::detail::distance(a.lse[row], b.lse[row]));
  }
  return most;
}

/// A problem with its tensors on the device. Each ends exactly with its last element; on the emulated device an
/// inaccessible page follows.
struct Prepared {
  PagedAttentionProblem p;
  DeviceBuffer q, out, lse, table, lengths, sinks, slopes, workspace;
};

inline void copy_to_device(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) bench::check_hip(hipMemcpy(to, from, bytes, hipMemcpyHostToDevice), "copying to the device");
}
template <class T>
DeviceBuffer on_device(const std::vector<T>& values) {
  DeviceBuffer buffer(values.size() * sizeof(T));
  copy_to_device(buffer.data(), values.data(), buffer.bytes());
  return buffer;
}
template <class T>
std::vector<T> from_device(const DeviceBuffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  if (!values.empty()) {
    bench::check_hip(hipMemcpy(values.data(), buffer.data(), buffer.bytes(), hipMemcpyDeviceToHost), "copying back");
  }
  return values;
}

class Call {
 public:
  PagedAttentionProblem p;            // the caches' pointers are set, the others by prepare()
  std::vector<std::int32_t> lengths;  // [batch]
  std::vector<std::int32_t> table;    // [batch, p.table_row_stride]
  std::vector<std::uint16_t> q;       // [batch * mtp, p.q_row_stride]
  std::vector<float> sinks, slopes;   // [num_q_heads], or empty for none
  int workspace_fill = unread_byte;

  /// Q and out have gaps between rows and between heads. K, V and scales are NaN until they are set or filled.
  explicit Call(const PagedAttentionCase& c, std::vector<std::int32_t> sequence_lengths)
      : p(bench::shape_of(c)),
        lengths(std::move(sequence_lengths)),
        table(bench::table_of(c, lengths)),
        case_(c),
        pool_(bench::pool_key_of(c), 0) {
    p.q_head_stride = c.head_size + 8;
    p.q_row_stride = c.num_q_heads * p.q_head_stride + 24;
    p.out_head_stride = c.head_size + 16;
    p.out_row_stride = c.num_q_heads * p.out_head_stride + 8;
    q.assign(rows() * p.q_row_stride, 0xffff);
    p.k = pool_.k().device();
    p.v = pool_.v().device();
    p.k_scale = static_cast<const float*>(pool_.k_scale().device());
    p.v_scale = static_cast<const float*>(pool_.v_scale().device());
  }

  std::int64_t rows() const { return std::int64_t{p.batch} * p.mtp; }
  int group() const { return p.num_q_heads / p.num_kv_heads; }
  int position(int row) const { return lengths[row / p.mtp] - p.mtp + row % p.mtp; }  // of the row's own token
  std::int64_t page(int b, int t) const { return table[b * p.table_row_stride + t / p.block_size]; }

  /// Random values in every slot that some sequence uses, and in Q.
  void fill() {
    pool_.use(bench::used_slots(case_, lengths, packed_table()));
    set_q([&](int row, int head, int d) {
      return drawn_of_row(case_.seed, 'q', std::uint64_t(row), std::uint64_t(head), d);
    });
  }
  /// Sets K and V to f(b, kv_head, t, d) for every token of every sequence. Scales that are not set are 1.
  template <class F>
  void set_k(F f) {
    set_values(pool_.k(), pool_.k_scale(), p.k_strides, f);
  }
  template <class F>
  void set_v(F f) {
    set_values(pool_.v(), pool_.v_scale(), p.v_strides, f);
  }
  /// Sets per-token scales, f(b, kv_head, t); per_tensor takes f(0, 0, 0), per_head f(0, kv_head, 0).
  template <class F>
  void set_k_scale(F f) {
    set_scales(pool_.k_scale(), f);
  }
  template <class F>
  void set_v_scale(F f) {
    set_scales(pool_.v_scale(), f);
  }
  /// Sets Q: f(row, head, d).
  template <class F>
  void set_q(F f) {
    const int size = p.spec.head_size;
    std::vector<float> values(size);
    for (std::int64_t row = 0; row < rows(); ++row)
      for (int head = 0; head < p.num_q_heads; ++head) {
        for (int d = 0; d < size; ++d) values.data()[d] = f(static_cast<int>(row), head, d);
        std::uint16_t* const to = q.data() + row * p.q_row_stride + head * p.q_head_stride;
        put_values(p.spec.q, to, values.data(), size);
      }
  }
  /// Random values in Q, K and V of every token, wherever the problem's strides place them.
  void draw() {
    set_q([](int row, int head, int d) { return drawn('q', row, head, 0, d); });
    set_k([](int b, int h, int t, int d) { return drawn('k', b, h, t, d); });
    set_v([](int b, int h, int t, int d) { return drawn('v', b, h, t, d); });
  }
  /// The raw bits of every slot that no sequence uses: K and V, then per-token scales.
  void fill_unused(std::uint16_t bits, float scale) {
    std::vector<std::int32_t> used = bench::used_slots(case_, lengths, packed_table());
    used.resize(p.num_pages);
    for (std::int64_t page = 0; page < p.num_pages; ++page)
      for (int h = 0; h < p.num_kv_heads; ++h)
        for (int slot = used[page]; slot < p.block_size; ++slot) {
          for (int d = 0; d < p.spec.head_size; ++d) {
            put(pool_.k(), element(p.k_strides, page, h, slot, d), bits);
            put(pool_.v(), element(p.v_strides, page, h, slot, d), bits);
          }
          if (p.spec.quant != Scaling::per_token) continue;
          scales(pool_.k_scale())[scale_element(page, h, slot)] = scale;
          scales(pool_.v_scale())[scale_element(page, h, slot)] = scale;
        }
    uploaded_ = false;
  }

  /// Makes K, V and per-token scales NaN for the tokens that hidden(b, t) names.
  template <class F>
  void poison_tokens(F hidden) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    each_token([&](int b, int h, int t) {
      if (!hidden(b, t)) return;
      const int slot = t % p.block_size;
      for (int d = 0; d < p.spec.head_size; ++d) {
        put(pool_.k(), element(p.k_strides, page(b, t), h, slot, d), encode(p.spec.kv, nan));
        put(pool_.v(), element(p.v_strides, page(b, t), h, slot, d), encode(p.spec.kv, nan));
      }
      if (p.spec.quant != Scaling::per_token) return;
      scales(pool_.k_scale())[scale_element(page(b, t), h, slot)] = nan;
      scales(pool_.v_scale())[scale_element(page(b, t), h, slot)] = nan;
    });
  }

  /// The call with everything on the device. Bytes of the workspace are workspace_fill, those of outputs
  /// unwritten_byte.
  Prepared prepare(int splits) { return prepare(paged_attention_workspace_size(p, splits)); }
  Prepared prepare(const PagedAttentionEntry& e, int splits) {
    return prepare(PagedAttentionPlan{&e, splits, {}}.workspace_bytes(p));
  }
  Prepared prepare(std::size_t workspace_bytes) {
    if (!uploaded_) {
      for (const bench::TwinBuffer* b : {&pool_.k(), &pool_.v(), &pool_.k_scale(), &pool_.v_scale()}) b->upload();
      uploaded_ = true;
    }
    Prepared d;
    d.p = p;
    // The gap behind the last head of the last row is not part of the tensor.
    std::vector<std::uint16_t> packed_q(q.begin(), q.begin() + extent(p.q_row_stride, p.q_head_stride));
    d.q = on_device(packed_q);
    d.out = DeviceBuffer(extent(p.out_row_stride, p.out_head_stride) * sizeof(std::uint16_t));
    d.lse = DeviceBuffer(rows() * p.num_q_heads * sizeof(float));
    d.table = on_device(table);
    d.lengths = on_device(lengths);
    d.sinks = on_device(sinks);
    d.slopes = on_device(slopes);
    d.workspace = DeviceBuffer(workspace_bytes);
    d.out.fill(unwritten_byte);
    d.lse.fill(unwritten_byte);
    d.workspace.fill(workspace_fill);
    d.p.q = d.q.data();
    d.p.out = d.out.data();
    d.p.lse = static_cast<float*>(d.lse.data());
    d.p.block_table = static_cast<const std::int32_t*>(d.table.data());
    d.p.context_lengths = static_cast<const std::int32_t*>(d.lengths.data());
    d.p.tables_ready = p.table_columns % 2 == 1;  // true of all, and said of half of them
    d.p.alibi_slopes = slopes.empty() ? nullptr : static_cast<const float*>(d.slopes.data());
    d.p.sinks = sinks.empty() ? nullptr : static_cast<const float*>(d.sinks.data());
    d.p.workspace = d.workspace.data();
    d.p.workspace_bytes = d.workspace.bytes();
    return d;
  }

  Answer collect(const Prepared& d) const {
    bench::check_hip(hipDeviceSynchronize(), "running the kernels");
    const std::vector<std::uint16_t> all = from_device<std::uint16_t>(d.out);
    Answer answer{p.num_q_heads, p.spec.head_size, {}, from_device<float>(d.lse), true, p.spec.out};
    std::vector<bool> in_row(all.size());
    for (std::int64_t row = 0; row < rows(); ++row)
      for (int head = 0; head < p.num_q_heads; ++head) {
        const std::int64_t from = row * p.out_row_stride + head * p.out_head_stride;
        answer.out.insert(answer.out.end(), all.begin() + from, all.begin() + from + p.spec.head_size);
        std::fill_n(in_row.begin() + from, p.spec.head_size, true);
      }
    for (std::size_t i = 0; i < all.size(); ++i)
      answer.padding_kept = answer.padding_kept && (in_row[i] || all[i] == unwritten_half);
    return answer;
  }

  /// Runs the entry. Fails the test unless it answers ok and leaves the gaps in out alone. It throws instead of using
  /// macros of Catch2 3, since nvcc 13 hangs on these in an inline member function.
  Answer run(const PagedAttentionEntry& entry, int wanted_splits = 1, hipStream_t stream = {}) {
    const int splits = splits_for(entry, wanted_splits);
    const Prepared d = prepare(entry, splits);
    const Status status = entry.launch(d.p, splits, stream);
    const std::string who = describe(entry) + " with " + std::to_string(splits) + " splits: ";
    if (!status.ok()) throw std::runtime_error(who + std::string(name_of(status.code)) + ", " + status.reason);
    Answer answer = collect(d);
    if (!answer.padding_kept) throw std::runtime_error(who + "wrote between the rows or heads of out");
    return answer;
  }

  /// The same call on the host's copies of its tensors.
  reference::PagedAttentionResult expected() const { return reference::paged_attention(host_problem()); }
  bench::Verdict verify(const Answer& answer, const reference::PagedAttentionResult& wanted) const {
    return verify(answer, wanted, bench::tolerance_of(p.spec));
  }
  bench::Verdict verify(const Answer& answer, const reference::PagedAttentionResult& wanted,
                        const bench::Tolerance& tolerance) const {
    const PagedAttentionProblem host = host_problem();
    return bench::verify(host, wanted, answer.out.data(), answer.lse.data(), tolerance, reference::all_pairs(host));
  }

 private:
  PagedAttentionProblem host_problem() const {
    PagedAttentionProblem host = p;
    host.q = q.data();
    host.k = pool_.k().host();
    host.v = pool_.v().host();
    host.k_scale = scales(pool_.k_scale());
    host.v_scale = scales(pool_.v_scale());
    host.block_table = table.data();
    host.context_lengths = lengths.data();
    host.sinks = sinks.empty() ? nullptr : sinks.data();
    host.alibi_slopes = slopes.empty() ? nullptr : slopes.data();
    return host;
  }
  // Elements from the first of row 0 to the last of the last row and head.
  std::int64_t extent(std::int64_t row_stride, std::int64_t head_stride) const {
    if (rows() == 0) return 0;
    return (rows() - 1) * row_stride + (p.num_q_heads - 1) * head_stride + p.spec.head_size;
  }
  // The table as bench::used_slots expects it, whatever stride the test gave it.
  std::vector<std::int32_t> packed_table() const {
    const int columns = case_.table_columns();
    std::vector<std::int32_t> packed(std::size_t(p.batch) * (columns + 1), -1);
    for (int b = 0; b < p.batch; ++b) {
      std::copy_n(table.begin() + b * p.table_row_stride, columns, packed.begin() + std::size_t(b) * (columns + 1));
    }
    return packed;
  }

  std::int64_t element(const PagedKeyStrides& s, std::int64_t page, int h, int slot, int d) const {
    const int x = p.spec.unit();
    return page * s.page + h * s.head + d / x * s.unit + slot * s.token + d % x;
  }
  std::int64_t element(const PagedValueStrides& s, std::int64_t page, int h, int slot, int d) const {
    const int x = p.spec.unit();
    const std::int64_t base = page * s.page + h * s.head;
    if (p.spec.values == ValueLayout::token_major) return base + slot * s.token + d;
    return base + slot / x * s.unit + d * s.dim + slot % x;
  }
  void put_token(const bench::TwinBuffer& cache, const PagedKeyStrides& s, std::int64_t page, int h, int slot,
                 const float* values) const {
    std::byte* const to = cache.host() + element(s, page, h, slot, 0) * size_of(p.spec.kv);
    put_values(p.spec.kv, to, values, p.spec.head_size, p.spec.unit(), s.unit);
  }
  void put_token(const bench::TwinBuffer& cache, const PagedValueStrides& s, std::int64_t page, int h, int slot,
                 const float* values) const {
    std::byte* const to = cache.host() + element(s, page, h, slot, 0) * size_of(p.spec.kv);
    const std::int64_t step = p.spec.values == ValueLayout::token_major ? 1 : s.dim;
    put_values(p.spec.kv, to, values, p.spec.head_size, p.spec.head_size, 0, step);
  }
  std::int64_t scale_element(std::int64_t page, int h, int slot) const {
    return page * p.scale_page_stride + h * p.scale_head_stride + slot;
  }
  static float* scales(const bench::TwinBuffer& buffer) { return reinterpret_cast<float*>(buffer.host()); }
  void put(const bench::TwinBuffer& cache, std::int64_t at, std::uint16_t bits) const {
    std::memcpy(cache.host() + at * size_of(p.spec.kv), &bits, size_of(p.spec.kv));  // little endian
  }
  template <class F>
  void each_token(F f) {
    for (int b = 0; b < p.batch; ++b)
      for (int h = 0; h < p.num_kv_heads; ++h)
        for (int t = 0; t < lengths[b]; ++t) f(b, h, t);
    uploaded_ = false;
  }
  template <class Strides, class F>
  void set_values(const bench::TwinBuffer& cache, const bench::TwinBuffer& scale, const Strides& strides, F f) {
    const int size = p.spec.head_size;
    std::vector<float> values(size);
    each_token([&](int b, int h, int t) {
      for (int d = 0; d < size; ++d) values.data()[d] = f(b, h, t, d);
      put_token(cache, strides, page(b, t), h, t % p.block_size, values.data());
    });
    set_scales(scale, [](int, int, int) { return 1.0f; });
  }
  template <class F>
  void set_scales(const bench::TwinBuffer& buffer, F f) {
    if (p.spec.quant == Scaling::per_tensor) scales(buffer)[0] = f(0, 0, 0);
    for (int h = 0; p.spec.quant == Scaling::per_head && h < p.num_kv_heads; ++h) scales(buffer)[h] = f(0, h, 0);
    if (p.spec.quant == Scaling::per_token) {
      each_token(
          [&](int b, int h, int t) { scales(buffer)[scale_element(page(b, t), h, t % p.block_size)] = f(b, h, t); });
    }
    uploaded_ = false;
  }

  PagedAttentionCase case_;
  bench::KvPool pool_;
  bool uploaded_ = false;
};

/// Gives a call the spec of an entry, and values for the features of the spec.
inline void use_features(Call& call, const PagedAttentionEntry& e) {
  call.p.spec = e.spec;
  if (e.spec.soft_cap) call.p.soft_cap = 2.0f;
  call.slopes.clear();
  // The slopes of 8 heads, 2^-1 to 2^-8 (Press et al. 2022), are repeated.
  for (int h = 0; e.spec.alibi && h < call.p.num_q_heads; ++h) call.slopes.push_back(std::ldexp(1.0f, -1 - h % 8));
}

}  // namespace tilewave::test
