// SPDX-License-Identifier: MIT
// Wait states: kernels whose s_nop are just long enough have no hazard, and one state less is found at its pair.
#include "sim/machine/hazards.hpp"

#include "test/catch_compat.hpp"
#include "toy.hpp"

namespace hazards_tests {
namespace {

using namespace tilewave::sim;
using namespace tilewave::sim::test;

constexpr Arch both[] = {Arch::gfx942, Arch::gfx950};

/// The program with one wait state less at an s_nop.
CodeObject shortened(const CodeObject& object, std::size_t nop) {
  CodeObject made = object;
  Op& op = made.program.ops[nop];
  if (op.simm16() > 0) {
    --op.code[0];
    return made;
  }
  made.program.ops.erase(made.program.ops.begin() + static_cast<std::ptrdiff_t>(nop));
  for (Op& other : made.program.ops)
    if (other.target > static_cast<std::int32_t>(nop)) --other.target;
  return made;
}

bool is_nop(const Op& op) { return op.text.starts_with("s_nop"); }

/// The first s_nop from an address on.
std::size_t nop_of(const Program& program, std::size_t i) {
  while (!is_nop(program.ops[i])) ++i;
  return i;
}

}  // namespace

TEST_CASE("every rule of wait states holds to the state") {
  for (const Arch arch : both) {
    const CodeObject& object = code_object("hazards", arch);
    for (const Hazard& hazard : object.hazards) FAIL_CHECK(text_of(hazard, object));
    int rules = 0;
    for (const auto& [symbol, kernel] : object.kernels) {
      const std::size_t nop = nop_of(object.program, object.program.at(kernel.entry));
      const CodeObject broken = shortened(object, nop);
      const std::vector<Hazard> found = find_hazards(broken);
      INFO(symbol);
      if (symbol == "sums.kd" || symbol == "copy_through_buffer.kd") {
        CHECK(found.empty());
        continue;
      }
      REQUIRE(found.size() == 1);
      CHECK(found[0].from < nop);
      CHECK(found[0].to >= nop);
      CHECK(found[0].found == found[0].needed - 1);
      ++rules;
    }
    CHECK(rules == (arch == Arch::gfx950 ? 23 : 22));
  }
}

TEST_CASE("every wait state that clang put is needed") {
  for (const Arch arch : both) {
    const CodeObject& object = code_object("matrix", arch);
    CHECK(object.hazards.empty());
    const std::vector<Op>& ops = object.program.ops;
    int nops = 0, needed = 0;
    bool padding = false;  // between kernels
    for (std::size_t i = 0; i + 1 < ops.size(); ++i) {
      if (!is_nop(ops[i])) padding = ops[i].text.starts_with("s_endpgm");
      // Before a load it may be for another purpose: to end a clause that overwrites its own addresses.
      if (!is_nop(ops[i]) || padding || ops[i + 1].text.find("_load_") != std::string::npos) continue;
      ++nops;
      needed += !find_hazards(shortened(object, i)).empty();
    }
    INFO(needed << " of " << nops);
    CHECK(nops > 30);
    CHECK(needed == nops);
  }
}

TEST_CASE("a launch with too few wait states is refused") {
  for (const Arch arch : both) {
    std::vector<int> out(64);
    const auto error_of = [&](const std::string& kernel, bool checks) -> std::string {
      try {
        Toy(arch, "faults").in(std::vector<int>(64, 1)).out(out).run(kernel, {1, 1, 1}, {64, 1, 1}, {.checks = checks});
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    const std::string error = error_of("lane_read_at_once", true);
    CHECK(error.find("v_readfirstlane_b32") != std::string::npos);
    CHECK(error.find("0 of 1 wait states after") != std::string::npos);
    CHECK(error_of("lane_read_later", true) == "");
    CHECK(error_of("lane_read_at_once", false) == "");
  }
}

}  // namespace hazards_tests
