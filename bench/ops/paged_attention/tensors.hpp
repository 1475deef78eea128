// SPDX-License-Identifier: MIT
// The tensors of one paged-attention case on the device, and the call on them.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bench/harness/device.hpp"
#include "bench/ops/paged_attention/case.hpp"
#include "bench/ops/paged_attention/kv_pool.hpp"
#include "tilewave/ops/paged_attention/launch.hpp"

namespace tilewave::bench {

class CaseTensors {
 public:
  /// Takes the pool of K and V from the cache, so a cache serves one set of tensors at a time.
  CaseTensors(const PagedAttentionCase& c, KvPoolCache& pools)
      : lengths_(lengths_of(c)), table_(table_of(c, lengths_)) {
    const PagedAttentionProblem shape = shape_of(c);
    const KvPool& pool = pools.get(pool_key_of(c), used_slots(c, lengths_, table_));
    const std::int64_t rows = std::int64_t{c.batch} * c.mtp;
    qkv_ = TwinBuffer(rows * shape.q_row_stride * sizeof(std::uint16_t));
    fill_q(c, shape.q_row_stride);
    if (c.sinks) fill_sinks(c);
    if (c.alibi) alibi_slopes_ = copy_of(slopes_of(c.num_q_heads));
    table_buffer_ = copy_of(table_);
    lengths_buffer_ = copy_of(lengths_);
    out_ = TwinBuffer(rows * shape.out_row_stride * sizeof(std::uint16_t));
    lse_ = TwinBuffer(rows * c.num_q_heads * sizeof(float));

    const auto point = [&](auto address) {
      PagedAttentionProblem p = shape;
      p.q = address(qkv_);
      p.k = address(pool.k());
      p.v = address(pool.v());
      p.k_scale = c.quant == Scaling::none ? nullptr : static_cast<const float*>(address(pool.k_scale()));
      p.v_scale = c.quant == Scaling::none ? nullptr : static_cast<const float*>(address(pool.v_scale()));
      p.block_table = static_cast<const std::int32_t*>(address(table_buffer_));
      p.context_lengths = static_cast<const std::int32_t*>(address(lengths_buffer_));
      p.out = address(out_);
      p.lse = static_cast<float*>(address(lse_));
      if (c.sinks) p.sinks = static_cast<const float*>(address(sinks_));
      if (c.alibi) p.alibi_slopes = static_cast<const float*>(address(alibi_slopes_));
      return p;
    };
    problem_ = point([](const TwinBuffer& b) -> void* { return b.device(); });
    host_problem_ = point([](const TwinBuffer& b) -> void* { return b.host(); });
  }
  CaseTensors(CaseTensors&&) = delete;

  /// The call, which is ready for the device once it has its workspace.
  const PagedAttentionProblem& problem() const { return problem_; }
  /// The same call with pointers that the host can read, for the reference. out and lse are those of the last download.
  const PagedAttentionProblem& host_problem() const { return host_problem_; }
  const std::vector<std::int32_t>& lengths() const { return lengths_; }
  const std::vector<std::int32_t>& table() const { return table_; }

  void set_workspace(std::size_t bytes) {
    workspace_ = DeviceBuffer(bytes);
    problem_.workspace = workspace_.data();
    problem_.workspace_bytes = bytes;
  }
  /// Sets the stage_starts of a config that has them, for the entry that will run.
  Status set_stage_starts(const PagedAttentionPolicy& policy) {
    std::vector<std::int32_t> starts(lengths_.size() + 1);
    const Status status = paged_attention_stage_starts(host_problem_, policy, lengths_.data(), starts.data());
    if (!status.ok()) return status;
    stage_starts_ = copy_of(starts);
    problem_.stage_starts = static_cast<const std::int32_t*>(stage_starts_.device());
    host_problem_.stage_starts = static_cast<const std::int32_t*>(static_cast<const void*>(stage_starts_.host()));
    return {};
  }
  /// Writes NaN wherever the call may write, so that a row that it forgets shows.
  void poison_outputs() const {
    for (const DeviceBuffer* buffer : {&workspace_}) buffer->fill(0xff);
    for (const TwinBuffer* buffer : {&out_, &lse_}) {
      if (buffer->bytes() > 0) std::memset(buffer->host(), 0xff, buffer->bytes());
      buffer->upload();
    }
  }
  void download_outputs() const {
    out_.download();
    lse_.download();
  }
  /// Host views: out [batch * mtp, num_q_heads, head_size] as bits of the spec's type, lse [batch * mtp, num_q_heads].
  std::uint16_t* out() const { return reinterpret_cast<std::uint16_t*>(out_.host()); }
  const float* lse() const { return reinterpret_cast<const float*>(lse_.host()); }

 private:
  template <class T>
  static TwinBuffer copy_of(const std::vector<T>& values) {
    TwinBuffer buffer(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(buffer.host(), values.data(), buffer.bytes());
    buffer.upload();
    return buffer;
  }
  // Q is from U(-1, 1). The K and V columns of the fused rows are not part of the call and hold NaN.
  void fill_q(const PagedAttentionCase& c, std::int64_t row_stride) {
    std::memset(qkv_.host(), 0xff, qkv_.bytes());
    auto* q = reinterpret_cast<std::uint16_t*>(qkv_.host());
    for (std::int64_t row = 0; row < std::int64_t{c.batch} * c.mtp; ++row) {
      const std::uint64_t key = random_bits({c.seed, 'q', static_cast<std::uint64_t>(row)});
      for (int i = 0; i < c.num_q_heads * c.head_size; ++i)
        set_element(c.q, q, row * row_stride + i, random_uniform(key, i));
    }
    qkv_.upload();
  }

  // Each head has its own sink, from nothing to more than the weight of all tokens together.
  void fill_sinks(const PagedAttentionCase& c) {
    sinks_ = TwinBuffer(c.num_q_heads * sizeof(float));
    auto* sinks = reinterpret_cast<float*>(sinks_.host());
    const std::uint64_t key = random_bits({c.seed, 'i'});
    for (int head = 0; head < c.num_q_heads; ++head) sinks[head] = 4 + 4 * random_uniform(key, head);
    sinks_.upload();
  }

  // Press et al. 2022, "Train short, test long": 2^(-8 / n), 2^(-16 / n) ... 2^-8 of n heads.
  static std::vector<float> slopes_of(int heads) {
    std::vector<float> slopes;
    for (int h = 0; h < heads; ++h) slopes.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / heads));
    return slopes;
  }

  std::vector<std::int32_t> lengths_, table_;
  TwinBuffer qkv_, table_buffer_, lengths_buffer_, sinks_, alibi_slopes_, stage_starts_, out_, lse_;
  DeviceBuffer workspace_;
  PagedAttentionProblem problem_, host_problem_;
};

}  // namespace tilewave::bench
