// SPDX-License-Identifier: MIT
// Every launch that a model makes, behind plain functions: part 1 of the tutorial, and the only door to tilewave. The
// rest of the engine knows neither specs nor plans. Activations are bf16, caches bf16 or fp8, weights of a WeightFormat;
// rows follow each other without gaps. room_kernels.hpp is what stands behind the door.
#pragma once

#include <cstdint>
#include <memory>
#include <tilewave/core/dtype.hpp>
#include <tilewave/ops/gemm/repack/problem.hpp>

#include "config.hpp"
#include "device.hpp"

namespace engine {

/// Rows of a step, at most, whose squares products hand on.
inline constexpr std::int32_t most_square_rows = 64;

struct CacheWrite;

/// Weights of a product: [n, k], and [n] of bias or null, which is f32 where the result is. Scales are f32 [n] of fp8, bf16
/// [k / 128, n] of int4, e8m0 [k / 32, n] of MXFP4.
struct Linear {
  const void* weight = nullptr;
  const void* scale = nullptr;
  const void* bias = nullptr;
  std::int32_t n = 0, k = 0;
  WeightFormat format = WeightFormat::bf16;
  bool norm_in_weight = false;  // `weight` is multiplied by the weights of the norm in front, which are ones then
  // What the product takes over from the launches beside it; Kernels::fuses says where that may be asked for.
  const void* norm = nullptr;      // f32 [k] or null: rows are normalised first, by these weights
  const float* squares = nullptr;  // f32 [rows, k / 64] or null: of x where it is normalised, squares of 64 neighbours
  float* squares_out = nullptr;    // f32 [rows, n / 64] or null: the same of the result
  const CacheWrite* cache = nullptr;  // the result is heads of q, k and v, and this is done with them
};
/// What a product can take over for some rows.
struct Fusions {
  bool norm = false, squares = false, cache = false;
};

/// A layer of experts: the router's n are the experts. gate_up, gates before ups, and down are those of one expert, and
/// the others' lie behind them.
struct Experts {
  Linear router, gate_up, down;
  std::int32_t chosen = 0;  // of a token
  bool renormalise = true;  // weights of a token's experts add up to 1
};

/// How the paged cache of every layer lies: K and V [pages, page_tokens, kv_heads, head_size] each.
struct CacheShape {
  std::int32_t pages = 0, page_tokens = 0;
};

/// The tokens of one step, on the device unless it says otherwise. Sequences' new tokens follow one another.
struct StepTables {
  std::int32_t tokens = 0, sequences = 0;
  std::int32_t most_queries = 0;              // the largest number of new tokens of a sequence: 1 is a pure decode step
  std::int32_t table_columns = 0;             // pages of the longest sequence
  const std::int32_t* ids = nullptr;          // [tokens]
  const std::int32_t* positions = nullptr;    // [tokens]
  const std::int64_t* slots = nullptr;        // [tokens] in the cache
  const std::int32_t* q_starts = nullptr;     // [sequences + 1]: where each sequence's new tokens begin
  const std::int32_t* kv_lengths = nullptr;   // [sequences], new tokens included
  const std::int32_t* block_table = nullptr;  // [sequences, table_columns]
};

/// What becomes of heads of q, k and v: q and k are normalised, where there are weights, and turned by their positions;
/// k and v go into their slots of a layer's cache.
struct CacheWrite {
  const void *q_norm = nullptr, *k_norm = nullptr;
  const float *cos = nullptr, *sin = nullptr;
  void *k_cache = nullptr, *v_cache = nullptr;
  const StepTables& step;
};

/// What is drawn from: a row of logits each, with the request's parameters.
struct SampleTables {
  std::int32_t rows = 0;
  bool all = false;                    // row i is the step's token i, as in a decode step
  const std::int32_t* from = nullptr;  // [rows]: the step's token whose logits are wanted
  const float *temperature = nullptr, *top_p = nullptr;
  const std::int32_t* top_k = nullptr;
  const std::uint64_t *seed = nullptr, *offset = nullptr;
};

/// Queues on one stream. Every function throws Error with the op's name, the status and its reason.
class Kernels {
 public:
  Kernels() = default;
  Kernels(const Kernels&) = delete;
  virtual ~Kernels() = default;

  /// out[i] = scale * table[ids[i]], rows of `hidden` columns.
  virtual void gather_rows(const void* table, std::int32_t table_rows, const std::int32_t* ids, float scale, void* out,
                           std::int32_t rows) = 0;
  /// rmsnorm of rows of `hidden` columns, by f32 weights: of x, which may be out, or, where there is a sum, of sum += x.
  virtual void norm(const void* x, void* sum, const void* weight, void* out, std::int32_t rows) = 0;
  /// What linear and gated can take over for so many rows. More rows are normalised where their squares are there.
  virtual Fusions fuses(const Linear& by, std::int32_t rows) const = 0;
  /// out = x weight^T + bias + residual; residual may be null, or out itself.
  virtual void linear(const void* x, const Linear& by, const void* residual, void* out, std::int32_t rows) = 0;
  /// out[:, c] = activation(gate) * up, of weights [gates, ups].
  virtual void gated(const void* x, const Linear& by, void* out, std::int32_t rows) = 0;
  /// sum += for each row of x what its experts make of it, by their weights.
  virtual void experts(const void* x, const Experts& by, void* sum, std::int32_t rows) = 0;
  /// f32 logits, capped if the model says so.
  virtual void logits(const void* x, const Linear& by, float* out, std::int32_t rows) = 0;
  /// CacheWrite behind a product: qkv is [tokens, q k v heads], and q stays in place.
  virtual void rotate_and_cache(void* qkv, const CacheWrite& write) = 0;
  /// out [tokens, q_heads * head_size] from the q of qkv and the caches. A window of 0 sees all tokens. Sinks are null, or
  /// one more logit of each head, in f32.
  virtual void attend(const void* qkv, const void* k_cache, const void* v_cache, std::int32_t window,
                      const float* sinks, void* out, const StepTables& step) = 0;
  /// One token and its log probability (of the logits as they are) for each row.
  virtual void sample(const float* logits, const SampleTables& tables, std::int32_t* tokens, float* logprobs) = 0;
  /// How often the workspace has moved. Launches that a graph captured before use the old one.
  virtual std::uint64_t workspace_moves() const = 0;
};

/// The kernels of the chip that kernels.cpp is compiled for.
std::unique_ptr<Kernels> make_kernels(const ModelConfig& config, const CacheShape& cache, hipStream_t stream);

/// What the chip does while weights are loaded. Both functions wait until it is done.
struct Loader {
  /// bf16 [experts][n, k] of the host become codes and scales as products of fp8 or int4 read them; see Linear. The
  /// buffers have the room for them.
  void (*quantise)(const std::vector<std::uint16_t>& values, std::int32_t experts, std::int32_t n, std::int32_t k,
                   WeightFormat format, Buffer& codes, Buffer& scales);
  /// MXFP4 as a checkpoint ships it is put as products read it.
  void (*repack)(const GemmRepackProblem&);
  bool norms_in_weights;  // products normalise few rows, if the norm's weights are in their own
  /// Whether a head's dimensions i and i + head_size / 2, which are turned together, shall lie side by side.
  bool (*pairs_of_neighbours)(const ModelConfig&);
};
Loader room_loader();

}  // namespace engine
