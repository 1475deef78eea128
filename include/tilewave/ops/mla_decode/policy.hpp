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
/// `gathered`, by lanes that copy token by token. Lanes bring codes of fp8 and widen them, from pages of any size.
enum class MlaDecodePath : int { registers, tensor };

constexpr const char* name_of(MlaDecodePath p) {
  constexpr const char* names[] = {"registers", "tensor"};
  return names[static_cast<int>(p)];
}

/// A block has `rows` query rows, which are query tokens times heads, and walks their tokens in tiles of `tokens`. Its
/// waves share the tokens of a tile for scores, and the 512 output columns for values.
struct MlaDecodePolicy {
  MlaDecodePath path = MlaDecodePath::registers;
  int rows = 16;
  int tokens = 128;
  int waves = 4;  // with path tensor, those of the two wave groups that multiply
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
    return max_of(1, facts.simds_per_cu * waves_per_simd / block_waves());
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

namespace detail {

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
  if ((p.rows != 64 && p.rows != 32) || p.waves != 8) return {bad, "tensor: two wave groups share 64 rows, or 32"};
  if (p.rows == 32 && (!is_fp8(s.kv) || !p.balanced())) return {bad, "tensor: 32 rows are for fp8, balanced"};
  if (p.tokens != 64) return {bad, "tensor: a tile has 64 tokens"};
  if (p.waves_per_simd != 3) return {bad, "tensor: one block with three wave groups fills an SM"};
  if (p.gathered && is_fp8(s.kv)) return {bad, "tensor: codes come by lanes from pages of any size, without gathered"};
  return {};
}

}  // namespace detail

/// Returns ok if kernels of an architecture can be built for a policy of a spec, else the law that the policy breaks.
constexpr Status mla_decode_policy_status(ArchId arch, const MlaDecodeSpec& s, const MlaDecodePolicy& p) {
  if (p.waves_per_simd < 1) return {StatusCode::bad_value, "waves_per_simd must be positive"};
  return p.path == MlaDecodePath::tensor ? detail::mla_tensor_status(arch, s, p)
                                         : detail::mla_registers_status(arch, s, p);
}

}  // namespace tilewave
