// SPDX-License-Identifier: MIT
// One decoded instruction: the disassembler's text, resolved once so that executing it parses nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tilewave::sim {

enum class Arch { gfx942, gfx950 };

/// Anything that makes a run invalid; the text is one line.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int wave_lanes = 64;
constexpr int vector_registers = 512;  // v0..v255, then a0..a255
constexpr int first_agpr = 256;
// Scalar registers by their encoding, so that vcc, m0 and exec are ordinary numbers (CDNA3 ISA guide, "SGPR operands").
constexpr int scalar_registers = 128;
// Flat addresses whose high word is one of these mean LDS and scratch. Code asks for the values, so they may be ours.
constexpr std::uint64_t shared_aperture = 0x0001'0000'0000'0000, private_aperture = 0x0002'0000'0000'0000;
constexpr int vcc_lo = 106, m0 = 124, exec_lo = 126;

enum class Kind : std::uint8_t {
  none,
  vector,
  scalar,
  constant,
  scc,
  vccz,
  execz,
  absent /* printed as `off` or null */
};

/// The conversion of a printed constant to bits: `1.0` is 0x3f800000 to a 32-bit operand, 0x3c00 to a 16-bit one.
enum class Width : std::uint8_t { half, word, real64, int64, bits64 };

struct Operand {
  Kind kind = Kind::none;
  std::uint8_t words = 1;  // consecutive registers
  bool negate = false, absolute = false, sign_extend = false;
  bool is_real = false;  // the constant was printed with a decimal point
  std::uint16_t reg = 0;
  double real = 0;
  std::int64_t integer = 0;
  std::uint32_t lo = 0, hi = 0;  // constant bits, filled when the instruction is bound

  bool is_vector() const { return kind == Kind::vector; }
};

/// DPP: where each lane of src0 comes from. -1 marks a lane outside its row.
struct Dpp {
  std::array<std::int8_t, wave_lanes> source{};
  std::uint64_t enabled = 0;  // row_mask and bank_mask
  bool bound_zero = false;    // read 0 for an invalid source instead of leaving the lane alone
};

enum class Select : std::uint8_t { byte0, byte1, byte2, byte3, word0, word1, dword };
enum class Unused : std::uint8_t { pad, sext, preserve };

struct Sdwa {
  std::array<Select, 2> source{Select::dword, Select::dword};
  Select destination = Select::dword;
  Unused unused = Unused::pad;
};

enum class Class : std::uint8_t { mfma, valu, salu, smem, vmem, lds, branch, wait, other };
constexpr int class_count = 9;
constexpr std::array<std::string_view, class_count> class_names{"mfma", "valu",   "salu", "smem", "vmem",
                                                                "lds",  "branch", "wait", "other"};

struct Wave;
struct Op;
using Handler = void (*)(Wave&, const Op&);

/// The entry of a mnemonic in the tables.
struct Instruction {
  Handler run = nullptr;
  Handler clamped = nullptr;  // an integer instruction with clamp, if that is known
  Class cls = Class::other;
  std::uint8_t first_source = 1;  // operand number the widths below start at
  std::array<Width, 4> widths{Width::word, Width::word, Width::word, Width::word};
  bool integer_result = true;  // omod is then refused, and clamp unless `clamped` says how
  bool accepts_dpp = false, accepts_sdwa = false, accepts_op_sel = false;
  bool fills_first = false;
  std::uint32_t parameter = 0;  // family member, e.g. bytes of a load
};

constexpr int max_operands = 6;

struct Op {
  Handler run = nullptr;
  Class cls = Class::other;
  std::uint8_t operands = 0;
  std::uint8_t bytes = 4;  // encoded size
  bool clamp = false;
  std::uint8_t omod = 0;  // 1: *2, 2: *4, 3: /2
  std::uint8_t op_sel = 0, op_sel_hi = 0xff, neg_lo = 0, neg_hi = 0;
  std::uint32_t parameter = 0;
  std::int32_t offset = 0;  // instruction offset in bytes, signed
  std::int32_t offset0 = 0, offset1 = 0;
  std::int32_t target = -1;             // branch target as an index into the program
  std::array<std::uint32_t, 2> code{};  // first two encoded words
  std::uint64_t address = 0;
  bool float_result = false;
  bool fills_first = false;  // a load: arg[0] is written when memory answers
  bool saddr = false, lds = false, glc = false, offen = false, idxen = false;
  std::uint32_t bitop3 = 0;
  std::uint8_t cbsz = 0, abid = 0, blgp = 0;  // MFMA: formats of A and B, or broadcasts
  std::array<Operand, max_operands> arg{};
  std::shared_ptr<const Dpp> dpp;
  std::shared_ptr<const Sdwa> sdwa;
  bool undecodable = false;  // `run` raises the Error that `text` holds
  std::string text;          // as disassembled

  std::uint16_t simm16() const { return static_cast<std::uint16_t>(code[0] & 0xffff); }
};

using InstructionTable = std::unordered_map<std::string, Instruction>;

/// Returns every instruction that the simulator knows, by mnemonic without encoding suffix (_e32, _e64, _dpp, _sdwa).
const InstructionTable& instruction_table(Arch arch);

void add_scalar_instructions(InstructionTable& table);
void add_flow_instructions(InstructionTable& table);
void add_mode_instructions(InstructionTable& table);
void add_scalar_memory_instructions(InstructionTable& table);
void add_float_instructions(InstructionTable& table);
void add_integer_instructions(InstructionTable& table);
void add_convert_instructions(InstructionTable& table, Arch arch);
void add_micro_instructions(InstructionTable& table, Arch arch);
void add_compare_instructions(InstructionTable& table);
void add_lane_instructions(InstructionTable& table);
void add_packed_instructions(InstructionTable& table);
void add_mfma_instructions(InstructionTable& table, Arch arch);
void add_scaled_mfma_instructions(InstructionTable& table);
void add_sparse_mfma_instructions(InstructionTable& table, Arch arch);
void add_global_instructions(InstructionTable& table, Arch arch);
void add_buffer_instructions(InstructionTable& table);
void add_lds_instructions(InstructionTable& table, Arch arch);
void add_lds_atomics(InstructionTable& table);
void add_half_instructions(InstructionTable& table);
void add_dot_instructions(InstructionTable& table);

/// Decode one line of `llvm-objdump -d` into an Op; throws Error naming an instruction, operand or modifier it does
/// not know. `branch target` stays unresolved.
Op decode(std::string_view mnemonic, std::string_view operands, std::uint64_t address,
          const std::array<std::uint32_t, 4>& words, int word_count, const InstructionTable& table);

}  // namespace tilewave::sim
