// SPDX-License-Identifier: MIT
// MFMA: D = A B + C on 16x16 or 32x32 tiles, from the register layouts of the CDNA3 / CDNA4 ISA guides ("Dense matrix
// layouts"), written down here a second time so that the library's own lane maps (arch/atom.hpp) have a witness.
//   A: lane holds row l % M, k = E (l / M) + e for its E = K M / 64 elements, packed low first
//   B: lane holds column l % M, same k
//   C, D: lane holds column l % M; 16x16: row 4 (l / 16) + r; 32x32: row 8 (r / 4) + 4 (l / 32) + r % 4
// EXEC is ignored. Sums run over k in order with one f32 rounding each; products of 16-bit and smaller elements are
// exact.
#include "fp8.hpp"
#include "lanes.hpp"

namespace isa_sim {
namespace {

using u32 = std::uint32_t;

struct Bf16 {
  static constexpr int bits = 16;
  static float value(u32 x) { return std::bit_cast<float>(x << 16); }
};
struct F16 {
  static constexpr int bits = 16;
  static float value(u32 x) { return static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(x))); }
};
struct F32 {
  static constexpr int bits = 32;
  static float value(u32 x) { return std::bit_cast<float>(x); }
};
template <bool bf8, bool ocp>
struct F8 {
  static constexpr int bits = 8;
  static float value(u32 x) {
    constexpr Arch arch = ocp ? Arch::gfx950 : Arch::gfx942;
    return fp8_values(bf8 ? bf8_format(arch) : fp8_format(arch))[x];
  }
};

template <class Element>
float element(const Wave& w, const Operand& a, int lane, int e) {
  constexpr int per_word = 32 / Element::bits;
  const u32 word = w.v[a.reg + e / per_word][lane];
  return Element::value(word >> Element::bits * (e % per_word) &
                        (Element::bits == 32 ? ~0u : (1u << Element::bits) - 1));
}

template <int M>
constexpr int row_of(int lane, int r) {
  return M == 16 ? 4 * (lane / 16) + r : 8 * (r / 4) + 4 * (lane / 32) + r % 4;
}

template <int M, int K, class EA, class EB>
void run_mfma(Wave& w, const Op& op) {
  constexpr int per_lane = K * M / wave_lanes, results = M * M / wave_lanes;
  const Operand &d = op.arg[0], &a = op.arg[1], &b = op.arg[2], &c = op.arg[3];
  if (!a.is_vector() || !b.is_vector() || a.words * 32 != per_lane * EA::bits || b.words * 32 != per_lane * EB::bits ||
      d.words != results || (c.is_vector() && c.words != results))
    throw Error("MFMA operands of unexpected size");
  if (a.negate || b.negate || c.negate || a.absolute || b.absolute || c.absolute) throw Error("MFMA with neg or abs");
  alignas(64) float rows[M][K], columns[K][M], sum[M][M];
  for (int l = 0; l < wave_lanes; ++l) {
    for (int e = 0; e < per_lane; ++e) {
      rows[l % M][per_lane * (l / M) + e] = element<EA>(w, a, l, e);
      columns[per_lane * (l / M) + e][l % M] = element<EB>(w, b, l, e);
    }
    for (int r = 0; r < results; ++r)
      sum[row_of<M>(l, r)][l % M] = std::bit_cast<float>(c.is_vector() ? w.v[c.reg + r][l] : scalar_word(w, c));
  }
  for (int m = 0; m < M; ++m)
    for (int k = 0; k < K; ++k)
      for (int n = 0; n < M; ++n) sum[m][n] += rows[m][k] * columns[k][n];
  for (int l = 0; l < wave_lanes; ++l)
    for (int r = 0; r < results; ++r) w.v[d.reg + r][l] = std::bit_cast<u32>(sum[row_of<M>(l, r)][l % M]);
}

template <int M, int K, class EA, class EB>
void add(InstructionTable& t, const std::string& type) {
  const std::string m = std::to_string(M);
  t["v_mfma_f32_" + m + "x" + m + "x" + std::to_string(K) + "_" + type] = {.run = run_mfma<M, K, EA, EB>,
                                                                           .cls = Class::mfma};
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
  add<16, 16, Bf16, Bf16>(t, "bf16");
  add<32, 8, Bf16, Bf16>(t, "bf16");
  add<16, 16, F16, F16>(t, "f16");
  add<32, 8, F16, F16>(t, "f16");
  add<16, 4, F32, F32>(t, "f32");
  add<32, 2, F32, F32>(t, "f32");
  if (arch == Arch::gfx950) {
    add<16, 32, Bf16, Bf16>(t, "bf16");
    add<32, 16, Bf16, Bf16>(t, "bf16");
    add<16, 32, F16, F16>(t, "f16");
    add<32, 16, F16, F16>(t, "f16");
    add_fp8<true>(t);
  } else {
    add_fp8<false>(t);
  }
}

}  // namespace isa_sim
