// SPDX-License-Identifier: MIT
// Sparse MFMA: D += A B, where of every four neighbours in k A has two, and an index register says which (CDNA3 ISA guide,
// "Sparse matrix"). A lane has k = E (l / M) ... of B's column l % M, as in exec_mfma.cpp with E twice A's elements, and of
// A's row l % M the elements of the same k. Element e of A stands at k = E (l / M) + 4 (e / 2) + its index; indices are two
// bits each from bit 0 on, of the set that ABID names, or with CBSZ of the first. D as in exec_mfma.cpp.
// gfx950's shapes of twice that K are timed, but not executed: nothing says which k a lane has.
#include "sim/exec/matrix_elements.hpp"

namespace tilewave::sim {
namespace {

using namespace matrix;

template <int M, int K, class EA, class EB>
void run_smfmac(Wave& w, const Op& op) {
  using Sum = typename EA::Sum;
  constexpr int of_b = K * M / wave_lanes, of_a = of_b / 2, results = M * M / wave_lanes, index_bits = 2 * of_a;
  const Operand &d = op.arg[0], &a = op.arg[1], &b = op.arg[2], &index = op.arg[3];
  if (!a.is_vector() || !b.is_vector() || !index.is_vector() || a.words * 32 != of_a * EA::bits ||
      b.words * 32 != of_b * EB::bits || d.words != results)
    throw Error("sparse MFMA operands of unexpected size");
  if (op.blgp || op.abid * index_bits >= 32) throw Error("sparse MFMA with these modifiers is not simulated");
  const int set = op.cbsz ? 0 : op.abid * index_bits;
  alignas(64) static thread_local Sum rows[M][K], columns[K][M], sum[M][M];
  const auto row_of = [](int l, int r) { return M == 16 ? 4 * (l / 16) + r : 8 * (r / 4) + 4 * (l / 32) + r % 4; };
  for (auto& row : rows)
    for (Sum& x : row) x = 0;
  for (int l = 0; l < wave_lanes; ++l) {
    const int k0 = of_b * (l / M);
    for (int e = 0; e < of_b; ++e) columns[k0 + e][l % M] = element<EB>(w, b, l, e);
    for (int e = 0; e < of_a; ++e) {
      const int at = static_cast<int>(w.v[index.reg][l] >> (set + 2 * e) & 3u);
      rows[l % M][k0 + 4 * (e / 2) + at] += element<EA>(w, a, l, e);
    }
    for (int r = 0; r < results; ++r) sum[row_of(l, r)][l % M] = std::bit_cast<Sum>(w.v[d.reg + r][l]);
  }
  for (int m = 0; m < M; ++m)
    for (int k = 0; k < K; ++k)
      for (int n = 0; n < M; ++n) sum[m][n] += rows[m][k] * columns[k][n];
  for (int l = 0; l < wave_lanes; ++l)
    for (int r = 0; r < results; ++r) w.v[d.reg + r][l] = std::bit_cast<u32>(sum[row_of(l, r)][l % M]);
}

void refuse(Wave&, const Op&) { throw Error("sparse MFMA of this K is timed, but not executed"); }

template <class EA, class EB>
void add(InstructionTable& t, const std::string& type, Arch arch) {
  const std::string name = std::is_same_v<EA, I8> ? "v_smfmac_i32_" : "v_smfmac_f32_";
  const auto shape = [&](int m, int k) {
    return name + std::to_string(m) + "x" + std::to_string(m) + "x" + std::to_string(k) + "_" + type;
  };
  constexpr int k = 512 / EA::bits;
  t[shape(16, k)] = {.run = run_smfmac<16, k, EA, EB>, .cls = Class::mfma};
  t[shape(32, k / 2)] = {.run = run_smfmac<32, k / 2, EA, EB>, .cls = Class::mfma};
  if (arch != Arch::gfx950) return;
  t[shape(16, 2 * k)] = {.run = refuse, .cls = Class::mfma};
  t[shape(32, k)] = {.run = refuse, .cls = Class::mfma};
}

template <bool ocp>
void add_fp8(InstructionTable& t, Arch arch) {
  add<F8<false, ocp>, F8<false, ocp>>(t, "fp8_fp8", arch);
  add<F8<false, ocp>, F8<true, ocp>>(t, "fp8_bf8", arch);
  add<F8<true, ocp>, F8<false, ocp>>(t, "bf8_fp8", arch);
  add<F8<true, ocp>, F8<true, ocp>>(t, "bf8_bf8", arch);
}

}  // namespace

void add_sparse_mfma_instructions(InstructionTable& t, Arch arch) {
  add<Bf16, Bf16>(t, "bf16", arch);
  add<F16, F16>(t, "f16", arch);
  add<I8, I8>(t, "i8", arch);
  if (arch == Arch::gfx950)
    add_fp8<true>(t, arch);
  else
    add_fp8<false>(t, arch);
}

}  // namespace tilewave::sim
