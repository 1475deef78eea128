// SPDX-License-Identifier: MIT
#include "tools/tilewave/trace/registers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "tools/tilewave/common/text.hpp"

namespace tilewave::tool {

namespace {

int round_up(int value, int to) { return (value + to - 1) / to * to; }

/// The number at `at`, and `at` behind it; -1 where there is none.
int number_at(std::string_view text, std::size_t& at) {
  int value = -1;
  for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) && value < 1000; ++at)
    value = std::max(value, 0) * 10 + (text[at] - '0');
  return value;
}

/// v7, v[4:7], a[0:15], ... of an instruction's operands.
void add_operands(std::string_view text, UsedRegisters& used) {
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    const char kind = text[i];
    const auto before = static_cast<unsigned char>(text[i - 1]);
    if ((kind != 'v' && kind != 'a') || std::isalnum(before) || before == '_') continue;
    std::size_t at = i + 1;
    const bool range = text[at] == '[';
    at += range;
    int last = number_at(text, at);
    if (range && at < text.size() && text[at] == ':') last = number_at(text, ++at);
    constexpr int most = 512;
    if (last < 0 || last >= most) continue;
    int& count = kind == 'v' ? used.vgprs : used.agprs;
    count = std::max(count, last + 1);
  }
}

struct Known {
  int vgprs = 0, agprs = 0, reserved = 0;
  bool exact = false;
  std::string from;
};

std::optional<Known> known_of(const std::string& kernel, const std::vector<ThreadTrace>& traces,
                              const std::vector<DeviceCode>& objects) {
  const std::string name = plain_kernel_name(kernel);
  for (const DeviceCode& object : objects) {
    for (const KernelNeeds& k : object.kernels) {
      if (plain_kernel_name(k.symbol) == name) return Known{k.vgprs, k.agprs, k.allocated, true, object.file};
    }
  }
  for (const ThreadTrace& trace : traces) {
    if (trace.unit != "cycles" || plain_kernel_name(trace.kernel) != name) continue;
    const UsedRegisters used = registers_of(trace);
    return Known{used.vgprs, used.agprs, used.reserved(), false, "code.json"};
  }
  return std::nullopt;
}

int sum_of(const KernelTime& k) {
  const auto accum = k.launch.find("accum_vgpr");
  const double sum = k.launch.at("vgpr") + (accum == k.launch.end() ? 0 : accum->second);
  return static_cast<int>(std::clamp(sum, 0.0, 1024.0));
}

void set(KernelTime& k, int reserved, int agprs, const std::string& from) {
  k.launch["vgpr"] = reserved - agprs, k.launch["accum_vgpr"] = agprs;
  k.registers_from = from;
}

}  // namespace

int UsedRegisters::reserved() const { return std::max(8, round_up(agprs > 0 ? round_up(vgprs, 4) + agprs : vgprs, 8)); }

UsedRegisters registers_of(const ThreadTrace& trace) {
  UsedRegisters used;
  for (const Instruction& i : trace.code) add_operands(i.text, used);
  return used;
}

std::string plain_kernel_name(std::string name) {
  name = name.substr(0, name.find(" (modelled on "));
  name = name.substr(0, name.find(" [clone"));
  if (name.ends_with(".kd")) name.resize(name.size() - 3);
  return demangled(std::string(trim(name)));
}

void correct_registers(std::vector<KernelTime>& kernels, const std::vector<ThreadTrace>& traces,
                       const std::vector<DeviceCode>& objects) {
  bool halved = false, whole = false;
  std::vector<KernelTime*> unknown;
  for (KernelTime& k : kernels) {
    // The numbers of the simulator and of ncu do not have this fault.
    if (!k.launch.contains("vgpr") || k.launch.contains("waves_per_simd") ||
        k.name.find(modelled_kernel) != std::string::npos)
      continue;
    const int sum = sum_of(k);
    const bool accum = k.launch.contains("accum_vgpr") && k.launch.at("accum_vgpr") > 0;
    whole = whole || accum;
    if (!accum && sum % 8 == 4) halved = true;
    const auto known = known_of(k.name, traces, objects);
    if (known && known->exact) {
      halved = halved || (!accum && known->reserved == 2 * sum);
      if (round_up(sum, 8) != known->reserved)
        set(k, known->reserved, known->agprs, known->from + ": the profiler says " + std::to_string(sum));
    } else if (known && known->reserved > round_up(sum, 8)) {
      halved = halved || !accum;
      set(k, std::max(known->reserved, accum ? 0 : 2 * sum), known->agprs,
          known->from + ": the profiler says " + std::to_string(sum));
    } else if (!known || known->reserved != round_up(sum, 8)) {
      if (!accum) unknown.push_back(&k);
    }
  }
  for (KernelTime* k : unknown) {
    if (halved && !whole)
      set(*k, 2 * sum_of(*k), 0, "twice what this profiler says: it writes half of them on gfx950");
    else
      k->registers_halved = !whole;
  }
}

}  // namespace tilewave::tool
