// SPDX-License-Identifier: MIT
// Dense MFMA: D = A B + C on tiles of M x M, from the register layouts of the CDNA3 / CDNA4 ISA guides ("Dense matrix
// layouts"), written down here a second time so that the library's own lane maps (arch/atom.hpp) have a witness.
//   A: lane holds row l % M, k = E (l / M) + e for its E elements, packed low first
//   B: lane holds column l % M, same k
//   C, D: lane holds column l % M; M = 32: row 8 (r / 4) + 4 (l / 32) + r % 4; else 4 (l / 16) + r; f64: 4 r + l / 16
// Small K leaves lanes over for several independent tiles ("blocks"): lane l holds A and B of block l / M, and its results
// are those of one block after the other (M = 4: of block l / 4). EXEC is ignored. Sums run over k in order with one
// rounding each; products of 16-bit and smaller elements are exact.
#include "sim/exec/matrix_elements.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using namespace matrix;

/// The block and the row of result r of a lane.
struct Position {
  int block, row;
};
template <int M, int blocks, bool f64>
constexpr Position result_position(int lane, int r) {
  if (f64) return blocks == 4 ? Position{lane / 4 % 4, lane / 16} : Position{0, 4 * r + lane / 16};
  if (M == 4) return {lane / 4, r};
  if (M == 16) return {r / 4, 4 * (lane / 16) + r % 4};
  return {r / 16, 8 * (r % 16 / 4) + 4 * (lane / 32) + r % 4};
}

template <int M, int K, int blocks, class EA, class EB>
void run_mfma(Wave& w, const Op& op) {
  using Sum = typename EA::Sum;
  constexpr bool f64 = EA::bits == 64;
  constexpr int per_lane = K * M * blocks / wave_lanes, results = M * M * blocks / wave_lanes;
  constexpr int sum_words = sizeof(Sum) / 4;
  const Operand &d = op.arg[0], &a = op.arg[1], &b = op.arg[2], &c = op.arg[3];
  if (!a.is_vector() || !b.is_vector() || a.words * 32 != per_lane * EA::bits || b.words * 32 != per_lane * EB::bits ||
      d.words != results * sum_words || (c.is_vector() && c.words != results * sum_words))
    throw Error("MFMA operands of unexpected size");
  if (a.negate || b.negate || c.negate || a.absolute || b.absolute || c.absolute) throw Error("MFMA with neg or abs");
  if (op.cbsz || op.abid || op.blgp) throw Error("MFMA with broadcasts or permutations is not simulated");
  alignas(64) static thread_local Sum rows[blocks][M][K], columns[blocks][K][M], sum[blocks][M][M];
  for (int l = 0; l < wave_lanes; ++l) {
    // In the f64 tile of four blocks, lane l holds block l / 4 % 4 and k = l / 16.
    const int block = f64 && blocks == 4 ? l / 4 % 4 : blocks > 1 ? l / M : 0;
    const int k0 = f64 && blocks == 4 ? l / 16 : blocks > 1 ? 0 : per_lane * (l / M);
    for (int e = 0; e < per_lane; ++e) {
      rows[block][l % M][k0 + e] = element<EA>(w, a, l, e);
      columns[block][k0 + e][l % M] = element<EB>(w, b, l, e);
    }
    for (int r = 0; r < results; ++r) {
      const Position at = result_position<M, blocks, f64>(l, r);
      const auto word = [&](int i) { return c.is_vector() ? w.v[c.reg + r * sum_words + i][l] : scalar_word(w, c, i); };
      if constexpr (f64)
        sum[at.block][at.row][l % M] = std::bit_cast<Sum>(word(0) | u64{word(1)} << 32);
      else
        sum[at.block][at.row][l % M] = std::bit_cast<Sum>(word(0));
    }
  }
  for (int t = 0; t < blocks; ++t)
    for (int m = 0; m < M; ++m)
      for (int k = 0; k < K; ++k)
        for (int n = 0; n < M; ++n) sum[t][m][n] += rows[t][m][k] * columns[t][k][n];
  for (int l = 0; l < wave_lanes; ++l)
    for (int r = 0; r < results; ++r) {
      const Position at = result_position<M, blocks, f64>(l, r);
      const Sum& x = sum[at.block][at.row][l % M];
      if constexpr (f64) w.v[d.reg + 2 * r + 1][l] = static_cast<u32>(std::bit_cast<u64>(x) >> 32);
      if constexpr (f64)
        w.v[d.reg + 2 * r][l] = static_cast<u32>(std::bit_cast<u64>(x));
      else
        w.v[d.reg + r][l] = std::bit_cast<u32>(x);
    }
}

template <int M, int K, class EA, class EB, int blocks = 1>
void add(InstructionTable& t, const std::string& type) {
  const std::string m = std::to_string(M), result = EA::bits == 64 ? "f64" : std::is_same_v<EA, I8> ? "i32" : "f32";
  const std::string tile =
      m + "x" + m + "x" + std::to_string(K) + (blocks > 1 ? "_" + std::to_string(blocks) + "b" : "");
  t["v_mfma_" + result + "_" + tile + "_" + type] = {
      .run = run_mfma<M, K, blocks, EA, EB>,
      .cls = Class::mfma,
      .widths = {Width::word, Width::word, EA::bits == 64 ? Width::real64 : Width::word}};
}

/// The shapes of gfx90a, which both chips keep: `K` for one block, then 32x32 of two, 16x16 of four, 4x4 of sixteen.
template <class E, int K16, int K32, int K>
void add_old_shapes(InstructionTable& t, const std::string& type) {
  if constexpr (K16 > 0) add<16, K16, E, E>(t, type);
  if constexpr (K32 > 0) add<32, K32, E, E>(t, type);
  add<32, K, E, E, 2>(t, type);
  add<16, K, E, E, 4>(t, type);
  add<4, K, E, E, 16>(t, type);
}

template <bool ocp>
void add_fp8(InstructionTable& t) {
  using Fp8 = F8<false, ocp>;
  using Bf8 = F8<true, ocp>;
  add<16, 32, Fp8, Fp8>(t, "fp8_fp8");
  add<16, 32, Fp8, Bf8>(t, "fp8_bf8");
  add<16, 32, Bf8, Fp8>(t, "bf8_fp8");
  add<16, 32, Bf8, Bf8>(t, "bf8_bf8");
  add<32, 16, Fp8, Fp8>(t, "fp8_fp8");
  add<32, 16, Fp8, Bf8>(t, "fp8_bf8");
  add<32, 16, Bf8, Fp8>(t, "bf8_fp8");
  add<32, 16, Bf8, Bf8>(t, "bf8_bf8");
}

}  // namespace

void add_mfma_instructions(InstructionTable& t, Arch arch) {
  add_old_shapes<Bf16, 16, 8, 4>(t, "bf16");
  add_old_shapes<F16, 16, 8, 4>(t, "f16");
  add_old_shapes<F32, 4, 2, 1>(t, "f32");
  add_old_shapes<I8, 32, 16, 4>(t, "i8");
  add<16, 4, F64, F64>(t, "f64");
  add<4, 4, F64, F64, 4>(t, "f64");
  if (arch == Arch::gfx950) {
    add<16, 32, Bf16, Bf16>(t, "bf16");
    add<32, 16, Bf16, Bf16>(t, "bf16");
    add<16, 32, F16, F16>(t, "f16");
    add<32, 16, F16, F16>(t, "f16");
    add<16, 64, I8, I8>(t, "i8");
    add<32, 32, I8, I8>(t, "i8");
    add_fp8<true>(t);
  } else {
    add_fp8<false>(t);
  }
}

}  // namespace tilewave::sim
