// SPDX-License-Identifier: MIT
// The sweep of bench_mla_decode: which configs it has, in which order. The order is part of the CSV contract.
#pragma once

#include <vector>

#include "bench/ops/mla_decode/op.hpp"

namespace tilewave::bench {

/// DeepSeek-V3's 128 heads in pages of 64, at batches of 1 to 128 and contexts of 1K to 32K, in bf16 and fp8
/// throughout. Then at 64 x 8K bf16 q with every fp8 layout, 16 to 64 heads, two and four query tokens, lengths that
/// differ, pages of 1 and 16, and a batch-invariant call.
inline std::vector<MlaDecodeCase> MlaDecodeOp::default_sweep(ArchId arch) {
  std::vector<MlaDecodeCase> cases;
  const DType fp8 = facts_of(arch).fp8;
  const auto add = [&](MlaDecodeCase c) {
    c.arch = arch;
    c.complete();
    cases.push_back(c);
  };
  for (const MlaDecodeSpec& spec : {MlaDecodeSpec{}, MlaDecodeSpec{.q = fp8, .kv = fp8}}) {
    for (const int batch : {1, 16, 64, 128}) {
      for (const int length : {1024, 8192, 32768}) add({.spec = spec, .batch = batch, .context_length = length});
    }
  }
  const auto at_64 = [](const MlaDecodeSpec& spec) {
    return MlaDecodeCase{.spec = spec, .batch = 64, .context_length = 8192};
  };
  for (const MlaDecodeSpec& spec :
       {MlaDecodeSpec{.kv = fp8}, MlaDecodeSpec{.kv = fp8, .layout = LatentLayout::groups_128},
        MlaDecodeSpec{.kv = fp8, .layout = LatentLayout::groups_64, .head_size = 512}}) {
    add(at_64(spec));
    MlaDecodeCase few = at_64(spec);
    few.q_heads = 16;
    add(few);
  }
  for (const int heads : {16, 32, 64}) {
    for (const int query_tokens : {1, 2, 4}) {
      MlaDecodeCase c = at_64({});
      c.q_heads = heads, c.query_tokens = query_tokens;
      add(c);
    }
  }
  for (const int heads : {16, 128}) {
    MlaDecodeCase ragged = at_64({});
    ragged.q_heads = heads, ragged.ragged = true, ragged.lse = true;
    add(ragged);
    for (const int block_size : {1, 16}) {
      MlaDecodeCase c = at_64({});
      c.q_heads = heads, c.block_size = block_size;
      add(c);
    }
    MlaDecodeCase cut = at_64({});
    cut.q_heads = heads, cut.split_tokens = 2048;
    add(cut);
  }
  return cases;
}

/// A step of decode of a model with latent heads.
inline std::vector<MlaDecodeCase> MlaDecodeOp::model_cases(ArchId arch, const ModelStep& step) {
  std::vector<MlaDecodeCase> cases;
  if (!step.share.latent.any()) return cases;
  for (const int batch : step.batch) {
    for (const int context : step.context) {
      MlaDecodeCase c{.arch = arch, .batch = batch, .q_heads = step.share.q_heads, .context_length = context};
      c.complete();
      cases.push_back(c);
    }
  }
  return cases;
}

}  // namespace tilewave::bench
