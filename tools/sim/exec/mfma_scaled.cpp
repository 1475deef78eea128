// SPDX-License-Identifier: MIT
// gfx950's MFMA of 8-, 6- and 4-bit floats, with or without block scales (CDNA4 ISA guide, "MFMA with block exponent
// scaling"). The formats of A and B are chosen apart, by cbsz and blgp; an operand is 8, 6 or 4 registers.
//   A, 8 bits: lane holds row l % M and k = 64 M / 16 ... in two runs of 16: k = (K / 2) (e / 16) + 16 (l / M) + e % 16
//   A, 6 and 4 bits: one run of 32: k = 32 (l / M) + e            B the same, with column l % M
//   scale: byte op_sel + 2 op_sel_hi of lane l's register is the E8M0 exponent of row l % M, k = 32 (l / M) ... + 31
// C and D as in exec_mfma.cpp. Of each block of 32 the sum is exact here; blocks are added in order, rounded to f32.
#include <cmath>

#include "sim/machine/lanes.hpp"
#include "sim/numbers/microfloat.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr MicroFormat formats[] = {fp8_format(Arch::gfx950), bf8_format(Arch::gfx950), fp6_format, bf6_format,
                                   fp4_format};
constexpr int lane_elements = 32, run = 16;  // elements of one lane; of 8-bit ones this many lie together in k

template <int M, int K>
void read_operand(const Wave& w, const Operand& a, u32 number, double (&out)[K][M]) {
  if (number >= std::size(formats)) throw Error("MFMA of an unknown format");
  const MicroFormat format = formats[number];
  const int bits = format.bits();
  if (!a.is_vector() || a.words * 32 != lane_elements * bits) throw Error("MFMA operands of unexpected size");
  const auto& values = micro_values(format);
  for (int l = 0; l < wave_lanes; ++l)
    for (int e = 0; e < lane_elements; ++e) {
      const int word = bits * e / 32, shift = bits * e % 32;
      u64 pair = w.v[a.reg + word][l];
      if (shift + bits > 32) pair |= u64{w.v[a.reg + word + 1][l]} << 32;
      const int k = bits == 8 ? K / 2 * (e / run) + run * (l / M) + e % run : lane_elements * (l / M) + e;
      out[k][l % M] = values[pair >> shift & ((1u << bits) - 1)];
    }
}

/// There is one factor per block of 32 in k and row. The exponent 0xff gives NaN.
template <int M, int K>
void read_scales(const Wave& w, const Op& op, int operand, double (&out)[K / 32][M]) {
  const int source = operand - 4;
  const int byte = (op.op_sel >> source & 1) + 2 * (op.op_sel_hi >> source & 1);
  Lanes<u32> words;
  read_words(w, op.arg[operand], 0, nullptr, words);
  for (int l = 0; l < wave_lanes; ++l) {
    const u32 exponent = words[l] >> 8 * byte & 0xff;
    out[l / M][l % M] = exponent == 0xff ? NAN : std::ldexp(1.0, static_cast<int>(exponent) - 127);
  }
}

template <int M>
constexpr int row_of(int lane, int r) {
  return M == 16 ? 4 * (lane / 16) + r : 8 * (r / 4) + 4 * (lane / 32) + r % 4;
}

template <int M, int K, bool scaled>
void run_f8f6f4(Wave& w, const Op& op) {  // D, A, B, C, scale of A, scale of B
  constexpr int results = M * M / wave_lanes;
  const Operand &d = op.arg[0], &c = op.arg[3];
  if (d.words != results || (c.is_vector() && c.words != results)) throw Error("MFMA operands of unexpected size");
  static thread_local double a[K][M], b[K][M], scale_a[K / 32][M], scale_b[K / 32][M];
  read_operand<M, K>(w, op.arg[1], op.cbsz, a);
  read_operand<M, K>(w, op.arg[2], op.blgp, b);
  if (scaled) {
    read_scales<M, K>(w, op, 4, scale_a);
    read_scales<M, K>(w, op, 5, scale_b);
  }
  static thread_local float sum[M][M];
  for (int l = 0; l < wave_lanes; ++l)
    for (int r = 0; r < results; ++r)
      sum[row_of<M>(l, r)][l % M] = std::bit_cast<float>(c.is_vector() ? w.v[c.reg + r][l] : scalar_word(w, c));
  for (int block = 0; block < K / 32; ++block)
    for (int m = 0; m < M; ++m) {
      double part[M]{};
      for (int k = 32 * block; k < 32 * block + 32; ++k)
        for (int n = 0; n < M; ++n) part[n] += a[k][m] * b[k][n];
      for (int n = 0; n < M; ++n)
        sum[m][n] =
            static_cast<float>(sum[m][n] + (scaled ? part[n] * scale_a[block][m] * scale_b[block][n] : part[n]));
    }
  for (int l = 0; l < wave_lanes; ++l)
    for (int r = 0; r < results; ++r) w.v[d.reg + r][l] = std::bit_cast<u32>(sum[row_of<M>(l, r)][l % M]);
}

}  // namespace

void add_scaled_mfma_instructions(InstructionTable& t) {
  const auto add = [&t](const char* name, Handler handler) {
    t[name] = {.run = handler, .cls = Class::mfma, .accepts_op_sel = true};
  };
  add("v_mfma_f32_16x16x128_f8f6f4", run_f8f6f4<16, 128, false>);
  add("v_mfma_f32_32x32x64_f8f6f4", run_f8f6f4<32, 64, false>);
  add("v_mfma_scale_f32_16x16x128_f8f6f4", run_f8f6f4<16, 128, true>);
  add("v_mfma_scale_f32_32x32x64_f8f6f4", run_f8f6f4<32, 64, true>);
}

}  // namespace tilewave::sim
