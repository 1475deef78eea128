// SPDX-License-Identifier: MIT
// Hardware registers (s_getreg, s_setreg) and the modes of a wave: relative register indices, skipped vector instructions.
#include "sim/exec/scalar.hpp"

namespace tilewave::sim {
namespace {

using u32 = std::uint32_t;

/// hwreg(id, offset, size) in a 16-bit immediate.
struct Field {
  u32 id, offset, size;

  explicit Field(const Op& op)
      : id(op.simm16() & 63u), offset(op.simm16() >> 6 & 31u), size((op.simm16() >> 11) + 1u) {}
  u32 mask() const { return (size >= 32 ? ~0u : (1u << size) - 1) << offset; }
};
enum : u32 { mode_register = 1, hw_id_register = 4, lds_alloc_register = 6, xcc_id_register = 20 };

// MODE (CDNA3 ISA guide, "MODE register"): rounding 3:0, denormals 7:4, DX10_CLAMP 8, IEEE 9, FP16_OVFL 23.
constexpr u32 rounding = 0xfu, clamp_and_ieee = 0x300u, exceptions = 0x1ff000u;

u32 mode_bits(const FloatMode& m) {
  return u32{!m.flush_in32} << 4 | u32{!m.flush_out32} << 5 | u32{!m.flush_in16_64} << 6 | u32{!m.flush_out16_64} << 7 |
         0x100u | u32{m.fp16_overflow} << 23;
}

/// Bits that would change the arithmetic in a way that is not simulated are refused; bits that only trap are ignored.
void set_mode(Wave& w, const Op& op, u32 value) {
  const Field field(op);
  if (field.id != mode_register) throw Error("s_setreg of this register is not simulated");
  const u32 old = mode_bits(w.mode), made = (old & ~field.mask()) | (value << field.offset & field.mask());
  if ((made ^ old) & ~(0xf0u | clamp_and_ieee | exceptions | 1u << 23) || made & rounding)
    throw Error("s_setreg of this field is not simulated");
  w.mode = {.flush_in32 = !(made & 0x10u),
            .flush_out32 = !(made & 0x20u),
            .flush_in16_64 = !(made & 0x40u),
            .flush_out16_64 = !(made & 0x80u),
            .fp16_overflow = (made >> 23 & 1u) != 0};
}

/// HW_ID and XCC_ID are those of a chip that spreads blocks round robin over eight XCDs.
void run_getreg(Wave& w, const Op& op) {
  const Field field(op);
  u32 value;
  switch (field.id) {
    case mode_register: value = mode_bits(w.mode); break;
    case hw_id_register: value = static_cast<u32>(w.id % 4) << 4; break;
    case lds_alloc_register: value = static_cast<u32>((w.block->lds.size() + 511) / 512) << 12; break;
    case xcc_id_register: value = w.block->id[0] % 8; break;
    default: throw Error("s_getreg of this register is not simulated");
  }
  w.s[op.arg[0].reg] = (value & field.mask()) >> field.offset;
}

constexpr u32 index_bits = 0xffu, index_modes = 0xf000u;

void set_m0(Wave& w, u32 mask, u32 value) { w.s[m0] = (w.s[m0] & ~mask) | (value & mask); }

}  // namespace

Op indexed(const Wave& w, const Op& op) {
  const u32 index = w.s[m0] & index_bits, modes = w.s[m0] >> 12;
  Op moved = op;
  for (int i = 0; i < op.operands && i < 4; ++i)
    if (op.arg[i].is_vector() && modes >> (i ? i - 1 : 3) & 1u)
      moved.arg[i].reg = static_cast<std::uint16_t>(op.arg[i].reg + index);
  return moved;
}

void add_mode_instructions(InstructionTable& t) {
  t["s_setreg_b32"] = {.run = [](Wave& w, const Op& op) { set_mode(w, op, scalar_word(w, op.arg[1])); },
                       .cls = Class::salu};
  t["s_setreg_imm32_b32"] = {.run = [](Wave& w, const Op& op) { set_mode(w, op, op.code[1]); }, .cls = Class::salu};
  t["s_getreg_b32"] = {.run = run_getreg, .cls = Class::salu};
  t["s_set_gpr_idx_on"] = {.run =
                               [](Wave& w, const Op& op) {
                                 w.indexed = true;
                                 set_m0(w, index_bits, scalar_word(w, op.arg[0]));
                                 set_m0(w, index_modes, op.code[0] >> 8 << 12);
                               },
                           .cls = Class::salu,
                           .first_source = 0};
  t["s_set_gpr_idx_idx"] = {.run = [](Wave& w, const Op& op) { set_m0(w, index_bits, scalar_word(w, op.arg[0])); },
                            .cls = Class::salu,
                            .first_source = 0};
  t["s_set_gpr_idx_mode"] = {.run = [](Wave& w, const Op& op) { set_m0(w, index_modes, u32{op.simm16()} << 12); },
                             .cls = Class::salu};
  t["s_set_gpr_idx_off"] = {.run = [](Wave& w, const Op&) { w.indexed = false; }, .cls = Class::salu};
  t["s_setvskip"] = {
      .run = [](Wave& w,
                const Op& op) { w.skips_vector = scalar_word(w, op.arg[0]) >> (scalar_word(w, op.arg[1]) & 31u) & 1u; },
      .cls = Class::salu,
      .first_source = 0};
}

}  // namespace tilewave::sim
