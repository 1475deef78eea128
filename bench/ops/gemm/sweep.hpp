// SPDX-License-Identifier: MIT
// The sweeps of bench_gemm, each a list of configs. Their order is part of the CSV contract.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "bench/ops/gemm/case.hpp"
#include "bench/ops/gemm/shapes.hpp"

namespace tilewave::bench {

enum class GemmSweep : int {
  standard,
  square,
  decode,
  grouped,
  batched,
  preshuffled,
  int8,
  gated,
  int4,
  mx,
  prefill,
  layouts
};

inline constexpr std::array all_gemm_sweeps{GemmSweep::standard, GemmSweep::square,  GemmSweep::decode,
                                            GemmSweep::grouped,  GemmSweep::batched, GemmSweep::preshuffled,
                                            GemmSweep::int8,     GemmSweep::gated,   GemmSweep::int4,
                                            GemmSweep::mx,       GemmSweep::prefill, GemmSweep::layouts};

constexpr const char* name_of(GemmSweep sweep) {
  constexpr const char* names[] = {"default", "square", "decode", "grouped", "batched", "preshuffled",
                                   "int8",    "gated",  "int4",   "mx",      "prefill", "layouts"};
  return names[static_cast<int>(sweep)];
}

/// Returns the config_id of a sweep's first config. Later ones count up.
constexpr int first_config_id(GemmSweep sweep) { return static_cast<int>(sweep) * 10000; }

/// The configs of one architecture, in the order in which they are added.
class GemmCases {
 public:
  explicit GemmCases(ArchId arch) : arch_(arch), fp8_(facts_of(arch).fp8) {}

  GemmSpec bf16() const { return {}; }
  GemmSpec f16() const { return {.a = DType::f16, .b = DType::f16, .out = DType::f16}; }
  GemmSpec fp8(Scaling scale) const { return {.a = fp8_, .b = fp8_, .scale = scale}; }

  GemmCase& add(const GemmSpec& spec, std::int32_t m, std::int32_t n, std::int32_t k) {
    GemmCase c;
    c.arch = arch_;
    c.spec = spec;
    c.m = m, c.n = n, c.k = k;
    return cases.emplace_back(c);
  }
  void add_groups(GemmSpec spec, GemmGroups kind, std::int32_t groups, std::int32_t rows, std::int32_t n,
                  std::int32_t k) {
    spec.groups = kind;
    const std::int32_t room = 4;  // A masked group has room for so many times its average rows.
    GemmCase& c = add(spec, kind == GemmGroups::contiguous ? groups * rows : room * rows, n, k);
    c.groups = groups, c.group_rows = rows;
  }

  std::vector<GemmCase> cases;

 private:
  ArchId arch_;
  DType fp8_;
};

/// Returns a spec with int4 weights that have scales of so many k.
inline GemmSpec int4(GemmSpec spec, int scale_k) {
  spec.b = DType::i4, spec.scale = Scaling::per_group;
  spec.weights = GemmWeights::preshuffled, spec.scale_k = scale_k;
  return spec;
}

/// Returns the weights of models with 4096 rows of A, two large cubes, and two products of int4 weights.
inline std::vector<GemmCase> gemm_model_sweep(ArchId arch) {
  GemmCases all(arch);
  constexpr std::int32_t m = 4096;
  const auto add = [&](GemmWeightShape s, bool blocks) {
    all.add(all.bf16(), m, s.n, s.k);
    all.add(all.fp8(Scaling::per_row), m, s.n, s.k);
    if (blocks) all.add(all.fp8(Scaling::per_block), m, s.n, s.k);
  };
  for (const GemmWeightShape s : gemm_model_shapes) add(s, false);
  for (const GemmWeightShape s : gemm_deepseek_shapes) add(s, true);
  for (const std::int32_t side : {4096, 8192}) {
    all.add(all.bf16(), side, side, side);
    for (const Scaling scale : {Scaling::per_row, Scaling::per_tensor, Scaling::per_block})
      all.add(all.fp8(scale), side, side, side);
  }
  // Int4 weights in tiles of 128 x 128: a change to the tensor kernel that slows their loop down shows here.
  for (const GemmSpec& spec : {int4(all.bf16(), 128), int4(all.fp8(Scaling::none), 128)})
    all.add(spec, m, 4096, 4096), all.add(spec, 128, 8192, 28672);
  return all.cases;
}

/// Returns products with equal m, n and k.
inline std::vector<GemmCase> gemm_square_sweep(ArchId arch) {
  GemmCases all(arch);
  for (const std::int32_t side : {1024, 2048, 4096, 8192, 16384}) {
    all.add(all.bf16(), side, side, side);
    all.add(all.f16(), side, side, side);
    for (const Scaling scale : {Scaling::per_row, Scaling::per_tensor, Scaling::per_block})
      all.add(all.fp8(scale), side, side, side);
  }
  all.add(all.bf16(), 4096, 4096, 4096).bias = true;
  return all.cases;
}

/// Returns products with few rows of A, where weights are read once.
inline std::vector<GemmCase> gemm_decode_sweep(ArchId arch) {
  constexpr std::array shapes{GemmWeightShape{7168, 2048},  GemmWeightShape{384, 7168},  GemmWeightShape{5120, 8192},
                              GemmWeightShape{7168, 16384}, GemmWeightShape{4096, 4096}, GemmWeightShape{1280, 8192},
                              GemmWeightShape{8192, 1024},  GemmWeightShape{7168, 8192}, GemmWeightShape{8192, 3584},
                              GemmWeightShape{2112, 7168}};
  GemmCases all(arch);
  for (const GemmWeightShape s : shapes) {
    for (const GemmSpec& spec : {all.bf16(), all.fp8(Scaling::per_row), all.fp8(Scaling::per_block)})
      for (const std::int32_t m : {1, 8, 16, 32, 64, 128}) all.add(spec, m, s.n, s.k);
  }
  return all.cases;
}

/// Returns both projections of an expert of DeepSeek.
inline std::vector<GemmCase> gemm_grouped_sweep(ArchId arch) {
  GemmCases all(arch);
  for (const GemmWeightShape s : {GemmWeightShape{4096, 7168}, GemmWeightShape{7168, 2048}}) {
    for (const GemmSpec& spec : {all.bf16(), all.fp8(Scaling::per_block)}) {
      all.add_groups(spec, GemmGroups::contiguous, 8, 4096, s.n, s.k);
      all.add_groups(spec, GemmGroups::contiguous, 256, 128, s.n, s.k);
      all.add_groups(spec, GemmGroups::masked, 32, 192, s.n, s.k);
      all.add_groups(spec, GemmGroups::masked, 256, 32, s.n, s.k);
    }
  }
  return all.cases;
}

/// Returns the absorbed projections of MLA, with a product for each head.
inline std::vector<GemmCase> gemm_batched_sweep(ArchId arch) {
  GemmCases all(arch);
  for (const GemmWeightShape s : {GemmWeightShape{512, 128}, GemmWeightShape{128, 512}})
    for (const std::int32_t m : {1, 16, 128}) all.add(all.bf16(), m, s.n, s.k).batch = 128;
  return all.cases;
}

/// Returns products of a small prefill, with 256 to 2048 rows.
inline std::vector<GemmCase> gemm_prefill_sweep(ArchId arch) {
  constexpr std::array shapes{
      GemmWeightShape{7168, 2048},  GemmWeightShape{5120, 8192},  GemmWeightShape{28672, 4096},
      GemmWeightShape{7168, 16384}, GemmWeightShape{4096, 4096},  GemmWeightShape{2112, 7168},
      GemmWeightShape{8192, 28672}, GemmWeightShape{24576, 1536}, GemmWeightShape{18432, 16384}};
  GemmCases all(arch);
  for (const GemmWeightShape s : shapes) {
    for (const GemmSpec& spec : {all.bf16(), all.fp8(Scaling::per_row), all.fp8(Scaling::per_block)})
      for (const std::int32_t m : {256, 512, 1024, 2048}) all.add(spec, m, s.n, s.k);
  }
  return all.cases;
}

/// Returns products with the layouts nn, tn and tt that the features have, beside nt.
inline std::vector<GemmCase> gemm_layouts_sweep(ArchId arch) {
  GemmCases all(arch);
  for (const std::int32_t side : {4096, 8192}) {
    GemmSpec nn = all.bf16(), tn = all.f16(), tt = all.bf16();
    nn.layout = GemmLayout::nn, tn.layout = GemmLayout::tn, tt.layout = GemmLayout::tt;
    tt.activation = ActivationKind::gelu_tanh;
    for (const GemmSpec& spec : {all.bf16(), nn, tt, all.f16(), tn}) all.add(spec, side, side, side);
  }
  return all.cases;
}

/// Returns products with preshuffled weights: sixteen rows by 16 bytes of k lie side by side.
inline std::vector<GemmCase> gemm_preshuffled_sweep(ArchId arch) {
  GemmCases all(arch);
  const auto add = [&](GemmSpec spec, std::int32_t m, GemmWeightShape s) {
    spec.weights = GemmWeights::preshuffled;
    all.add(spec, m, s.n, s.k);
  };
  for (const GemmWeightShape s : {GemmWeightShape{40960, 5120}, GemmWeightShape{77824, 5120}})
    add(all.fp8(Scaling::per_row), 16, s);
  GemmSpec blocks = all.fp8(Scaling::per_block);
  blocks.out = DType::f16;
  for (const std::int32_t m : {1, 16, 64, 256})
    for (const GemmSpec& spec : {all.bf16(), all.fp8(Scaling::per_row), blocks}) add(spec, m, {2112, 7168});
  for (const std::int32_t m : {16, 4096})
    for (const GemmSpec& spec : {all.bf16(), all.fp8(Scaling::per_row), blocks}) add(spec, m, {7168, 2048});
  return all.cases;
}

/// Returns the products of a decode step of a model: the projections of attention, of the feed-forward layer and to the
/// vocabulary. Each GPU has its share of the columns. With experts, these are the router, as many experts as the tokens
/// can ask for, and the shared one. Products are in bf16; dense ones are also in fp8 with scales of rows. With latent
/// attention, the products between hidden size and heads are here; those of a head with the cache are a batch of small
/// ones.
inline std::vector<GemmCase> gemm_model_cases(ArchId arch, const ModelStep& step) {
  const Model& m = step.share;
  const std::int32_t heads = m.q_heads * m.head_size, qkv = heads + 2 * m.kv_heads * m.head_size;
  GemmCases all(arch);
  for (const std::int32_t batch : step.batch) {
    const auto dense = [&](std::int32_t n, std::int32_t k) {
      for (const GemmSpec& spec : {all.bf16(), all.fp8(Scaling::per_row)}) all.add(spec, batch, n, k);
    };
    if (m.latent.any()) {
      dense(m.latent.q + m.latent.kv + m.latent.rope, m.hidden);
      dense(m.q_heads * (m.latent.nope + m.latent.rope), m.latent.q);
    } else {
      dense(qkv, m.hidden);
    }
    dense(m.hidden, heads);
    if (m.shared > 0) {
      dense(2 * m.shared, m.hidden);
      dense(m.hidden, m.shared);
    }
    if (m.experts == 0) {
      dense(2 * m.intermediate, m.hidden);
      dense(m.hidden, m.intermediate);
    } else {
      all.add(all.bf16(), batch, m.experts, m.hidden);
      const std::int32_t pairs = batch * m.experts_per_token, experts = std::min(m.experts, pairs);
      for (const GemmWeightShape s :
           {GemmWeightShape{2 * m.intermediate, m.hidden}, GemmWeightShape{m.hidden, m.intermediate}})
        all.add_groups(all.bf16(), GemmGroups::contiguous, experts, pairs / experts, s.n, s.k);
    }
    dense(m.vocabulary_share(), m.hidden);
  }
  return all.cases;
}

/// Returns products of weights and activations in i8, with scales of rows.
inline std::vector<GemmCase> gemm_int8_sweep(ArchId arch) {
  GemmCases all(arch);
  const GemmSpec spec{.a = DType::i8, .b = DType::i8, .scale = Scaling::per_row};
  for (const GemmWeightShape s :
       {GemmWeightShape{8192, 8320}, GemmWeightShape{4096, 4096}, GemmWeightShape{7168, 2048}})
    for (const std::int32_t m : {1, 16, 64, 128, 4096, 9728}) all.add(spec, m, s.n, s.k);
  return all.cases;
}

/// Returns the first half of feed-forward layers, with silu(gate) * up in the product: Llama 3 8B and 70B, and experts
/// of DeepSeek.
inline std::vector<GemmCase> gemm_gated_sweep(ArchId arch) {
  GemmCases all(arch);
  const auto gated = [](GemmSpec spec) {
    spec.activation = ActivationKind::silu;
    spec.gated = true;
    return spec;
  };
  for (const GemmWeightShape s : {GemmWeightShape{28672, 4096}, GemmWeightShape{57344, 8192}}) {
    for (const GemmSpec& spec : {all.bf16(), all.fp8(Scaling::per_row)})
      for (const std::int32_t m : {16, 128, 4096}) all.add(gated(spec), m, s.n, s.k);
  }
  for (const Scaling mode : {Scaling::per_tensor, Scaling::per_group}) {  // These are quantised for the second half.
    GemmSpec spec = gated(mode == Scaling::per_tensor ? all.fp8(Scaling::per_row) : all.bf16());
    spec.out = facts_of(arch).fp8;
    spec.out_scale = mode;
    for (const std::int32_t m : {16, 4096}) all.add(spec, m, 28672, 4096);
  }
  for (const std::int32_t groups : {8, 256}) {
    const std::int32_t rows = 32768 / groups;
    GemmSpec spec = gated(all.fp8(Scaling::per_block));
    all.add_groups(spec, GemmGroups::contiguous, groups, rows, 4096, 7168);
    spec.out = facts_of(arch).fp8;
    spec.out_scale = Scaling::per_group;
    all.add_groups(spec, GemmGroups::contiguous, groups, rows, 4096, 7168);
  }
  return all.cases;
}

/// Returns products of int4 weights by bf16 and fp8 rows, some few, others as many as a prefill, on sm90 also rounded
/// with their scales; experts of W4A16 with scales of 32 k; MXFP4 weights under bf16, int4 weights with zero points, and
/// gates with their ups; experts of gpt-oss.
inline std::vector<GemmCase> gemm_int4_sweep(ArchId arch) {
  GemmCases all(arch);
  for (const GemmWeightShape s :
       {GemmWeightShape{4096, 4096}, GemmWeightShape{28672, 4096}, GemmWeightShape{7168, 2048},
        GemmWeightShape{5120, 8192}, GemmWeightShape{7168, 16384}, GemmWeightShape{8192, 28672}}) {
    for (const GemmSpec& spec : {all.bf16(), all.fp8(Scaling::none)})
      for (const std::int32_t m : {1, 16, 64, 128, 4096}) all.add(int4(spec, 128), m, s.n, s.k);
  }
  GemmSpec gated = int4(all.bf16(), 32), mxfp4 = gated, zeros = int4(all.bf16(), 128), rounded = zeros;
  gated.activation = ActivationKind::silu, gated.gated = true;
  const bool sm90 = facts_of(arch).matrix == Matrix::mma;
  const GemmWeights best = sm90 ? GemmWeights::fragments : GemmWeights::preshuffled;
  mxfp4.b = DType::fp4_e2m1, mxfp4.weights = best, zeros.zero_points = true;
  for (const std::int32_t groups : {8, 128})
    all.add_groups(gated, GemmGroups::contiguous, groups, 512 / groups, 4096, 2048);
  for (const std::int32_t m : {1, 16, 128, 4096})
    all.add(mxfp4, m, 28672, 4096), all.add(zeros, m, 28672, 4096), all.add(mxfp4, m, 5760, 2880);
  GemmSpec dense_gated = gated;
  dense_gated.scale_k = 128, rounded.sums = GemmSums::fast;
  for (const std::int32_t m : {1, 16, 128, 4096}) all.add(dense_gated, m, 28672, 4096);
  for (const std::int32_t m : {256, 512, 1024}) all.add(int4(all.bf16(), 128), m, 4096, 4096);
  for (const std::int32_t m : {128, 256, 512, 1024, 4096})
    if (sm90) all.add(rounded, m, 4096, 4096);
  gated.b = DType::fp4_e2m1, gated.weights = best, gated.activation = ActivationKind::swigluoai;
  for (const std::int32_t groups : {32, 128})
    all.add_groups(gated, GemmGroups::contiguous, groups, 512 / groups, 5760, 2880);
  return all.cases;
}

/// Returns products in OCP MX: fp4, fp6, fp8, and fp4 weights with rows of fp8 and fp6. There are large products and
/// products with few and some rows, also with preshuffled weights, and the first half of experts' layers. Chips without
/// MX refuse them.
inline std::vector<GemmCase> gemm_mx_sweep(ArchId arch) {
  GemmCases all(arch);
  constexpr DType fp4 = DType::fp4_e2m1;
  const DType fp8 = facts_of(arch).fp8;
  const GemmSpec a4w4{.a = fp4, .b = fp4, .scale = Scaling::mx}, a8w8{.a = fp8, .b = fp8, .scale = Scaling::mx},
      a8w4{.a = fp8, .b = fp4, .scale = Scaling::mx},
      a6w6{.a = DType::fp6_e2m3, .b = DType::fp6_e2m3, .scale = Scaling::mx},
      a6w4{.a = DType::fp6_e2m3, .b = fp4, .scale = Scaling::mx};
  for (const std::int32_t side : {8192, 16384}) all.add(a4w4, side, side, side);
  all.add(a4w4, 8192, 8192, 16384);
  for (const GemmSpec& spec : {a4w4, a8w4, a8w8})
    for (const std::int32_t m : {32, 64, 128, 1024, 5133}) all.add(spec, m, 8192, 8192);
  for (const GemmWeightShape s :
       {GemmWeightShape{28672, 4096}, GemmWeightShape{57344, 8192}, GemmWeightShape{8192, 28672},
        GemmWeightShape{7168, 18432}, GemmWeightShape{7168, 2048}, GemmWeightShape{2112, 7168}}) {
    for (const GemmSpec& spec : {a4w4, a8w4})
      for (const std::int32_t m : {1, 16, 4096}) all.add(spec, m, s.n, s.k);
  }
  GemmSpec preshuffled = a4w4;
  preshuffled.out = DType::f16;
  preshuffled.weights = GemmWeights::preshuffled;
  for (const std::int32_t m : {1, 16, 64, 256}) all.add(preshuffled, m, 7168, 18432);
  GemmSpec a8w4_preshuffled = a8w4;
  a8w4_preshuffled.weights = GemmWeights::preshuffled;
  for (const GemmSpec& spec : {preshuffled, a8w4_preshuffled})
    for (const std::int32_t m : {1024, 8192}) all.add(spec, m, 8192, 8192);
  for (const GemmSpec& spec : {a6w6, a6w4}) {
    for (const std::int32_t m : {32, 128, 1024, 5133}) all.add(spec, m, 8192, 8192);
    for (const std::int32_t m : {1, 16, 256}) all.add(spec, m, 4096, 14336);
  }
  all.add({.a = DType::fp6_e3m2, .b = DType::fp6_e3m2, .scale = Scaling::mx}, 8192, 8192, 8192);
  GemmSpec a6w4_preshuffled = a6w4;
  a6w4_preshuffled.weights = GemmWeights::preshuffled;
  for (const std::int32_t m : {16, 64, 256}) all.add(a6w4_preshuffled, m, 4096, 14336);
  GemmSpec gated = a8w4;
  gated.weights = GemmWeights::preshuffled;
  gated.activation = ActivationKind::silu;
  gated.gated = true;
  all.add_groups(gated, GemmGroups::contiguous, 32, 192, 4096, 7168);
  all.add_groups(gated, GemmGroups::contiguous, 128, 32, 5760, 2880);
  return all.cases;
}

/// Returns the configs of a sweep.
inline std::vector<GemmCase> cases_of(GemmSweep sweep, ArchId arch) {
  switch (sweep) {
    case GemmSweep::standard: break;
    case GemmSweep::square: return gemm_square_sweep(arch);
    case GemmSweep::decode: return gemm_decode_sweep(arch);
    case GemmSweep::grouped: return gemm_grouped_sweep(arch);
    case GemmSweep::batched: return gemm_batched_sweep(arch);
    case GemmSweep::preshuffled: return gemm_preshuffled_sweep(arch);
    case GemmSweep::int8: return gemm_int8_sweep(arch);
    case GemmSweep::gated: return gemm_gated_sweep(arch);
    case GemmSweep::int4: return gemm_int4_sweep(arch);
    case GemmSweep::mx: return gemm_mx_sweep(arch);
    case GemmSweep::prefill: return gemm_prefill_sweep(arch);
    case GemmSweep::layouts: return gemm_layouts_sweep(arch);
  }
  if (!cuts_configs()) return gemm_model_sweep(arch);
  // The emulated device runs a sample of the sweeps that every architecture serves.
  std::vector<GemmCase> some;
  const auto take = [&](const std::vector<GemmCase>& all, std::size_t every) {
    for (std::size_t i = 0; i < all.size(); i += every) some.push_back(all[i]);
  };
  take(gemm_model_sweep(arch), 4);
  take(gemm_decode_sweep(arch), 13);
  take(gemm_square_sweep(arch), 7);
  take(gemm_grouped_sweep(arch), 3);
  take(gemm_batched_sweep(arch), 2);
  take(gemm_int8_sweep(arch), 10);
  take(gemm_gated_sweep(arch), 4);
  take(gemm_int4_sweep(arch), 12);
  return some;
}

}  // namespace tilewave::bench
