// SPDX-License-Identifier: MIT
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "sim/machine/instruction.hpp"
#include "sim/machine/lanes.hpp"

namespace tilewave::sim {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

/// Split at a separator that is outside brackets and parentheses.
std::vector<std::string_view> split(std::string_view s, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= s.size(); ++i) {
    if (i < s.size()) {
      if (s[i] == '[' || s[i] == '(') ++depth;
      if (s[i] == ']' || s[i] == ')') --depth;
      if (s[i] != separator || depth > 0) continue;
    }
    if (const auto part = trim(s.substr(start, i - start)); !part.empty()) parts.push_back(part);
    start = i + 1;
  }
  return parts;
}

std::optional<std::int64_t> integer(std::string_view s) {
  bool negative = false;
  if (s.starts_with('-')) negative = true, s.remove_prefix(1);
  int base = 10;
  if (s.starts_with("0x")) base = 16, s.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, base);
  if (s.empty() || error != std::errc{} || end != s.data() + s.size()) return std::nullopt;
  return negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
}

struct NamedRegister {
  std::string_view name;
  Kind kind;
  int reg, words;
  std::uint64_t value = 0;  // of a constant
};
constexpr NamedRegister named_registers[] = {
    {"vcc", Kind::scalar, vcc_lo, 2},
    {"vcc_lo", Kind::scalar, vcc_lo, 1},
    {"vcc_hi", Kind::scalar, vcc_lo + 1, 1},
    {"exec", Kind::scalar, exec_lo, 2},
    {"exec_lo", Kind::scalar, exec_lo, 1},
    {"exec_hi", Kind::scalar, exec_lo + 1, 1},
    {"m0", Kind::scalar, m0, 1},
    {"flat_scratch", Kind::scalar, 102, 2},
    {"flat_scratch_lo", Kind::scalar, 102, 1},
    {"flat_scratch_hi", Kind::scalar, 103, 1},
    {"xnack_mask", Kind::scalar, 104, 2},
    {"off", Kind::absent, 0, 0},
    {"src_scc", Kind::scc, 0, 1},
    {"scc", Kind::scc, 0, 1},
    {"src_vccz", Kind::vccz, 0, 1},
    {"vccz", Kind::vccz, 0, 1},
    {"src_execz", Kind::execz, 0, 1},
    {"execz", Kind::execz, 0, 1},
    {"null", Kind::absent, 0, 0},
    {"src_shared_base", Kind::constant, 0, 2, shared_aperture},
    {"src_private_base", Kind::constant, 0, 2, private_aperture},
};

/// v7, s[4:7], a[0:3], vcc, -3, 0x3f, 1.0, off ... ; nothing when the word is not an operand.
std::optional<Operand> parse_operand(std::string_view s) {
  Operand out;
  if (s.starts_with("sext(") && s.ends_with(')')) {
    out.sign_extend = true;
    s = s.substr(5, s.size() - 6);
  }
  if (s.starts_with('-') && s.size() > 1 && !(s[1] >= '0' && s[1] <= '9')) out.negate = true, s.remove_prefix(1);
  if (s.starts_with("lit(") && s.ends_with(')')) s = s.substr(4, s.size() - 5);  // a literal that could be inline
  if (s.starts_with("neg(") && s.ends_with(')')) out.negate = true, s = s.substr(4, s.size() - 5);
  if (s.starts_with('|') && s.ends_with('|') && s.size() > 2) out.absolute = true, s = s.substr(1, s.size() - 2);
  for (const NamedRegister& named : named_registers)
    if (s == named.name) {
      out.kind = named.kind;
      out.reg = static_cast<std::uint16_t>(named.reg);
      out.words = static_cast<std::uint8_t>(named.words);
      out.integer = static_cast<std::int64_t>(named.value);
      return out;
    }
  if (s.starts_with("hwreg(") || s.starts_with("gpr_idx(")) {
    out.kind = Kind::absent;  // its number is in the encoding
    return out;
  }
  if (s.size() >= 2 && (s[0] == 'v' || s[0] == 's' || s[0] == 'a')) {
    std::string_view digits = s.substr(1);
    std::int64_t first, last;
    if (digits.starts_with('[') && digits.ends_with(']')) {
      digits = digits.substr(1, digits.size() - 2);
      const auto colon = digits.find(':');
      const auto a = integer(digits.substr(0, colon));
      const auto b = colon == std::string_view::npos ? a : integer(digits.substr(colon + 1));
      if (!a || !b) return std::nullopt;
      first = *a, last = *b;
    } else {
      const auto a = integer(digits);
      if (!a) return std::nullopt;
      first = last = *a;
    }
    out.kind = s[0] == 's' ? Kind::scalar : Kind::vector;
    out.reg = static_cast<std::uint16_t>(first + (s[0] == 'a' ? first_agpr : 0));
    out.words = static_cast<std::uint8_t>(last - first + 1);
    return out;
  }
  if (s.empty() || !(s[0] == '-' || (s[0] >= '0' && s[0] <= '9'))) return std::nullopt;
  out.kind = Kind::constant;
  if (const auto value = integer(s)) {
    out.integer = *value;
    return out;
  }
  out.is_real = true;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), out.real);
  if (error != std::errc{} || end != s.data() + s.size()) return std::nullopt;
  return out;
}

void bind_constant(Operand& a, Width width) {
  constexpr double inverse_two_pi = 0.15915494309189533577;
  if (a.is_real) {
    double value = a.real;
    if (std::fabs(std::fabs(value) - inverse_two_pi) < 1e-6) value = std::copysign(inverse_two_pi, value);
    switch (width) {
      case Width::half: a.lo = Half(static_cast<float>(value)).bits; break;
      case Width::word: a.lo = std::bit_cast<std::uint32_t>(static_cast<float>(value)); break;
      default: {
        const auto bits = std::bit_cast<std::uint64_t>(value);
        a.lo = static_cast<std::uint32_t>(bits), a.hi = static_cast<std::uint32_t>(bits >> 32);
      }
    }
    return;
  }
  const auto bits = static_cast<std::uint64_t>(a.integer);
  const bool literal = a.integer > 64 || a.integer < -16;
  a.lo = static_cast<std::uint32_t>(bits);
  a.hi = static_cast<std::uint32_t>(bits >> 32);
  if (width == Width::real64 && literal) a.hi = a.lo, a.lo = 0;  // a literal is the high half of a double
  if (width == Width::int64 && literal) a.hi = a.lo >> 31 ? 0xffffffffu : 0u;
}

/// DPP control word: the second dword of the encoding (CDNA3 ISA guide, "DPP").
std::shared_ptr<const Dpp> decode_dpp(std::uint32_t word) {
  auto dpp = std::make_shared<Dpp>();
  const std::uint32_t control = word >> 8 & 0x1ffu, row_mask = word >> 28, bank_mask = word >> 24 & 15u;
  dpp->bound_zero = word >> 19 & 1u;
  for (int l = 0; l < wave_lanes; ++l) {
    const int row = l & ~15, position = l & 15;
    const int n = static_cast<int>(control & 15u);
    int from;
    if (control <= 0xff) {
      from = (l & ~3) | static_cast<int>(control >> 2 * (l & 3) & 3u);
    } else if (control >= 0x101 && control <= 0x10f) {
      from = position + n < 16 ? l + n : -1;  // row_shl
    } else if (control >= 0x111 && control <= 0x11f) {
      from = position - n >= 0 ? l - n : -1;  // row_shr
    } else if (control >= 0x121 && control <= 0x12f) {
      from = row | ((position - n) & 15);  // row_ror
    } else if (control == 0x130) {
      from = l < 63 ? l + 1 : -1;  // wave_shl
    } else if (control == 0x134) {
      from = (l + 1) & 63;  // wave_rol
    } else if (control == 0x138) {
      from = l > 0 ? l - 1 : -1;  // wave_shr
    } else if (control == 0x13c) {
      from = (l - 1) & 63;  // wave_ror
    } else if (control == 0x140) {
      from = row | (15 - position);  // row_mirror
    } else if (control == 0x141) {
      from = (l & ~7) | (7 - (l & 7));  // row_half_mirror
    } else if (control == 0x142) {
      from = row >= 16 ? row - 1 : -1;  // row_bcast:15
    } else if (control == 0x143) {
      from = l >= 32 ? 31 : -1;  // row_bcast:31
    } else if (control >= 0x150 && control <= 0x15f) {
      from = row | n;  // row_newbcast
    } else {
      throw Error("unknown DPP control " + hex(control));
    }
    dpp->source[l] = static_cast<std::int8_t>(from);
    if ((row_mask >> (l / 16) & 1u) && (bank_mask >> (position / 4) & 1u)) dpp->enabled |= std::uint64_t{1} << l;
  }
  return dpp;
}

Select select_of(std::string_view s) {
  constexpr std::string_view names[] = {"BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"};
  for (int i = 0; i < 7; ++i)
    if (s == names[i]) return static_cast<Select>(i);
  throw Error("unknown SDWA select " + std::string(s));
}

std::uint8_t bit_list(std::string_view s) {  // [0,1,1] -> 0b110
  std::uint8_t bits = 0;
  int i = 0;
  for (const auto part : split(s.substr(1, s.size() - 2), ',')) bits |= static_cast<std::uint8_t>((part == "1") << i++);
  return bits;
}

/// Apply one modifier; false when it is not known.
bool apply_modifier(std::string_view word, Op& op, Sdwa& sdwa) {
  const auto colon = word.find(':');
  const std::string_view key = word.substr(0, colon);
  const std::string_view value = colon == std::string_view::npos ? std::string_view{} : word.substr(colon + 1);
  const auto number = integer(value);
  if (key == "offset" && number) return op.offset = static_cast<std::int32_t>(*number), true;
  if (key == "offset") return value.starts_with("swizzle(");  // its bits are in the encoding
  if (key == "offset0" && number) return op.offset0 = static_cast<std::int32_t>(*number), true;
  if (key == "offset1" && number) return op.offset1 = static_cast<std::int32_t>(*number), true;
  if (key == "op_sel") {
    // VOP3P lists sources only; VOP3 appends the destination, whose bit in the encoding is always the fourth.
    const bool packed = op.code[0] >> 23 == 0x1a7;
    op.op_sel = packed ? bit_list(value) : static_cast<std::uint8_t>(op.code[0] >> 11 & 15u);
    return true;
  }
  if (key == "op_sel_hi") return op.op_sel_hi = bit_list(value), true;
  if (key == "neg_lo") return op.neg_lo = bit_list(value), true;
  if (key == "neg_hi") return op.neg_hi = bit_list(value), true;
  if (key == "clamp") return op.clamp = true;
  if (key == "mul") return op.omod = value == "2" ? 1 : 2, true;
  if (key == "div") return op.omod = 3, true;
  if (key == "offen") return op.offen = true;
  if (key == "idxen") return op.idxen = true;
  if (key == "lds") return op.lds = true;
  if (key == "glc" || key == "sc0") return op.glc = true;
  if (key == "bitop3" && number) return op.bitop3 = static_cast<std::uint32_t>(*number), true;
  if (key == "cbsz" && number) return op.cbsz = static_cast<std::uint8_t>(*number), true;
  if (key == "abid" && number) return op.abid = static_cast<std::uint8_t>(*number), true;
  if (key == "blgp" && number) return op.blgp = static_cast<std::uint8_t>(*number), true;
  if (key == "sc1" || key == "nt" || key == "slc") return true;  // cache policy: no effect on results
  if (key == "dst_sel") return sdwa.destination = select_of(value), true;
  if (key == "src0_sel") return sdwa.source[0] = select_of(value), true;
  if (key == "src1_sel") return sdwa.source[1] = select_of(value), true;
  if (key == "dst_unused") {
    sdwa.unused = value == "UNUSED_PAD" ? Unused::pad : value == "UNUSED_SEXT" ? Unused::sext : Unused::preserve;
    return true;
  }
  constexpr std::string_view dpp_words[] = {"quad_perm", "row_shl",      "row_shr",  "row_ror",    "wave_shl",
                                            "wave_rol",  "wave_shr",     "wave_ror", "row_mirror", "row_half_mirror",
                                            "row_bcast", "row_newbcast", "row_mask", "bank_mask",  "bound_ctrl"};
  // Here bound_ctrl and fi are bits of op_sel; they are about inactive lanes, with which these are not simulated.
  if ((key == "bound_ctrl" || key == "fi") && op.text.starts_with("v_permlane")) return true;
  return op.dpp && std::find(std::begin(dpp_words), std::end(dpp_words), key) != std::end(dpp_words);
}

}  // namespace

Op decode(std::string_view mnemonic, std::string_view operands, std::uint64_t address,
          const std::array<std::uint32_t, 4>& words, int word_count, const InstructionTable& table) {
  Op op;
  op.address = address;
  op.code = {words[0], words[1]};
  op.bytes = static_cast<std::uint8_t>(4 * word_count);
  op.text = std::string(mnemonic) + (operands.empty() ? "" : " ") + std::string(operands);
  Sdwa sdwa;
  std::string_view name = mnemonic;
  const bool has_sdwa = name.ends_with("_sdwa");
  if (name.ends_with("_dpp")) op.dpp = decode_dpp(words[1]);
  for (const std::string_view suffix : {"_e32", "_e64", "_dpp", "_sdwa"})
    if (name.ends_with(suffix)) {
      name.remove_suffix(suffix.size());
      break;
    }
  const auto entry = table.find(std::string(name));
  if (entry == table.end()) throw Error("unknown instruction " + std::string(mnemonic));
  const Instruction& known = entry->second;
  op.run = known.run;
  op.cls = known.cls;
  op.parameter = known.parameter;
  op.fills_first = known.fills_first;
  if (op.cls == Class::branch || op.cls == Class::wait || op.cls == Class::other) return op;  // all in the encoding

  const auto parts = split(operands, ',');
  for (const std::string_view part : parts) {
    bool first = true;
    for (const std::string_view word : split(part, ' ')) {
      const auto operand = first ? parse_operand(word) : std::nullopt;
      first = false;
      if (operand) {
        if (op.operands == max_operands) throw Error("too many operands");
        op.arg[op.operands++] = *operand;
      } else if (!apply_modifier(word, op, sdwa)) {
        throw Error("unknown operand or modifier '" + std::string(word) + "'");
      }
    }
  }
  if (op.lds) op.fills_first = false;  // its first operand is an address
  if (has_sdwa) op.sdwa = std::make_shared<const Sdwa>(sdwa);
  if (op.dpp && !known.accepts_dpp) throw Error("DPP form not simulated");
  if (op.sdwa && !known.accepts_sdwa) throw Error("SDWA form not simulated");
  if (op.op_sel && !known.accepts_op_sel) throw Error("op_sel not simulated for this instruction");
  if (op.clamp && known.clamped != nullptr) {
    op.run = known.clamped;
    op.clamp = false;
  }
  if ((op.clamp || op.omod) && known.integer_result) throw Error("clamp or omod not simulated for this instruction");
  for (int i = 0; i < op.operands; ++i)
    if (op.arg[i].kind == Kind::constant)
      bind_constant(op.arg[i], known.widths[std::clamp(i - known.first_source, 0, 3)]);
  return op;
}

}  // namespace tilewave::sim
