// SPDX-License-Identifier: MIT
#include "bindings.hpp"

namespace tilewave_torch {

using namespace tilewave;

namespace {

/// Rows of table [vocabulary, columns] by ids, times scale; an id outside has zeros.
Tensor embedding(const Tensor& table, const Tensor& ids, double scale) {
  check_dims(table, 2, "table");
  check_last(table, "table");
  check_packed(ids, "ids");
  check_like(ids, table, "ids");
  TORCH_CHECK_TYPE(ids.scalar_type() == at::kInt || ids.scalar_type() == at::kLong, "ids are neither int32 nor int64");
  std::vector<std::int64_t> sizes(ids.sizes().begin(), ids.sizes().end());
  sizes.push_back(table.size(1));
  Tensor out = at::empty(sizes, table.options());
  if (table.is_meta() || out.numel() == 0) return out;
  EmbeddingProblem p{.spec = {dtype_of(table, "table")}, .table = data_of(table), .ids = data_of(ids)};
  p.out = data_of(out), p.id_type = ids.scalar_type() == at::kLong ? IndexType::i64 : IndexType::i32;
  p.scale = static_cast<float>(scale);
  p.rows = extent(ids.numel(), "ids"), p.columns = extent(table.size(1), "table.size(1)");
  p.vocab_rows = extent(table.size(0), "table.size(0)");
  p.table_stride = table.stride(0), p.out_stride = table.size(1);
  queue("embedding", p, table);
  return out;
}

/// A token of each row of logits and the logarithm of its probability. temperature [rows] in f32 and seed [rows] in int64 are read
/// on the device; the filters are the same for all rows, and off by default.
std::tuple<Tensor, Tensor> sampling(const Tensor& logits, const Tensor& temperature, const Tensor& seed,
                                    std::int64_t top_k, double top_p, double min_p) {
  check_dims(logits, 2, "logits");
  check_last(logits, "logits");
  check_type(temperature, at::kFloat, "temperature");
  check_type(seed, at::kLong, "seed");
  for (const auto& [t, name] : {std::pair{&temperature, "temperature"}, {&seed, "seed"}}) {
    check_packed(*t, name);
    check_like(*t, logits, name);
    TORCH_CHECK_VALUE(t->numel() == logits.size(0), name, " has not one number for each row");
  }
  Tensor tokens = at::empty({logits.size(0)}, logits.options().dtype(at::kInt));
  Tensor logprobs = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  if (logits.is_meta() || logits.numel() == 0) return {tokens, logprobs};
  SamplingProblem p{.spec = {dtype_of(logits, "logits")}, .x = data_of(logits)};
  p.tokens = data_of<std::int32_t>(tokens), p.logprobs = data_of<float>(logprobs);
  p.temperature.data = data_of<const float>(temperature), p.seed.data = data_of<const std::uint64_t>(seed);
  p.top_k.value = extent(top_k, "top_k");
  p.top_p.value = static_cast<float>(top_p), p.min_p.value = static_cast<float>(min_p);
  p.rows = extent(logits.size(0), "logits.size(0)"), p.columns = extent(logits.size(1), "logits.size(1)");
  p.row_stride = logits.stride(0);
  queue("sampling", p, logits);
  return {tokens, logprobs};
}

/// The weights in f32 and the ids in int32 [tokens, topk] of the experts that score best.
std::tuple<Tensor, Tensor> topk_gating(const Tensor& logits, std::int64_t topk, bool renormalise,
                                       const OptionalTensor& bias, bool sigmoid) {
  check_dims(logits, 2, "logits");
  check_last(logits, "logits");
  if (bias) {
    check_type(*bias, at::kFloat, "bias");
    check_packed(*bias, "bias");
    check_like(*bias, logits, "bias");
    TORCH_CHECK_VALUE(bias->numel() == logits.size(1), "bias has not one number for each expert");
  }
  TORCH_CHECK_VALUE(topk > 0, "topk is below 1");
  Tensor weights = at::empty({logits.size(0), topk}, logits.options().dtype(at::kFloat));
  Tensor ids = at::empty({logits.size(0), topk}, logits.options().dtype(at::kInt));
  if (logits.is_meta() || logits.numel() == 0) return {weights, ids};
  TopkGatingProblem p{.spec = {dtype_of(logits, "logits")}, .logits = data_of(logits)};
  p.bias = data_of<const float>(bias), p.weights = data_of<float>(weights), p.indices = data_of<std::int32_t>(ids);
  p.score = sigmoid ? GatingScore::sigmoid : GatingScore::softmax, p.renormalise = renormalise;
  p.tokens = extent(logits.size(0), "logits.size(0)"), p.experts = extent(logits.size(1), "logits.size(1)");
  p.topk = extent(topk, "topk");
  p.logits_stride = logits.stride(0), p.weights_stride = p.indices_stride = topk;
  queue("topk_gating", p, logits);
  return {weights, ids};
}

/// Choices [tokens, topk] in the order of their experts, each padded to whole units: the token of each row (-1 of a pad), the first
/// row of each expert and the end, and the row of each choice.
std::tuple<Tensor, Tensor, Tensor> moe_sort(const Tensor& topk_ids, std::int64_t experts, std::int64_t unit) {
  check_dims(topk_ids, 2, "topk_ids");
  check_last(topk_ids, "topk_ids");
  check_type(topk_ids, at::kInt, "topk_ids");
  MoeSortProblem p;
  p.tokens = extent(topk_ids.size(0), "topk_ids.size(0)"), p.topk = extent(topk_ids.size(1), "topk_ids.size(1)");
  p.experts = extent(experts, "experts"), p.unit = extent(unit, "unit");
  TORCH_CHECK_VALUE(p.experts > 0 && p.unit > 0, "experts and unit are above 0");
  p.capacity = extent(moe_sort_capacity(p), "rows of all experts");
  Tensor tokens = at::empty({p.capacity}, topk_ids.options()), offsets = at::empty({experts + 1}, topk_ids.options());
  Tensor rows = at::empty(topk_ids.sizes(), topk_ids.options());
  if (topk_ids.is_meta()) return {tokens, offsets, rows};
  if (topk_ids.numel() == 0) return {tokens, offsets.zero_(), rows};
  Tensor ids = at::empty_like(tokens), blocks = at::empty({ceil_div(p.capacity, p.unit)}, topk_ids.options());
  Tensor counts = at::empty({2}, topk_ids.options());
  p.topk_ids = data_of<const std::int32_t>(topk_ids);
  p.sorted_ids = data_of<std::int32_t>(ids), p.sorted_expert_ids = data_of<std::int32_t>(blocks);
  p.num_tokens_post_pad = data_of<std::int32_t>(counts), p.row_tokens = data_of<std::int32_t>(tokens);
  p.group_offsets = data_of<std::int32_t>(offsets), p.rows = data_of<std::int32_t>(rows);
  p.ids_stride = topk_ids.stride(0), p.rows_stride = p.topk;
  queue("moe_sort", p, topk_ids);
  return {tokens, offsets, rows};
}

/// out[token] = sum over its choices of weights[token, choice] * x[rows[token, choice]].
Tensor moe_reduce(const Tensor& x, const Tensor& rows, const Tensor& weights) {
  check_dims(x, 2, "x");
  check_last(x, "x");
  check_dims(rows, 2, "rows");
  check_type(rows, at::kInt, "rows");
  check_packed(rows, "rows");
  check_type(weights, at::kFloat, "weights");
  check_packed(weights, "weights");
  check_like(rows, x, "rows");
  check_like(weights, x, "weights");
  TORCH_CHECK_VALUE(rows.sizes() == weights.sizes(), "rows and weights differ in shape");
  Tensor out = at::empty({rows.size(0), x.size(1)}, x.options());
  if (x.is_meta() || out.numel() == 0) return out;
  MoeReduceProblem p{.spec = {dtype_of(x, "x")}, .x = data_of(x), .slots = data_of<const std::int32_t>(rows)};
  p.weights = data_of<const float>(weights), p.out = data_of(out);
  p.rows = extent(rows.size(0), "rows.size(0)"), p.columns = extent(x.size(1), "x.size(1)");
  p.topk = extent(rows.size(1), "rows.size(1)"), p.x_rows = extent(x.size(0), "x.size(0)");
  p.x_stride = x.stride(0), p.out_stride = out.stride(0);
  queue("moe_reduce", p, x);
  return out;
}

void implement(torch::Library& m) {
  m.impl("embedding", &embedding);
  m.impl("sampling", &sampling);
  m.impl("topk_gating", &topk_gating);
  m.impl("moe_sort", &moe_sort);
  m.impl("moe_reduce", &moe_reduce);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tilewave, m) {
  m.def("embedding(Tensor table, Tensor ids, float scale=1.0) -> Tensor");
  m.def(
      "sampling(Tensor logits, Tensor temperature, Tensor seed, int top_k=0, float top_p=1.0, float min_p=0.0) -> "
      "(Tensor, Tensor)");
  m.def(
      "topk_gating(Tensor logits, int topk, bool renormalise=True, Tensor? bias=None, bool sigmoid=False) -> (Tensor, "
      "Tensor)");
  m.def("moe_sort(Tensor topk_ids, int experts, int unit=1) -> (Tensor, Tensor, Tensor)");
  m.def("moe_reduce(Tensor x, Tensor rows, Tensor weights) -> Tensor");
}
TORCH_LIBRARY_IMPL(tilewave, CUDA, m) { implement(m); }
TORCH_LIBRARY_IMPL(tilewave, Meta, m) { implement(m); }

}  // namespace tilewave_torch
