// SPDX-License-Identifier: MIT
// The numbers are those that LLVM 22 keeps for gfx940 and gfx950 (GCNHazardRecognizer); an instruction is one wait state,
// s_nop n is n + 1.
#include "sim/machine/hazards.hpp"

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include "sim/clock/issue_cost.hpp"
#include "sim/machine/memory.hpp"

namespace tilewave::sim {
namespace {

using std::string_view;

struct Range {
  bool scalar = false;
  int first = 0, words = 0;

  bool overlaps(const Range& r) const {
    return scalar == r.scalar && first < r.first + r.words && r.first < first + words;
  }
  bool operator==(const Range&) const = default;
};
using Ranges = std::vector<Range>;

constexpr Range vcc{true, vcc_lo, 2}, exec{true, exec_lo, 2}, m_zero{true, m0, 1};

bool overlap(const Ranges& a, const Ranges& b) {
  return std::any_of(a.begin(), a.end(), [&](const Range& x) {
    return std::any_of(b.begin(), b.end(), [&](const Range& y) { return x.overlaps(y); });
  });
}
bool overlap(const Ranges& a, const Range& b) { return overlap(a, Ranges{b}); }
Ranges only(const Ranges& all, bool scalar) {
  Ranges some;
  for (const Range& r : all)
    if (r.scalar == scalar) some.push_back(r);
  return some;
}

/// The properties of an instruction that these rules depend on.
struct Facts {
  string_view name;
  bool matrix = false, valu = false, memory = false, transcendental = false, dot = false, lane = false;
  bool xdl = false, f64 = false;  // of a matrix instruction; neither: f32
  int passes = 0, states = 1;
  Ranges written, read, sum;  // `sum` is C of a matrix instruction, which `read` leaves out
  Ranges stored;              // data of a store that reads them late
};

bool has_any(string_view name, std::initializer_list<string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](string_view p) { return name.find(p) != string_view::npos; });
}

Ranges ranges_of(const Op& op, int i) {
  const Operand& a = op.arg[static_cast<std::size_t>(i)];
  if (i >= op.operands || (a.kind != Kind::vector && a.kind != Kind::scalar)) return {};
  return {{a.kind == Kind::scalar, a.reg, a.words}};
}

void add(Ranges& to, const Ranges& from) { to.insert(to.end(), from.begin(), from.end()); }

Facts facts_of(const Op& op, const Pace& pace) {
  Facts f;
  f.name = string_view(op.text).substr(0, op.text.find(' '));
  f.matrix = op.cls == Class::mfma;
  f.valu = op.cls == Class::valu;
  f.memory = op.cls == Class::vmem || op.cls == Class::lds;
  if (f.name == "s_nop") f.states = (op.simm16() & 15) + 1;
  f.transcendental = f.valu && has_any(f.name, {"v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_"});
  f.dot = f.valu && f.name.starts_with("v_dot");
  f.lane = f.valu && has_any(f.name, {"v_readlane", "v_readfirstlane", "v_writelane"});
  const bool carries = f.valu && has_any(f.name, {"_co_", "v_div_scale", "v_mad_u64_u32", "v_mad_i64_i32"});
  const bool swaps = f.valu && has_any(f.name, {"v_swap", "_swap_"});
  const bool sums = f.valu && has_any(f.name, {"fmac", "v_mac", "v_dot2c", "v_dot4c", "v_dot8c"});
  const bool writes_first =
      f.matrix || f.valu || op.cls == Class::salu || op.cls == Class::smem || (f.memory && (op.fills_first || op.glc));
  for (int i = 0; i < op.operands; ++i) {
    const Ranges here = ranges_of(op, i);
    const bool written = (i == 0 && writes_first) || (i == 1 && (swaps || (carries && !op.arg[1].is_vector())));
    if (written) add(f.written, here);
    if (f.matrix && i == 3) {
      f.sum = here;
    } else if (!written || swaps || (i == 0 && sums)) {
      add(f.read, here);
    }
  }
  if (f.name.starts_with("v_cmpx")) f.written.push_back(exec);
  if (f.name.starts_with("v_div_fmas")) f.read.push_back(vcc);
  if (f.matrix) {
    f.passes = pace.matrix / 4;
    f.f64 = f.name.ends_with("_f64");
    f.xdl = !f.f64 && !f.name.ends_with("_f32");
    if (f.name.starts_with("v_smfmac")) f.sum = ranges_of(op, 0);
  }
  if (op.cls == Class::vmem && has_any(f.name, {"_store_dwordx3", "_store_dwordx4"})) {
    const bool buffer = f.name.starts_with("buffer_");
    if (!buffer || op.arg[3].kind != Kind::scalar) f.stored = ranges_of(op, buffer ? 0 : 1);
  }
  return f;
}

struct Need {
  int states = 0;
  string_view why;
  void at_least(int n, string_view reason) {
    if (n > states) states = n, why = reason;
  }
};

/// a is a matrix instruction. Those of four passes and more take one state more on gfx950.
void after_matrix(const Facts& a, const Facts& b, Arch arch, Need& need) {
  const bool gfx950 = arch == Arch::gfx950;
  const int late = gfx950 && a.passes != 2 ? 1 : 0;
  const bool small = a.passes == 4;  // of f64
  if (b.matrix) {
    if (overlap(a.written, b.sum)) {
      const bool same = a.written == b.sum;
      const int states = same              ? a.f64 && b.f64 && small && b.passes == 4 ? 4
                                             : a.passes == 2                          ? 2
                                                                                      : 0
                         : a.f64           ? b.xdl    ? 0
                                             : small  ? 4
                                             : gfx950 ? 17
                                                      : 9
                         : b.xdl && !a.xdl ? 0
                                           : a.passes + (a.xdl ? 1 + late : 0);
      need.at_least(states, "a matrix product sums onto another's result");
    }
    if (overlap(a.written, b.read))
      need.at_least(a.f64 ? small    ? 6
                            : gfx950 ? 19
                                     : 11
                          : a.passes + (a.xdl ? 3 + late : 2),
                    "a matrix product reads another's result");
    return;
  }
  if (!b.valu && !b.memory) return;
  const int f64_read = b.memory ? small ? 9 : 18 : small ? 6 : gfx950 ? 19 : 11;
  if (overlap(a.written, b.read))
    need.at_least(a.f64 ? f64_read : a.passes + (a.xdl ? 3 + late : 2), "reads the result of a matrix product");
  if (overlap(a.written, b.written))
    need.at_least(a.f64 ? small    ? 6
                          : gfx950 ? 19
                                   : 11
                        : a.passes + (a.xdl ? 3 + late : 2),
                  "overwrites the result of a matrix product");
  if (a.xdl && overlap(a.sum, b.written))
    need.at_least(a.passes == 2 ? 1 : a.passes - 1, "overwrites what a matrix product still sums onto");
  if (a.f64 && has_any(b.name, {"v_fma_f64", "v_fmac_f64"})) need.at_least(2, "an f64 fma after an f64 matrix product");
}

void after_valu(const Facts& a, const Facts& b, const Op& op, const Op& first, Need& need) {
  const Ranges vectors = only(a.written, false), scalars = only(a.written, true);
  const bool writes_exec = overlap(a.written, exec);
  const Ranges everything = [&] {
    Ranges all = b.read;
    add(all, b.sum);
    return all;
  }();
  if (b.matrix) {
    if (!a.dot && overlap(vectors, everything)) need.at_least(2, "a matrix product reads a VALU result");
    if (writes_exec) need.at_least(4, "a matrix product after the VALU has written EXEC");
  }
  if (b.valu) {
    const bool reads = overlap(vectors, b.read);
    if (a.transcendental && !b.transcendental && reads) need.at_least(1, "reads a transcendental's result");
    if (reads && ((first.sdwa && first.sdwa->destination != Select::dword) || first.op_sel >> 3 & 1))
      need.at_least(1, "reads a result that was written in part");
    if (overlap(scalars, b.read)) need.at_least(2, "the VALU reads an SGPR that it has written");
    if (b.lane && overlap(vectors, b.read)) need.at_least(1, "a lane is read from a VALU result");
    if (b.lane && writes_exec) need.at_least(4, "a lane is read or written after the VALU has written EXEC");
    if (has_any(b.name, {"v_readlane", "v_writelane"}) && overlap(scalars, ranges_of(op, 2)))
      need.at_least(4, "the VALU has written the SGPR that selects a lane");
    if (b.name.starts_with("v_div_fmas") && overlap(scalars, vcc))
      need.at_least(4, "v_div_fmas after the VALU wrote VCC");
    if (op.dpp && overlap(vectors, b.read)) need.at_least(2, "DPP reads a VALU result");
    if (op.dpp && writes_exec) need.at_least(5, "DPP after the VALU has written EXEC");
    if (b.name.starts_with("v_permlane") && overlap(vectors, b.read))
      need.at_least(2, "v_permlane reads a VALU result");
    if (a.dot && (reads || overlap(vectors, b.written)) && a.name != b.name)
      need.at_least(3, "uses the result of a dot product");
  }
  if (b.memory && !b.name.starts_with("ds_") && overlap(scalars, b.read))
    need.at_least(5, "vector memory reads an SGPR that the VALU has written");
}

Need need_between(const Facts& a, const Facts& b, const Op& first, const Op& op, Arch arch) {
  Need need;
  if (a.matrix) after_matrix(a, b, arch, need);
  if (a.valu) after_valu(a, b, op, first, need);
  if (b.valu && !a.stored.empty() && overlap(a.stored, b.written))
    need.at_least(2, "overwrites the data of a store that may not have read them");
  // ISA guides, "Manually inserted wait states": after SALU writes of M0 "scratch or global with LDS = 1", not buffer loads,
  // which AMD's own hand-written kernels issue at once. (LLVM keeps one state for those as well, and so does arch/gfx9.)
  if (first.cls == Class::salu && overlap(a.written, m_zero) && b.name.find("_load_lds_") != string_view::npos)
    need.at_least(1, "a global copy to LDS after M0 was written");
  return need;
}

/// No rule reaches farther than this.
int reach_of(const Facts& f, const Op& op) {
  if (f.matrix) return 20;
  if (f.valu) return 5;
  if (!f.stored.empty()) return 2;
  return op.cls == Class::salu && overlap(f.written, m_zero) ? 1 : 0;
}

}  // namespace

std::vector<Hazard> find_hazards(const CodeObject& object) {
  const std::vector<Op>& ops = object.program.ops;
  const std::vector<Pace> pace = paces(object);
  std::vector<Facts> facts;
  facts.reserve(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) facts.push_back(facts_of(ops[i], pace[i]));
  std::vector<Hazard> found;
  std::vector<std::pair<std::size_t, int>> paths;
  for (std::size_t a = 0; a < ops.size(); ++a) {
    const int reach = reach_of(facts[a], ops[a]);
    if (reach) paths.emplace_back(a + 1, 0);
    while (!paths.empty()) {
      auto [i, states] = paths.back();
      paths.pop_back();
      while (i < ops.size() && states < reach) {
        const Need need = need_between(facts[a], facts[i], ops[a], ops[i], object.arch);
        if (need.states > states) found.push_back({a, i, need.states, states, need.why});
        states += facts[i].states;
        if (facts[i].name == "s_endpgm" || facts[i].name == "s_setpc_b64" || facts[i].name == "s_swappc_b64") break;
        if (ops[i].target >= 0 && states < reach) paths.emplace_back(static_cast<std::size_t>(ops[i].target), states);
        if (facts[i].name == "s_branch") break;
        ++i;
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const Hazard& x, const Hazard& y) {
    return std::tie(x.to, x.from, x.found) < std::tie(y.to, y.from, y.found);
  });
  const auto same = [](const Hazard& x, const Hazard& y) { return x.to == y.to && x.from == y.from; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

std::string text_of(const Hazard& h, const CodeObject& object) {
  const Op &from = object.program.ops[h.from], &to = object.program.ops[h.to];
  return hex(to.address) + ": " + to.text + ": " + std::string(h.why) + " with " + std::to_string(h.found) + " of " +
         std::to_string(h.needed) + " wait states after " + hex(from.address) + ": " + from.text;
}

}  // namespace tilewave::sim
