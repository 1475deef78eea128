// SPDX-License-Identifier: MIT
// A call of an indexer's logits on host and device, with the comparison of its answer.
#pragma once

#include "entries/mqa_logits.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/reference/mqa_logits.hpp"

namespace tilewave::test {

struct MqaShape {
  std::vector<std::int32_t> lengths{};                          // paged: of each sequence; they may be wrong
  std::vector<std::pair<std::int32_t, std::int32_t>> ranges{};  // of each query
  std::int32_t queries = 1;                                     // paged: of a sequence
  std::int32_t columns = 0;
  std::int32_t block_size = 64;
  bool fused = false;  // scales behind the keys of a page, in one tensor
};

/// Keys that no query sees are NaN, and so are their scales. Pages that no query sees do not exist.
class MqaCall {
 public:
  MqaCall(const MqaLogitsSpec& spec, const MqaShape& s)
      : paged_(spec.keys == MqaKeys::paged),
        sequences_(paged_ ? static_cast<std::int32_t>(s.lengths.size()) : 1),
        queries_(paged_ ? s.queries : static_cast<std::int32_t>(s.ranges.size())),
        block_(paged_ ? s.block_size : s.columns),
        table_columns_(paged_ ? ceil_div(s.columns, block_) + 1 : 0),
        q_(spec.type, all() * spec.heads, size, spec.heads, {size * spec.heads + 32, size}),
        weights_(DType::f32, all(), spec.heads, 1, {spec.heads + 4, 0}),
        logits_(DType::f32, all(), s.columns, 1, {s.columns + 3, 0}) {
    q_.set(all() * spec.heads, size, [](auto r, auto c) { return drawn('q', r, c); });
    weights_.set(all(), spec.heads, [](auto r, auto c) { return drawn('w', r, c); });
    // Pages are in a random order.
    std::vector<std::int32_t> order;
    for (std::int32_t b = 0; b < sequences_ && paged_; ++b)
      for (std::int32_t i = 0; i < ceil_div(std::clamp(s.lengths[b], 0, s.columns), block_); ++i) order.push_back(b);
    const auto pages = paged_ ? static_cast<std::int32_t>(order.size()) : 1;
    const std::int64_t page_bytes = align_up<std::int64_t>(block_ * (size + (s.fused ? 4 : 0)), 16);
    k_ = bytes(std::max<std::int64_t>(1, pages) * page_bytes, unread_byte);
    scales_ = bytes(s.fused ? 0 : std::int64_t{4} * std::max(1, pages) * block_, unread_byte);
    tables_.assign(std::size_t(sequences_) * table_columns_, 1 << 30);
    for (std::int32_t b = 0, page = 0; b < sequences_ && paged_; ++b)
      for (std::int32_t i = 0; page < pages && order[page] == b; ++i, ++page)
        tables_[b * table_columns_ + i] =
            static_cast<std::int32_t>((std::int64_t{page} * 7919) % pages);  // 7919 divides no test's pages
    host.spec = spec;
    host.sequences = sequences_;
    host.queries = queries_;
    host.columns = s.columns;
    host.pages = paged_ ? pages : 0;
    host.block_size = paged_ ? block_ : 0;
    host.table_columns = table_columns_;
    host.q_stride = size * spec.heads + 32;
    host.q_head_stride = size;
    host.weights_stride = spec.heads + 4;
    host.k_page_stride = page_bytes;
    host.k_stride = size;
    host.k_scale_page_stride = s.fused ? page_bytes / 4 : block_;
    host.logits_stride = s.columns + 3;
    host.table_stride = table_columns_;
    for (const auto& [first, end] : s.ranges) starts_.push_back(first), ends_.push_back(end);
    lengths_ = s.lengths;
    const auto set_key = [&](std::int64_t page, std::int32_t in_page, std::int64_t seed) {
      for (int d = 0; d < size; ++d)
        k_[page * page_bytes + std::int64_t{in_page} * size + d] =
            std::byte(f32_to_fp8(spec.type, drawn('k', seed, d)));
      const float scale = 1.5f + drawn('s', seed, 0) / 2;
      std::byte* const to =
          s.fused ? k_.data() + page * page_bytes + block_ * size : scales_.data() + page * block_ * 4;
      std::memcpy(to + in_page * 4, &scale, 4);
    };
    for (std::int32_t b = 0; b < sequences_ && paged_; ++b)
      for (std::int32_t t = 0; t < s.lengths[b] && s.lengths[b] <= s.columns; ++t)
        set_key(tables_[b * table_columns_ + t / block_], t % block_, b * 100003 + t);
    for (const auto& [first, end] : s.ranges)
      for (std::int32_t t = first; t < end && first >= 0 && end <= s.columns && !paged_; ++t) set_key(0, t, t);

    host.q = q_.host();
    host.weights = static_cast<const float*>(weights_.host());
    host.k = k_.data();
    host.k_scale = reinterpret_cast<const float*>(s.fused ? k_.data() + block_ * size : scales_.data());
    host.block_tables = tables_.data();
    host.context_lengths = lengths_.data();
    host.starts = starts_.data();
    host.ends = ends_.data();
    p = host;
    p.q = q_.device();
    p.weights = static_cast<const float*>(weights_.device());
    p.k = upload(k_);
    p.k_scale = s.fused ? reinterpret_cast<const float*>(static_cast<const std::byte*>(p.k) + block_ * size)
                        : static_cast<const float*>(upload(scales_));
    p.logits = static_cast<float*>(logits_.device());
    p.block_tables = paged_ ? static_cast<const std::int32_t*>(upload(tables_)) : nullptr;
    p.context_lengths = paged_ ? static_cast<const std::int32_t*>(upload(lengths_)) : nullptr;
    p.starts = paged_ ? nullptr : static_cast<const std::int32_t*>(upload(starts_));
    p.ends = paged_ ? nullptr : static_cast<const std::int32_t*>(upload(ends_));
  }

  /// Runs an entry. Returns the first thing that is wrong, or nothing.
  std::string run(const MqaLogitsEntry& entry) {
    const Status status = entry.launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    return wrong();
  }
  /// Sets lengths at which all sequences have enough keys.
  void set_lengths(const std::vector<std::int32_t>& lengths) {
    std::copy(lengths.begin(), lengths.end(), lengths_.begin());
    bench::check_hip(hipMemcpy(const_cast<std::int32_t*>(p.context_lengths), lengths_.data(),
                               lengths_.size() * sizeof(std::int32_t), hipMemcpyHostToDevice),
                     "copying over");
  }
  /// Waits for the device. Returns the first thing that is wrong, or nothing.
  std::string wrong() {
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    logits_.download();
    for (std::int32_t i = 0; i < all(); ++i) {
      const reference::MqaLogitsRow wanted = reference::mqa_logits_row(host, i);
      for (std::int32_t t = 0; t < host.columns; ++t) {
        const double got = logits_.at(i, t), want = wanted.logits[t];
        // sm90 keeps about 14 bits of sums of fp8 products.
        const bool good =
            std::isnan(want) ? std::isnan(got) : got == want || std::abs(got - want) <= 0x1p-12 * wanted.magnitudes[t];
        if (!good)
          return "query " + std::to_string(i) + ", key " + std::to_string(t) + ": " + std::to_string(got) + ", not " +
                 std::to_string(want);
      }
    }
    return logits_.gaps_kept(all(), host.columns) ? "" : "wrote beyond its columns";
  }
  std::vector<float> logits() const {
    std::vector<float> values;
    for (std::int32_t i = 0; i < all(); ++i)
      for (std::int32_t t = 0; t < host.columns; ++t) values.push_back(static_cast<float>(logits_.at(i, t)));
    return values;
  }
  bool untouched() {
    logits_.download();
    return logits_.gaps_kept(0, 0);
  }

  MqaLogitsProblem host, p;

 private:
  static constexpr int size = 128;
  using Bytes = std::vector<std::byte>;

  std::int32_t all() const { return sequences_ * queries_; }
  static Bytes bytes(std::int64_t count, int value) { return Bytes(static_cast<std::size_t>(count), std::byte(value)); }
  template <class T>
  void* upload(const std::vector<T>& from) {
    bench::DeviceBuffer& to = uploaded_.emplace_back(from.size() * sizeof(T));
    if (!from.empty())
      bench::check_hip(hipMemcpy(to.data(), from.data(), to.bytes(), hipMemcpyHostToDevice), "copying over");
    return to.data();
  }

  bool paged_;
  std::int32_t sequences_, queries_, block_, table_columns_;
  Tensor q_, weights_, logits_;
  Bytes k_, scales_;
  std::vector<std::int32_t> tables_, lengths_, starts_, ends_;
  std::vector<bench::DeviceBuffer> uploaded_;
};

}  // namespace tilewave::test
