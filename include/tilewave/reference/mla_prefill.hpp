// SPDX-License-Identifier: MIT
// Prefill of latent attention in double is the oracle of the tests and of the benchmark's verification.
//
// It shares nothing with the kernels but the description of a call. It reads the same bytes and expands keys and values
// of a head when they are asked for. Only what the spec says to be rounded is. Pointers of the problem must be readable
// by the host.
#pragma once

#include "tilewave/ops/mla_prefill/problem.hpp"
#include "tilewave/reference/mla_decode.hpp"

namespace tilewave::reference {

/// The answer for one query token of one head.
struct MlaPrefillRow {
  std::vector<double> out;                                // [128]
  std::vector<double> magnitudes;                         // [128]: sums of the absolute values of the terms of `out`
  double score_error = 0.0;                               // the largest sum of absolute terms of a score
  double lse = -std::numeric_limits<double>::infinity();  // natural log
};

/// The keys and values of one head for all tokens of one sequence.
class MlaPrefillHead {
 public:
  MlaPrefillHead(const MlaPrefillProblem& p, std::int32_t sequence, std::int32_t head) : p_(p), head_(head) {
    first_ = p.q_starts[sequence];
    queries_ = p.q_starts[sequence + 1] - first_;
    const std::int64_t length = p.kv_lengths[sequence];
    std::int64_t context = 0;  // earlier tokens up to those of this sequence
    for (std::int32_t s = 0; s <= sequence; ++s) {
      const std::int64_t queries = p.q_starts[s + 1] - p.q_starts[s], known = p.kv_lengths[s];
      if (queries > 0 && known <= p.capacity()) context += std::max<std::int64_t>(0, known - queries);
    }
    spoilt_ = length < queries_ || length > p.capacity() || queries_ > p.q_length ||
              (length > queries_ && context > p.context_tokens);
    if (spoilt_) return;
    tokens_ = length;
    const LatentRow layout = p.spec.row();
    const detail::Decoder bf16(DType::bf16);
    const std::int64_t size = size_of(layout.kv);
    const double scale = p.kv_scale != nullptr ? *p.kv_scale : 1.0;
    std::vector<double> up(2 * mla_nope_size * latent_value_size);
    for (int r = 0; r < 2 * mla_nope_size; ++r)
      for (int d = 0; d < latent_value_size; ++d)
        up[r * latent_value_size + d] = bf16(p.up, (std::int64_t{head} * 2 * mla_nope_size + r) * p.up_stride + d);
    keys_.resize(tokens_ * mla_head_size), values_.resize(tokens_ * mla_value_size);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const std::int64_t page = p.block_table[sequence * p.table_row_stride + t / p.block_size];
      const auto* const at =
          static_cast<const unsigned char*>(p.kv) + (page * p.page_stride + t % p.block_size * p.token_stride) * size;
      std::vector<double> row = latent_row(layout, at, nullptr, scale);
      for (double& x : row) x = rounded(x);
      for (int r = 0; r < 2 * mla_nope_size; ++r) {
        double sum = 0.0;
        for (int d = 0; d < latent_value_size; ++d) sum += up[r * latent_value_size + d] * row[d];
        (r < mla_nope_size ? keys_[t * mla_head_size + r] : values_[t * mla_value_size + r - mla_nope_size]) =
            rounded(sum);
      }
      for (int d = 0; d < mla_rope_size; ++d) keys_[t * mla_head_size + mla_nope_size + d] = row[latent_value_size + d];
    }
  }

  std::int64_t queries() const { return queries_; }
  std::int64_t first() const { return first_; }  // query of the call

  /// Returns the answer for query i of the sequence.
  MlaPrefillRow row(std::int64_t i) const {
    MlaPrefillRow answer;
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    answer.out.assign(mla_value_size, spoilt_ ? nan : 0.0), answer.magnitudes.assign(mla_value_size, 0.0);
    if (spoilt_) answer.lse = nan;
    const std::int64_t seen = spoilt_ ? 0 : tokens_ - queries_ + i + 1;
    if (seen == 0) return answer;
    const detail::Decoder bf16(DType::bf16);
    std::vector<double> scores(seen);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0.0;
    for (std::int64_t t = 0; t < seen; ++t) {
      double magnitude = 0.0;
      for (int d = 0; d < mla_head_size; ++d) {
        const double term = bf16(p_.q, (first_ + i) * p_.q_token_stride + head_ * p_.q_head_stride + d) *
                            keys_[t * mla_head_size + d] * p_.softmax_scale;
        scores[t] += term, magnitude += std::abs(term);
      }
      answer.score_error = std::max(answer.score_error, magnitude);
      largest = std::max(largest, scores[t]);
    }
    for (const double score : scores) sum += std::exp(score - largest);
    answer.lse = largest + std::log(sum);
    for (std::int64_t t = 0; t < seen; ++t) {
      const double weight = std::exp(scores[t] - answer.lse);
      for (int d = 0; d < mla_value_size; ++d) {
        answer.out[d] += weight * values_[t * mla_value_size + d];
        answer.magnitudes[d] += weight * std::abs(values_[t * mla_value_size + d]);
      }
    }
    return answer;
  }

 private:
  static double rounded(double x) { return bf16_to_f32(f32_to_bf16(static_cast<float>(x))); }

  MlaPrefillProblem p_;
  std::int32_t head_;
  std::int64_t first_ = 0, queries_ = 0, tokens_ = 0;
  bool spoilt_ = false;
  std::vector<double> keys_, values_;  // [tokens, 192], [tokens, 128]
};

}  // namespace tilewave::reference
