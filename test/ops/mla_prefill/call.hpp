// SPDX-License-Identifier: MIT
// MlaPrefillCall is a call of latent prefill on host and device, and compares its answer with the reference.
#pragma once

#include <algorithm>
#include <map>

#include "entries/attention_combine.hpp"
#include "entries/flash_attention.hpp"
#include "entries/gemm.hpp"
#include "entries/mla_prefill.hpp"
#include "test/ops/rows.hpp"
#include "test/turns.hpp"
#include "test/uploads.hpp"
#include "tilewave/reference/mla_prefill.hpp"

namespace tilewave::test {

struct MlaPrefillShape {
  std::vector<std::int32_t> queries;  // of each sequence
  std::vector<std::int32_t> context;  // earlier tokens of each sequence; empty: none
  std::int32_t heads = 3, block_size = 16;
  std::int32_t chunk_tokens = 64, spare_context = 0;  // spare: how much more the capacity of earlier tokens has
  std::int32_t spare_queries = 0;                     // how many more the capacities of queries have
  bool lse = false;
  std::int32_t gap = 0;           // units of 16 bytes between rows of q, out, up and the cache
  float softmax_scale = 0.1147f;  // that of DeepSeek-V3, 192^-0.5 with the factor of long contexts
  float spread = 1.0f;            // multiplies q: how far apart scores lie
};

inline MlaPrefillParts all_mla_prefill_parts() {
  return {all_mla_prefill_entries(), all_gemm_grouped_entries(), all_flash_attention_entries(),
          all_attention_combine_entries()};
}

/// All that is no query and no row of a sequence is NaN: rows behind a sequence's tokens, pages and gaps that nobody
/// sees.
class MlaPrefillCall {
 public:
  MlaPrefillProblem host, p;
  MlaPrefillPlan plan;

  MlaPrefillCall(const MlaPrefillSpec& spec, const MlaPrefillShape& shape) : shape_(shape) {
    shape_.context.resize(shape.queries.size());
    MlaPrefillProblem h;
    h.spec = spec;
    h.batch = static_cast<std::int32_t>(shape.queries.size());
    h.q_heads = shape.heads, h.block_size = shape.block_size, h.softmax_scale = shape.softmax_scale;
    starts_ = {0};
    std::int32_t longest = 0, pages = 0;
    for (std::int32_t s = 0; s < h.batch; ++s) {
      const std::int32_t own = shape.queries[s], length = own + shape_.context[s];
      starts_.push_back(starts_.back() + own);
      lengths_.push_back(length);
      h.q_length = std::max(h.q_length, own), longest = std::max(longest, length);
      if (own > 0) h.context_tokens += shape_.context[s];
      pages += ceil_div(length, h.block_size);
    }
    h.total_q = starts_.back() + shape.spare_queries, h.q_length += shape.spare_queries;
    h.context_tokens += shape.spare_context;
    h.chunk_tokens = shape.chunk_tokens;
    h.num_pages = pages + 1;
    h.table_columns = ceil_div(longest, h.block_size) + 1;
    h = MlaPrefillProblem::dense(h);
    const std::int32_t gap = shape.gap;
    h.q_head_stride += 8 * gap, h.q_token_stride = h.q_heads * h.q_head_stride + 8 * gap;
    h.out_head_stride += 8 * gap, h.out_token_stride = h.q_heads * h.out_head_stride + 8 * gap;
    h.up_stride += 8 * gap, h.lse_head_stride += gap;
    h.token_stride += 16 / size_of(spec.kv) * gap, h.page_stride = h.block_size * h.token_stride + 64 * gap;
    if (!shape.lse) h.lse_head_stride = 0;
    table_.assign(std::size_t(h.batch) * h.table_columns, 1 << 30);
    std::int32_t page = 0;
    for (std::int32_t s = 0; s < h.batch; ++s)
      for (std::int32_t i = 0; i < ceil_div(lengths_[s], h.block_size); ++i, ++page)
        table_[s * h.table_columns + i] = static_cast<std::int32_t>(std::int64_t{page} * 7919 % h.num_pages);
    q_.assign(h.total_q * h.q_token_stride * 2, std::byte(unread_byte));
    up_.assign(std::int64_t{h.q_heads} * 2 * mla_nope_size * h.up_stride * 2, std::byte(unread_byte));
    kv_.assign(h.num_pages * h.page_stride * size_of(spec.kv), std::byte(unread_byte));
    out_.assign(h.total_q * h.out_token_stride * 2, std::byte(unwritten_byte));
    lse_.assign(shape.lse ? h.q_heads * h.lse_head_stride * 4 : 0, std::byte(unwritten_byte));
    host = h;
    fill();
    host.q = q_.data(), host.kv = kv_.data(), host.up = up_.data(), host.out = out_.data();
    if (shape.lse) host.lse = reinterpret_cast<float*>(lse_.data());
    if (spec.has_scale()) host.kv_scale = &plain_scale;
    host.q_starts = starts_.data(), host.kv_lengths = lengths_.data(), host.block_table = table_.data();

    p = host;
    p.q = upload_(q_), p.kv = upload_(kv_), p.up = upload_(up_), p.out = upload_(out_);
    if (shape.lse) p.lse = static_cast<float*>(upload_(lse_));
    if (spec.has_scale()) p.kv_scale = static_cast<const float*>(upload_(std::vector<float>{plain_scale}));
    const auto words = [&](const std::vector<std::int32_t>& from) {
      return static_cast<const std::int32_t*>(upload_(from));
    };
    p.q_starts = words(starts_), p.kv_lengths = words(lengths_), p.block_table = words(table_);
  }

  /// Plans and launches the call with poison in its workspace. Returns what was refused, or "".
  std::string launch(const ArchFacts& facts, const MlaPrefillParts& parts) {
    if (const Status s = mla_prefill_select(p, parts, facts, plan); !s.ok())
      return std::string(name_of(s.code)) + ": " + s.reason;
    p.workspace_bytes = plan.workspace_bytes(p);
    workspace_ = bench::DeviceBuffer(std::max<std::size_t>(16, p.workspace_bytes));
    workspace_.fill(unread_byte);
    p.workspace = workspace_.data();
    const Status s = plan.launch(p, {});
    return s.ok() ? "" : std::string(name_of(s.code)) + ": " + s.reason;
  }
  /// The same by all parts but this entry of the op alone. Returns an empty text, or the first thing that is wrong.
  std::string run(const MlaPrefillEntry& e) {
    const MlaPrefillEntry* const only = &e;
    MlaPrefillParts parts = all_mla_prefill_parts();
    parts.layers = {&only, 1};
    std::string refused = launch(facts_of(e.arch), parts);
    return refused != "" ? refused : wrong();
  }
  /// Waits for the device. Returns an empty text, or the first thing that is wrong.
  std::string wrong() {
    download();
    for (std::int32_t s = 0; s < host.batch; ++s) {
      for (std::int32_t h = 0; h < host.q_heads; h += std::max(1, host.q_heads / 4)) {
        const reference::MlaPrefillHead head(host, s, h);
        for (std::int64_t i = 0; i < head.queries(); ++i) {
          const std::string found = wrong_row(head.row(i), head.first() + i, h);
          if (!found.empty())
            return "sequence " + std::to_string(s) + ", query " + std::to_string(i) + ", head " + std::to_string(h) +
                   ", " + found;
        }
      }
    }
    return "";
  }
  /// Returns the bytes of out.
  std::vector<std::byte> answer() {
    download();
    return out_;
  }
  double value(std::int64_t token, std::int32_t head, int d) const {
    return reference::element(DType::bf16, out_.data(),
                              token * host.out_token_stride + head * host.out_head_stride + d);
  }
  /// Gives the sequences other queries and earlier tokens, within the capacities of before. Their tokens stay.
  void set_lengths(const std::vector<std::int32_t>& queries, const std::vector<std::int32_t>& context) {
    for (std::int32_t s = 0; s < host.batch; ++s)
      starts_[s + 1] = starts_[s] + queries[s], lengths_[s] = queries[s] + context[s];
    const auto copy = [](const std::int32_t* to, const std::vector<std::int32_t>& from) {
      bench::check_hip(hipMemcpy(const_cast<std::int32_t*>(to), from.data(), 4 * from.size(), hipMemcpyHostToDevice),
                       "copying lengths");
    };
    copy(p.q_starts, starts_), copy(p.kv_lengths, lengths_);
  }

 private:
  using Bytes = std::vector<std::byte>;
  static constexpr float plain_scale = 0.5f;

  void download() {
    bench::check_hip(hipDeviceSynchronize(), "running a prefill");
    const auto copy = [](Bytes& to, const void* from) {
      if (!to.empty()) bench::check_hip(hipMemcpy(to.data(), from, to.size(), hipMemcpyDeviceToHost), "copying back");
    };
    copy(out_, p.out), copy(lse_, p.lse);
  }
  static void put(std::byte* to, DType type, float value) {
    const std::uint32_t bits = encode(type, value);
    std::memcpy(to, &bits, size_of(type));
  }
  void fill() {
    const LatentRow layout = host.spec.row();
    const int size = size_of(layout.kv);
    for (std::int32_t s = 0; s < host.batch; ++s) {
      for (std::int32_t t = 0; t < lengths_[s]; ++t) {
        std::byte* const row = &kv_[(table_[s * host.table_columns + t / host.block_size] * host.page_stride +
                                     t % host.block_size * host.token_stride) *
                                    size];
        for (int d = 0; d < layout.head_size; ++d) {
          const float x = drawn('k', s * 10007 + t, d);
          if (layout.layout == LatentLayout::plain) {
            put(row + d * size, layout.kv, is_fp8(layout.kv) ? x / plain_scale : x);
          } else if (d >= layout.codes()) {
            put(row + layout.wide_byte() + 2 * (d - layout.codes()), DType::bf16, x);
          } else {  // a scale that is no power of two, so products are rounded
            const float scale = 0.75f * std::ldexp(1.0f, (t + d / 128) % 3 - 1);
            put(row + d, layout.kv, x / scale);
            std::memcpy(row + layout.scale_byte() + 4 * (d / 128), &scale, 4);
          }
        }
      }
    }
    for (std::int64_t t = 0; t < starts_.back(); ++t)
      for (std::int32_t h = 0; h < host.q_heads; ++h)
        for (int d = 0; d < mla_head_size; ++d)
          put(&q_[(t * host.q_token_stride + h * host.q_head_stride + d) * 2], DType::bf16,
              shape_.spread * drawn('q', t * 131 + h, d));
    for (std::int64_t r = 0; r < std::int64_t{host.q_heads} * 2 * mla_nope_size; ++r)
      for (int d = 0; d < latent_value_size; ++d)
        put(&up_[(r * host.up_stride + d) * 2], DType::bf16, drawn('u', r, d) / 16);
  }

  /// Returns what is wrong with a row. The bound is the rounding of probabilities, of partial results and of the
  /// output, and that of keys and values, of which some are rounded the other way than the reference rounds them.
  std::string wrong_row(const reference::MlaPrefillRow& want, std::int64_t token, std::int32_t head) const {
    const double score = want.score_error * 0x1p-12;
    for (int d = 0; d < mla_value_size; ++d) {
      const double got = value(token, head, d), wanted = want.out[d];
      const double bound = (0x1p-8 + 2 * score) * want.magnitudes[d] + 0x1p-7 * std::abs(wanted) + 0x1p-130;
      if (!(std::isnan(wanted) ? std::isnan(got) : std::abs(got - wanted) <= bound))
        return "dimension " + std::to_string(d) + ": " + std::to_string(got) + ", not " + std::to_string(wanted);
    }
    if (host.lse == nullptr) return "";
    const double got = host.lse[head * host.lse_head_stride + token];
    const bool good =
        std::isnan(want.lse) ? std::isnan(got) : std::abs(got - want.lse) <= 1e-5 * (1 + std::abs(want.lse)) + score;
    return good ? "" : "lse: " + std::to_string(got) + ", not " + std::to_string(want.lse);
  }

  MlaPrefillShape shape_;
  Bytes q_, kv_, up_, out_, lse_;
  std::vector<std::int32_t> starts_, lengths_, table_;
  Uploads upload_;
  bench::DeviceBuffer workspace_{16};
};

/// Runs a shape by entries of this test case's turn, of specs that `wanted` takes: of each spec one policy.
template <class Wanted>
void check_prefill(const MlaPrefillShape& shape, const Wanted& wanted) {
  int ran = 0;
  for (const MlaPrefillEntry* e : in_turn(all_mla_prefill_entries())) {
    if (!wanted(e->spec)) continue;
    INFO(name_of(e->arch) << " " << name_of(e->spec) << " " << name_of(e->policy));
    MlaPrefillCall call(e->spec, shape);
    CHECK(call.run(*e) == "");
    ++ran;
  }
  CHECK(ran > 0);
}
inline bool any_cache(const MlaPrefillSpec&) { return true; }
inline bool bf16_cache(const MlaPrefillSpec& s) { return s.kv == DType::bf16; }

}  // namespace tilewave::test
