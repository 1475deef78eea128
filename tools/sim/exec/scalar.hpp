// SPDX-License-Identifier: MIT
// salu(f): a scalar instruction from a function. f may take `bool& scc` first; otherwise SCC keeps its value.
#pragma once

#include <bit>

#include "sim/machine/lanes.hpp"

namespace tilewave::sim {

inline void write_scalar(Wave& w, const Operand& a, std::uint32_t value) { w.s[a.reg] = value; }
inline void write_scalar(Wave& w, const Operand& a, std::uint64_t value) { w.set_pair(a.reg, value); }

template <class T>
T read_scalar(const Wave& w, const Operand& a) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<T>(scalar_pair(w, a));
  else
    return std::bit_cast<T>(scalar_word(w, a));
}

enum class Scc { kept, nonzero };

template <class F, Scc rule, bool takes_scc, class R, class... A>
struct Salu {
  static constexpr int first_source = std::is_void_v<R> ? 0 : 1;

  template <std::size_t... i>
  static void call(Wave& w, const Op& op, std::index_sequence<i...>) {
    const auto apply = [&]() -> R {
      if constexpr (takes_scc)
        return F{}(w.scc, read_scalar<A>(w, op.arg[i + first_source])...);
      else
        return F{}(read_scalar<A>(w, op.arg[i + first_source])...);
    };
    if constexpr (std::is_void_v<R>) {
      apply();
    } else {
      const R result = apply();
      if constexpr (sizeof(R) == 8)
        write_scalar(w, op.arg[0], std::bit_cast<std::uint64_t>(result));
      else
        write_scalar(w, op.arg[0], std::bit_cast<std::uint32_t>(result));
      if constexpr (rule == Scc::nonzero) w.scc = result != 0;
    }
  }
  static void run(Wave& w, const Op& op) { call(w, op, std::make_index_sequence<sizeof...(A)>{}); }
  static Instruction instruction() {
    Instruction made{.run = &run, .cls = Class::salu, .first_source = first_source};
    int n = 0;
    ((made.widths[n++] = width_of<A>()), ...);
    return made;
  }
};

template <class F, Scc rule, class R, class... A>
Instruction salu_of(R (*)(A...)) {
  return Salu<F, rule, false, R, A...>::instruction();
}
template <class F, Scc rule, class R, class... A>
Instruction salu_of(R (*)(bool&, A...)) {
  return Salu<F, rule, true, R, A...>::instruction();
}
template <Scc rule = Scc::kept, class F>
Instruction salu(F f) {
  return salu_of<F, rule>(+f);
}
/// Works like salu, and sets SCC to (result != 0).
template <class F>
Instruction salu_nz(F f) {
  return salu<Scc::nonzero>(f);
}

}  // namespace tilewave::sim
