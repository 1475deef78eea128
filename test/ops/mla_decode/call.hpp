// SPDX-License-Identifier: MIT
// MlaCall is a call of latent decode on host and device, and compares its answer with the reference.
#pragma once

#include <algorithm>

#include "entries/mla_decode.hpp"
#include "test/ops/rows.hpp"
#include "test/turns.hpp"
#include "test/uploads.hpp"
#include "tilewave/reference/mla_decode.hpp"

namespace tilewave::test {

struct MlaShape {
  std::vector<std::int32_t> lengths;
  std::int32_t heads = 16, query_tokens = 1, block_size = 16;
  bool sinks = false, lse = true;
  std::int32_t split_tokens = 0;
  std::int32_t spare_columns = 1;    // of the block table, behind the longest sequence
  int least_scale = -3, scales = 5;  // exponents of scales of groups: least_scale and so many above it
  float odd_scale = 1.0f;            // multiplies all scales; other than 1 if they are to be no powers of two
  float spread = 1.0f;               // multiplies q: how far apart scores lie
  float softmax_scale = 0.1147f;     // that of DeepSeek-V3 and its kin, 192^-0.5 with the factor of long contexts
};

/// All that is no query and no row of a sequence is NaN: rows behind a sequence's tokens, pages and gaps that nobody
/// sees.
class MlaCall {
 public:
  MlaDecodeProblem host, p;

  MlaCall(const MlaDecodeSpec& spec, const MlaShape& shape) : shape_(shape) {
    MlaDecodeProblem h;
    h.spec = spec;
    h.batch = static_cast<std::int32_t>(shape.lengths.size());
    h.query_tokens = shape.query_tokens, h.num_q_heads = shape.heads, h.block_size = shape.block_size;
    h.softmax_scale = shape.softmax_scale, h.split_tokens = shape.split_tokens;
    std::int32_t longest = 0;
    for (const std::int32_t n : shape.lengths) {
      longest = std::max(longest, n);
      h.num_pages += ceil_div(std::max(n, 0), h.block_size);
    }
    h.num_pages = std::max<std::int64_t>(1, h.num_pages);
    h.table_columns = ceil_div(longest, h.block_size) + shape.spare_columns;
    h = MlaDecodeProblem::dense(h);
    host = h;
    table_.assign(std::size_t(h.batch) * h.table_columns, 1 << 30);
    std::int32_t page = 0;
    for (std::int32_t b = 0; b < h.batch; ++b) {
      for (std::int32_t i = 0; i < ceil_div(std::max(shape.lengths[b], 0), h.block_size); ++i, ++page) {
        table_[b * h.table_columns + i] =
            static_cast<std::int32_t>(std::int64_t{page} * 7919 % h.num_pages);  // 7919 divides no test's pages
      }
    }
    const std::int64_t tokens = std::int64_t{h.batch} * h.query_tokens;
    q_.assign(tokens * h.q_row_stride * size_of(spec.q), std::byte(unread_byte));
    kv_.assign(h.num_pages * h.page_stride * size_of(spec.kv), std::byte(unread_byte));
    out_.assign(tokens * h.out_row_stride * 2, std::byte(unwritten_byte));
    if (shape.lse) lse_.assign(h.output_rows() * 4, std::byte(unwritten_byte));
    fill();
    host.q = q_.data(), host.kv = kv_.data(), host.out = out_.data();
    host.lse = shape.lse ? reinterpret_cast<float*>(lse_.data()) : nullptr;
    host.block_table = table_.data(), host.context_lengths = shape_.lengths.data();
    const auto one = [&](int i, float value) {
      scale_[i] = {value};
      return scale_[i].data();
    };
    if (is_fp8(spec.q)) host.q_scale = one(0, 0.75f);
    if (is_fp8(spec.kv) && spec.layout == LatentLayout::plain) host.kv_scale = one(1, plain_scale);
    for (std::int32_t i = 0; shape.sinks && i < shape.heads; ++i) scale_[2].push_back(2 * drawn('s', i, 0));
    if (shape.sinks) host.sinks = scale_[2].data();

    p = host;
    p.q = upload_(q_), p.kv = upload_(kv_), p.out = device_out_ = upload_(out_);
    if (shape.lse) p.lse = device_lse_ = static_cast<float*>(upload_(lse_));
    const auto over = [&](auto*& at, const auto& from) {
      if (at != nullptr) at = static_cast<std::remove_reference_t<decltype(at)>>(upload_(from));
    };
    over(p.q_scale, scale_[0]), over(p.kv_scale, scale_[1]), over(p.sinks, scale_[2]);
    over(p.block_table, table_), over(p.context_lengths, shape_.lengths);
  }

  /// Runs the call by this entry. Returns an empty text, or the first thing that is wrong.
  std::string run(const MlaDecodeEntry& entry) {
    if (!out_.empty()) bench::check_hip(hipMemset(device_out_, unwritten_byte, out_.size()), "poisoning out");
    if (!lse_.empty()) bench::check_hip(hipMemset(device_lse_, unwritten_byte, lse_.size()), "poisoning lse");
    lend(entry);
    fp8_probabilities_ = mla_fp8_probabilities(entry.spec, entry.policy);
    const Status status = entry.launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    return wrong();
  }
  /// Lends the workspace that an entry needs, full of NaN.
  void lend(const MlaDecodeEntry& entry) {
    p.workspace_bytes = mla_decode_workspace_size(p, entry.policy, facts_of(entry.arch));
    p.workspace = nullptr;
    if (p.workspace_bytes == 0) return;
    workspace_ = bench::DeviceBuffer(p.workspace_bytes);
    p.workspace = workspace_.data();
    bench::check_hip(hipMemset(p.workspace, unread_byte, p.workspace_bytes), "poisoning the workspace");
  }
  /// Waits for the device. Returns an empty text, or the first thing that is wrong.
  std::string wrong() {
    download();
    for (std::int32_t b = 0; b < host.batch; ++b) {
      for (std::int32_t i = 0; i < host.query_tokens; ++i) {
        for (std::int32_t h = 0; h < host.num_q_heads; h += std::max(1, host.num_q_heads / 16 + h % 2)) {
          const std::string found = wrong_row(reference::mla_decode_row(host, b, i, h), b, i, h);
          if (!found.empty()) {
            return "sequence " + std::to_string(b) + ", query " + std::to_string(i) + ", head " + std::to_string(h) +
                   ", " + found;
          }
        }
      }
    }
    return "";
  }
  /// Returns the bytes of a sequence's out, and behind them those of its lse.
  std::vector<std::byte> answer(std::int32_t sequence) {
    download();
    const std::int64_t out = host.query_tokens * host.out_row_stride * 2,
                       lse = lse_.empty() ? 0 : 4 * host.sequence_rows();
    std::vector<std::byte> all(out_.begin() + sequence * out, out_.begin() + (sequence + 1) * out);
    all.insert(all.end(), lse_.begin() + sequence * lse, lse_.begin() + (sequence + 1) * lse);
    return all;
  }
  double value(std::int32_t sequence, std::int32_t i, std::int32_t head, int d) const {
    return reference::element(DType::bf16, out_.data(), out_at(sequence, i, head) + d);
  }
  /// Puts one value into the rows of all tokens of a sequence, and into all its queries, and copies them over.
  template <class RowValue, class QueryValue>
  void set(const RowValue& of_row, const QueryValue& of_query) {
    for (std::int32_t b = 0; b < host.batch; ++b) {
      for (std::int32_t t = 0; t < shape_.lengths[b]; ++t) put_row(b, t, [&](int d) { return of_row(b, t, d); });
      for (std::int32_t i = 0; i < host.query_tokens; ++i)
        for (std::int32_t h = 0; h < host.num_q_heads; ++h)
          put_query(b, i, h, [&](int d) { return of_query(b, i, h, d); });
    }
    bench::check_hip(hipMemcpy(const_cast<void*>(p.q), q_.data(), q_.size(), hipMemcpyHostToDevice), "copying q");
    bench::check_hip(hipMemcpy(const_cast<void*>(p.kv), kv_.data(), kv_.size(), hipMemcpyHostToDevice), "copying kv");
  }

  /// Gives sequences other lengths, none longer than before.
  void set_lengths(const std::vector<std::int32_t>& lengths) {
    shape_.lengths = lengths;
    host.context_lengths = shape_.lengths.data();
    bench::check_hip(hipMemcpy(const_cast<std::int32_t*>(p.context_lengths), lengths.data(), 4 * lengths.size(),
                               hipMemcpyHostToDevice),
                     "copying lengths");
  }

  static constexpr float plain_scale = 0.5f;

 private:
  using Bytes = std::vector<std::byte>;
  void download() {
    bench::check_hip(hipDeviceSynchronize(), "running the kernel");
    if (!out_.empty())
      bench::check_hip(hipMemcpy(out_.data(), device_out_, out_.size(), hipMemcpyDeviceToHost), "copying back");
    if (!lse_.empty())
      bench::check_hip(hipMemcpy(lse_.data(), device_lse_, lse_.size(), hipMemcpyDeviceToHost), "copying back");
  }
  static void put(std::byte* to, DType type, float value) {
    const std::uint32_t bits = encode(type, value);
    std::memcpy(to, &bits, size_of(type));
  }

  /// The exponent of a scale of a group differs from token to token.
  int exponent(int token, int group) const {
    return shape_.least_scale + (token * 5 + group * 3) % std::max(1, shape_.scales);
  }
  template <class Value>
  void put_row(std::int32_t b, std::int32_t t, const Value& value) {
    const LatentRow layout = host.spec.row();
    const int size = size_of(layout.kv);
    std::byte* const page = &kv_[table_[b * host.table_row_stride + t / host.block_size] * host.page_stride * size];
    const std::int64_t in_page = t % host.block_size;
    std::byte* const row = page + in_page * host.token_stride * size;
    for (int d = 0; d < layout.head_size; ++d) {
      float x = value(d);
      if (layout.layout == LatentLayout::plain) {
        put(row + d * size, layout.kv, is_fp8(layout.kv) ? x / plain_scale : x);
      } else if (d >= layout.codes()) {
        put(row + layout.wide_byte() + 2 * (d - layout.codes()), DType::bf16, x);
      } else {
        const int group = d / layout.group(), e = exponent(b * 131 + t, group);
        const float scale = std::ldexp(shape_.odd_scale, e);
        put(row + d, layout.kv, x / scale);
        if (layout.layout == LatentLayout::groups_128) {
          std::memcpy(row + layout.scale_byte() + 4 * group, &scale, 4);
        } else {
          page[host.block_size * layout.token_bytes() + in_page * LatentRow::apart_bytes + group] = std::byte(e + 127);
        }
      }
    }
  }
  template <class Value>
  void put_query(std::int32_t b, std::int32_t i, std::int32_t h, const Value& value) {
    const std::int64_t at = (std::int64_t{b} * host.query_tokens + i) * host.q_row_stride + h * host.q_head_stride;
    for (int d = 0; d < host.spec.head_size; ++d) put(&q_[(at + d) * size_of(host.spec.q)], host.spec.q, value(d));
  }
  void fill() {
    for (std::int32_t b = 0; b < host.batch; ++b) {
      for (std::int32_t t = 0; t < shape_.lengths[b]; ++t) {
        put_row(b, t, [&](int d) { return drawn('k', b * 10007 + t, d); });
      }
      for (std::int32_t i = 0; i < host.query_tokens; ++i) {
        for (std::int32_t h = 0; h < host.num_q_heads; ++h)
          put_query(b, i, h, [&](int d) { return shape_.spread * drawn('q', b * 10007 + i * 131 + h, d); });
      }
    }
  }
  std::int64_t out_at(std::int32_t b, std::int32_t i, std::int32_t h) const {
    return (std::int64_t{b} * host.query_tokens + i) * host.out_row_stride + h * host.out_head_stride;
  }

  /// Returns what is wrong with a row. The bound is the rounding of probabilities, of the output to bf16, and of rows if
  /// scales are no powers of two, and the error of sums in f32, or of the 13 bits that products of fp8 keep.
  std::string wrong_row(const reference::MlaDecodeRow& want, std::int32_t b, std::int32_t i, std::int32_t h) const {
    const bool rounded = shape_.odd_scale != 1.0f && host.spec.layout == LatentLayout::groups_128;
    const double score = want.score_error * (fp8_probabilities_ ? 0x1p-12 : rounded ? 0x1p-9 : 0x1p-20);
    for (int d = 0; d < latent_value_size; ++d) {
      const double got = value(b, i, h, d), wanted = want.out[d];
      const double bound = reference::mla_probability_error(want, d, fp8_probabilities_) +
                           ((rounded ? 0x1p-9 : 0.0) + 2 * score) * want.magnitudes[d] + 0x1p-8 * std::abs(wanted) +
                           0x1p-130;
      const bool good = std::isnan(wanted) ? std::isnan(got) : std::abs(got - wanted) <= bound;
      if (!good)
        return "dimension " + std::to_string(d) + ": " + std::to_string(got) + ", not " + std::to_string(wanted);
    }
    if (host.lse == nullptr) return "";
    const double got = host.lse[(std::int64_t{b} * host.query_tokens + i) * host.num_q_heads + h];
    const bool good = std::isnan(want.lse)
                          ? std::isnan(got)
                          : got == want.lse || std::abs(got - want.lse) <= 1e-5 * (1 + std::abs(want.lse)) + score;
    return good ? "" : "lse: " + std::to_string(got) + ", not " + std::to_string(want.lse);
  }

  MlaShape shape_;
  Bytes q_, kv_, out_, lse_;
  std::vector<float> scale_[3];
  std::vector<std::int32_t> table_;
  Uploads upload_;
  bench::DeviceBuffer workspace_{16};
  void* device_out_ = nullptr;
  float* device_lse_ = nullptr;
  bool fp8_probabilities_ = false;
};

inline bool any_spec(const MlaDecodeSpec&) { return true; }

/// Runs a shape by the entries of this test case's turn, of specs that `wanted` takes.
template <class Wanted>
void check_mla(const MlaShape& shape, const Wanted& wanted) {
  int ran = 0;
  for (const MlaDecodeEntry* entry : in_turn(all_mla_decode_entries())) {
    if (!wanted(entry->spec)) continue;
    MlaCall call(entry->spec, shape);
    if (!mla_decode_takes(entry->policy, call.p, facts_of(entry->arch)).ok()) continue;
    INFO(name_of(entry->arch) << " " << name_of(entry->spec) << " " << name_of(entry->policy));
    CHECK(call.run(*entry) == "");
    ++ran;
  }
  CHECK(ran > 0);
}

}  // namespace tilewave::test
