// SPDX-License-Identifier: MIT
// A sort of tokens by expert on host and device, and what is wrong with its answer.
#pragma once

#include <functional>

#include "entries/moe_sort.hpp"
#include "test/ops/rows.hpp"
#include "tilewave/reference/moe_sort.hpp"

namespace tilewave::test {

struct SortShape {
  std::int32_t tokens = 5, topk = 2, experts = 8, unit = 32;
  std::int32_t spare = 0;                                         // capacity beyond what is needed
  int gap = 0;                                                    // elements between tokens
  bool optional = true;                                           // all outputs, or just those that must be
  std::function<bool(int expert)> local = nullptr;                // a mask
  std::function<std::int32_t(int token, int slot)> id = nullptr;  // instead of different random ones
};

class SortCall {
 public:
  explicit SortCall(const SortShape& s) {
    p.tokens = s.tokens;
    p.topk = s.topk;
    p.experts = s.experts;
    p.unit = s.unit;
    p.capacity = static_cast<std::int32_t>(moe_sort_capacity(p)) + s.spare;
    p.ids_stride = s.topk + s.gap;
    if (s.optional) p.weights_stride = p.rows_stride = p.ids_stride;
    for (std::int32_t t = 0; t < s.tokens; ++t)
      for (std::int32_t slot = 0; slot < s.topk + (t + 1 < s.tokens ? s.gap : 0); ++slot) {
        // Steps coprime to most numbers of experts make the choices of a token differ.
        const std::uint64_t bits = bench::random_bits({11, std::uint64_t(t)});
        const auto drawn =
            static_cast<std::int32_t>((bits % 100000 + std::uint64_t(slot) * (bits >> 40 | 1)) % s.experts);
        ids.push_back(slot >= s.topk ? 0 : s.id ? s.id(t, slot) : drawn);
        weights.push_back(slot >= s.topk ? 0.0f : 1.0f + static_cast<float>(t) + 0.0625f * static_cast<float>(slot));
      }
    for (std::int32_t e = 0; s.local && e < s.experts; ++e) mask.push_back(s.local(e) ? 1 + e % 3 : 0);
    upload(ids, ids_);
    upload(weights, weights_);
    upload(mask, mask_);
    out(sorted_ids_, p.capacity);
    out(expert_ids_, ceil_div(p.capacity, p.unit));
    out(post_pad_, 2);
    out(sorted_weights_, p.capacity);
    out(row_tokens_, p.capacity);
    out(offsets_, p.experts + 1);
    out(counts_, p.experts);
    out(rows_, static_cast<std::int64_t>(ids.size()));
    p.topk_ids = at<const std::int32_t>(ids_);
    p.expert_mask = s.local ? at<const std::int32_t>(mask_) : nullptr;
    p.sorted_ids = at<std::int32_t>(sorted_ids_);
    p.sorted_expert_ids = at<std::int32_t>(expert_ids_);
    p.num_tokens_post_pad = at<std::int32_t>(post_pad_);
    if (!s.optional) return;
    p.topk_weights = at<const float>(weights_);
    p.sorted_weights = at<float>(sorted_weights_);
    p.row_tokens = at<std::int32_t>(row_tokens_);
    p.group_offsets = at<std::int32_t>(offsets_);
    p.group_counts = at<std::int32_t>(counts_);
    p.rows = at<std::int32_t>(rows_);
  }

  /// Runs this entry with a workspace of exactly its size. Returns "", or the reason why it was not run.
  std::string run(const MoeSortEntry& entry) {
    workspace_ = bench::DeviceBuffer(static_cast<std::size_t>(moe_sort_workspace_size(p, entry.policy)));
    if (workspace_.bytes() > 0) workspace_.fill(unread_byte);
    p.workspace = workspace_.data();
    p.workspace_bytes = workspace_.bytes();
    const Status status = entry.launch(p, {});
    if (!status.ok()) return std::string(name_of(status.code)) + ": " + status.reason;
    bench::check_hip(hipDeviceSynchronize(), "running the kernels");
    return "";
  }
  /// Other choices.
  template <class F>
  void set_ids(const F& id) {
    for (std::int32_t t = 0; t < p.tokens; ++t)
      for (std::int32_t slot = 0; slot < p.topk; ++slot) ids[t * p.ids_stride + slot] = id(t, slot);
    bench::check_hip(hipMemcpy(ids_.data(), ids.data(), ids_.bytes(), hipMemcpyHostToDevice), "copying");
  }
  MoeSortProblem on_host() const {
    MoeSortProblem host = p;
    host.topk_ids = ids.data();
    host.topk_weights = p.topk_weights != nullptr ? weights.data() : nullptr;
    host.expert_mask = p.expert_mask != nullptr ? mask.data() : nullptr;
    return host;
  }
  std::vector<std::int32_t> sorted_ids() const { return words<std::int32_t>(sorted_ids_); }
  std::vector<std::int32_t> expert_ids() const { return words<std::int32_t>(expert_ids_); }
  std::vector<std::int32_t> offsets() const { return words<std::int32_t>(offsets_); }
  std::vector<std::int32_t> counts() const { return words<std::int32_t>(counts_); }
  std::vector<std::int32_t> post_pad() const { return words<std::int32_t>(post_pad_); }
  std::vector<float> sorted_weights() const { return words<float>(sorted_weights_); }
  /// Returns the rows, with the gaps between tokens.
  std::vector<std::int32_t> rows() const { return words<std::int32_t>(rows_); }

  /// The first output that is not as the reference has it.
  std::string wrong() const {
    const reference::SortedChoices wanted = reference::sorted_choices(on_host());
    if (post_pad() != wanted.post_pad) return "num_tokens_post_pad";
    if (sorted_ids() != wanted.ids) return "sorted_ids";
    if (expert_ids() != wanted.expert_ids) return "sorted_expert_ids";
    if (p.group_offsets == nullptr) return untouched() ? "" : "wrote what it was not given";
    if (sorted_weights() != wanted.weights) return "sorted_weights";
    if (words<std::int32_t>(row_tokens_) != wanted.row_tokens) return "row_tokens";
    if (offsets() != wanted.offsets) return "group_offsets";
    if (counts() != wanted.counts) return "group_counts";
    const std::vector<std::int32_t> found = rows();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::int64_t token = std::int64_t(i) / p.rows_stride, slot = std::int64_t(i) % p.rows_stride;
      if (found[i] != (slot < p.topk ? wanted.rows[token * p.topk + slot] : unwritten_word)) return "rows";
    }
    return "";
  }

  MoeSortProblem p;
  std::vector<std::int32_t> ids, mask;
  std::vector<float> weights;

 private:
  template <class T>
  static void upload(const std::vector<T>& from, bench::DeviceBuffer& to) {
    to = bench::DeviceBuffer(from.size() * sizeof(T));
    if (!from.empty())
      bench::check_hip(hipMemcpy(to.data(), from.data(), to.bytes(), hipMemcpyHostToDevice), "copying");
  }
  static void out(bench::DeviceBuffer& buffer, std::int64_t words) {
    buffer = bench::DeviceBuffer(static_cast<std::size_t>(words) * 4);
    if (words > 0) buffer.fill(unwritten_byte);
  }
  template <class T>
  static T* at(const bench::DeviceBuffer& buffer) {
    return static_cast<T*>(buffer.data());
  }
  template <class T>
  static std::vector<T> words(const bench::DeviceBuffer& from) {
    std::vector<T> all(from.bytes() / sizeof(T));
    if (!all.empty())
      bench::check_hip(hipMemcpy(all.data(), from.data(), from.bytes(), hipMemcpyDeviceToHost), "copying");
    return all;
  }
  bool untouched() const {
    for (const bench::DeviceBuffer* buffer : {&sorted_weights_, &row_tokens_, &offsets_, &counts_, &rows_})
      for (const std::int32_t word : words<std::int32_t>(*buffer))
        if (word != unwritten_word) return false;
    return true;
  }
  bench::DeviceBuffer ids_, weights_, mask_, sorted_ids_, expert_ids_, post_pad_, sorted_weights_, offsets_, counts_,
      rows_, row_tokens_, workspace_;
};

}  // namespace tilewave::test
