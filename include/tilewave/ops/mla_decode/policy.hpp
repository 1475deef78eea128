// SPDX-License-Identifier: MIT
// A policy says how decode of latent attention is computed. It may change the speed, never the answer beyond the order
// of summation.
#pragma once

#include <string>

#include "tilewave/arch/atom.hpp"
#include "tilewave/arch/facts.hpp"
#include "tilewave/ops/mla_decode/spec.hpp"
#include "tilewave/ops/paged_attention/policy.hpp"

namespace tilewave {

/// The path of the cache to the products. `registers` loads it straight to registers, whatever its layout (all rooms).
/// `tensor` brings it through shared memory for products of wave groups (sm90): by the tensor copy engine, or, if
/// `gathered`, by lanes that copy token by token, or load and widen codes. `lds` brings it through LDS once, for scores
/// and values (CDNA). `token_waves` does so for 16 rows, or 32 of fp8, by waves that have tokens, and a part of
/// LDS, of their own (CDNA).
enum class MlaDecodePath : int { registers, tensor, lds, token_waves };

constexpr const char* name_of(MlaDecodePath p) {
  constexpr const char* names[] = {"registers", "tensor", "lds", "token_waves"};
  return names[static_cast<int>(p)];
}

/// A block has `rows` query rows, which are query tokens times heads, and walks their tokens in tiles of `tokens`. Its
/// waves share the tokens of a tile for scores, and the 512 output columns for values. With path lds waves have
/// 32 rows each, and those that are left fetch.
struct MlaDecodePolicy {
  MlaDecodePath path = MlaDecodePath::registers;
  int rows = 16;
  int tokens = 128;
  int waves = 4;  // with path tensor, those of the two or three wave groups that multiply
  PagedAttentionSchedule schedule = PagedAttentionSchedule::even;
  int waves_per_simd = 2;
  bool gathered = false;

  friend constexpr bool operator==(const MlaDecodePolicy&, const MlaDecodePolicy&) = default;

  TILEWAVE_HOST_DEVICE constexpr bool balanced() const { return schedule == PagedAttentionSchedule::balanced; }
  TILEWAVE_HOST_DEVICE constexpr int row_tiles() const { return rows / 16; }
  /// Query rows of a block, and tokens that a schedule deals out at a time.
  TILEWAVE_HOST_DEVICE constexpr int block_rows() const { return rows; }
  TILEWAVE_HOST_DEVICE constexpr int block_tokens(const MlaDecodeSpec&) const { return tokens; }
  /// All waves of a block. On path tensor a wave group fetches.
  TILEWAVE_HOST_DEVICE constexpr int block_waves() const { return path == MlaDecodePath::tensor ? waves + 4 : waves; }
  TILEWAVE_HOST_DEVICE constexpr int blocks_per_cu(const ArchFacts& facts) const {
    // A block of path lds takes all of LDS.
    return path == MlaDecodePath::lds ? 1 : max_of(1, facts.simds_per_cu * waves_per_simd / block_waves());
  }
};

/// Returns the name of a policy, as `t16x128.w4.o2.registers` or `t64x64.w8.o3.tensor.balanced`: rows and tokens of a
/// tile, waves, waves per SIMD, path.
inline std::string name_of(const MlaDecodePolicy& p) {
  const auto text = [](int i) { return std::to_string(i); };
  return "t" + text(p.rows) + "x" + text(p.tokens) + ".w" + text(p.waves) + ".o" + text(p.waves_per_simd) + "." +
         name_of(p.path) + (p.gathered ? ".gathered" : "") + (p.balanced() ? ".balanced" : "");
}

/// Returns whether path registers multiplies codes of fp8 q and of the cache as they are, and keeps q so: CDNA has such
/// products of operands in registers.
constexpr bool mla_fp8_scores(const ArchFacts& facts, const MlaDecodePolicy& p) {
  return p.path == MlaDecodePath::registers && facts.family == Family::cdna;
}

/// Tokens that lie together in every page that path lds takes.
inline constexpr int mla_lds_page_tokens = 16;

/// Path lds: rows of a wave; tokens of a tile; bytes from a token's latent dimensions to the next one's in LDS; stages
/// of tiles. Where LDS transposes what is read, a tile has the tokens of a product of values of fp8, or of two of bf16,
/// and bf16 has a gap that spreads tokens over banks. Else it has half of them, as LDS is smaller, and every token has
/// a gap of 16 bytes.
inline constexpr int mla_lds_wave_rows = 32;
constexpr int mla_lds_tokens(const ArchFacts& facts, const MlaDecodeSpec& s) {
  return (facts.lds_transposed ? 64 : 32) / size_of(s.q);
}
constexpr int mla_lds_pitch(const ArchFacts& facts, const MlaDecodeSpec& s) {
  const int latent = latent_value_size * size_of(s.q);
  return latent + (!facts.lds_transposed ? 16 : size_of(s.q) == 2 ? 128 : 0);
}
constexpr int mla_lds_stages(const ArchFacts& facts, const MlaDecodeSpec& s) {
  return min_of(4, facts.lds_bytes / (mla_lds_tokens(facts, s) * (mla_lds_pitch(facts, s) + 64 * size_of(s.q))));
}

/// Returns the rows of the smallest block. Where waves without rows fetch for 64 rows, one of 32 would be no faster.
constexpr int mla_lds_least_rows(const ArchFacts& facts) {
  return facts.direct_copies ? mla_lds_wave_rows : 2 * mla_lds_wave_rows;
}

/// Returns whether waves without rows hold tiles in their registers until there is room in LDS. Elsewhere all waves
/// copy straight into LDS.
constexpr bool mla_lds_held(const ArchFacts& facts, const MlaDecodePolicy& p) {
  return !facts.direct_copies && p.rows <= 2 * mla_lds_wave_rows;
}

/// Path token_waves: tokens of a wave are those of a product of values, 32, or 16 of bf16 on gfx942.
constexpr int mla_token_waves_tokens(const ArchFacts& facts, const MlaDecodeSpec& s, int waves) {
  return waves * (facts.mx ? 32 : 32 / size_of(s.q));
}

/// Returns whether products of values take codes as they are, so that probabilities are fp8.
constexpr bool mla_fp8_probabilities(const MlaDecodeSpec& s, const MlaDecodePolicy& p) {
  return is_fp8(s.q) && (p.path == MlaDecodePath::lds || p.path == MlaDecodePath::token_waves);
}

/// Returns whether the copy engine brings tiles of path tensor, else lanes do.
constexpr bool mla_decode_copies(const MlaDecodeSpec& s, const MlaDecodePolicy& p) {
  return p.path == MlaDecodePath::tensor && !p.gathered && (p.waves == 12 || is_fp8(s.kv));
}

namespace detail {

constexpr Status mla_lds_status(ArchId arch, const MlaDecodeSpec& s, const MlaDecodePolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  const ArchFacts& facts = facts_of(arch);
  if (facts.family != Family::cdna) return {bad, "lds: copies into LDS past the registers of lanes are CDNA's"};
  const bool copied = s.kv == s.q && s.layout == LatentLayout::plain;
  if (facts.lds_transposed && (!copied || s.head_size != 576)) return {bad, "lds: rows are 576 dimensions of q's type"};
  if (!copied && !mla_lds_held(facts, p)) return {bad, "lds: waves without rows widen codes, so 64 rows are the most"};
  if (p.rows < mla_lds_wave_rows || p.rows % mla_lds_wave_rows != 0) return {bad, "lds: waves have 32 rows each"};
  if (p.waves != 4 || p.rows > p.waves * mla_lds_wave_rows) return {bad, "lds: four waves fetch, and have all rows"};
  if (p.tokens != mla_lds_tokens(facts, s))
    return {bad, "lds: a tile has 32 tokens of bf16 or 64 of fp8, and on gfx942 half as many"};
  if (p.waves_per_simd != 1) return {bad, "lds: q and sums fill the registers of a SIMD"};
  if (p.gathered) return {bad, "lds: gathered is of path tensor"};
  if (mla_lds_stages(facts, s) < 3) return {bad, "lds: three stages of tiles exceed LDS"};
  return {};
}

constexpr Status mla_token_waves_status(ArchId arch, const MlaDecodeSpec& s, const MlaDecodePolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  if (facts_of(arch).family != Family::cdna) return {bad, "token_waves: sums of 512 columns are for CDNA's registers"};
  if (p.rows != 16 && (p.rows != 32 || !is_fp8(s.q))) return {bad, "token_waves: a block has 16 rows, or 32 of fp8 q"};
  if (p.waves != 4) return {bad, "token_waves: four waves share the tokens of a tile"};
  if (p.tokens != mla_token_waves_tokens(facts_of(arch), s, p.waves))
    return {bad, "token_waves: a wave has the tokens of a product of values, 32, or 16 of bf16 on gfx942"};
  if (p.waves_per_simd != 1) return {bad, "token_waves: q, sums and a tile are more registers than half of a SIMD's"};
  if (p.gathered) return {bad, "token_waves: gathered is of path tensor"};
  return {};
}

constexpr Status mla_registers_status(ArchId arch, const MlaDecodeSpec& s, const MlaDecodePolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  if (p.rows < 16 || p.rows % 16 != 0) return {bad, "registers: rows is a multiple of 16"};
  if (p.rows > 32 && facts_of(arch).family != Family::cdna)
    return {bad, "registers: sums of more than 32 rows exceed the registers of lanes with two rows each"};
  if (p.waves != 4) return {bad, "registers: four waves have 128 output columns each"};
  if (p.tokens != 32 * p.waves) return {bad, "registers: a wave has 32 tokens of a tile"};
  if (p.gathered) return {bad, "registers: gathered is of path tensor"};
  const bool codes = is_fp8(s.q) && mla_fp8_scores(facts_of(arch), p);
  const int q = p.rows * s.head_size * (codes ? 1 : 2), probabilities = p.rows * p.tokens * 2,
            sums = 2 * 4 * p.waves * p.rows;
  const int blocks = p.blocks_per_cu(facts_of(arch));
  if ((q + probabilities + sums) * blocks > facts_of(arch).lds_bytes)
    return {bad, "registers: q and probabilities exceed a block's part of LDS"};
  return {};
}

constexpr Status mla_tensor_status(ArchId arch, const MlaDecodeSpec& s, const MlaDecodePolicy& p) {
  constexpr StatusCode bad = StatusCode::bad_value;
  if (!facts_of(arch).tensor_copies) return {bad, "tensor: wave groups and the copy engine are sm90's"};
  if (p.waves == 12) {
    if (p.rows != 64) return {bad, "tensor: three wave groups share 64 rows"};
    if (p.gathered) return {bad, "tensor: three wave groups take tiles from the copy engine"};
    if (is_fp8(s.kv)) return {bad, "tensor: three wave groups take rows of bf16"};
  } else if ((p.rows != 64 && p.rows != 32 && p.rows != 16) || p.waves != 8) {
    return {bad, "tensor: two wave groups share 64 rows, 32 or 16"};
  }
  if (p.rows == 64 && p.waves == 8 && !p.gathered && !is_fp8(s.kv))
    return {bad, "tensor: three wave groups take bf16 from the copy engine"};
  if (p.waves == 8 && mla_decode_copies(s, p) && s.layout == LatentLayout::plain && s.head_size != 576)
    return {bad, "tensor: rows of codes have 576 of them"};
  if (p.rows < 64 && (!is_fp8(s.kv) || !p.balanced())) return {bad, "tensor: 32 rows and 16 are for fp8, balanced"};
  if (p.tokens != 64) return {bad, "tensor: a tile has 64 tokens"};
  if (p.waves_per_simd != p.block_waves() / 4) return {bad, "tensor: one block fills an SM"};
  if (p.gathered && is_fp8(s.kv) && p.rows != 32) return {bad, "tensor: lanes widen codes for 32 rows"};
  return {};
}

}  // namespace detail

/// Returns ok if kernels of an architecture can be built for a policy of a spec, else the law that the policy breaks.
constexpr Status mla_decode_policy_status(ArchId arch, const MlaDecodeSpec& s, const MlaDecodePolicy& p) {
  for (const int number : {p.rows, p.tokens, p.waves, p.waves_per_simd})  // so products do not wrap
    if (number < 1 || number > 1024) return {StatusCode::bad_value, "the numbers of a policy are 1 to 1024"};
  if (p.path == MlaDecodePath::tensor) return detail::mla_tensor_status(arch, s, p);
  if (p.path == MlaDecodePath::lds) return detail::mla_lds_status(arch, s, p);
  if (p.path == MlaDecodePath::token_waves) return detail::mla_token_waves_status(arch, s, p);
  return detail::mla_registers_status(arch, s, p);
}

}  // namespace tilewave
