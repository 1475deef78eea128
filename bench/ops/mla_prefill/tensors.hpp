// SPDX-License-Identifier: MIT
// The tensors of a config of bench_mla, and the problem that they are.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>

#include "bench/ops/gemm/tensors.hpp"
#include "bench/ops/mla_prefill/case.hpp"
#include "bench/ops/mla_prefill/layer.hpp"

namespace tilewave::bench {

struct MlaPrefillTensors {
  TwinBuffer q, kv, kv_scale, up, out, q_starts, lengths, table;
  TwinBuffer x, first, q_norm, kv_norm, query, output, cos, sin, positions, slots;  // of layers
};

/// A call, and what its first launch makes: the plan, or the layer, and a workspace.
struct MlaTimedProblem {
  MlaStage stage{};
  MlaPrefillProblem prefill;  // also the tensors of absorbed products: out is theirs
  MlaLayerShape shape;
  MlaLayerTensors layer;
  struct Made {
    MlaPrefillPlan plan;
    GemmPlan product;
    std::unique_ptr<MlaLayer> layer;
    DeviceBuffer workspace;
  };
  std::shared_ptr<Made> made = std::make_shared<Made>();
};

/// Returns the extents of a config's call, without tensors.
inline MlaPrefillProblem mla_extents_of(const MlaPrefillCase& c) {
  MlaPrefillProblem p;
  p.spec = c.spec();
  p.softmax_scale = 0.1147f;  // that of DeepSeek-V3: 192^-0.5 with the factor of long contexts
  p.batch = c.launched_batch(), p.q_length = c.launched_queries(), p.total_q = p.batch * p.q_length;
  p.q_heads = c.launched_heads();
  if (c.stage != MlaStage::decode_layer) p.context_tokens = p.batch * c.launched_context();
  p.chunk_tokens = c.launched_chunk();
  p.block_size = c.block_size, p.table_columns = c.table_columns(), p.num_pages = c.pages();
  p = MlaPrefillProblem::dense(p);
  p.lse_head_stride = 0;
  return p;
}
inline MlaLayerShape mla_layer_shape_of(const MlaPrefillCase& c) {
  const MlaPrefillProblem p = mla_extents_of(c);
  MlaLayerShape s;
  s.hidden = c.hidden(), s.q_rank = c.q_rank(), s.heads = p.q_heads;
  s.batch = p.batch, s.tokens = p.total_q;
  if (c.stage == MlaStage::decode_layer) s.query_tokens = p.q_length;
  s.q_length = p.q_length, s.context_tokens = p.context_tokens, s.chunk_tokens = p.chunk_tokens;
  s.block_size = p.block_size, s.table_columns = p.table_columns, s.table_rows = c.length(), s.num_pages = p.num_pages;
  s.softmax_scale = p.softmax_scale;
  return s;
}
/// Returns the columns of a row of `out`.
inline std::int64_t mla_out_columns(const MlaPrefillCase& c) {
  if (c.is_layer()) return c.hidden();
  return std::int64_t{c.launched_heads()} * (c.stage == MlaStage::absorb_query ? latent_value_size : mla_value_size);
}
/// Returns the dimensions of a head of q: those of absorb_value are sums of latent rows.
inline std::int64_t mla_q_columns(const MlaPrefillCase& c) {
  return c.stage == MlaStage::absorb_value ? latent_value_size : mla_head_size;
}

template <class Address>
MlaTimedProblem mla_problem_of(const MlaPrefillCase& c, const MlaPrefillTensors& t, const Address& address) {
  const auto words = [&](const TwinBuffer& b) { return static_cast<const std::int32_t*>(address(b)); };
  MlaTimedProblem timed;
  timed.stage = c.stage, timed.shape = mla_layer_shape_of(c);
  MlaPrefillProblem& p = timed.prefill = mla_extents_of(c);
  p.q = address(t.q), p.kv = address(t.kv), p.up = address(t.up), p.out = address(t.out);
  if (p.spec.has_scale()) p.kv_scale = static_cast<const float*>(address(t.kv_scale));
  p.q_starts = words(t.q_starts), p.kv_lengths = words(t.lengths), p.block_table = words(t.table);
  MlaLayerTensors& l = timed.layer;
  l.x = address(t.x), l.first = address(t.first), l.q_norm = address(t.q_norm), l.kv_norm = address(t.kv_norm);
  l.query = address(t.query), l.up = p.up, l.output = address(t.output);
  l.cos = address(t.cos), l.sin = address(t.sin), l.kv = const_cast<void*>(p.kv), l.kv_scale = p.kv_scale;
  l.positions = words(t.positions), l.slots = static_cast<const std::int64_t*>(address(t.slots));
  l.q_starts = p.q_starts, l.lengths = p.kv_lengths, l.block_table = p.block_table, l.out = p.out;
  return timed;
}

/// Returns the batched product of a stage: the heads' queries times the rows of `up` that make keys, or sums of latent
/// rows times those that make values.
inline GemmProblem mla_absorbed_product(const MlaTimedProblem& timed) {
  const MlaPrefillProblem& p = timed.prefill;
  const bool query = timed.stage == MlaStage::absorb_query;
  const std::int64_t in = query ? mla_head_size : latent_value_size, out = query ? latent_value_size : mla_value_size;
  GemmProblem g;
  if (query) g.spec.layout = GemmLayout::nn;
  g.a = p.q, g.out = p.out;
  g.b = static_cast<const std::uint16_t*>(p.up) + (query ? 0 : mla_nope_size * latent_value_size);
  g.m = p.total_q, g.n = static_cast<std::int32_t>(out), g.k = query ? mla_nope_size : latent_value_size;
  g.batch = p.q_heads;
  g.a_stride = p.q_heads * in, g.a_batch_stride = in;
  g.b_stride = latent_value_size, g.b_batch_stride = std::int64_t{2} * mla_nope_size * latent_value_size;
  g.out_stride = p.q_heads * out, g.out_batch_stride = out;
  return g;
}

/// q and rows of the cache are nearly normal, those of groups times scales of 2^-1, 1 or 2. Weights keep their inputs'
/// size.
inline MlaPrefillTensors mla_fill(const MlaPrefillCase& c, int threads) {
  const MlaPrefillProblem p = mla_extents_of(c);
  const MlaLayerShape s = mla_layer_shape_of(c);
  const LatentRow row = p.spec.row();
  const auto words = [](std::int64_t count, const auto& value) {
    TwinBuffer buffer(static_cast<std::size_t>(count) * 4, "i32");
    for (std::int64_t i = 0; i < count; ++i)
      reinterpret_cast<std::int32_t*>(buffer.host())[i] = static_cast<std::int32_t>(value(i));
    buffer.upload();
    return buffer;
  };
  const auto matrix = [&](char name, DType type, std::int64_t rows, std::int64_t columns, float deviation) {
    const NormalElements normal(type, deviation);
    TwinBuffer buffer(static_cast<std::size_t>(rows * columns * size_of(type)), name_of(type));
    if (!fills(buffer.bytes())) return buffer;
    reference::parallel_for(rows, threads, [&](std::int64_t r) {
      normal.fill(buffer.host() + r * columns * size_of(type), columns,
                  random_bits({c.seed, static_cast<std::uint64_t>(name), static_cast<std::uint64_t>(r)}));
    });
    buffer.upload();
    return buffer;
  };
  const auto weights = [&](char name, std::int64_t rows, std::int64_t columns) {
    return matrix(name, DType::bf16, rows, columns, 1 / std::sqrt(static_cast<float>(columns)));
  };
  MlaPrefillTensors t;
  const std::int64_t tokens = p.num_pages * p.block_size, length = c.length();
  if (!c.is_layer()) t.q = matrix('q', DType::bf16, p.total_q, p.q_heads * mla_q_columns(c), 0.5f);
  t.up = weights('u', std::int64_t{p.q_heads} * 2 * mla_nope_size, latent_value_size);
  t.kv = matrix('k', DType::bf16, c.is_absorbed() ? 1 : tokens, 576, 1.0f);
  if (p.spec.kv != DType::bf16 && !c.is_absorbed()) {
    const TwinBuffer wide = std::move(t.kv);
    t.kv = TwinBuffer(static_cast<std::size_t>(tokens * row.token_bytes()), "fp8");
    reference::parallel_for(fills(t.kv.bytes()) ? tokens : 0, threads, [&](std::int64_t token) {
      auto* const at = reinterpret_cast<unsigned char*>(t.kv.host()) + token * row.token_bytes();
      for (int d = 0; d < 576; ++d) {
        const auto x = static_cast<float>(reference::element(DType::bf16, wide.host(), token * 576 + d));
        const float scale = p.spec.has_scale() ? 0.5f : std::ldexp(1.0f, static_cast<int>((token + d / 128) % 3) - 1);
        if (d < row.codes()) at[d] = f32_to_fp8(p.spec.kv, x / scale);
        if (d >= row.codes()) set_element(DType::bf16, at + row.wide_byte(), d - row.codes(), x);
        if (d % 128 == 0 && d < row.codes() && !p.spec.has_scale())
          std::memcpy(at + row.scale_byte() + 4 * (d / 128), &scale, 4);
      }
    });
    t.kv.upload();
  }
  t.kv_scale = filled(DType::f32, 1, 1, 1, [](std::int64_t, std::int64_t) { return 0.5f; });
  t.out = poisoned(DType::bf16, std::int64_t{c.rows} * mla_out_columns(c));
  t.q_starts = words(std::int64_t{p.batch} + 1, [&](std::int64_t i) { return i * p.q_length; });
  t.lengths = words(p.batch, [&](std::int64_t) { return length; });
  // Pages have an order that looks drawn: a step that shares no factor with any number of them.
  const auto page = [&](std::int64_t i) { return i * 1000003 % p.num_pages; };
  t.table = words(p.num_pages, page);
  if (!c.is_layer()) return t;
  t.x = matrix('x', DType::bf16, s.tokens, s.hidden, 1.0f);
  t.first = weights('f', s.first_columns(), s.hidden);
  t.q_norm = matrix('m', DType::bf16, 1, s.q_rank, 1.0f), t.kv_norm = matrix('n', DType::bf16, 1, 512, 1.0f);
  t.query = weights('w', std::int64_t{s.heads} * mla_head_size, s.q_rank);
  t.output = weights('o', s.hidden, std::int64_t{s.heads} * mla_value_size);
  const auto angle = [](std::int64_t position, std::int64_t i) {
    return position * std::pow(10000.0, -double(i) / 32);
  };
  t.cos = filled(DType::f32, s.table_rows, 32, threads,
                 [&](std::int64_t r, std::int64_t i) { return static_cast<float>(std::cos(angle(r, i))); });
  t.sin = filled(DType::f32, s.table_rows, 32, threads,
                 [&](std::int64_t r, std::int64_t i) { return static_cast<float>(std::sin(angle(r, i))); });
  const auto position = [&](std::int64_t token) { return c.launched_context() + token % p.q_length; };
  t.positions = words(s.tokens, position);
  t.slots = TwinBuffer(static_cast<std::size_t>(s.tokens) * 8, "i64");
  for (std::int64_t token = 0; token < s.tokens; ++token) {
    const std::int64_t at = position(token), column = token / p.q_length * p.table_columns + at / p.block_size;
    reinterpret_cast<std::int64_t*>(t.slots.host())[token] = page(column) * p.block_size + at % p.block_size;
  }
  t.slots.upload();
  return t;
}

}  // namespace tilewave::bench
