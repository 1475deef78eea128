// SPDX-License-Identifier: MIT
// The sweeps of bench_pa: which configs they have, in which order. The order is part of the CSV contract.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/harness/device.hpp"
#include "bench/harness/shapes.hpp"
#include "bench/ops/paged_attention/case.hpp"
#include "tilewave/ops/paged_attention/specs/features.hpp"

namespace tilewave::bench {

enum class Sweep : int { standard, accuracy, decode, emulated, features, scaling, native };

inline constexpr std::array all_sweeps{Sweep::standard, Sweep::accuracy, Sweep::decode, Sweep::emulated,
                                       Sweep::features, Sweep::scaling,  Sweep::native};

constexpr std::string_view name_of(Sweep sweep) {
  switch (sweep) {
    case Sweep::standard: return "default";
    case Sweep::accuracy: return "accuracy";
    case Sweep::decode: return "decode";
    case Sweep::emulated: return "emulated";
    case Sweep::features: return "features";
    case Sweep::scaling: return "scaling";
    case Sweep::native: return "native";
  }
  return "unknown";
}

constexpr std::optional<Sweep> sweep_named(std::string_view name) {
  for (const Sweep sweep : all_sweeps) {
    if (name_of(sweep) == name) return sweep;
  }
  return std::nullopt;
}

/// The config_id of the first config of a sweep. Later configs count up from it.
constexpr int first_config_id(Sweep sweep) { return static_cast<int>(sweep) * 10000; }

struct Heads {
  int q, kv;
};

/// The 64 configs of `python tests/kernels/test_pa.py` (FlyDSL), in its nesting order.
inline std::vector<PagedAttentionCase> standard_sweep(ArchId arch) {
  std::vector<PagedAttentionCase> cases;
  for (const bool varlen : {false, true})
    for (const Scaling quant : {Scaling::per_token, Scaling::per_tensor})
      for (const int mtp : {1, 2, 3, 4})
        for (const int batch : {3, 81})
          for (const int num_q_heads : {8, 16}) {
            PagedAttentionCase c = case_of(arch, quant);
            c.kv_varlen = varlen;
            c.mtp = mtp;
            c.batch = batch;
            c.num_q_heads = num_q_heads;
            cases.push_back(c);
          }
  return cases;
}

/// What FlyDSL's pytest runs: test_normal_accuracy (2304 configs), test_metadata_accuracy (2) and
/// test_sliding_window_accuracy (8). The product is nested so that neighbours share their cache contents (heads and mtp
/// inside) and their answers (trans_v innermost).
inline std::vector<PagedAttentionCase> accuracy_sweep(ArchId arch) {
  std::vector<PagedAttentionCase> cases;
  for (const int head_size : {128, 256})
    for (const int block_size : {16, 64})
      for (const Scaling quant : {Scaling::per_token, Scaling::per_tensor})
        for (const int batch : {3, 81, 128})
          for (const int context_length : {1027, 8192})
            for (const bool varlen : {false, true})
              for (const int num_q_heads : {8, 16, 4})
                for (const int mtp : {1, 2, 3, 4})
                  for (const bool trans_v : {true, false}) {
                    PagedAttentionCase c = case_of(arch, quant);
                    c.head_size = head_size;
                    c.block_size = block_size;
                    c.batch = batch;
                    c.context_length = context_length;
                    c.kv_varlen = varlen;
                    c.num_q_heads = num_q_heads;
                    c.mtp = mtp;
                    c.trans_v = trans_v;
                    cases.push_back(c);
                  }
  for (const bool last : {false, true}) {
    PagedAttentionCase c = case_of(arch, last ? Scaling::per_token : Scaling::per_tensor);
    c.mtp = last ? 4 : 1;
    c.num_q_heads = 16;
    cases.push_back(c);
  }
  for (const int num_q_heads : {8, 16})
    for (const int mtp : {1, 2, 3, 4}) {
      PagedAttentionCase c = case_of(arch, Scaling::per_token);
      c.num_q_heads = num_q_heads;
      c.mtp = mtp;
      c.context_length = 8192;
      c.batch = 128;
      c.kv_varlen = true;
      c.sliding_window = 1023;
      cases.push_back(c);
    }
  return cases;
}

struct DecodeShape {
  int batch;
  Heads heads;
  int head_size, context_length;
};

/// Shapes for throughput: decode steps of served models, long contexts, and two with too little work to fill a chip.
inline constexpr std::array<DecodeShape, 9> decode_shapes{{{64, {32, 8}, 128, 8192},
                                                           {128, {16, 1}, 128, 8192},
                                                           {128, {8, 1}, 128, 8192},
                                                           {64, {64, 8}, 128, 4096},
                                                           {16, {64, 8}, 64, 16384},
                                                           {1, {64, 8}, 128, 8192},
                                                           {1, {32, 4}, 128, 131072},
                                                           {3, {16, 1}, 128, 1027},
                                                           {81, {16, 1}, 128, 1027}}};

inline PagedAttentionCase decode_case(ArchId arch, const DecodeShape& shape, Scaling quant, int block_size, int mtp) {
  PagedAttentionCase c = case_of(arch, quant);
  c.batch = shape.batch;
  c.num_q_heads = shape.heads.q;
  c.num_kv_heads = shape.heads.kv;
  c.head_size = shape.head_size;
  c.context_length = shape.context_length;
  c.block_size = block_size;
  c.mtp = mtp;
  c.distinct_pages = true;
  return c;
}

/// Every decode shape with KV bf16 and fp8 (per tensor), pages of 16, 64 and 1024 tokens, mtp 1, 2, 4: 162 configs.
inline std::vector<PagedAttentionCase> decode_sweep(ArchId arch) {
  std::vector<PagedAttentionCase> cases;
  for (const DecodeShape& shape : decode_shapes)
    for (const Scaling quant : {Scaling::none, Scaling::per_tensor})
      for (const int block_size : {16, 64, 1024})
        for (const int mtp : {1, 2, 4}) cases.push_back(decode_case(arch, shape, quant, block_size, mtp));
  return cases;
}

/// What an emulated device can afford. It has every combination of the accuracy sweep's classes at batch 3 and context
/// 1027, what that sweep lacks (bf16, head_size 64, block_size 128, several KV heads), and a fixed sample of larger
/// configs.
inline std::vector<PagedAttentionCase> emulated_sweep(ArchId arch) {
  std::vector<PagedAttentionCase> cases;
  for (const int head_size : {128, 256})
    for (const int block_size : {16, 64, 1024})
      for (const Scaling quant : {Scaling::per_token, Scaling::per_tensor})
        for (const bool varlen : {false, true})
          for (const int sliding_window : {0, 1023})
            for (const int num_q_heads : {8, 16, 4})
              for (const int mtp : {1, 2, 3, 4})
                for (const bool trans_v : {true, false}) {
                  PagedAttentionCase c = case_of(arch, quant);
                  c.head_size = head_size;
                  c.block_size = block_size;
                  c.kv_varlen = varlen;
                  c.sliding_window = sliding_window;
                  c.num_q_heads = num_q_heads;
                  c.mtp = mtp;
                  c.trans_v = trans_v;
                  cases.push_back(c);
                }
  for (const int head_size : {64, 128, 256})
    for (const Scaling quant : {Scaling::none, Scaling::per_token, Scaling::per_tensor})
      for (const int block_size : {16, 64, 128, 1024})
        for (const int sliding_window : {0, 100})
          for (const int mtp : {1, 4})
            for (const bool trans_v : {true, false}) {
              PagedAttentionCase c = case_of(arch, quant);
              c.head_size = head_size;
              c.block_size = block_size;
              c.sliding_window = sliding_window;
              c.mtp = mtp;
              c.trans_v = trans_v;
              c.kv_varlen = true;
              c.num_q_heads = 12;
              c.num_kv_heads = 2;
              c.inputs = Inputs::varied;
              cases.push_back(c);
            }
  // This prime step through the product meets every value of every dimension; batch 3 was covered above.
  const std::vector<PagedAttentionCase> accuracy = accuracy_sweep(arch);
  for (std::size_t i = 188; i < accuracy.size() - 10; i += 197) {
    if (accuracy[i].batch > 3) cases.push_back(accuracy[i]);
  }
  cases.push_back(accuracy.back());
  for (const std::size_t shape : {5u, 8u})
    for (const Scaling quant : {Scaling::none, Scaling::per_tensor}) {
      cases.push_back(decode_case(arch, decode_shapes[shape], quant, 64, 2));
    }
  return cases;
}

/// Every feature spec, on a shape that fills a chip and on one that does not. Pages have 16 and 64 tokens, or 1 and 17
/// if the spec takes any number. Caches are NHD and HND if it is token_major. mtp is 1 and 8.
inline std::vector<PagedAttentionCase> features_sweep(ArchId arch) {
  std::vector<PagedAttentionCase> cases;
  for (const PagedAttentionSpec& spec : paged_attention_feature_specs(arch))
    for (const std::size_t shape : {0u, 7u})
      for (const int block_size : {1, 16, 17, 64})
        for (const KvLayout layout : {KvLayout::units, KvLayout::nhd, KvLayout::hnd})
          for (const int mtp : {1, 8}) {
            if (!spec.any_block_size && block_size % 16 != 0) continue;
            if ((spec.values == ValueLayout::token_major) != (layout != KvLayout::units)) continue;
            PagedAttentionCase c = case_of(arch, spec);
            c.batch = decode_shapes[shape].batch;
            c.num_q_heads = decode_shapes[shape].heads.q;
            c.num_kv_heads = decode_shapes[shape].heads.kv;
            c.context_length = decode_shapes[shape].context_length;
            c.block_size = block_size;
            c.layout = layout;
            c.mtp = mtp;
            c.distinct_pages = true;
            cases.push_back(c);
          }
  return cases;
}

/// Sizes in steps of 1.5 and less (except from 1 to 2), and sizes one past a full page, tile or wave of blocks, where a
/// cliff would hide.
inline constexpr std::array scaling_batches{1,  2,  3,  4,  6,  8,  12,  16,  17,  24,
                                            32, 33, 48, 64, 65, 96, 128, 129, 192, 256};
inline constexpr std::array scaling_contexts{128,   129,   192,   256,   384,   512,   768,   1000,  1024,
                                             1025,  1536,  2048,  3072,  4096,  4097,  6144,  8192,  12288,
                                             16384, 24576, 32768, 32769, 49152, 65536, 98304, 131072};

/// KV bytes of the largest cell of the scaling sweep. They leave room on a GPU and in the memory of its host, which
/// holds a copy. On the emulated device they are what it can afford.
inline constexpr std::int64_t scaling_kv_bytes = std::int64_t{1} << (emulated_device ? 22 : 36);

/// How time grows with batch and context: 32 heads on 8, head_size 128, pages of 64 tokens, KV bf16 and fp8 (per
/// tensor). Cells with more than `most_kv_bytes` of attended K and V are left out. The largest comes first, so that all
/// cells of a type use pages of its pool.
inline std::vector<PagedAttentionCase> scaling_sweep(ArchId arch, std::int64_t most_kv_bytes = scaling_kv_bytes) {
  std::vector<PagedAttentionCase> cases;
  for (const Scaling quant : {Scaling::none, Scaling::per_tensor}) {
    const auto first = cases.size();
    const auto tokens = [](const PagedAttentionCase& c) { return std::int64_t{c.batch} * c.context_length; };
    for (const int batch : scaling_batches)
      for (const int context_length : scaling_contexts) {
        const PagedAttentionCase c = decode_case(arch, {batch, {32, 8}, 128, context_length}, quant, 64, 1);
        const std::int64_t token_bytes = std::int64_t{2} * c.num_kv_heads * c.head_size * size_of(c.kv);
        if (tokens(c) * token_bytes <= most_kv_bytes) cases.push_back(c);
      }
    std::stable_sort(cases.begin() + first, cases.end(), [&](const PagedAttentionCase& a, const PagedAttentionCase& b) {
      return a.num_pages() != b.num_pages() ? a.num_pages() > b.num_pages() : tokens(a) > tokens(b);
    });
  }
  return cases;
}

/// The fp8 half of the decode sweep with native products: 81 configs.
inline std::vector<PagedAttentionCase> native_sweep(ArchId arch) {
  std::vector<PagedAttentionCase> cases = decode_sweep(arch);
  std::erase_if(cases, [](const PagedAttentionCase& c) { return !is_fp8(c.kv); });
  for (PagedAttentionCase& c : cases) c.native = true;
  return cases;
}

/// A decode step of a model with KV bf16 and fp8 (per tensor), and pages of 64 tokens. Models with latent attention
/// have none, since their heads have 576 dimensions.
inline std::vector<PagedAttentionCase> model_cases(ArchId arch, const ModelStep& step) {
  std::vector<PagedAttentionCase> cases;
  const Model& m = step.share;
  if (m.latent.any()) return cases;
  for (const Scaling quant : {Scaling::none, Scaling::per_tensor})
    for (const int batch : step.batch)
      for (const int context : step.context) {
        cases.push_back(decode_case(arch, {batch, {m.q_heads, m.kv_heads}, m.head_size, context}, quant, 64, 1));
      }
  return cases;
}

inline std::vector<PagedAttentionCase> cases_of(Sweep sweep, ArchId arch) {
  switch (sweep) {
    case Sweep::standard: return standard_sweep(arch);
    case Sweep::accuracy: return accuracy_sweep(arch);
    case Sweep::decode: return decode_sweep(arch);
    case Sweep::emulated: return emulated_sweep(arch);
    case Sweep::features: return features_sweep(arch);
    case Sweep::scaling: return scaling_sweep(arch);
    case Sweep::native: return native_sweep(arch);
  }
  return {};
}

}  // namespace tilewave::bench
