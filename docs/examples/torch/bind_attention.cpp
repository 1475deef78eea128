// SPDX-License-Identifier: MIT
#include "bindings.hpp"

namespace tilewave_torch {

using namespace tilewave;

namespace {

HeadStrides head_strides(const Tensor& t) { return {.token = t.stride(0), .head = t.stride(1)}; }
IndexType index_type(const Tensor& t, const char* name) {
  TORCH_CHECK_TYPE(t.scalar_type() == at::kInt || t.scalar_type() == at::kLong, name, " is neither int32 nor int64");
  return t.scalar_type() == at::kLong ? IndexType::i64 : IndexType::i32;
}

TokenStrides token_strides(const Tensor& t) {
  return {.sequence = t.stride(0), .token = t.stride(1), .head = t.stride(2)};
}

/// q [batch, queries, q_heads, 128], k and v [batch, keys, kv_heads, 128]; the queries are the last of the keys' positions. Returns
/// out as q and the logarithms of the sums [q_heads, batch, queries].
std::tuple<Tensor, Tensor> flash_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                           std::optional<double> softmax_scale) {
  for (const auto& [t, name] : {std::pair{&q, "q"}, {&k, "k"}, {&v, "v"}}) {
    check_dims(*t, 4, name);
    check_last(*t, name);
    check_extent(*t, 0, q.size(0), name);
    check_extent(*t, 3, q.size(3), name);
    check_like(*t, q, name);
  }
  TORCH_CHECK_VALUE(k.sizes() == v.sizes(), "k and v differ in shape");
  Tensor out = at::empty(q.sizes(), q.options());
  Tensor lse = at::empty({q.size(2), q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
  if (q.is_meta() || out.numel() == 0) return {out, lse};
  FlashAttentionProblem p{.q = data_of(q), .k = data_of(k), .v = data_of(v), .out = data_of(out)};
  p.lse = data_of<float>(lse);
  p.spec = {.q = dtype_of(q, "q"), .kv = dtype_of(k, "k"), .out = dtype_of(q, "q")};
  p.spec.head_size = p.spec.value_size = static_cast<int>(q.size(3));
  p.softmax_scale = static_cast<float>(softmax_scale.value_or(0)), p.causal = causal;
  p.batch = extent(q.size(0), "q.size(0)"), p.q_length = extent(q.size(1), "q.size(1)");
  p.kv_length = extent(k.size(1), "k.size(1)");
  p.q_heads = extent(q.size(2), "q.size(2)"), p.kv_heads = extent(k.size(2), "k.size(2)");
  p = FlashAttentionProblem::bshd(p);
  p.q_strides = token_strides(q), p.k_strides = token_strides(k), p.v_strides = token_strides(v);
  queue("flash_attention", p, q);
  return {out, lse};
}

/// Caches [pages, block_size, kv_heads, head_size] without gaps.
void check_cache(const Tensor& cache, const Tensor& as, const char* name) {
  check_dims(cache, 4, name);
  check_packed(cache, name);
  check_type(cache, at::kBFloat16, name);
  check_like(cache, as, name);
}

/// q [batch * mtp, q_heads, 128]; block_table [batch, columns] and context_lengths [batch] in int32. Returns out as q and the
/// logarithms of the sums [batch * mtp, q_heads].
std::tuple<Tensor, Tensor> paged_attention(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                                           const Tensor& block_table, const Tensor& context_lengths,
                                           std::optional<double> softmax_scale, std::int64_t sliding_window) {
  check_dims(q, 3, "q");
  check_last(q, "q");
  check_cache(k_cache, q, "k_cache");
  check_cache(v_cache, q, "v_cache");
  TORCH_CHECK_VALUE(k_cache.sizes() == v_cache.sizes(), "k_cache and v_cache differ in shape");
  check_extent(k_cache, 3, q.size(2), "k_cache");
  check_dims(block_table, 2, "block_table");
  check_last(block_table, "block_table");
  check_dims(context_lengths, 1, "context_lengths");
  check_packed(context_lengths, "context_lengths");
  check_extent(context_lengths, 0, block_table.size(0), "context_lengths");
  for (const auto& [t, name] : {std::pair{&block_table, "block_table"}, {&context_lengths, "context_lengths"}}) {
    check_type(*t, at::kInt, name);
    check_like(*t, q, name);
  }
  const std::int64_t batch = block_table.size(0);
  TORCH_CHECK_VALUE(batch > 0 && q.size(0) % batch == 0, "q.size(0) is no multiple of the sequences");
  Tensor out = at::empty(q.sizes(), q.options());
  Tensor lse = at::empty({q.size(0), q.size(1)}, q.options().dtype(at::kFloat));
  if (q.is_meta() || out.numel() == 0) return {out, lse};
  PagedAttentionProblem p{.q = data_of(q), .k = data_of(k_cache), .v = data_of(v_cache), .out = data_of(out)};
  p.lse = data_of<float>(lse);
  p.block_table = data_of<const std::int32_t>(block_table);
  p.context_lengths = data_of<const std::int32_t>(context_lengths);
  p.spec = {.head_size = static_cast<int>(q.size(2)), .values = ValueLayout::token_major};
  p.spec.q = p.spec.out = dtype_of(q, "q"), p.spec.kv = dtype_of(k_cache, "k_cache");
  p.softmax_scale = static_cast<float>(softmax_scale.value_or(0));
  p.sliding_window = extent(sliding_window, "sliding_window");
  p.batch = extent(batch, "batch"), p.mtp = extent(q.size(0) / batch, "mtp");
  p.num_q_heads = extent(q.size(1), "q.size(1)"), p.num_kv_heads = extent(k_cache.size(2), "k_cache.size(2)");
  p.block_size = extent(k_cache.size(1), "k_cache.size(1)"), p.num_pages = k_cache.size(0);
  p.table_columns = extent(block_table.size(1), "block_table.size(1)");
  p = PagedAttentionProblem::nhd(p);
  p.q_row_stride = q.stride(0), p.q_head_stride = q.stride(1), p.table_row_stride = block_table.stride(0);
  queue("paged_attention", p, q);
  return {out, lse};
}

/// x [partials, rows, heads, head_size] with lse [partials, rows, heads]: out [rows, heads, head_size] and its lse.
std::tuple<Tensor, Tensor> attention_combine(const Tensor& x, const Tensor& x_lse) {
  check_dims(x, 4, "x");
  check_last(x, "x");
  check_dims(x_lse, 3, "x_lse");
  check_type(x_lse, at::kFloat, "x_lse");
  check_like(x_lse, x, "x_lse");
  for (const int dim : {0, 1, 2}) check_extent(x_lse, dim, x.size(dim), "x_lse");
  Tensor out = at::empty({x.size(1), x.size(2), x.size(3)}, x.options().dtype(at::kBFloat16));
  Tensor lse = at::empty({x.size(1), x.size(2)}, x.options().dtype(at::kFloat));
  if (x.is_meta() || out.numel() == 0) return {out, lse};
  AttentionCombineProblem p{.spec = {.x = dtype_of(x, "x")}, .x = data_of(x), .x_lse = data_of<const float>(x_lse)};
  p.out = data_of(out), p.lse = data_of<float>(lse);
  p.partials = extent(x.size(0), "x.size(0)"), p.rows = extent(x.size(1), "x.size(1)");
  p.heads = extent(x.size(2), "x.size(2)"), p.head_size = extent(x.size(3), "x.size(3)");
  p.x_strides = {.partial = x.stride(0), .row = x.stride(1), .head = x.stride(2)};
  p.x_lse_strides = {.partial = x_lse.stride(0), .row = x_lse.stride(1), .head = x_lse.stride(2)};
  p.out_strides = {.row = out.stride(0), .head = out.stride(1)};
  p.lse_strides = {.row = lse.stride(0), .head = lse.stride(1)};
  queue("attention_combine", p, x);
  return {out, lse};
}

/// k and v [tokens, kv_heads, head_size] go to slots [tokens], page * block_size + place, of which negative ones are left out.
void kv_cache_write(const Tensor& k, const Tensor& v, const Tensor& k_cache, const Tensor& v_cache,
                    const Tensor& slots) {
  check_dims(k, 3, "k");
  check_last(k, "k");
  check_last(v, "v");
  TORCH_CHECK_VALUE(k.sizes() == v.sizes(), "k and v differ in shape");
  check_cache(k_cache, k, "k_cache");
  check_cache(v_cache, k, "v_cache");
  TORCH_CHECK_VALUE(k_cache.sizes() == v_cache.sizes(), "k_cache and v_cache differ in shape");
  check_extent(k_cache, 2, k.size(1), "k_cache");
  check_extent(k_cache, 3, k.size(2), "k_cache");
  check_dims(slots, 1, "slots");
  check_packed(slots, "slots");
  check_extent(slots, 0, k.size(0), "slots");
  check_like(slots, k, "slots");
  if (k.is_meta() || k.numel() == 0) return;
  KvCacheWriteProblem p{.spec = {.x = dtype_of(k, "k"), .kv = dtype_of(k_cache, "k_cache")}};
  p.k = data_of(k), p.v = data_of(v), p.k_cache = data_of(k_cache), p.v_cache = data_of(v_cache);
  p.slots = data_of(slots), p.slot_type = index_type(slots, "slots");
  p.tokens = extent(k.size(0), "k.size(0)"), p.kv_heads = extent(k.size(1), "k.size(1)");
  p.head_size = extent(k.size(2), "k.size(2)");
  p.block_size = extent(k_cache.size(1), "k_cache.size(1)"), p.num_pages = k_cache.size(0);
  p.k_strides = head_strides(k), p.v_strides = head_strides(v);
  const PagedAttentionSpec reader{.head_size = p.head_size, .values = ValueLayout::token_major};
  p.k_cache_strides = nhd_key_strides(reader, p.kv_heads, p.block_size);
  p.v_cache_strides = nhd_value_strides(reader, p.kv_heads, p.block_size);
  queue("kv_cache_write", p, k);
}

/// q and k [tokens, heads, head_size] turned by tables [positions, rotary / 2] in f32: new tensors.
std::tuple<Tensor, Tensor> rope(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin,
                                const Tensor& positions, bool neighbours) {
  for (const auto& [t, name] : {std::pair{&q, "q"}, {&k, "k"}}) {
    check_dims(*t, 3, name);
    check_last(*t, name);
    check_extent(*t, 0, q.size(0), name);
    check_extent(*t, 2, q.size(2), name);
    check_like(*t, q, name);
  }
  for (const auto& [t, name] : {std::pair{&cos, "cos"}, {&sin, "sin"}}) {
    check_dims(*t, 2, name);
    check_packed(*t, name);
    check_type(*t, at::kFloat, name);
    check_like(*t, q, name);
  }
  TORCH_CHECK_VALUE(cos.sizes() == sin.sizes(), "cos and sin differ in shape");
  check_packed(positions, "positions");
  check_like(positions, q, "positions");
  TORCH_CHECK_VALUE(positions.numel() == q.size(0), "positions has not one number for each token");
  Tensor q_out = at::empty(q.sizes(), q.options()), k_out = at::empty(k.sizes(), k.options());
  if (q.is_meta() || q.numel() + k.numel() == 0) return {q_out, k_out};
  RopeProblem p{.spec = {.x = dtype_of(q, "q"), .table = DType::f32}};
  if (neighbours) p.spec.pairs = RopePairs::neighbours;
  p.q = data_of(q), p.k = data_of(k), p.q_out = data_of(q_out), p.k_out = data_of(k_out);
  p.cos = data_of(cos), p.sin = data_of(sin);
  p.positions = data_of(positions), p.position_type = index_type(positions, "positions");
  p.tokens = extent(q.size(0), "q.size(0)"), p.q_heads = extent(q.size(1), "q.size(1)");
  p.k_heads = extent(k.size(1), "k.size(1)"), p.head_size = extent(q.size(2), "q.size(2)");
  p.rotary = extent(2 * cos.size(1), "cos.size(1)"), p.table_rows = extent(cos.size(0), "cos.size(0)");
  p.table_stride = cos.stride(0);
  p.q_strides = head_strides(q), p.k_strides = head_strides(k);
  p.q_out_strides = head_strides(q_out), p.k_out_strides = head_strides(k_out);
  queue("rope", p, q);
  return {q_out, k_out};
}

/// Logits [sequences * queries, columns] of q [sequences * queries, 64, 128] on paged keys [pages, block_size, 128] in fp8, with
/// scales [pages, block_size] and weights [sequences * queries, 64] in f32.
Tensor mqa_logits(const Tensor& q, const Tensor& weights, const Tensor& k, const Tensor& k_scale,
                  const Tensor& block_tables, const Tensor& context_lengths, std::int64_t columns) {
  check_dims(q, 3, "q");
  check_last(q, "q");
  check_dims(k, 3, "k");
  check_packed(k, "k");
  check_dims(weights, 2, "weights");
  check_last(weights, "weights");
  check_dims(k_scale, 2, "k_scale");
  check_packed(k_scale, "k_scale");
  check_dims(block_tables, 2, "block_tables");
  check_packed(context_lengths, "context_lengths");
  for (const auto& [t, name] : {std::pair{&weights, "weights"}, {&k_scale, "k_scale"}}) {
    check_type(*t, at::kFloat, name);
    check_like(*t, q, name);
  }
  for (const auto& [t, name] : {std::pair{&block_tables, "block_tables"}, {&context_lengths, "context_lengths"}}) {
    check_type(*t, at::kInt, name);
    check_like(*t, q, name);
  }
  check_like(k, q, "k");
  check_extent(k, 2, q.size(2), "k");
  check_extent(weights, 0, q.size(0), "weights");
  check_extent(weights, 1, q.size(1), "weights");
  TORCH_CHECK_VALUE(k_scale.size(0) == k.size(0) && k_scale.size(1) == k.size(1),
                    "k_scale has not a number for each key");
  const std::int64_t sequences = block_tables.size(0);
  TORCH_CHECK_VALUE(context_lengths.numel() == sequences, "context_lengths has not one number for each sequence");
  TORCH_CHECK_VALUE(sequences > 0 && q.size(0) % sequences == 0, "q.size(0) is no multiple of the sequences");
  Tensor logits = at::empty({q.size(0), columns}, q.options().dtype(at::kFloat));
  if (q.is_meta() || logits.numel() == 0) return logits;
  MqaLogitsProblem p{.spec = {.type = dtype_of(q, "q"), .heads = static_cast<int>(q.size(1))}};
  p.q = data_of(q), p.weights = data_of<const float>(weights);
  p.k = data_of(k), p.k_scale = data_of(k_scale), p.logits = data_of<float>(logits);
  p.block_tables = data_of<const std::int32_t>(block_tables);
  p.context_lengths = data_of<const std::int32_t>(context_lengths);
  p.sequences = extent(sequences, "sequences"), p.queries = extent(q.size(0) / sequences, "queries");
  p.columns = extent(columns, "columns");
  p.pages = extent(k.size(0), "k.size(0)"), p.block_size = extent(k.size(1), "k.size(1)");
  p.table_columns = extent(block_tables.size(1), "block_tables.size(1)");
  p.q_stride = q.stride(0), p.q_head_stride = q.stride(1), p.weights_stride = weights.stride(0);
  p.k_page_stride = k.stride(0), p.k_stride = k.stride(1), p.k_scale_page_stride = k_scale.stride(0);
  p.logits_stride = columns, p.table_stride = block_tables.stride(0);
  queue("mqa_logits", p, q);
  return logits;
}

void implement(torch::Library& m) {
  m.impl("flash_attention", &flash_attention);
  m.impl("paged_attention", &paged_attention);
  m.impl("attention_combine", &attention_combine);
  m.impl("kv_cache_write", &kv_cache_write);
  m.impl("rope", &rope);
  m.impl("mqa_logits", &mqa_logits);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(tilewave, m) {
  m.def(
      "flash_attention(Tensor q, Tensor k, Tensor v, bool causal=True, float? softmax_scale=None) -> (Tensor, Tensor)");
  m.def(
      "paged_attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor context_lengths, float? "
      "softmax_scale=None, int sliding_window=0) -> (Tensor, Tensor)");
  m.def("attention_combine(Tensor x, Tensor x_lse) -> (Tensor, Tensor)");
  m.def("kv_cache_write(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slots) -> ()");
  m.def(
      "rope(Tensor q, Tensor k, Tensor cos, Tensor sin, Tensor positions, bool neighbours=False) -> (Tensor, Tensor)");
  m.def(
      "mqa_logits(Tensor q, Tensor weights, Tensor k, Tensor k_scale, Tensor block_tables, Tensor context_lengths, int "
      "columns) -> Tensor");
}
TORCH_LIBRARY_IMPL(tilewave, CUDA, m) { implement(m); }
TORCH_LIBRARY_IMPL(tilewave, Meta, m) { implement(m); }

}  // namespace tilewave_torch
