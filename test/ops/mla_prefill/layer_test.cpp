// SPDX-License-Identifier: MIT
// A whole attention layer with latent heads, prefill and decode: first a prompt in two calls, then tokens one by one and
// two at a time, all over one cache. The oracle has no cache, absorbs no weights and rounds nothing: it expands keys and
// values of all tokens in double.
#include "bench/ops/mla_prefill/layer.hpp"

#include "test/ops/rows.hpp"
#include "test/uploads.hpp"
#include "tilewave/reference/parallel.hpp"
#include "tilewave/reference/rope.hpp"

namespace tilewave::test {
namespace {

/// A matrix of bf16 values, with a name from which they are drawn.
struct Matrix {
  std::int64_t rows, columns;
  std::vector<std::uint16_t> bits;

  Matrix(char name, std::int64_t rows, std::int64_t columns, float scale, float shift = 0)
      : rows(rows), columns(columns), bits(rows * columns) {
    reference::parallel_for(rows, 16, [&](std::int64_t r) {
      for (std::int64_t c = 0; c < columns; ++c) bits[r * columns + c] = f32_to_bf16(shift + scale * drawn(name, r, c));
    });
  }
  double at(std::int64_t r, std::int64_t c) const { return bf16_to_f32(bits[r * columns + c]); }
  /// Returns the products of a vector with rows first to first + count.
  std::vector<double> times(const std::vector<double>& x, std::int64_t first, std::int64_t count) const {
    std::vector<double> y(count);
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t c = 0; c < columns; ++c) y[r] += at(first + r, c) * x[c];
    return y;
  }
};

/// The weights and inputs of a layer.
struct Layer {
  bench::MlaLayerShape s;
  std::int32_t tokens;
  Matrix x, first, q_norm, kv_norm, query, up, output;

  Layer(const bench::MlaLayerShape& s, std::int32_t tokens)
      : s(s),
        tokens(tokens),
        x('x', tokens, s.hidden, 1),
        first('f', s.first_columns(), s.hidden, 1 / std::sqrt(float(s.hidden))),
        q_norm('m', 1, s.q_rank, 0.1f, 1),
        kv_norm('n', 1, latent_value_size, 0.1f, 1),
        query('q', std::int64_t{s.heads} * mla_head_size, s.q_rank, 1 / std::sqrt(float(s.q_rank))),
        up('u', std::int64_t{s.heads} * 2 * mla_nope_size, latent_value_size, 1 / std::sqrt(512.0f)),
        output('o', s.hidden, std::int64_t{s.heads} * mla_value_size, 1 / std::sqrt(float(s.heads * mla_value_size))) {}

  std::vector<double> normed(std::vector<double> v, const Matrix& weight) const {
    double squares = 0;
    for (const double e : v) squares += e * e;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(v.size()) + s.eps);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] *= factor * weight.at(0, static_cast<std::int64_t>(i));
    return v;
  }
  /// Rotates the last 64 values in neighbouring pairs.
  static void rotate(std::vector<double>& v, std::int32_t position) {
    const reference::RopeAngles angles = reference::rope_angles(mla_rope_size, 10000);
    double* const x = v.data() + v.size() - mla_rope_size;
    for (int i = 0; i < mla_rope_size / 2; ++i) {
      const double c = std::cos(position * angles.frequency[i]), n = std::sin(position * angles.frequency[i]);
      const double x0 = x[2 * i], x1 = x[2 * i + 1];
      x[2 * i] = x0 * c - x1 * n, x[2 * i + 1] = x1 * c + x0 * n;
    }
  }

  /// Returns the outputs of all tokens, [tokens][hidden].
  std::vector<std::vector<double>> expected() const {
    std::vector<std::vector<double>> latents(tokens), ropes(tokens), queries(tokens), heads_out(tokens), out(tokens);
    reference::parallel_for(tokens, 16, [&](std::int64_t t) {
      std::vector<double> row(s.hidden);
      for (std::int32_t c = 0; c < s.hidden; ++c) row[c] = x.at(t, c);
      const std::vector<double> a = first.times(row, 0, s.first_columns());
      const auto part = [&](std::int64_t from, std::int64_t count) {
        return std::vector<double>(a.begin() + from, a.begin() + from + count);
      };
      latents[t] = normed(part(s.q_rank, latent_value_size), kv_norm);
      ropes[t] = part(s.q_rank + latent_value_size, mla_rope_size);
      rotate(ropes[t], static_cast<std::int32_t>(t));
      queries[t] = query.times(normed(part(0, s.q_rank), q_norm), 0, query.rows);
      heads_out[t].resize(std::int64_t{s.heads} * mla_value_size);
    });
    reference::parallel_for(s.heads, 16, [&](std::int64_t h) {
      std::vector<std::vector<double>> keys(tokens), values(tokens);
      for (std::int32_t t = 0; t < tokens; ++t) {
        keys[t] = up.times(latents[t], h * 2 * mla_nope_size, mla_nope_size);
        keys[t].insert(keys[t].end(), ropes[t].begin(), ropes[t].end());
        values[t] = up.times(latents[t], h * 2 * mla_nope_size + mla_nope_size, mla_value_size);
        const auto from = queries[t].begin() + h * mla_head_size;
        std::vector<double> q(from, from + mla_head_size);
        rotate(q, t);
        std::vector<double> weights(t + 1);
        double largest = -1e300, sum = 0;
        for (std::int32_t k = 0; k <= t; ++k) {
          for (int d = 0; d < mla_head_size; ++d) weights[k] += s.softmax_scale * q[d] * keys[k][d];
          largest = std::max(largest, weights[k]);
        }
        for (double& w : weights) sum += w = std::exp(w - largest);
        for (std::int32_t k = 0; k <= t; ++k)
          for (int d = 0; d < mla_value_size; ++d)
            heads_out[t][h * mla_value_size + d] += weights[k] / sum * values[k][d];
      }
    });
    reference::parallel_for(tokens, 16, [&](std::int64_t t) { out[t] = output.times(heads_out[t], 0, s.hidden); });
    return out;
  }
};

/// The new tokens of a call: how many, and how they are attended.
struct Call {
  std::int32_t tokens;
  bool decodes;
  std::int32_t chunk_tokens = 0;
};

/// Runs the calls one after the other, over one cache with pages in an order of their own. Returns the largest error of
/// an output, relative to the root of the mean square of all.
double error_of(ArchId arch, const LatentRow& row, const Layer& layer, const std::vector<std::vector<double>>& wanted,
                const std::vector<Call>& calls) {
  const bench::MlaLayerShape& s = layer.s;
  Uploads upload;
  bench::MlaLayerTensors t;
  std::vector<float> tables[2];
  for (std::int32_t position = 0; position < layer.tokens; ++position) {
    std::vector<double> one(mla_rope_size);
    for (int d = 0; d < mla_rope_size; d += 2) one[d] = 1;
    Layer::rotate(one, position);
    for (int d = 0; d < mla_rope_size; ++d) tables[d % 2].push_back(static_cast<float>(one[d]));
  }
  t.first = upload(layer.first.bits), t.q_norm = upload(layer.q_norm.bits), t.kv_norm = upload(layer.kv_norm.bits);
  t.query = upload(layer.query.bits), t.up = upload(layer.up.bits), t.output = upload(layer.output.bits);
  t.cos = upload(tables[0]), t.sin = upload(tables[1]);
  const std::int32_t columns = ceil_div(layer.tokens, s.block_size);
  std::vector<std::int32_t> table(columns);
  for (std::int32_t i = 0; i < columns; ++i) table[i] = (i * 7919 + 2) % columns;  // 7919 divides none
  t.block_table = static_cast<const std::int32_t*>(upload(table));
  const bench::DeviceBuffer cache(static_cast<std::size_t>(columns * row.page_bytes(s.block_size)));
  cache.fill(unread_byte);
  t.kv = cache.data();
  if (is_fp8(row.kv) && row.layout == LatentLayout::plain)
    t.kv_scale = static_cast<const float*>(upload(std::vector<float>{0.015625f}));

  double squares = 0, largest = 0;
  for (const auto& token : wanted)
    for (const double w : token) squares += w * w;
  const double usual = std::sqrt(squares / static_cast<double>(wanted.size() * s.hidden));
  std::int32_t done = 0;
  for (const Call& call : calls) {
    bench::MlaLayerShape shape = s;
    shape.tokens = call.tokens, shape.table_columns = columns, shape.num_pages = columns;
    shape.table_rows = layer.tokens;
    if (call.decodes) shape.query_tokens = call.tokens;
    if (!call.decodes)
      shape.q_length = call.tokens, shape.context_tokens = done, shape.chunk_tokens = call.chunk_tokens;
    std::vector<std::uint16_t> x(layer.x.bits.begin() + std::int64_t{done} * s.hidden,
                                 layer.x.bits.begin() + std::int64_t{done + call.tokens} * s.hidden);
    std::vector<std::int32_t> positions;
    std::vector<std::int64_t> slots;
    for (std::int32_t i = done; i < done + call.tokens; ++i) {
      positions.push_back(i);
      slots.push_back(std::int64_t{table[i / s.block_size]} * s.block_size + i % s.block_size);
    }
    t.x = upload(x), t.positions = static_cast<const std::int32_t*>(upload(positions));
    t.slots = static_cast<const std::int64_t*>(upload(slots));
    t.q_starts = static_cast<const std::int32_t*>(upload(std::vector<std::int32_t>{0, call.tokens}));
    t.lengths = static_cast<const std::int32_t*>(upload(std::vector<std::int32_t>{done + call.tokens}));
    const bench::DeviceBuffer out(static_cast<std::size_t>(call.tokens) * s.hidden * 2);
    out.fill(unwritten_byte);
    t.out = out.data();
    const bench::MlaLayer run(arch, row, shape, t);
    if (const Status status = run.launch({}); !status.ok()) throw std::runtime_error(status.reason);
    bench::check_hip(hipDeviceSynchronize(), "running the layer");
    std::vector<std::uint16_t> got(x.size());
    bench::check_hip(hipMemcpy(got.data(), out.data(), 2 * got.size(), hipMemcpyDeviceToHost), "copying back");
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double error = std::abs(bf16_to_f32(got[i]) - wanted[done + i / s.hidden][i % s.hidden]) / usual;
      largest = error <= largest ? largest : error;  // a NaN stays
    }
    done += call.tokens;
  }
  return largest;
}

/// Checks a layer by every cache of every room: its prompt in two calls, the second over the first in chunks, then
/// tokens by themselves and two at once.
void check_layer(const bench::MlaLayerShape& s, std::int32_t prompt, std::int32_t chunk, std::int32_t chunk_tokens) {
  const std::vector<Call> calls{{prompt, false}, {chunk, false, chunk_tokens}, {1, true}, {2, true}, {1, true}};
  const Layer layer(s, prompt + chunk + 4);
  const std::vector<std::vector<double>> wanted = layer.expected();
  int ran = 0;
  const MlaPrefillEntry* last = nullptr;
  for (const MlaPrefillEntry* e : all_mla_prefill_entries()) {
    if (last != nullptr && last->arch == e->arch && last->spec == e->spec) continue;  // the same with another policy
    last = e;
    INFO(name_of(e->arch) << " " << name_of(e->spec));
    // The largest of ten thousand errors: what bf16 leaves of the steps, and codes of four bits of the cache.
    CHECK(error_of(e->arch, e->spec.row(), layer, wanted, calls) < (is_fp8(e->spec.kv) ? 0.4 : 0.06));
    ++ran;
  }
  CHECK(ran > 0);
}

TEST_CASE("a layer with latent heads is right for prompts, chunks and decoded tokens") {
  check_layer({.hidden = 256, .q_rank = 128, .heads = 2, .block_size = 8}, 21, 13, 9);
}

TEST_CASE("a layer of DeepSeek-V3 is right in its own shape", "[full]") {
  if (bench::emulated_device) return skip_test("the emulated device takes too long for it");
  check_layer({}, 70, 33, 64);
}

}  // namespace
}  // namespace tilewave::test
