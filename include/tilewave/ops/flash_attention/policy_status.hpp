// SPDX-License-Identifier: MIT
// The laws of policies say which ones kernels can be built for.
#pragma once

#include "tilewave/arch/atom.hpp"
#include "tilewave/core/math.hpp"
#include "tilewave/ops/flash_attention/policy.hpp"

namespace tilewave {

/// The most page ids of a sequence that path lds keeps in LDS, where copies go straight into LDS.
inline constexpr int flash_lds_page_ids = 8192;

namespace detail {

constexpr Status flash_registers_status(ArchId arch, const FlashAttentionSpec& s, const FlashAttentionPolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  if (p.waves < 1) return {bad, "registers: waves must be positive"};
  if (p.rows != 16 * p.waves) return {bad, "registers: a wave has 16 rows: rows is 16 waves"};
  if (p.keys != AtomFacts::groups * s.unit()) return {bad, "registers: keys is four units of 16 bytes"};
  if (p.stages != 1) return {bad, "registers: stages is 1"};
  if (p.turns) return {bad, "registers: waves take no turns"};
  if (s.head_size % s.unit() != 0) return {bad, "registers: head_size is a multiple of the elements in 16 bytes"};
  if (s.value_size % atom_of(arch).kv != 0 && s.value_size % 8 != 0)
    return {bad, "registers: value_size is a multiple of 8"};
  return {};
}

/// Return the bytes of a row of q, K or V in the boxes of 128 bytes that path tensor copies; and those of a tile of V
/// that is transposed for products of fp8, of which boxes have 128 keys, or 64 of each of two stages.
constexpr int flash_box_bytes(const FlashAttentionSpec& s, int columns) {
  return align_up(columns * size_of(s.kv), 128);
}
constexpr int flash_transposed_bytes(const FlashAttentionSpec& s, const FlashAttentionPolicy& p) {
  return is_fp8(s.kv) ? s.value_size * (p.keys == 64 && p.stages == 2 ? 64 : align_up(p.keys, 128)) : 0;
}

constexpr Status flash_tensor_status(ArchId arch, const FlashAttentionSpec& s, const FlashAttentionPolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  if (!facts_of(arch).tensor_copies) return {bad, "tensor: wave groups and the copy engine are sm90's"};
  if (p.waves < 1 || p.waves > 3) return {bad, "tensor: a block has one to three wave groups that multiply"};
  if (p.rows != 64 * p.waves) return {bad, "tensor: a wave group has 64 rows: rows is 64 waves"};
  if (p.cluster > 1 && (s.paged() || is_fp8(s.kv)))
    return {bad, "tensor: blocks fetch contiguous keys of 16 bits for each other: cluster is 1 for others"};
  if (p.cluster > facts_of(arch).max_cluster_blocks || p.keys % (8 * p.cluster) != 0)
    return {bad, "tensor: each block of a cluster fetches a multiple of eight keys of a tile"};
  if (p.turns && p.waves == 1) return {bad, "tensor: one wave group has nobody to take turns with"};
  if (p.stages < 2) return {bad, "tensor: at least two stages, as V of a tile outlives K of the next"};
  if (s.kv != s.q) return {bad, "tensor: q, K and V have one type"};
  if (is_fp8(s.kv) && s.quant != Scaling::per_tensor && s.quant != Scaling::per_head)
    return {bad, "tensor: fp8 has scales per tensor or head"};
  if (s.values != ValueLayout::token_major) return {bad, "tensor: values are token_major"};
  if (s.head_size % 64 != 0 || s.value_size % 64 != 0) return {bad, "tensor: boxes have 64 dimensions"};
  if (is_fp8(s.kv) ? p.keys != 64 && p.keys != 96 && p.keys != 128 && p.keys != 192
                   : p.keys != 64 && p.keys != 80 && p.keys != 128 && p.keys != 176 && p.keys != 192)
    return {bad, "tensor: keys is 64, 80, 128, 176 or 192, the columns of a product; of fp8 64, 96, 128 or 192"};
  if (s.value_size > s.head_size) return {bad, "tensor: outputs pass through the place of q"};
  if (p.waves_per_simd < 1) return {bad, "tensor: waves_per_simd must be positive"};
  const int row = flash_box_bytes(s, s.head_size);
  const int tile = p.keys * (row + flash_box_bytes(s, s.value_size)) + flash_transposed_bytes(s, p);
  if (is_fp8(s.kv) ? is_fp8(s.out) : s.out != s.q) return {bad, "tensor: out is of q's type, or of 16 bits"};
  // Sums of fp8 lie in the place of the output, and ones for sums of probabilities beside it.
  const int sums = is_fp8(s.kv) ? 2 * p.rows * s.value_size + 1024 : 0;
  if (p.rows * row + tile * p.stages + sums + 1024 > facts_of(arch).lds_bytes / p.waves_per_simd)
    return {bad, "tensor: Q, the ring, and sums of fp8 exceed a block's part of shared memory"};
  return {};
}

/// Path lds multiplies 32 x 32 on tiles of K and V in LDS (lds/kernel.hpp).
constexpr Status flash_lds_status(ArchId arch, const FlashAttentionSpec& s, const FlashAttentionPolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  const ArchFacts& facts = facts_of(arch);
  if (facts.matrix != Matrix::mfma) return {bad, "lds: products of 32 x 32 are CDNA's"};
  if (s.kv != s.q) return {bad, "lds: q, K and V have one type"};
  const int element = size_of(s.kv), product_k = element == 2 ? 16 : facts.mx ? 64 : 32;
  if (element == 1 && s.quant != Scaling::per_tensor && s.quant != Scaling::per_head)
    return {bad, "lds: fp8 has scales per tensor or head"};
  if (s.values != ValueLayout::token_major) return {bad, "lds: values are token_major"};
  if (s.soft_cap || s.alibi || s.bit_mask) return {bad, "lds: scores have no soft_cap, no alibi, no bit_mask"};
  if (s.head_size % 64 != 0 || s.value_size % 64 != 0) return {bad, "lds: head sizes are multiples of 64"};
  if ((s.value_size & (s.value_size - 1)) != 0) return {bad, "lds: value_size is a power of two, as swizzles of V are"};
  if (p.waves < 1 || p.waves > 16) return {bad, "lds: waves is 1 to 16"};
  if (p.rows != 32 * p.waves) return {bad, "lds: a wave has 32 rows: rows is 32 waves"};
  if (p.keys < 32 || p.keys % 32 != 0) return {bad, "lds: keys is a multiple of 32"};
  if (p.keys % product_k != 0) return {bad, "lds: keys is a multiple of what a product sums up"};
  if (!facts.lds_transposed && p.keys % 64 != 0) {
    return {bad, "lds: keys is a multiple of 64 where V is transposed on its way into LDS"};
  }
  if (p.stages < 2 || p.stages % 2 != 0) return {bad, "lds: stages is even, as scores of two tiles take turns"};
  if (facts.direct_copies && p.stages < 4)
    return {bad, "lds: stages is 4 or more where copies stay under way at barriers"};
  if (!facts.direct_copies && p.stages != 2) return {bad, "lds: stages is 2 where copies go through registers"};
  if (p.waves_per_simd * facts.simds_per_cu % p.waves != 0) return {bad, "lds: blocks of a CU are whole"};
  if (p.turns && p.waves != 2 * facts.simds_per_cu) return {bad, "lds: waves that take turns are two for each SIMD"};
  if (!p.turns && !facts.direct_copies) return {bad, "lds: waves that copy through registers take turns"};
  const int copied = 16 / element * p.waves * facts.wave_lanes;  // elements
  if (p.keys * s.head_size % copied != 0 || p.keys * s.value_size % copied != 0) {
    return {bad, "lds: a tile of K, and of V, is a whole number of copies of 16 bytes by all lanes"};
  }
  const int blocks = p.waves_per_simd * facts.simds_per_cu / p.waves;
  const int page_ids = s.paged() && facts.direct_copies ? flash_lds_page_ids : 0;
  const int tiles = element * p.stages * p.keys * (s.head_size + s.value_size),
            outputs = size_of(s.out) * p.rows * s.value_size;
  if (max_of(tiles + 4 * page_ids, outputs) > facts.lds_bytes / blocks) {
    return {bad, "lds: stages, or outputs, exceed a block's part of LDS"};
  }
  return {};
}

}  // namespace detail

/// Returns ok if kernels of an architecture can be built for a policy of a spec, else the law that the policy breaks.
/// Kernels assert it, tests hold all lists against it, and tuners ask it.
constexpr Status flash_attention_policy_status(ArchId arch, const FlashAttentionSpec& s,
                                               const FlashAttentionPolicy& p) {
  if (p.waves_per_simd < 1) return {StatusCode::bad_value, "waves_per_simd must be positive"};
  for (const int number : {p.rows, p.keys, p.waves, p.stages, p.waves_per_simd, p.cluster})  // so products do not wrap
    if (number > 1024) return {StatusCode::bad_value, "the numbers of a policy go up to 1024"};
  if (p.cluster < 1 || (p.cluster > 1 && p.path != FlashAttentionPath::tensor))
    return {StatusCode::bad_value, "cluster is positive, and 1 but for path tensor"};
  switch (p.path) {
    case FlashAttentionPath::registers: return detail::flash_registers_status(arch, s, p);
    case FlashAttentionPath::tensor: return detail::flash_tensor_status(arch, s, p);
    case FlashAttentionPath::lds: return detail::flash_lds_status(arch, s, p);
  }
  return {StatusCode::bad_value, "path is none of FlashAttentionPath"};
}

}  // namespace tilewave
